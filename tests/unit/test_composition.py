"""Composition scores against materialised matrices in double precision, chance by Monte Carlo, gauge, and degenerate models."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from circuitlab.analysis.base import NullContext
from circuitlab.analysis.composition._frobenius import by_grams, by_grams_is_cheaper, recompute_small
from circuitlab.analysis.composition.scores import CompositionParams, CompositionResult
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import Cancelled, Refused, UsageError
from circuitlab.model.config import ModelConfig
from circuitlab.model.saving import random_tensors, save_directory
from circuitlab.model.subject import Conventions, ModelRef, Subject
from tests.models import CONFIGS, TINY, directory

Tensors = dict[str, torch.Tensor]


def ask(
    path: Path, kinds: Any = ("Q", "K", "V"), engine: Engine | None = None, ctx: Any = None, **conventions: Any
) -> CompositionResult:
    subject = Subject(ModelRef(f"file:{path}"), (), (), Conventions(**{"dtype": "float64", **conventions}))
    engine = engine or Engine(ModelStore())
    result = engine.answer(Request.named("composition", CompositionParams(kinds), subject), ctx).result
    assert isinstance(result, CompositionResult)
    return result


def saved(path: Path, config: ModelConfig, tensors: Tensors) -> Path:
    save_directory(path, config, tensors)
    return path


def doubles(path: Path) -> dict[str, np.ndarray]:
    return {name: value.double().numpy() for name, value in load_file(path / "model.safetensors").items()}


def head_matrices(config: ModelConfig, w: dict[str, np.ndarray], layer: int, head: int) -> tuple[np.ndarray, np.ndarray]:
    """W_QK, W_OV [d_model, d_model], gains folded, both sides centred over d_model where the model has LayerNorms."""
    kv, at = head // (config.n_heads // config.n_kv_heads), f"layers.{layer}."
    Q, K, V, out = (w[f"{at}W_{n}"][h] for n, h in zip("QKVO", (head, kv, kv, head), strict=True))
    if config.norm != "none":
        gain = w[f"{at}attn_norm.gain"][:, None]
        Q, K, V = gain * Q, gain * K, gain * V
    if config.norm == "layer":
        Q, K, V, out = Q - Q.mean(0), K - K.mean(0), V - V.mean(0), out - out.mean(1, keepdims=True)
    return Q @ K.T, V @ out


def slow_scores(config: ModelConfig, w: dict[str, np.ndarray]) -> np.ndarray:
    shape = (3, config.n_layers, config.n_heads, config.n_layers, config.n_heads)
    out = np.full(shape, np.nan)
    for l2, h2, l1, h1 in np.ndindex(shape[1:]):
        if l1 < l2:
            OV = head_matrices(config, w, l1, h1)[1]
            QK2, OV2 = head_matrices(config, w, l2, h2)
            for i, B in enumerate((QK2, QK2.T, OV2)):
                out[i, l2, h2, l1, h1] = np.linalg.norm(OV @ B) / (np.linalg.norm(OV) * np.linalg.norm(B))
    return out


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama", "odd", "parallel", "smeared-rotary"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scores_are_the_norms_of_the_products(tmp_path: Path, name: str, dtype: str) -> None:
    config = replace(CONFIGS[name], n_layers=3)
    path = directory(tmp_path / "m", config)
    result = ask(path, dtype=dtype)
    near = {"float32": {"rtol": 1e-5, "atol": 1e-6}, "float64": {"rtol": 1e-8, "atol": 1e-10}}
    np.testing.assert_allclose(result.scores, slow_scores(config, doubles(path)), **near[dtype])
    d = config.d_model - (config.norm == "layer")
    assert result.baseline == pytest.approx(math.sqrt(1 / d))
    assert result.scores.dtype == result.z.dtype == dtype


def test_kinds_come_in_the_order_asked_for_and_once(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", TINY)
    every, some = ask(path), ask(path, ("V", "Q", "V"))
    assert some.kinds == ("V", "Q")
    np.testing.assert_allclose(some.scores, every.scores[[2, 0]], rtol=1e-5)
    with pytest.raises(UsageError):
        ask(path, ())


@pytest.mark.parametrize("d", [3, 8])
def test_z_of_vectors_is_that_of_a_random_cosine(tmp_path: Path, d: int) -> None:
    """Rank one: score² is the squared cosine of two directions, Beta(1/2, (d − 1)/2) by chance: 1/d ± √(2(d−1)/(d²(d+2)))."""
    result = ask(directory(tmp_path / "m", replace(TINY, d_model=d, d_head=1)))
    pairs = result.scores[:, 1, :, 0]
    assert result.baseline == pytest.approx(d**-0.5)
    np.testing.assert_allclose(result.z[:, 1, :, 0], (pairs**2 - 1 / d) / math.sqrt(2 * (d - 1) / (d**2 * (d + 2))), atol=1e-9)


def test_baseline_and_z_are_those_of_a_random_turn(tmp_path: Path) -> None:
    """Monte Carlo: one side rotated by random orthogonal matrices, both spectra kept."""
    config = replace(TINY, n_heads=1, n_kv_heads=1)
    path = directory(tmp_path / "m", config)
    found, w = ask(path), doubles(path)
    OV, QK2 = head_matrices(config, w, 0, 0)[1], head_matrices(config, w, 1, 0)[0]
    OV, QK2 = OV / np.linalg.norm(OV), QK2 / np.linalg.norm(QK2)
    rng = np.random.default_rng(0)
    n, drawn = 20_000, []
    for _ in range(n // 500):
        turns = np.linalg.qr(rng.standard_normal((500, config.d_model, config.d_model)))[0]
        drawn.append(np.square(OV @ turns @ QK2).sum((1, 2)))
    score2 = np.concatenate(drawn)
    assert score2.mean() == pytest.approx(found.baseline**2, rel=0.01)
    z = (float(found.scores[0, 1, 0, 0, 0]) ** 2 - found.baseline**2) / score2.std()
    assert found.z[0, 1, 0, 0, 0] == pytest.approx(z, rel=0.03)


def gauged(config: ModelConfig, tensors: Tensors) -> Tensors:
    """W_Q S, W_K S⁻ᵀ, W_V S, S⁻¹ W_O of every key-value group, S as far from orthogonal as a random matrix is."""
    generator, out = torch.Generator().manual_seed(5), {k: v.double() for k, v in tensors.items()}
    for layer in range(config.n_layers):
        at = f"layers.{layer}."
        S = torch.randn(2, config.n_kv_heads, config.d_head, config.d_head, generator=generator, dtype=torch.float64)
        spread = S.repeat_interleave(config.group, 1)
        out[f"{at}W_Q"] = out[f"{at}W_Q"] @ spread[0]
        out[f"{at}W_K"] = out[f"{at}W_K"] @ torch.linalg.inv(S[0]).mT
        out[f"{at}W_V"] = out[f"{at}W_V"] @ S[1]
        out[f"{at}W_O"] = torch.linalg.inv(spread[1]) @ out[f"{at}W_O"]
    return out


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "odd"])
def test_no_number_depends_on_the_gauge(tmp_path: Path, name: str) -> None:
    config = replace(CONFIGS[name], biases=())
    tensors = {k: v.double() for k, v in random_tensors(config, 0, 0.35).items()}
    a = ask(saved(tmp_path / "a", config, tensors))
    b = ask(saved(tmp_path / "b", config, gauged(config, tensors)))
    np.testing.assert_allclose(a.scores, b.scores, rtol=1e-4)
    np.testing.assert_allclose(a.z, b.z, rtol=1e-3, atol=1e-3)


def test_a_layer_read_again_gives_the_same_scores(tmp_path: Path) -> None:
    config = replace(CONFIGS["llama"], n_layers=4)
    path = directory(tmp_path / "m", config)
    roomy, mapped = ask(path), Engine(ModelStore())
    from circuitlab.analysis.composition.scores import _Sources

    kept = []
    original = _Sources.left

    def left(self: _Sources, layers: range) -> torch.Tensor:
        kept.append(self._kept is not None)
        return original(self, layers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Sources, "left", left)
        patch.setattr("circuitlab.analysis.composition.scores.KEPT_SHARE", 10**9)
        tight = ask(path, engine=mapped)
    assert kept and not any(kept)
    np.testing.assert_allclose(roomy.scores, tight.scores, rtol=1e-5)


def test_small_tiles_give_the_same_scores_and_cancel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = directory(tmp_path / "m", replace(TINY, n_layers=3))
    whole = ask(path)
    monkeypatch.setattr("circuitlab.analysis.composition._frobenius.TILE_FLOPS", 1.0)
    ticks = []

    class Count(NullContext):
        def tick(self, done: int, total: int, text: str = "") -> None:
            ticks.append((done, total))
            assert done <= total

    tiled = ask(path, ctx=Count())
    np.testing.assert_allclose(tiled.scores, whole.scores, rtol=1e-6)
    assert len(ticks) >= 3 * TINY.n_heads

    class Stop(NullContext):
        def tick(self, done: int, total: int, text: str = "") -> None:
            if done:
                raise Cancelled

    with pytest.raises(Cancelled):
        ask(path, ctx=Stop())


MANY = replace(TINY, n_layers=4, n_heads=8, n_kv_heads=8, d_model=48, d_head=32)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("chunk", [12, 2, 1])
def test_grams_give_the_same_scores(tmp_path: Path, dtype: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wide heads: ‖A B‖² as an inner product of Grams, layers a chunk at a time."""
    calls = []

    def counted(*given: Any) -> list[torch.Tensor]:
        calls.append(len(given[1]))
        return by_grams(*given)

    monkeypatch.setattr("circuitlab.analysis.composition.scores.CHUNK", chunk)
    monkeypatch.setattr("circuitlab.analysis.composition.scores.by_grams", counted)
    monkeypatch.setattr("circuitlab.analysis.composition.scores.by_grams_is_cheaper", lambda *sizes: True)
    path = directory(tmp_path / "m", MANY)
    np.testing.assert_allclose(ask(path, dtype=dtype).scores, slow_scores(MANY, doubles(path)), rtol=1e-5)
    assert calls


