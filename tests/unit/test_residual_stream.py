"""The residual stream seen from the weights: subspaces, privileged bases, rotations, against the slow way in double precision."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuitlab.analysis.base import NullContext
from circuitlab.analysis.checks.privileged_basis import Moments, PrivilegedBasisParams, PrivilegedBasisResult, kurtosis
from circuitlab.analysis.checks.rotation_invariance import (
    RotatedWeights,
    RotationCheckParams,
    RotationCheckResult,
    random_orthogonal,
)
from circuitlab.analysis.composition.subspace_overlap import WEIGHTED, SubspaceOverlapParams, SubspaceOverlapResult
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, BadModel, Cancelled, Refused
from circuitlab.model.config import ModelConfig
from circuitlab.model.positions import sinusoid_table
from circuitlab.model.saving import random_tensors
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject
from tests.models import CONFIGS, TINY, directory
from tests.unit.test_composition import doubles, gauged, head_matrices, saved

TOKENS = (0, 5, 9, 5, 7, 5, 9, 200, 5)


def ask(path: Path, name: str, params: Any, ctx: Any = None, tokens: tuple[int, ...] = (), **conventions: Any) -> Any:
    subject = Subject(ModelRef(f"file:{path}"), tokens, (), Conventions(**{"dtype": "float64", **conventions}))
    return Engine(ModelStore()).answer(Request.named(name, params, subject), ctx).result


def overlap(path: Path, left: Any = "writes", right: Any = "reads_q", ctx: Any = None, **more: Any) -> SubspaceOverlapResult:
    pair = {name: more.pop(name) for name in ("first", "second") if name in more}
    return ask(path, "subspace_overlap", SubspaceOverlapParams(left, right, **pair), ctx, **more)


def product(config: ModelConfig, w: dict[str, np.ndarray], layer: int, head: int, which: str) -> np.ndarray:
    """[d_model, d_model] whose rows span what the head writes or reads."""
    QK, OV = head_matrices(config, w, layer, head)
    return {"writes": OV, "reads_q": QK.T, "reads_k": QK, "reads_v": OV.T}[which]


def projector(A: np.ndarray) -> np.ndarray:
    return np.linalg.pinv(A, rcond=1e-9) @ A


SIDES = [("writes", "reads_q"), ("reads_k", "reads_v"), ("writes", "writes")]


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama", "odd", "parallel"])
@pytest.mark.parametrize(("left", "right"), SIDES)
def test_overlaps_are_those_of_the_projectors(tmp_path: Path, name: str, left: str, right: str) -> None:
    config = CONFIGS[name]
    path = directory(tmp_path / "m", config)
    first, second = Head(0, 1), Head(1, 2)
    found, w = overlap(path, left, right, first=first, second=second), doubles(path)
    heads = list(np.ndindex(config.n_layers, config.n_heads))
    one = [projector(product(config, w, at[0], at[1], left)) for at in heads]
    other = [projector(product(config, w, at[0], at[1], right)) for at in heads]
    n = len(heads)
    mean = np.array([[np.trace(P @ R) for R in other] for P in one]) / config.d_head
    most = np.array([[np.linalg.norm(P @ R, 2) for R in other] for P in one])
    np.testing.assert_allclose(found.mean_cos2.reshape(n, n), mean, atol=1e-9)
    np.testing.assert_allclose(found.max_cos.reshape(n, n), most, atol=1e-9)
    d = config.d_model - (config.norm == "layer")
    assert found.baseline == pytest.approx(config.d_head / d)
    pair = one[heads.index(first)] @ other[heads.index(second)]
    np.testing.assert_allclose(found.cosines, np.linalg.svd(pair)[1][: config.d_head], atol=1e-7)
    assert (found.left_rank == config.d_head).all() and (found.right_rank == config.d_head).all()


def stream_parts(config: ModelConfig, w: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Rows in the stream of what spans everything, gains folded, centred over d_model where the norms are LayerNorms."""
    W_U = w["unembed.W_U"]
    W_U = W_U * w["unembed.norm.gain"][:, None] if config.norm != "none" else W_U
    parts = {"W_E": w["embed.W_E"], "W_U": (W_U - W_U.mean(1, keepdims=True)).T}
    if "embed.W_pos" in w:
        parts["W_pos"] = w["embed.W_pos"]
    if config.positions == "sinusoidal":
        parts["W_pos"] = sinusoid_table(config.n_ctx, config.d_model, torch.float64).numpy()
    if config.d_mlp:
        last = f"layers.{config.n_layers - 1}.mlp.W_out"
        parts["W_in of the first MLP"] = (w["layers.0.mlp_norm.gain"][:, None] * w["layers.0.mlp.W_in"]).T
        parts["W_out of the last MLP"] = w[last]
    centred = config.norm == "layer"
    return {n: X - X.mean(1, keepdims=True) if centred else X for n, X in parts.items()}


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama", "odd", "sinusoidal", "no-positions"])
@pytest.mark.parametrize("left", ["writes", "reads_q", "reads_k", "reads_v"])
def test_weighted_overlap_is_the_relative_norm_of_the_product(tmp_path: Path, name: str, left: str) -> None:
    config = CONFIGS[name]
    path = directory(tmp_path / "m", config)
    found, w = overlap(path, left), doubles(path)
    expected = np.full(found.weighted.shape, np.nan)
    for part, X in stream_parts(config, w).items():
        if part == "W_pos" and config.positions == "shortformer" and left in ("writes", "reads_v"):
            continue
        for layer, head in np.ndindex(config.n_layers, config.n_heads):
            A = product(config, w, layer, head, left)
            norms = np.linalg.norm(A) * np.linalg.norm(X)
            expected[WEIGHTED.index(part), layer, head] = np.linalg.norm(A @ X.T) / norms
    np.testing.assert_allclose(found.weighted, expected, rtol=1e-8)
    assert found.weighted_baseline == pytest.approx(1 / math.sqrt(config.d_model - (config.norm == "layer")))


