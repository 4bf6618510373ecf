"""Composition scores and spectra against those of TransformerLens on the same weights, kept in `tests/reference`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuitlab.analysis.composition.scores import CompositionParams
from circuitlab.analysis.spectra.copying_scores import CopyingScoresParams
from circuitlab.analysis.spectra.ov_spectrum import OvSpectrumParams
from circuitlab.analysis.spectra.qk_spectrum import QkSpectrumParams
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.model.config import ModelConfig
from circuitlab.model.saving import save_directory
from circuitlab.model.subject import Conventions, ModelRef, Subject
from tests.reference.make_transformer_lens import FILE, MODELS, STATES, weights

REFERENCE = np.load(FILE)
CASES = [(name, state) for name in MODELS for state in STATES]


class Asker:
    """One of the reference's models, under the conventions of one of its states."""

    def __init__(self, path: Path, name: str, state: str, dtype: Any = "float64") -> None:
        tensors = {n: torch.from_numpy(v) for n, v in weights(name).items()}
        save_directory(path / "m", ModelConfig(**MODELS[name]), tensors)
        self.engine, processed = Engine(ModelStore()), state == "processed"
        self.subject = Subject(ModelRef(f"file:{path / 'm'}"), (), (), Conventions(processed, processed, dtype))

    def __call__(self, name: str, params: Any) -> Any:
        return self.engine.answer(Request.named(name, params, self.subject)).result


@pytest.mark.parametrize(("name", "state"), CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_composition_scores(tmp_path: Path, name: str, state: str, dtype: str) -> None:
    result = Asker(tmp_path, name, state, dtype)("composition", CompositionParams())
    for i, kind in enumerate("QKV"):
        theirs = REFERENCE[f"{name} {state} {kind}"].transpose(2, 3, 0, 1)  # [src, dest] there; 0 where there is no pair
        assert (np.isnan(result.scores[i]) == (theirs == 0)).all()
        np.testing.assert_allclose(np.nan_to_num(result.scores[i]), theirs, rtol=1e-4)


def same(found: np.ndarray, theirs: np.ndarray, rtol: float = 1e-4) -> None:
    """[n, d_head] eigenvalues, one by one, to `rtol` of the largest of the head."""
    theirs = theirs.reshape(found.shape)
    for ours, values in zip(found, theirs, strict=True):
        left, scale = list(values), np.abs(values).max()
        for value in ours:
            assert abs(left.pop(int(np.argmin(np.abs(np.array(left) - value)))) - value) <= rtol * scale


@pytest.mark.parametrize(("name", "state"), CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_eigenvalues(tmp_path: Path, name: str, state: str, dtype: str) -> None:
    ask = Asker(tmp_path, name, state, dtype)
    ov, qk = ask("ov_spectrum", OvSpectrumParams(())), ask("qk_spectrum", QkSpectrumParams(()))
    same(ov.eigenvalues if state == "processed" else ov.eigenvalues_raw, REFERENCE[f"{name} {state} OV"])
    same(qk.eigenvalues_raw, REFERENCE[f"{name} {state} QK"])
    same(ask("ov_spectrum", OvSpectrumParams((), "bare")).eigenvalues, REFERENCE[f"{name} {state} bare OV"])
    same(ask("qk_spectrum", QkSpectrumParams((), "bare")).eigenvalues, REFERENCE[f"{name} {state} bare QK"])


@pytest.mark.parametrize(("name", "state"), CASES)
def test_copying_scores(tmp_path: Path, name: str, state: str) -> None:
    """The score is Σλ/Σ|λ| of the library's eigenvalues, W_U centred by the library in the one state and not in the other."""
    result = Asker(tmp_path, name, state)("copying_scores", CopyingScoresParams())
    theirs = {matrix: REFERENCE[f"{name} {state} {matrix}"] for matrix in ("OV", "QK")}
    scores = {matrix: (values.sum(-1) / np.abs(values).sum(-1)).real for matrix, values in theirs.items()}
    np.testing.assert_allclose(result.copying if state == "processed" else result.copying_raw, scores["OV"], atol=1e-4)
    np.testing.assert_allclose(result.qk_positivity_raw, scores["QK"], atol=1e-4)
    if state == "plain":
        assert np.abs(result.copying - scores["OV"]).max() > 0.01  # centring counts on these weights


def test_the_reference_is_small() -> None:
    assert FILE.stat().st_size < 2**20