def test_wide_heads_are_read_by_grams_and_small_models_by_blocks() -> None:
    gpt2_small = (132, 11 * 36, 66 * 12 * 36)
    assert by_grams_is_cheaper(*gpt2_small, 768, 64)
    assert not by_grams_is_cheaper(8, 24, 8 * 24, 512, 64)  # two layers
    assert not by_grams_is_cheaper(*gpt2_small, 768, 16)  # narrow heads


def test_pairs_that_hardly_meet_are_not_left_to_rounding() -> None:
    """A source that writes three dimensions, readers of three others, of nearly three others, and of the same."""
    generator = torch.Generator().manual_seed(0)
    A, B = torch.zeros(1, 3, 70), torch.zeros(3, 70, 3)
    A[0, :, :3] = torch.randn(3, 3, generator=generator)
    B[:2, 3:6] = torch.randn(2, 3, 3, generator=generator)
    B[1, 0, 0], B[2, :3] = 1e-4, torch.randn(3, 3, generator=generator)
    exact = (A.double() @ B.double()).square().sum((1, 2))
    found = by_grams(A, [B], [1], lambda: None)[0]
    recompute_small(A, B, found, torch.tensor([[True, True, False]]), lambda: None)
    torch.testing.assert_close(found[0], exact, rtol=1e-5, atol=0)
    assert found[0, 0] == 0