def test_the_baseline_is_what_chance_gives(tmp_path: Path) -> None:
    config = replace(TINY, n_layers=3, n_heads=12)
    result = overlap(directory(tmp_path / "m", config))
    cos2 = result.mean_cos2.reshape(36, 36)
    assert cos2.mean() == pytest.approx(result.baseline, rel=0.02)
    assert np.square(result.weighted[0]).mean() == pytest.approx(result.weighted_baseline**2, rel=0.05)


def test_a_head_with_itself_and_one_that_reads_what_another_writes(tmp_path: Path) -> None:
    tensors = random_tensors(TINY, 0, 0.35)
    tensors["layers.1.W_V"][2] = tensors["layers.0.W_O"][1].T @ torch.randn(6, 6, generator=torch.Generator().manual_seed(1))
    path = saved(tmp_path / "m", TINY, tensors)
    same = overlap(path, "writes", "writes")
    np.testing.assert_allclose(np.diagonal(same.mean_cos2.reshape(8, 8)), 1, atol=1e-12)
    np.testing.assert_allclose(same.mean_cos2, same.mean_cos2.transpose(2, 3, 0, 1), rtol=1e-12)
    result = overlap(path, "writes", "reads_v", first=Head(0, 1), second=Head(1, 2), dtype="float32")
    np.testing.assert_allclose(result.cosines, 1, atol=1e-5)
    assert result.mean_cos2[0, 1, 1, 2] == pytest.approx(1, abs=1e-5)
    assert result.max_cos.max() <= 1 and result.mean_cos2.dtype == result.max_cos.dtype == np.float64


