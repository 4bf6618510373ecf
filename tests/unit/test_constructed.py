"""`rope-induction`: what its construction proves, on the model's own forward pass and on the weight analyses."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuitlab.analysis.checks.rotation_invariance import RotationCheckParams
from circuitlab.analysis.composition.scores import CompositionParams
from circuitlab.analysis.composition.subspace_overlap import SubspaceOverlapParams
from circuitlab.analysis.spectra.copying_scores import CopyingScoresParams
from circuitlab.analysis.spectra.ov_spectrum import OvSpectrumParams
from circuitlab.analysis.spectra.positivity_plane import PreviousHeadSpectrumParams
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.model.files.tensors import ResidentTensors
from circuitlab.model.forward import forward
from circuitlab.model.lazy_weights import CanonicalParts, LazyWeights
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject
from tests.constructed import SIGMA, directory_of, gap, letter_tokenizer, rope_induction

EPSILON = 0.01


def _weights(**changes: float) -> LazyWeights:
    config, tensors = rope_induction(**changes)  # type: ignore[arg-type]
    return LazyWeights(config, None, CanonicalParts(config, ResidentTensors(tensors)), torch.float64)


def _texts(config_letters: int, n: int, count: int) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(0)
    return [(0, *(int(t) for t in rng.integers(1, config_letters + 1, n - 1))) for _ in range(count)]


def test_the_constants_are_those_that_the_proof_asks_for() -> None:
    config, _ = rope_induction()
    g = gap(config)
    assert g == pytest.approx(0.686, abs=5e-4)
    assert math.log(64 / EPSILON) / g <= 12.8
    assert math.log(64 / EPSILON) / (0.5 - EPSILON) <= 17.9


@pytest.mark.parametrize("offset", [1, 2, 3])
@pytest.mark.parametrize(("letters", "d_head"), [(26, 32), (4, 16)])
def test_every_repeat_is_completed(letters: int, d_head: int, offset: int) -> None:
    sharper = {"alpha": 17.1} if d_head == 16 else {}  # g is .515 there
    weights = _weights(letters=letters, d_head=d_head, offset=offset, **sharper)
    repeats = 0
    for tokens in _texts(letters, 64, 4):
        run = forward(weights, tokens)
        first, second = run.get("pattern", 0)[0], run.get("pattern", 1)[0]
        rows = torch.arange(offset, len(tokens))
        assert float(first[rows, rows - offset].min()) >= 1 - EPSILON
        logits = run.logits()
        for m in range(offset, len(tokens)):
            held = [n for n in range(offset, m + 1) if tokens[n - offset] == tokens[m] and tokens[m] != 0]
            if not held:
                assert float(second[m, 0]) >= 1 - EPSILON
                assert float(logits[m].max() - logits[m].min()) <= 20 * EPSILON
                continue
            repeats += 1
            assert float(second[m, held].sum()) >= 1 - EPSILON
            counts = np.bincount([tokens[n] for n in held], minlength=weights.config.d_vocab)
            assert counts[int(logits[m].argmax())] == counts.max()
    assert repeats > 100


def test_one_continuation_is_certain() -> None:
    tokens = (0, *range(1, 27), 5)
    run = forward(_weights(), tokens)
    assert float(run.log_probs()[-1].exp()[6]) > 0.9999


def test_the_literal_reading_of_the_shift_looks_forward_and_fails() -> None:
    config, tensors = rope_induction()
    from circuitlab.model.positions import rotate

    assert config.rotary is not None
    tensors["layers.0.W_Q"][0, -1] = 12.8 * rotate(tensors["layers.0.W_K"][0, -1:], config.rotary, 1)[0]
    run = forward(LazyWeights(config, None, CanonicalParts(config, ResidentTensors(tensors)), torch.float64), (0, 1, 2, 3, 4))
    pattern = run.get("pattern", 0)[0]
    assert bool((pattern.diagonal()[1:] > 0.9).all())


def test_a_weak_alpha_spreads_as_the_construction_says() -> None:
    for alpha, mass in ((1.0, 0.44), (2.0, 0.66), (5.0, 0.94), (10.0, 0.998)):
        pattern = forward(_weights(alpha=alpha), _texts(26, 64, 1)[0]).get("pattern", 0)[0]
        assert float(pattern[63, 62]) == pytest.approx(mass, abs=0.006)


def test_the_directory_opens_and_reads_letters(tmp_path: Path) -> None:
    opened = ModelStore().open(ModelRef(f"file:{directory_of(tmp_path / 'm')}")).opened
    config, tensors = rope_induction()
    assert opened.weights.config == config
    torch.testing.assert_close(opened.weights.embed().W_E.double(), tensors["embed.W_E"])
    assert letter_tokenizer().encode("AZ")[-2:] == (1, 26)


def _ask(path: Path, name: str, params: Any, tokens: tuple[int, ...] = ()) -> Any:
    subject = Subject(ModelRef(f"file:{path}"), tokens, (), Conventions(dtype="float64"))
    return Engine(ModelStore()).answer(Request.named(name, params, subject)).result


@pytest.mark.parametrize(("letters", "d_head"), [(26, 32), (4, 16), (2, 4)])
def test_the_heads_compose_through_keys_alone(tmp_path: Path, letters: int, d_head: int) -> None:
    """Layer 1 reads 26 of the 27 dimensions that layer 0 writes, at weight 1, and `tok_0` at weight σ, through its key."""
    V = letters + 1
    result = _ask(directory_of(tmp_path / "m", letters, d_head), "composition", CompositionParams())
    Q, K, value = result.scores[:, 1, 0, 0, 0]
    assert Q == 0 and value == 0
    assert pytest.approx(math.sqrt((V - 1) / (V * (V - 1 + SIGMA**2))), rel=1e-6) == K
    assert result.baseline == pytest.approx(1 / math.sqrt(3 * V + 1))
    if letters == 26:
        assert pytest.approx(0.1915, abs=5e-5) == K and result.baseline == pytest.approx(0.1104, abs=5e-5)
    z_q, z_k, _ = result.z[:, 1, 0, 0, 0]
    assert z_k > 0 > z_q


@pytest.mark.parametrize(("letters", "d_head"), [(26, 32), (2, 4)])
def test_layer_1_copies_every_letter_and_layer_0_none(tmp_path: Path, letters: int, d_head: int) -> None:
    """W_E W_OV W_U of layer 1 is γ on the diagonal of letters, 0 at BOS; of layer 0 it is 0."""
    path, V = directory_of(tmp_path / "m", letters, d_head), letters + 1
    result = _ask(path, "ov_spectrum", OvSpectrumParams((Head(0, 0), Head(1, 0))))
    assert result.copying[1] == pytest.approx(1) and result.copying_raw[1] == pytest.approx(1)
    np.testing.assert_allclose(result.eigenvalues_raw[1][:letters], 20, rtol=1e-10)
    np.testing.assert_allclose(result.eigenvalues_raw[1][letters:], 0, atol=1e-10)
    assert np.isnan(result.copying[0]) and np.abs(np.nan_to_num(result.eigenvalues_raw[0])).max() == 0
    scores = _ask(path, "copying_scores", CopyingScoresParams("all"))
    assert scores.copying[1, 0] == pytest.approx(1) and scores.diagonal_share[1, 0] == pytest.approx(letters / V)
    assert scores.diagonal_mean[1, 0] == pytest.approx(20 * letters / V * (1 - 1 / V))
    assert np.isnan(scores.copying[0, 0]) and scores.diagonal_share[0, 0] == scores.diagonal_mean[0, 0] == 0


@pytest.mark.parametrize("p", ["previous-token scores", "one"])
def test_layer_1_looks_for_what_layer_0_moved_in_the_corner_of_the_positivity_plane(tmp_path: Path, p: Any) -> None:
    """W_E W_QK^{L1H0} (W_OV^{L0H0})ᵀ W_Eᵀ is β on the diagonal of letters: positivity 1, copying 1, centred or raw."""
    result = _ask(directory_of(tmp_path / "m"), "previous_head_spectrum", PreviousHeadSpectrumParams(p))
    assert result.copying[1, 0] == pytest.approx(1)
    assert result.weighted[1, 0] == pytest.approx(1) and result.weighted_raw[1, 0] == pytest.approx(1)
    assert result.pairs[1, 0, 0, 0] == pytest.approx(1) and result.pairs_raw[1, 0, 0, 0] == pytest.approx(1)
    assert result.p[0, 0] == pytest.approx(1, abs=EPSILON)


def test_what_the_heads_write_and_read_are_the_coordinates_they_were_given(tmp_path: Path) -> None:
    path = directory_of(tmp_path / "m")
    ask = lambda left, right: _ask(path, "subspace_overlap", SubspaceOverlapParams(left, right, Head(0, 0), Head(1, 0)))
    keys = ask("writes", "reads_k")  # prev_0 … prev_26 against prev_1 … prev_26 and tok_0
    assert keys.mean_cos2[0, 0, 1, 0] == pytest.approx(26 / 27) and keys.max_cos[0, 0, 1, 0] == pytest.approx(1)
    np.testing.assert_allclose(keys.cosines, [1.0] * 26 + [0.0] + [math.nan] * 5, atol=1e-9)
    assert keys.left_rank.tolist() == [[27], [26]] and keys.right_rank.tolist() == [[1], [27]]  # layer 0 reads `one` alone
    for right in ("reads_q", "reads_v"):
        assert ask("writes", right).max_cos[0, 0, 1, 0] == pytest.approx(0, abs=1e-9)
    writes = ask("writes", "writes").weighted[:, :, 0]
    assert writes[0, 0] == writes[0, 1] == writes[2, 0] == 0  # nothing of `prev`, `out` in W_E; `prev` is not read by W_U
    assert writes[2, 1] == pytest.approx(math.sqrt(1 / 27))


def test_the_construction_does_not_need_its_basis(tmp_path: Path) -> None:
    result = _ask(directory_of(tmp_path / "m"), "rotation_check", RotationCheckParams(), (0, *range(1, 27), 5))
    assert result.difference.max() < 1e-10 and result.logit_range == pytest.approx(20, rel=0.01)