def test_rank_deficient_and_empty_heads(tmp_path: Path) -> None:
    config = replace(TINY, n_layers=3)
    tensors = random_tensors(config, 0, 0.35)
    tensors["layers.0.W_O"][1] = 0  # writes nothing
    tensors["layers.2.W_Q"][0] = 0  # looks at nothing
    tensors["layers.1.W_V"][2, :, 1:] = 0  # rank 1
    tensors["layers.0.W_O"][3], tensors["layers.2.W_V"][3] = 0, 0  # writes dimension 0, reads dimension 1
    tensors["layers.0.W_O"][3, :, 0], tensors["layers.2.W_V"][3, 1] = 1.0, 1.0
    path = saved(tmp_path / "m", config, tensors)
    found, scores = ask(path), slow_nan(config, doubles(path))
    np.testing.assert_allclose(found.scores, scores, rtol=1e-5, atol=1e-7)
    assert np.isnan(found.scores[:, 1:, :, 0, 1]).all()
    assert np.isnan(found.scores[:2, 2, 0]).all()
    assert found.scores[2, 2, 3, 0, 3] == 0 and found.z[2, 2, 3, 0, 3] < 0
    rows = found.table()
    score = rows.columns[3].values
    assert rows.n_rows == 3 * 3 * 16
    finite = score[~np.isnan(score)]
    assert (np.diff(finite) <= 0).all() and np.isnan(score[len(finite) :]).all()


def slow_nan(config: ModelConfig, w: dict[str, np.ndarray]) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return slow_scores(config, w)


def test_a_row_of_the_table_is_its_pair(tmp_path: Path) -> None:
    result = ask(directory(tmp_path / "m", TINY))
    kind, dest, src, score, above, z = (c.values[0] for c in result.table().columns)
    at = (("Q", "K", "V").index(kind), 1, int(dest[-1]), 0, int(src[-1]))
    assert dest.startswith("L1H") and src.startswith("L0H")
    assert score == result.scores[at] == np.nanmax(result.scores)
    assert z == result.z[at] and above == pytest.approx(score - result.baseline)


def test_one_layer_has_no_pairs_and_says_so(tmp_path: Path) -> None:
    result = ask(directory(tmp_path / "m", replace(TINY, n_layers=1)))
    assert np.isnan(result.scores).all() and result.table().n_rows == 0
    assert any("no pairs" in word for word in result.conventions)


def test_tiny_vocabularies_half_floats_and_refusals(tmp_path: Path) -> None:
    config = replace(TINY, d_vocab=3, d_vocab_out=3)
    tensors = {k: v.half() for k, v in random_tensors(config, 0, 0.35).items()}
    path = saved(tmp_path / "m", config, tensors)
    np.testing.assert_allclose(ask(path, dtype="float32").scores, slow_scores(config, doubles(path)), rtol=1e-5)
    with pytest.raises(Refused, match="stream"):
        ask(directory(tmp_path / "r", CONFIGS["post-residual"]))


@pytest.mark.parametrize("name", ["post-sublayer", "both-norms-capped", "tied-scaled"])
def test_other_norms_give_finite_scores_in_their_range(tmp_path: Path, name: str) -> None:
    result = ask(directory(tmp_path / "m", CONFIGS[name]))
    scores = result.scores[:, 1, :, 0]
    assert ((scores > 0) & (scores < 1)).all() and np.isfinite(result.z[:, 1, :, 0]).all()


def test_weights_that_are_not_centred_have_the_whole_baseline(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", CONFIGS["gpt2"])
    for conventions in ({"centre": False}, {"fold_norm": False}):
        result = ask(path, **conventions)
        assert result.baseline == pytest.approx(math.sqrt(1 / 24))
        assert not any("centred over d_model as" in word for word in result.conventions)