def degenerate(path: Path) -> Path:
    tensors = random_tensors(TINY, 0, 0.35)
    tensors["layers.0.W_O"][1] = 0  # writes nothing
    tensors["layers.1.W_V"][2, :, 1:] = 0  # rank 1
    tensors["layers.1.W_K"][0, :, 4:] = 0  # rank 4
    return saved(path, TINY, tensors)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_subspace_has_the_rank_of_the_product_and_no_angle_without_one(tmp_path: Path, dtype: str) -> None:
    path = degenerate(tmp_path / "m")
    found, w = overlap(path, first=Head(1, 2), second=Head(1, 0), dtype=dtype), doubles(path)
    assert found.left_rank[0, 1] == 0 and found.left_rank[1, 2] == 1 and found.right_rank[1, 0] == 4
    assert np.isnan(found.mean_cos2[0, 1]).all() and np.isnan(found.max_cos[0, 1]).all()
    assert np.isnan(found.weighted[:, 0, 1]).all() and np.isfinite(found.mean_cos2[0, 0]).all()
    P, R = (projector(product(TINY, w, 1, *at)) for at in ((2, "writes"), (0, "reads_q")))
    assert found.mean_cos2[1, 2, 1, 0] == pytest.approx(np.trace(P @ R), rel=1e-5)  # over min(1, 4) angles
    assert found.cosines[0] == pytest.approx(math.sqrt(np.trace(P @ R)), rel=1e-5) and np.isnan(found.cosines[1:]).all()


def test_heads_of_a_group_that_read_one_subspace_cost_one_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(CONFIGS["llama"], n_heads=4, n_kv_heads=2)
    tensors = random_tensors(config, 0, 0.35)
    tensors["layers.1.W_Q"][3, :, 2:] = 0  # rank 2: of the two that share the second key, it alone reads less
    path, solved = saved(tmp_path / "m", config, tensors), []
    of = torch.linalg.eigvalsh
    monkeypatch.setattr(torch.linalg, "eigvalsh", lambda matrices: (solved.append(len(matrices)), of(matrices))[1])
    result, w = overlap(path, "writes", "reads_k"), doubles(path)
    assert sum(solved) == 8 * (2 + 3) and result.right_rank.tolist() == [[config.d_head] * 4, [config.d_head] * 3 + [2]]
    np.testing.assert_array_equal(result.max_cos[:, :, 0, 0], result.max_cos[:, :, 0, 1])
    for at in np.ndindex(2, 4):
        R = projector(product(config, w, *at, "reads_k"))
        for source in np.ndindex(2, 4):
            P = projector(product(config, w, *source, "writes"))
            assert result.max_cos[*source, *at] == pytest.approx(np.linalg.norm(P @ R, 2), abs=1e-7)
            assert result.mean_cos2[*source, *at] * result.right_rank[at] == pytest.approx(np.trace(P @ R), abs=1e-7)


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "odd"])
@pytest.mark.parametrize(("left", "right"), SIDES)
def test_overlaps_do_not_depend_on_the_gauge(tmp_path: Path, name: str, left: str, right: str) -> None:
    config = replace(CONFIGS[name], biases=())
    tensors = {k: v.double() for k, v in random_tensors(config, 0, 0.35).items()}
    a = overlap(saved(tmp_path / "a", config, tensors), left, right, second=Head(1, 0))
    b = overlap(saved(tmp_path / "b", config, gauged(config, tensors)), left, right, second=Head(1, 0))
    for array, value in a.arrays().items():
        np.testing.assert_allclose(value, b.arrays()[array], rtol=1e-5, atol=1e-6, err_msg=array)


def test_subspaces_that_are_not_kept_small_steps_and_cancelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = directory(tmp_path / "m", replace(CONFIGS["llama"], n_layers=3))
    whole = overlap(path)
    monkeypatch.setattr("circuitlab.analysis.composition.subspace_overlap.KEPT_SHARE", 10**12)
    monkeypatch.setattr("circuitlab.analysis.composition.subspace_overlap.FLOPS", 1.0)
    again = overlap(path)
    for array, value in whole.arrays().items():
        np.testing.assert_allclose(value, again.arrays()[array], rtol=1e-10, atol=1e-12)

    class Stop(NullContext):
        def tick(self, done: int, total: int, text: str = "") -> None:
            assert 0 <= done <= total
            if text == "angles":
                raise Cancelled

    with pytest.raises(Cancelled):
        overlap(path, ctx=Stop())


