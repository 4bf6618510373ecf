"""The table of `docs/from-transformer-lens.md`: what stands on the right, run here, is what TransformerLens said on the left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuitlab import api
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.model.config import ModelConfig
from circuitlab.model.saving import save_directory
from tests.models import CONFIGS, directory
from tests.reference.make_from_transformer_lens import DIRECTION, FILE, rows
from tests.reference.make_transformer_lens import MODELS, OTHER, TOKENS, weights


@pytest.fixture(scope="module")
def scope(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the right column has in scope."""
    folder = tmp_path_factory.mktemp("gpt2")
    save_directory(folder, ModelConfig(**MODELS["gpt2"]), {n: torch.from_numpy(v) for n, v in weights("gpt2").items()})
    model = api.open(str(folder), use=Engine(ModelStore()), dtype="float64")
    raw = api.open(str(folder), use=model.engine, dtype="float64", raw=True)
    result = {"raw": raw, "model": model, "tokens": TOKENS, "other": OTHER, "direction": DIRECTION, "np": np, "lab": api}
    return {**result, "acts": model.run(tokens=TOKENS), "whole": lambda r: (r.U * r.S) @ r.V.T}


@pytest.mark.parametrize(("left", "right"), rows(), ids=[right for _, right in rows()])
def test_a_row_of_the_page(scope: dict[str, Any], left: str, right: str) -> None:
    with np.load(FILE) as reference:
        said = dict(zip(reference["names"].tolist(), (reference[f"row{i}"] for i in range(len(reference["names"]))), strict=True))
    assert left in said, "run tests/reference/make_from_transformer_lens.py where transformer_lens is"
    ours = eval(right, dict(scope))
    assert ours.shape == said[left].shape and np.ptp(said[left]) > 1e-3
    size = max(1.0, float(np.abs(said[left])[np.abs(said[left]) < 1e4].max()))
    np.testing.assert_allclose(ours, said[left], atol=1e-5 * size, rtol=1e-5)


def test_interventions_change_what_they_are_said_to_change(scope: dict[str, Any]) -> None:
    plain = scope["acts"]["logits"]
    edited = [right for _, right in rows() if ".edit(" in right]
    assert len(edited) > 4 and len(rows()) > 20
    assert all(np.abs(eval(right, dict(scope)) - plain).max() > 1e-3 for right in edited)


@pytest.mark.parametrize("name", ["attention-only", "llama", "gpt2", "rotary-half"])
@pytest.mark.parametrize("raw", [True, False])
def test_singular_vectors_are_those_of_the_whole_matrix(tmp_path: Path, name: str, raw: bool) -> None:
    model = api.open(str(directory(tmp_path / "m", CONFIGS[name])), use=Engine(ModelStore()), raw=raw)
    layer = model.engine.store.open(model.ref).weights(model.conventions).layer(1)
    kv = model.config.kv_head(3)
    for matrix, whole in (("OV", layer.W_V[kv] @ layer.W_O[3]), ("QK", layer.W_Q[3] @ layer.W_K[kv].T)):
        result = model.compute("singular_vectors", head="L1H3", matrix=matrix).result
        W = whole.double().numpy()
        if not raw and model.config.norm == "layer":  # what reads behind a LayerNorm does not see the mean
            W = W - W.mean(axis=0)
            W = W - W.mean(axis=1, keepdims=True) if matrix == "QK" else W
        np.testing.assert_allclose((result.U * result.S) @ result.V.T, W, atol=1e-6)
        np.testing.assert_allclose(result.S, np.linalg.svd(W)[1][: len(result.S)], atol=1e-6)
        for vectors in (result.U, result.V):
            np.testing.assert_allclose(vectors.T @ vectors, np.eye(len(result.S)), atol=1e-9)
        assert (result.U[np.abs(result.U).argmax(0), range(len(result.S))] > 0).all()