def test_the_chosen_pair_is_shown_before_the_embeddings_are_read(tmp_path: Path) -> None:
    path, shown = directory(tmp_path / "m", replace(CONFIGS["llama"], n_layers=3)), []

    class Watch(NullContext):
        def partial(self, result: Any) -> None:
            shown.append(result)

    whole = overlap(path, first=Head(1, 2), second=Head(2, 0), ctx=Watch())
    assert shown[0].done == 1 / 3 and np.isnan(shown[0].weighted).all() and np.isfinite(whole.weighted[0]).all()
    for name in ("mean_cos2", "max_cos", "chance"):
        np.testing.assert_array_equal(getattr(shown[0], name)[1], getattr(whole, name)[1])
        assert np.isnan(getattr(shown[0], name)[[0, 2]]).all() and np.isfinite(getattr(whole, name)).all()
    np.testing.assert_array_equal(shown[0].cosines, whole.cosines)


def test_a_row_of_the_table_is_its_pair_and_small_models_have_answers(tmp_path: Path) -> None:
    result = overlap(directory(tmp_path / "m", TINY))
    left, right, mean, above, most = (c.values for c in result.table().columns)
    at = list(zip(left, right, strict=True)).index(("L0H3", "L1H2"))
    assert mean[at] == result.mean_cos2[0, 3, 1, 2] and most[at] == result.max_cos[0, 3, 1, 2]
    assert above[at] == pytest.approx(mean[at] - result.baseline)
    one = overlap(directory(tmp_path / "one", TINY, n_layers=1, n_heads=1, n_kv_heads=1, d_vocab=3, d_vocab_out=3))
    assert np.isfinite(one.mean_cos2).all()
    wide = overlap(directory(tmp_path / "wide", TINY, d_model=4))  # a head wider than the stream spans it
    np.testing.assert_allclose(wide.mean_cos2, 1, atol=1e-9)
    assert wide.baseline == 1 and np.isnan(wide.cosines[4:]).all()
    with pytest.raises(Refused, match="stream"):
        overlap(directory(tmp_path / "r", CONFIGS["post-residual"]))
    with pytest.raises(BadInput, match="no such head"):
        overlap(tmp_path / "m", first=Head(2, 0))


def rotation(path: Path, tokens: tuple[int, ...] = TOKENS, ctx: Any = None, **conventions: Any) -> RotationCheckResult:
    return ask(path, "rotation_check", RotationCheckParams(), ctx, tokens, **conventions)


def test_the_rotation_is_orthogonal_uniform_and_its_seeds() -> None:
    step = lambda: None
    Q = random_orthogonal(150, 3, step)  # more than two blocks
    torch.testing.assert_close(Q.T @ Q, torch.eye(150, dtype=torch.float64), atol=1e-13, rtol=0)
    torch.testing.assert_close(Q, random_orthogonal(150, 3, step))
    many = torch.stack([random_orthogonal(4, seed, step) for seed in range(4000)])
    # uniform: every entry has mean 0, mean square 1/d and mean fourth power 3/(d(d+2))
    assert float(many.mean(0).abs().max()) < 0.04
    torch.testing.assert_close(many.square().mean(0), torch.full((4, 4), 0.25, dtype=torch.float64), atol=0.02, rtol=0)
    torch.testing.assert_close(many.pow(4).mean(0), torch.full((4, 4), 0.125, dtype=torch.float64), atol=0.02, rtol=0)


STILL = ["attention-only", "smeared", "no-positions", "sinusoidal", "rotary-half", "rotary-partial", "odd"]


@pytest.mark.parametrize("name", STILL)
def test_without_norms_no_logit_moves(tmp_path: Path, name: str) -> None:
    config = CONFIGS[name]
    result = rotation(directory(tmp_path / "m", config), tuple(t % config.d_vocab for t in TOKENS))
    assert result.difference.max() < 1e-11 * result.logit_range and result.reasons == ("", "")


@pytest.mark.parametrize("name", ["gpt2", "llama", "parallel", "tied-scaled"])
def test_norms_see_the_basis_until_they_are_folded_and_centred(tmp_path: Path, name: str) -> None:
    config = CONFIGS[name]
    result = rotation(directory(tmp_path / "m", config))
    assert result.difference[0] > 1e-2 * result.logit_range and result.difference[1] < 1e-11 * result.logit_range
    assert ("mean" in result.reasons[0]) == (config.norm == "layer") and "gains" in result.reasons[0]
    assert result.reasons[1] == ""


@pytest.mark.parametrize("name", ["post-residual", "post-sublayer", "both-norms-capped"])
def test_what_cannot_be_folded_is_named(tmp_path: Path, name: str) -> None:
    result = rotation(directory(tmp_path / "m", CONFIGS[name]))
    assert result.difference.min() > 1e-3 and "gains" in result.reasons[1]


def test_shortformer_positions_behind_a_norm_keep_its_gain(tmp_path: Path) -> None:
    result = rotation(directory(tmp_path / "m", CONFIGS["attention-only"], norm="layer"))
    assert result.difference[1] > 1e-6 and "gains or biases of 2 norms" in result.reasons[1]
    assert "mean" not in result.reasons[1]


def test_a_layernorm_alone_moves_logits_unless_the_rotation_keeps_the_ones(tmp_path: Path) -> None:
    config = replace(CONFIGS["gpt2"], biases=())
    tensors = random_tensors(config, 0, 0.35)
    for name in tensors:
        tensors[name] = (
            torch.ones(24) if name.endswith("gain") else torch.zeros(24) if name.endswith("norm.bias") else tensors[name]
        )
    path = saved(tmp_path / "m", config, tensors)
    result = rotation(path)
    assert result.difference[0] > 1e-3 and result.reasons == ("LayerNorm subtracts the mean over d_model", "")
    from circuitlab.model.folding import under
    from circuitlab.model.forward import forward

    plain = Conventions(fold_norm=False, centre=False, dtype="float64")
    weights = under(ModelStore().open(ModelRef(f"file:{path}")).opened.weights, plain)
    ones = torch.linalg.qr(torch.cat([torch.ones(24, 1), torch.randn(24, 23)], 1).double()).Q  # first column along the ones
    inner = torch.block_diag(torch.ones(1, 1, dtype=torch.float64), random_orthogonal(23, 0, lambda: None))
    rotated = RotatedWeights(weights, ones @ inner @ ones.T, torch.arange(260), False, lambda: None)
    difference = forward(rotated, TOKENS).logits() - forward(weights, TOKENS).logits()
    assert float(difference.abs().max()) < 1e-10


def test_rotation_in_float32_in_parts_and_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = directory(tmp_path / "m", CONFIGS["gpt2"])
    whole = rotation(path)
    single = rotation(path, dtype="float32")
    assert single.difference[0] == pytest.approx(whole.difference[0], rel=1e-3)
    assert single.difference[1] < 1e-4 * single.logit_range
    monkeypatch.setattr("circuitlab.analysis.checks.rotation_invariance.FLOPS", 1.0)
    monkeypatch.setattr("circuitlab.analysis.checks.rotation_invariance.BLOCK", 7)
    parts = rotation(path)
    np.testing.assert_allclose(parts.difference, whole.difference, rtol=1e-8, atol=1e-11)
    names, difference, share, reason = (c.values for c in parts.table().columns)
    assert names[0] == "as it is" and share[0] == difference[0] / parts.logit_range and "mean" in reason[0]

    class Stop(NullContext):
        def tick(self, done: int, total: int, text: str = "") -> None:
            if text == "rotating the model":
                raise Cancelled

    with pytest.raises(Cancelled):
        rotation(path, ctx=Stop())


def basis(path: Path, tokens: tuple[int, ...] = TOKENS, **conventions: Any) -> PrivilegedBasisResult:
    return ask(path, "privileged_basis", PrivilegedBasisParams(), None, tokens, **conventions)


def slow_kurtosis(v: np.ndarray) -> float:
    centred = v - v.mean()
    return float((centred**4).mean() / (centred**2).mean() ** 2)


def written(config: ModelConfig, w: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Each matrix that writes to the stream, [rows, d_model], centred over d_model where the norms are LayerNorms."""
    out = [w["embed.W_E"] * config.embed_scale]
    out += [w["embed.W_pos"]] if config.positions == "learned" else []
    for layer in range(config.n_layers):
        at, group = f"layers.{layer}.", config.n_heads // config.n_kv_heads
        gain = w[f"{at}attn_norm.gain"][:, None] if config.norm != "none" else 1.0
        out += [gain * w[f"{at}W_V"][h // group] @ w[f"{at}W_O"][h] for h in range(config.n_heads)]
        out += [w[f"{at}mlp.W_out"]] if config.d_mlp else []
    return [X - X.mean(1, keepdims=True) for X in out] if config.norm == "layer" else out


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama", "odd", "tied-scaled"])
def test_kurtosis_is_that_of_the_streams_and_of_the_weights(tmp_path: Path, name: str) -> None:
    config = CONFIGS[name]
    path, tokens = directory(tmp_path / "m", config), tuple(t % config.d_vocab for t in TOKENS)
    found, w = basis(path, tokens), doubles(path)
    from circuitlab.model.forward import forward

    run = forward(ModelStore().open(ModelRef(f"file:{path}")).weights(Conventions(dtype="float64")), tokens)
    assert run.final is not None
    streams = [run.get("resid_pre", i) for i in range(config.n_layers)] + [run.final]
    Q = random_orthogonal(config.d_model, 0, lambda: None).numpy()
    for i, stream in enumerate(streams):
        x = stream[1:].double().numpy()  # BOS left out
        for values, over, tokenwise in (
            (x, found.kurtosis[i], found.token_kurtosis[i]),
            (x @ Q, found.control[i], found.token_control[i]),
        ):
            np.testing.assert_allclose(over, [slow_kurtosis(v) for v in values.T], rtol=1e-8)
            assert tokenwise == pytest.approx(np.mean([slow_kurtosis(v) for v in values]))
    matrices = written(config, w)
    mean = lambda turn: np.mean([[slow_kurtosis(v) for v in (X @ turn).T] for X in matrices], axis=0)
    np.testing.assert_allclose(found.weights, mean(np.eye(config.d_model)), rtol=1e-8)
    np.testing.assert_allclose(found.weights_control, mean(Q), rtol=1e-8)
    assert found.n_positions == len(tokens) - 1 and any("BOS left out" in word for word in found.conventions)


def test_kurtosis_in_tiles_is_the_same_and_a_constant_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = directory(tmp_path / "m", CONFIGS["gpt2"])
    whole = basis(path)
    monkeypatch.setattr("circuitlab.analysis.checks.privileged_basis.FLOPS", 1.0)
    tiled = basis(path)
    for array, value in whole.arrays().items():
        np.testing.assert_allclose(value, tiled.arrays()[array], rtol=1e-9, err_msg=array)
    moments = Moments(torch.tensor([0.0, 100.0]))
    v = torch.linspace(-1, 3, 50, dtype=torch.float64) ** 3
    for part in torch.stack([torch.full_like(v, 0.1), 100 + v], 1).split(7):
        moments.add(part)
    constant, cubes = moments.kurtosis()
    assert bool(constant.isnan()) and float(cubes) == pytest.approx(slow_kurtosis(v.numpy()))


def test_a_basis_that_means_something_is_told_from_one_that_does_not(tmp_path: Path) -> None:
    config = replace(TINY, d_model=64, d_head=6)
    tensors, generator = random_tensors(config, 0, 0.05), torch.Generator().manual_seed(0)
    tensors["embed.W_E"] = torch.where(torch.rand(260, 64, generator=generator) < 0.05, 5.0, 0.0)  # few large entries
    tokens = tuple(range(1, 48))
    sparse = basis(saved(tmp_path / "a", config, tensors), tokens)
    assert np.nanmedian(sparse.kurtosis[0]) > 3 * np.nanmedian(sparse.control[0])
    assert sparse.token_kurtosis[0] > 3 * sparse.token_control[0]
    assert np.nanmean(sparse.weights) > np.nanmean(sparse.weights_control) + 1
    Q = random_orthogonal(64, 9, lambda: None).float()
    for name in ("embed.W_E", "layers.0.W_O", "layers.1.W_O"):
        tensors[name] = tensors[name] @ Q
    smooth = basis(saved(tmp_path / "b", config, tensors), tokens)
    assert smooth.token_kurtosis[0] == pytest.approx(smooth.token_control[0], rel=0.2)
    assert np.nanmean(smooth.weights) == pytest.approx(np.nanmean(smooth.weights_control), rel=0.05)


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "odd"])
def test_weights_kurtosis_does_not_depend_on_the_gauge(tmp_path: Path, name: str) -> None:
    config = replace(CONFIGS[name], biases=())
    tensors = {k: v.double() for k, v in random_tensors(config, 0, 0.35).items()}
    tokens = tuple(t % config.d_vocab for t in TOKENS)
    a = basis(saved(tmp_path / "a", config, tensors), tokens)
    b = basis(saved(tmp_path / "b", config, gauged(config, tensors)), tokens)
    for array in ("weights", "weights_control", "kurtosis", "control", "token_kurtosis", "token_control"):
        np.testing.assert_allclose(getattr(a, array), getattr(b, array), rtol=2e-3, err_msg=array)


def test_what_does_not_vary_has_no_kurtosis(tmp_path: Path) -> None:
    tensors = random_tensors(TINY, 0, 0.35)
    tensors["layers.0.W_O"][1] = 0  # a head that writes nothing
    for name in ("embed.W_E", "layers.0.W_O", "layers.1.W_O"):
        tensors[name][..., 3] = 0  # a dimension that nothing writes
    path = saved(tmp_path / "m", TINY, tensors)
    result = basis(path, TOKENS)
    assert np.isnan(result.weights[3]) and np.isfinite(np.delete(result.weights, 3)).all()
    assert np.isnan(result.kurtosis[:, 3]).all() and np.isfinite(np.delete(result.kurtosis, 3, axis=1)).all()
    assert np.isfinite(result.weights_control).all()
    one = basis(path, (5,))
    assert np.isnan(one.kurtosis).all() and np.isfinite(one.token_kurtosis).all() and one.n_positions == 1
    assert bool(torch.isnan(kurtosis(torch.full((5, 2), 0.1), 0)).all())
    assert result.table().n_rows == TINY.d_model and "BOS" not in " ".join(result.conventions)


@pytest.mark.parametrize("name", ["post-residual", "both-norms-capped", "smeared-rotary"])
def test_any_model_has_a_basis(tmp_path: Path, name: str) -> None:
    result = basis(directory(tmp_path / "m", CONFIGS[name]), dtype="float32")
    assert all(np.isfinite(array).all() for array in result.arrays().values())


ALL: list[tuple[str, Any]] = [
    ("subspace_overlap", SubspaceOverlapParams()),
    ("privileged_basis", PrivilegedBasisParams()),
    ("rotation_check", RotationCheckParams()),
]


@pytest.mark.parametrize(("name", "params"), ALL)
def test_a_mapped_half_float_model_gives_the_same_numbers(tmp_path: Path, name: str, params: Any) -> None:
    config = CONFIGS["gpt2"]
    tensors = {k: v.half() for k, v in random_tensors(config, 0, 0.35).items()}
    request = Request.named(name, params, Subject(ModelRef(f"file:{saved(tmp_path / 'm', config, tensors)}"), TOKENS))
    resident, mapped = Engine(ModelStore()), Engine(ModelStore())
    mapped.store.largest_copy = 1000
    a, b = resident.answer(request), mapped.answer(request)
    assert not mapped.store.open(request.subject.model).opened.weights.resident
    assert a.fingerprint == b.fingerprint


@pytest.mark.parametrize(("name", "params"), ALL)
@pytest.mark.parametrize("bad", ["embed.W_E", "layers.1.W_V", "layers.0.mlp.W_out"])
def test_weights_that_are_not_finite_are_named(tmp_path: Path, name: str, params: Any, bad: str) -> None:
    tensors = random_tensors(CONFIGS["gpt2"], 0, 0.35)
    tensors[bad].view(-1)[5 * 24] = float("nan")
    engine = Engine(ModelStore())
    engine.store.largest_copy = 1000
    request = Request.named(name, params, Subject(ModelRef(f"file:{saved(tmp_path / 'm', CONFIGS['gpt2'], tensors)}"), TOKENS))
    with pytest.raises(BadModel, match="finite"):
        engine.answer(request)
