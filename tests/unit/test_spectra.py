"""Spectra against materialised d_vocab × d_vocab matrices in double precision, closed forms, gauge, and degenerate models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from circuitlab.analysis.attention.head_scores import HeadScoresParams
from circuitlab.analysis.base import NullContext
from circuitlab.analysis.circuits.effective_embedding import EffectiveEmbeddingParams
from circuitlab.analysis.circuits.factor_products import effective_rank
from circuitlab.analysis.composition.scores import CompositionParams
from circuitlab.analysis.spectra import pair_positivity
from circuitlab.analysis.spectra.copying_scores import CopyingScoresParams
from circuitlab.analysis.spectra.ov_spectrum import OvSpectrumParams
from circuitlab.analysis.spectra.pair_positivity import PairPositivityParams, Scores
from circuitlab.analysis.spectra.positivity_plane import PreviousHeadSpectrumParams
from circuitlab.analysis.spectra.qk_spectrum import QkSpectrumParams
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, Cancelled, Refused
from circuitlab.model.config import ModelConfig
from circuitlab.model.saving import random_tensors, save_directory
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject
from tests.constructed import directory_of
from tests.models import CONFIGS, TINY, directory
from tests.rounding import check_histogram

PLANE = PreviousHeadSpectrumParams()
SCORES: tuple[Scores, ...] = ("both", "centred", "raw")
NAMES = ["attention-only", "gpt2", "llama", "odd", "tied-scaled", "post-sublayer"]


def small(name: str) -> ModelConfig:
    """One of the test models, with a vocabulary whose square is quickly diagonalised."""
    config = CONFIGS[name]
    return replace(config, d_vocab_out=7) if name == "odd" else replace(config, d_vocab=40, d_vocab_out=40)


def ask(path: Path, name: str, p: Any, ctx: Any = None, engine: Engine | None = None, **conventions: Any) -> Any:
    subject = Subject(ModelRef(f"file:{path}"), (), (), Conventions(**{"dtype": "float64", **conventions}))
    return (engine or Engine(ModelStore())).answer(Request.named(name, p, subject), ctx).result


def saved(path: Path, config: ModelConfig, tensors: dict[str, torch.Tensor]) -> Path:
    save_directory(path, config, tensors)
    return path


class Slow:
    """Whole matrices in numpy, read and folded here."""

    def __init__(self, path: Path, config: ModelConfig) -> None:
        self.c = config
        self.t = {n: v.double().numpy() for n, v in load_file(path / "model.safetensors").items()}
        self.layer_norm = config.norm == "layer"
        gain = self.t.get("unembed.norm.gain", np.ones(config.d_model))
        self.E = self.without_mean(self.t["embed.W_E"] * config.embed_scale)
        self.U = gain[:, None] * self.t.get("unembed.W_U", self.t["embed.W_E"].T)
        self.U_centred = self.U - self.U.mean(1, keepdims=True)
        self.E_centred = self.E - self.E.mean(0)

    def without_mean(self, x: np.ndarray, axis: int = -1) -> np.ndarray:
        return x - x.mean(axis, keepdims=True) if self.layer_norm else x

    def factors(self, head: Head) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """W_Q, W_K, W_V, W_O of one head."""
        at, kv = f"layers.{head.layer}.", head.head // self.c.group
        one = np.ones(self.c.d_model)
        after = self.c.norm_placement == "post_sublayer"
        gain = one if after else self.t.get(f"{at}attn_norm.gain", one)
        Q, K, V = (gain[:, None] * self.t[f"{at}W_{n}"][head.head if n == "Q" else kv] for n in "QKV")
        Q, K = Q * self.t.get(f"{at}q_norm.gain", 1.0), K * self.t.get(f"{at}k_norm.gain", 1.0)
        out = self.t[f"{at}W_O"][head.head] * (self.t[f"{at}attn_post_norm.gain"] if after else one)
        Q, K, V = (self.without_mean(W, 0) for W in (Q, K, V))
        return Q, K, V, self.without_mean(out)

    def turn(self, distance: int) -> np.ndarray:
        """R with q R k = the score at that distance, halves turning (i, i + d/2), from complex numbers."""
        n = self.c.d_head // 2
        theta = 10000.0 ** (-np.arange(n) / n) * distance
        R = np.zeros((2 * n, 2 * n))
        i = np.arange(n)
        R[i, i] = R[i + n, i + n] = np.cos(theta)
        R[i, i + n], R[i + n, i] = np.sin(theta), -np.sin(theta)
        return R

    def ov(self, head: Head) -> tuple[np.ndarray, np.ndarray]:
        _, _, V, out = self.factors(head)
        return self.E @ V @ out @ self.U_centred, self.E @ V @ out @ self.U

    def qk(self, head: Head, distance: int = 0) -> tuple[np.ndarray, np.ndarray]:
        Q, K, _, _ = self.factors(head)
        Q = Q @ self.turn(distance) if distance else Q
        return self.E @ Q @ K.T @ self.E_centred.T, self.E @ Q @ K.T @ self.E.T


def score(matrix: np.ndarray) -> float:
    """Σλ/Σ|λ| of a whole matrix."""
    values = np.linalg.eigvals(matrix)
    return float((values.sum() / np.abs(values).sum()).real)


def same_spectrum(found: np.ndarray, matrix: np.ndarray) -> None:
    """Each found eigenvalue has one of the matrix's for itself, and what is left over of these is 0."""
    left = list(np.linalg.eigvals(matrix))
    scale = max(np.abs(left).max(), 1e-300)
    for value in found:
        if left:
            nearest = int(np.argmin(np.abs(np.array(left) - value)))
            assert abs(left.pop(nearest) - value) < 1e-7 * scale
        else:
            assert abs(value) < 1e-7 * scale
    assert all(abs(value) < 1e-7 * scale for value in left)


def check_share(found: float, values: np.ndarray, scale: float) -> None:
    """`found` is the share of `values` above 0, of which one by 0 may or may not be; `scale` is their size."""
    above = found * len(values)
    assert above == pytest.approx(round(above), abs=1e-6)
    check_histogram([len(values) - round(above), round(above)], values / scale, [-np.inf, 0, np.inf], 1e-6)


def same_singular(found: np.ndarray, matrix: np.ndarray) -> None:
    wanted = np.zeros(len(found))
    s = np.linalg.svd(matrix, compute_uv=False)[: len(found)]
    wanted[: len(s)] = s
    np.testing.assert_allclose(found, wanted, atol=3e-7 * s[0])


@pytest.mark.parametrize("name", NAMES)
def test_ov_spectrum_is_that_of_the_whole_matrices(tmp_path: Path, name: str) -> None:
    config = small(name)
    path = directory(tmp_path / "m", config)
    slow, heads = Slow(path, config), (Head(1, config.n_heads - 1), Head(0, 0), Head(1, 0))
    full, bare = (ask(path, "ov_spectrum", OvSpectrumParams(heads, matrix)) for matrix in ("full", "bare"))
    np.testing.assert_array_equal(full.heads, heads)
    for i, head in enumerate(heads):
        centred, raw = slow.ov(head)
        same_spectrum(full.eigenvalues[i], centred)
        same_spectrum(full.eigenvalues_raw[i], raw)
        assert full.copying[i] == pytest.approx(score(centred), abs=1e-6)
        assert full.copying_raw[i] == pytest.approx(score(raw), abs=1e-6)
        same_singular(full.singular_values[i], centred)
        _, _, V, out = slow.factors(head)
        same_spectrum(bare.eigenvalues[i], V @ out)
        assert bare.copying[i] == bare.copying_raw[i] == pytest.approx(score(V @ out), abs=1e-6)
        same_singular(bare.singular_values[i], V @ out)
    assert (np.diff(np.abs(full.eigenvalues)) <= 1e-9).all() and (np.diff(full.singular_values) <= 0).all()
    assert any("raw is the same" in w for w in bare.conventions)


@pytest.mark.parametrize("name", NAMES)
def test_qk_spectrum_is_that_of_the_whole_matrices(tmp_path: Path, name: str) -> None:
    config = small(name)
    path = directory(tmp_path / "m", config)
    slow, heads = Slow(path, config), (Head(1, config.n_heads - 1), Head(0, 0))
    full, bare = (ask(path, "qk_spectrum", QkSpectrumParams(heads, matrix)) for matrix in ("full", "bare"))
    for i, head in enumerate(heads):
        centred, raw = slow.qk(head)
        same_spectrum(full.eigenvalues[i], centred)
        same_spectrum(full.eigenvalues_raw[i], raw)
        assert full.positivity[i] == pytest.approx(score(centred), abs=1e-6)
        assert full.positivity_raw[i] == pytest.approx(score(raw), abs=1e-6)
        same_singular(full.singular_values[i], centred)
        Q, K, _, _ = slow.factors(head)
        same_spectrum(bare.eigenvalues[i], Q @ K.T)
        assert bare.positivity[i] == bare.positivity_raw[i] == pytest.approx(score(Q @ K.T), abs=1e-6)
        same_singular(bare.singular_values[i], Q @ K.T)


@pytest.mark.parametrize("name", NAMES)
def test_spectra_behind_an_earlier_head_are_those_of_the_whole_products(tmp_path: Path, name: str) -> None:
    config = small(name)
    path = directory(tmp_path / "m", config)
    slow, head, earlier = Slow(path, config), Head(1, 0), Head(0, config.n_heads - 1)
    Q, K, V, out = slow.factors(head)
    _, _, V1, O1 = slow.factors(earlier)
    move = V1 @ O1
    ov = ask(path, "ov_spectrum", OvSpectrumParams((head,), "full", earlier))
    same_spectrum(ov.eigenvalues[0], slow.E @ move @ V @ out @ slow.U_centred)
    same_spectrum(ov.eigenvalues_raw[0], slow.E @ move @ V @ out @ slow.U)
    same_singular(ov.singular_values[0], slow.E @ move @ V @ out @ slow.U_centred)
    bare = ask(path, "ov_spectrum", OvSpectrumParams((head,), "bare", earlier))
    same_spectrum(bare.eigenvalues[0], move @ V @ out)
    keys = ask(path, "qk_spectrum", QkSpectrumParams((head,), "full", 0, earlier))
    same_spectrum(keys.eigenvalues[0], slow.E @ Q @ K.T @ move.T @ slow.E_centred.T)
    queries = ask(path, "qk_spectrum", QkSpectrumParams((head,), "full", 0, earlier, "query"))
    same_spectrum(queries.eigenvalues[0], slow.E @ move @ Q @ K.T @ slow.E_centred.T)
    assert queries.positivity[0] == pytest.approx(score(slow.E @ move @ Q @ K.T @ slow.E_centred.T), abs=1e-6)
    assert any(f"composed with {earlier}" in w for w in keys.conventions)
    for params in (OvSpectrumParams((earlier,), "full", head), OvSpectrumParams((), "full", earlier)):
        with pytest.raises(Refused, match="earlier layer"):
            ask(path, "ov_spectrum", params)


@pytest.mark.parametrize("name", NAMES)
def test_copying_scores_are_those_of_the_whole_matrices(tmp_path: Path, name: str) -> None:
    config = small(name)
    path = directory(tmp_path / "m", config)
    slow, found = Slow(path, config), ask(path, "copying_scores", CopyingScoresParams())
    for at in np.ndindex(found.copying.shape):
        centred, raw = slow.ov(Head(*at))
        assert found.copying[at] == pytest.approx(score(centred), abs=1e-6)
        assert found.copying_raw[at] == pytest.approx(score(raw), abs=1e-6)
        diagonal, rms = centred.diagonal(), np.sqrt(np.mean(centred**2))
        check_share(found.diagonal_share[at], diagonal, rms)
        assert found.diagonal_mean[at] == pytest.approx(diagonal.mean(), abs=1e-8)
        check_histogram(found.diagonal_histogram[at], diagonal / rms, found.bins, 1e-6)
        _, _, V, out = slow.factors(Head(*at))
        likeness = np.trace(V @ out) / (np.sqrt(config.d_head) * np.linalg.norm(V @ out))
        assert found.identity_likeness[at] == pytest.approx(likeness, abs=1e-8)
        centred, raw = slow.qk(Head(*at))
        assert found.qk_positivity[at] == pytest.approx(score(centred), abs=1e-6)
        assert found.qk_positivity_raw[at] == pytest.approx(score(raw), abs=1e-6)
    assert found.n_tokens == config.d_vocab and found.diagonal_histogram.sum() == 2 * config.n_heads * config.d_vocab
    assert found.bins.shape == (42,) and found.diagonal_histogram.shape[2] == 41


def test_a_sample_of_the_diagonal_is_that_of_its_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = directory(tmp_path / "m", CONFIGS["gpt2"])
    monkeypatch.setattr("circuitlab.analysis.spectra.copying_scores.WHOLE", 64)
    monkeypatch.setattr("circuitlab.analysis.spectra.copying_scores.SAMPLE", 64)
    slow, ids = Slow(path, CONFIGS["gpt2"]), np.arange(64) * 260 // 64
    sample, whole, none = (ask(path, "copying_scores", CopyingScoresParams(d)) for d in ("sample", "all", "none"))
    assert (sample.n_tokens, whole.n_tokens, none.n_tokens) == (64, 260, 0)
    for at in np.ndindex(sample.copying.shape):
        matrix = slow.ov(Head(*at))[0]
        rms = np.sqrt(np.mean(matrix[np.ix_(ids, ids)] ** 2))
        check_histogram(sample.diagonal_histogram[at], matrix.diagonal()[ids] / rms, sample.bins, 1e-6)
        check_share(sample.diagonal_share[at], matrix.diagonal()[ids], rms)
        check_share(whole.diagonal_share[at], matrix.diagonal(), rms)
    np.testing.assert_allclose(sample.diagonal_mean, whole.diagonal_mean, rtol=1e-6, atol=1e-9)
    assert np.isnan(none.diagonal_share).all() and not none.diagonal_histogram.any()
    assert any("64 of 260" in w and "6.2 %" in w for w in sample.conventions)
    without = ask(path, "copying_scores", CopyingScoresParams("none", qk=False))
    assert np.isnan(without.qk_positivity).all()
    np.testing.assert_allclose(without.copying, none.copying, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_pairs_and_the_plane_are_those_of_the_whole_matrices(tmp_path: Path, name: str) -> None:
    config = replace(small(name), n_layers=3)
    path, engine = directory(tmp_path / "m", config), Engine(ModelStore())
    slow = Slow(path, config)
    found, one = (ask(path, "previous_head_spectrum", p, engine=engine) for p in (PLANE, replace(PLANE, p="one")))
    previous = ask(path, "head_scores", HeadScoresParams(), engine=engine).of("previous_token")
    np.testing.assert_array_equal(found.p, previous)
    assert (one.p == 1).all() and (found.weighted[1:] != one.weighted[1:]).any()
    copying = ask(path, "copying_scores", CopyingScoresParams(), engine=engine).copying
    np.testing.assert_array_equal(found.copying, copying)
    OV = {at: np.matmul(*slow.factors(Head(*at))[2:]) for at in np.ndindex(3, config.n_heads)}

    def behind(later: Head, earlier: np.ndarray) -> tuple[float, float]:
        Q, K, _, _ = slow.factors(later)
        keys = lambda E: E @ earlier @ K
        return score(slow.E @ Q @ keys(slow.E_centred).T), score(slow.E @ Q @ keys(slow.E).T)

    for l2, h2 in np.ndindex(3, config.n_heads):
        for at, matrix in OV.items():
            values = found.pairs[l2, h2, *at], found.pairs_raw[l2, h2, *at]
            wanted = behind(Head(l2, h2), matrix) if at[0] < l2 else (np.nan, np.nan)
            assert values == pytest.approx(wanted, abs=1e-6, nan_ok=True)
        for result in (found, one) if l2 else ():
            total = sum((result.p[at] * matrix for at, matrix in OV.items() if at[0] < l2), np.zeros((24, 24)))
            values = result.weighted[l2, h2], result.weighted_raw[l2, h2]
            assert values == pytest.approx(behind(Head(l2, h2), total), abs=1e-6)
    assert np.isnan(found.weighted[0]).all() and np.isnan(found.weighted_raw[0]).all()
    table = {column.name: column.values for column in found.table().columns}
    n = found.copying.size
    assert found.table().n_rows == n + 3 * config.n_heads**2
    plane = (("copying", found.copying), ("positivity", found.weighted), ("positivity_raw", found.weighted_raw))
    for column, points in plane:  # what the figure draws
        np.testing.assert_array_equal(table[column][:n], points.ravel())
    for dest, source, copying, positivity in list(zip(*(table[c] for c in list(table)[:4]), strict=True))[n:]:
        assert copying == found.copying[Head.parse(dest)] and positivity == found.pairs[*Head.parse(dest), *Head.parse(source)]


def test_the_plane_comes_first_and_pairs_are_kept(tmp_path: Path) -> None:
    path, engine, shown = directory(tmp_path / "m", replace(TINY, n_layers=3)), Engine(ModelStore()), []

    class Watch(NullContext):
        def partial(self, result: Any) -> None:
            shown.append(result)

    whole = ask(path, "previous_head_spectrum", PLANE, Watch(), engine)
    assert len(shown) == 1 and shown[0].done < 1 and np.isnan(shown[0].pairs).all()
    np.testing.assert_array_equal(shown[0].weighted, whole.weighted)
    pairs = ask(path, "pair_positivity", PairPositivityParams(), engine=engine)
    np.testing.assert_array_equal(pairs.pairs, whole.pairs)
    rows = pairs.table()
    assert rows.columns[2].values[0] == np.nanmax(pairs.pairs)
    alone = ask(path, "previous_head_spectrum", replace(PLANE, pairs=False), engine=engine)
    np.testing.assert_allclose(alone.weighted, whole.weighted, rtol=1e-6, atol=1e-9)
    assert np.isnan(alone.pairs).all()


def test_pairs_that_were_cancelled_go_on_where_they_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, engine = directory(tmp_path / "m", replace(TINY, n_layers=4)), Engine(ModelStore())
    whole = ask(path, "pair_positivity", PairPositivityParams())
    monkeypatch.setattr("circuitlab.analysis.spectra.pair_positivity.FIRST", 8)
    stopped: list[Any] = []

    class Stopping(NullContext):
        def partial(self, result: Any) -> None:
            stopped.append(result)

        def tick(self, done: int, total: int, text: str = "") -> None:
            if stopped:
                raise Cancelled

    with pytest.raises(Cancelled):
        ask(path, "pair_positivity", PairPositivityParams(), Stopping(), engine)
    assert stopped[-1].known() == 8
    begun: list[np.ndarray] = []
    of = pair_positivity.Small.scores
    monkeypatch.setattr(pair_positivity.Small, "scores", lambda self, *p: (begun.append(self.places), of(self, *p))[1])
    again = ask(path, "pair_positivity", PairPositivityParams(), engine=engine)
    computed = np.concatenate(begun)
    kept = np.flatnonzero(np.isfinite(stopped[-1].pairs))
    assert len(np.unique(computed)) == len(computed) == whole.known() - 8 and not np.isin(kept, computed).any()
    np.testing.assert_allclose(again.pairs, whole.pairs, rtol=1e-6, atol=1e-9)


def test_pairs_come_in_the_order_of_their_composition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, engine, shown = directory(tmp_path / "m", replace(small("llama"), n_layers=4)), Engine(ModelStore()), []
    monkeypatch.setattr("circuitlab.analysis.spectra.pair_positivity.FIRST", 5)

    class Watch(NullContext):
        def partial(self, result: Any) -> None:
            shown.append(result)

    whole = ask(path, "pair_positivity", PairPositivityParams(), Watch(), engine)
    scores = ask(path, "composition", CompositionParams(), engine=engine).scores[1]
    counts = [one.known() for one in shown]
    assert counts[:2] == [5, 45] and 45 < whole.known() == np.isfinite(scores).sum() and whole.done == 1
    for one in shown:
        known = np.isfinite(one.pairs)
        assert scores[known].min() >= np.nanmax(np.where(known, np.nan, scores)) and one.done == known.sum() / whole.known()
        np.testing.assert_array_equal(one.pairs[known], whole.pairs[known])


def test_scores_that_were_not_asked_for_are_not_computed_and_the_others_are_the_same(tmp_path: Path) -> None:
    path, engine = directory(tmp_path / "m", replace(small("gpt2"), n_layers=3)), Engine(ModelStore())
    both, centred, raw = (ask(path, "pair_positivity", PairPositivityParams(scores=s), engine=engine) for s in SCORES)
    np.testing.assert_array_equal(centred.pairs, both.pairs)
    np.testing.assert_array_equal(raw.pairs_raw, both.pairs_raw)
    assert np.isnan(centred.pairs_raw).all() and np.isnan(raw.pairs).all() and both.known() == raw.known() == 3 * 16
    assert np.nanmax(np.abs(both.pairs - both.pairs_raw)) > 0.01
    assert raw.table().columns[3].values[0] == np.nanmax(both.pairs_raw)
    plane = ask(path, "previous_head_spectrum", replace(PLANE, scores="raw"), engine=engine)
    np.testing.assert_array_equal(plane.pairs_raw, both.pairs_raw)
    assert np.isnan(plane.pairs).all() and np.isfinite(plane.weighted[1:]).all()


def test_one_layer_has_no_pairs_and_no_layer_no_heads_and_both_are_said(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", replace(TINY, n_layers=1))
    result = ask(path, "previous_head_spectrum", replace(PLANE, p="one"))
    assert result.copying.shape == (1, 4) and result.table().n_rows == 4
    assert np.isnan(result.weighted).all() and any("no pairs" in w for w in result.conventions)
    assert ask(path, "copying_scores", CopyingScoresParams()).table().n_rows == 4
    for name, params in (("previous_head_spectrum", PLANE), ("copying_scores", CopyingScoresParams())):
        with pytest.raises(Refused, match="no heads"):
            ask(directory(tmp_path / "z", replace(TINY, n_layers=0)), name, params)


@pytest.mark.parametrize("distance", [1, 5])
def test_a_rotary_distance_turns_the_queries(tmp_path: Path, distance: int) -> None:
    config = small("llama")
    path = directory(tmp_path / "m", config)
    slow = Slow(path, config)
    result = ask(path, "qk_spectrum", QkSpectrumParams((Head(1, 2),), "full", distance))
    same_spectrum(result.eigenvalues[0], slow.qk(Head(1, 2), distance)[0])
    assert f"rotary: at distance {distance}" in result.conventions
    with pytest.raises(AssertionError):
        same_spectrum(result.eigenvalues[0], slow.qk(Head(1, 2))[0])


def test_all_heads_single_precision_and_the_table(tmp_path: Path) -> None:
    config = small("gpt2")
    path = directory(tmp_path / "m", config)
    for name, params in (("ov_spectrum", OvSpectrumParams(())), ("qk_spectrum", QkSpectrumParams(()))):
        double, single = (ask(path, name, params, dtype=dtype) for dtype in ("float64", "float32"))
        assert double.eigenvalues.shape == (8, 6) and double.heads.dtype == np.int32
        largest = np.abs(double.eigenvalues).max(1, keepdims=True)
        np.testing.assert_allclose(np.abs(single.eigenvalues) / largest, np.abs(double.eigenvalues) / largest, atol=1e-5)
        rows = double.table()
        assert rows.n_rows == 48 and rows.columns[0].values[7] == "L0H1"
        assert rows.columns[2].values[7] == double.eigenvalues[1, 1].real


def test_effective_rank_counts_equal_directions() -> None:
    np.testing.assert_allclose(effective_rank(np.array([[2.0, 2, 2, 0], [5, 0, 0, 0]])), [3, 1])
    energies = 0.36**-0.36 * 0.64**-0.64  # of 3 and 4: squares, which are what a matrix has of its norm
    np.testing.assert_allclose(effective_rank(np.array([[3.0, 4, 0]])), [energies])
    assert np.isnan(effective_rank(np.zeros((1, 3)))).all()


def gauged(config: ModelConfig, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """W_Q S, W_K S⁻ᵀ, W_V S, S⁻¹ W_O of every key-value group; S of queries and keys turns pairs alike where the model does.

    S is no rotation, but not far from one: models are kept in float32, and S must not make that rounding larger.
    """
    generator, out, n = torch.Generator().manual_seed(5), dict(tensors), config.d_head // 2
    random = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)
    for layer in range(config.n_layers):
        at, shape = f"layers.{layer}.", (2, config.n_kv_heads, config.d_head, config.d_head)
        S = torch.linalg.qr(random(*shape))[0] * (0.5 * random(*shape[:2], 1, config.d_head)).exp()
        if config.positions == "rotary":  # commutes with the rotations: a turn and a scale of every pair
            a, b = (1 + random(2, config.n_kv_heads, n).abs()).diag_embed().unbind()
            S[0] = torch.cat([torch.cat([a, b], -1), torch.cat([-b, a], -1)], -2)
        spread = S.repeat_interleave(config.group, 1)
        out[f"{at}W_Q"] = out[f"{at}W_Q"] @ spread[0]
        out[f"{at}W_K"] = out[f"{at}W_K"] @ torch.linalg.inv(S[0]).mT
        out[f"{at}W_V"] = out[f"{at}W_V"] @ S[1]
        out[f"{at}W_O"] = torch.linalg.inv(spread[1]) @ out[f"{at}W_O"]
    return out


REQUESTS: list[tuple[str, Any]] = [
    ("ov_spectrum", OvSpectrumParams(())),
    ("ov_spectrum", OvSpectrumParams((), "bare")),
    ("qk_spectrum", QkSpectrumParams((), "full", 3)),
    ("qk_spectrum", QkSpectrumParams((), "bare")),
    ("ov_spectrum", OvSpectrumParams((Head(1, 0), Head(1, 3)), "full", Head(0, 1))),
    ("qk_spectrum", QkSpectrumParams((Head(1, 0), Head(1, 3)), "full", 0, Head(0, 1), "query")),
    ("copying_scores", CopyingScoresParams()),
    ("pair_positivity", PairPositivityParams()),
    ("previous_head_spectrum", PreviousHeadSpectrumParams()),
    ("previous_head_spectrum", PreviousHeadSpectrumParams("one")),
]


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama"])
def test_no_number_depends_on_the_gauge(tmp_path: Path, name: str) -> None:
    config = replace(small(name), biases=())
    tensors = {k: v.double() for k, v in random_tensors(config, 0, 0.35).items()}
    a, b = saved(tmp_path / "a", config, tensors), saved(tmp_path / "b", config, gauged(config, tensors))
    engine = Engine(ModelStore())
    for analysis, p in REQUESTS:
        first, second = ask(a, analysis, p, engine=engine).arrays(), ask(b, analysis, p, engine=engine).arrays()
        for field, value in first.items():
            scale = np.nanmax(np.abs(value)) if value.size else 1.0
            np.testing.assert_allclose(second[field], value, atol=5e-6 * scale, err_msg=f"{analysis} {field}")


def test_heads_of_norm_zero_have_no_eigenvalue_and_say_so(tmp_path: Path) -> None:
    config, tensors = TINY, random_tensors(TINY, 0, 0.35)
    tensors["layers.0.W_O"][1], tensors["layers.1.W_Q"][2] = 0, 0
    path = saved(tmp_path / "m", config, tensors)
    for matrix in ("full", "bare"):
        ov = ask(path, "ov_spectrum", OvSpectrumParams((), matrix))
        qk = ask(path, "qk_spectrum", QkSpectrumParams((), matrix))
        for found, score, zero in ((ov, ov.copying, 1), (qk, qk.positivity, 6)):
            assert np.flatnonzero(np.isnan(score)).tolist() == np.flatnonzero(np.isnan(found.effective_rank)).tolist() == [zero]
            assert not found.eigenvalues[zero].any() and not found.singular_values[zero].any()
            assert np.isfinite(found.singular_values).all()
        assert any("NaN" in w for w in (*ov.conventions, *qk.conventions))


def test_scores_of_heads_of_norm_zero(tmp_path: Path) -> None:
    tensors = random_tensors(TINY, 0, 0.35)
    tensors["layers.0.W_O"][1], tensors["layers.1.W_Q"][2] = 0, 0
    path = saved(tmp_path / "m", TINY, tensors)
    found, plane = ask(path, "copying_scores", CopyingScoresParams()), ask(path, "previous_head_spectrum", PLANE)
    for values in (found.copying, found.copying_raw, found.identity_likeness):
        assert np.flatnonzero(np.isnan(values)).tolist() == [1]
    assert np.flatnonzero(np.isnan(found.qk_positivity)).tolist() == [6]
    assert found.diagonal_share[0, 1] == found.diagonal_mean[0, 1] == 0 and found.diagonal_histogram[0, 1, 20] == 260
    absent = np.isnan(plane.pairs[1, :, 0])
    assert absent[:, 1].all() and absent[2].all() and absent.sum() == 7
    assert np.isnan(plane.weighted[1]).tolist() == [False, False, True, False]


def test_identity_likeness_of_a_projector_is_1(tmp_path: Path) -> None:
    tensors = random_tensors(TINY, 0, 0.35)
    basis = torch.linalg.qr(tensors["layers.0.W_V"][0])[0]
    tensors["layers.0.W_V"][0], tensors["layers.0.W_O"][0] = 3 * basis, basis.T
    tensors["layers.0.W_V"][1], tensors["layers.0.W_O"][1] = basis, -basis.T
    found = ask(saved(tmp_path / "m", TINY, tensors), "copying_scores", CopyingScoresParams()).identity_likeness[0]
    assert found[:2] == pytest.approx([1, -1], abs=1e-6)
    assert np.abs(found[2:]).max() < 0.9


def test_what_softmax_does_not_see_has_no_score(tmp_path: Path) -> None:
    """Columns of W_U that are all alike: the centred circuit is 0, of the raw one an eigenvalue is left."""
    tensors = random_tensors(TINY, 0, 0.35)
    tensors["unembed.W_U"][:] = tensors["unembed.W_U"][:, :1].clone()
    path = saved(tmp_path / "m", TINY, tensors)
    for dtype in ("float32", "float64"):
        result = ask(path, "ov_spectrum", OvSpectrumParams(()), dtype=dtype)
        assert np.isnan(result.copying).all() and np.isfinite(result.copying_raw).all()


def test_tiny_vocabularies_half_floats_and_refusals(tmp_path: Path) -> None:
    config = replace(TINY, d_vocab=3, d_vocab_out=3, n_layers=1)
    path = saved(tmp_path / "m", config, {k: v.half() for k, v in random_tensors(config, 0, 0.35).items()})
    found, slow = ask(path, "ov_spectrum", OvSpectrumParams()), Slow(path, config)
    same_spectrum(found.eigenvalues[0], slow.ov(Head(0, 0))[0])
    assert (np.abs(found.eigenvalues[0, 2:]) < 1e-9).all()
    odd = directory(tmp_path / "odd", CONFIGS["odd"])
    with pytest.raises(Refused, match="bare"):
        ask(odd, "ov_spectrum", OvSpectrumParams())
    assert np.isfinite(ask(odd, "ov_spectrum", OvSpectrumParams((), "bare")).copying).all()
    assert np.isfinite(ask(odd, "qk_spectrum", QkSpectrumParams(())).positivity).all()
    scores = ask(odd, "copying_scores", CopyingScoresParams())
    assert np.isnan(scores.copying).all() and np.isnan(scores.diagonal_share).all() and np.isfinite(scores.qk_positivity).all()
    assert any("vocabulary differ" in w for w in scores.conventions)
    assert np.isfinite(ask(odd, "previous_head_spectrum", PLANE).weighted[1]).all()
    with pytest.raises(Refused, match="stream"):
        ask(directory(tmp_path / "r", CONFIGS["post-residual"]), "qk_spectrum", QkSpectrumParams())
    with pytest.raises(BadInput):
        ask(odd, "qk_spectrum", QkSpectrumParams((Head(7, 0),)))
    with pytest.raises(BadInput):
        ask(odd, "qk_spectrum", QkSpectrumParams(distance=-1))


def test_rope_induction_has_its_closed_forms(tmp_path: Path) -> None:
    """The second head copies letters: of the centred circuit one direction of 26 is lost to the mean. Its W_OV squares to 0."""
    path = directory_of(tmp_path / "m")
    result = ask(path, "ov_spectrum", OvSpectrumParams(()))
    assert np.isnan(result.copying[0]) and result.copying[1] == pytest.approx(1)
    assert result.copying_raw[1] == pytest.approx(1)
    np.testing.assert_allclose(result.eigenvalues_raw[1, :26], 20, atol=1e-9)
    np.testing.assert_allclose(result.eigenvalues_raw[1, 26:], 0, atol=1e-9)
    assert np.isnan(ask(path, "ov_spectrum", OvSpectrumParams((), "bare")).copying).all()
    plane = ask(path, "previous_head_spectrum", PLANE)
    assert plane.p[0, 0] > 0.99
    assert [plane.pairs[1, 0, 0, 0], plane.weighted[1, 0]] == pytest.approx([1, 1])


class Stop(NullContext):
    """Cancels at the second tick of a layer's work."""

    def __init__(self, word: str) -> None:
        self.word, self.seen = word, 0

    def tick(self, done: int, total: int, text: str = "") -> None:
        assert done <= total
        self.seen += self.word in text
        if self.seen > 1:
            raise Cancelled


@pytest.mark.parametrize("word", ["W_U W_E", "W_U W_Uᵀ", "OV spectrum"])
def test_cancelling_is_answered_between_parts(tmp_path: Path, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("circuitlab.analysis.circuits.factor_products.PART_FLOPS", 1.0)
    monkeypatch.setattr("circuitlab.analysis.circuits.embedding_products.TILE", 16)
    monkeypatch.setattr("circuitlab.analysis.circuits.vocabulary_grams.TILE", 16)
    path = directory(tmp_path / "m", TINY)
    with pytest.raises(Cancelled):
        ask(path, "ov_spectrum", OvSpectrumParams(()), Stop(word))


def test_parts_of_a_layer_give_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = directory(tmp_path / "m", small("llama"))
    whole = [ask(path, name, p) for name, p in REQUESTS]
    monkeypatch.setattr("circuitlab.analysis.circuits.factor_products.PART_FLOPS", 1.0)
    for (name, p), before in zip(REQUESTS, whole, strict=True):
        for field, value in ask(path, name, p).arrays().items():
            np.testing.assert_allclose(value, before.arrays()[field], rtol=1e-9, atol=1e-9, err_msg=field)


EXTREMES = {
    "all zero": TINY,
    "a vocabulary of one": replace(TINY, d_vocab=1, d_vocab_out=1),
    "heads wider than the stream": replace(TINY, d_head=30),
    "a stream of one, centred away": replace(CONFIGS["gpt2"], d_model=1, d_head=1),
}


@pytest.mark.parametrize("name", EXTREMES)
def test_extremes_give_scores_in_range_or_none_and_no_warning(tmp_path: Path, name: str) -> None:
    config = EXTREMES[name]
    tensors = {k: v * (name != "all zero") for k, v in random_tensors(config, 0, 0.35).items()}
    path, empty = saved(tmp_path / "m", config, tensors), name in ("all zero", "a stream of one, centred away")
    for analysis, p in REQUESTS:
        if p == PLANE and config.d_vocab == 1:
            with pytest.raises(Refused, match="no random text"):
                ask(path, analysis, p)
            continue
        found = ask(path, analysis, p, dtype="float32").arrays()
        for field in {"copying", "copying_raw", "positivity", "qk_positivity", "identity_likeness", "pairs"} & set(found):
            assert not (np.abs(found[field]) > 1 + 1e-6).any()
            assert not empty or np.isnan(found[field]).all()
        assert all(np.isfinite(found[field]).all() for field in ("eigenvalues", "singular_values") if field in found)


DEEP = "after the first MLP"


class Whole:
    """Whole matrices of folded weights, and both embeddings: the token itself, and as heads behind the first MLP meet it."""

    def __init__(self, path: Path) -> None:
        engine, ref = Engine(ModelStore()), ModelRef(f"file:{path}")
        said = Conventions(dtype="float64")
        self.w = engine.store.open(ref).weights(said, "cpu")
        result = engine.answer(Request.named("effective_embedding", EffectiveEmbeddingParams(), Subject(ref, (), (), said)))
        x = self.w.embed().W_E.numpy()
        x = x - x.mean(1, keepdims=True)
        x = x / np.sqrt((x**2).mean(1, keepdims=True) + self.w.config.norm_eps)  # as the norm of the first layer reads it
        self.E = {"normalised": x, DEEP: result.result.values}  # type: ignore[attr-defined]
        self.W_U = self.w.unembed().W_U.numpy()

    def read(self, head: Head) -> np.ndarray:
        return self.E["normalised" if head.layer == 0 else DEEP]

    def ov(self, h: Head) -> np.ndarray:
        layer = self.w.layer(h.layer)
        return layer.W_V[h.head].numpy() @ layer.W_O[h.head].numpy()

    def qk(self, h: Head) -> np.ndarray:
        layer = self.w.layer(h.layer)
        return layer.W_Q[h.head].numpy() @ layer.W_K[h.head].numpy().T


def positive(matrix: np.ndarray) -> float:
    values = np.linalg.eigvals(matrix)
    return float(values.sum().real / np.abs(values).sum())


def test_spectra_after_the_first_mlp_are_those_of_the_whole_matrices(tmp_path: Path) -> None:
    """Heads of the first layer read the token, later ones what the first MLP made of it; a pair reads both."""
    path = directory(tmp_path / "m", replace(CONFIGS["gpt2"], n_layers=3, d_vocab=60, d_vocab_out=60), tokenizer=False)
    whole = Whole(path)
    first, later, last = Head(0, 1), Head(1, 2), Head(2, 0)
    centred = lambda E: E - E.mean(0)
    W_U = whole.W_U - whole.W_U.mean(1, keepdims=True)
    result = ask(path, "ov_spectrum", OvSpectrumParams((first, later), embed=DEEP))
    for i, head in enumerate((first, later)):
        assert result.copying[i] == pytest.approx(positive(whole.read(head) @ whole.ov(head) @ W_U), abs=1e-8)
        wanted = np.linalg.svd(whole.read(head) @ whole.ov(head) @ W_U, compute_uv=False)
        np.testing.assert_allclose(result.singular_values[i], wanted[: result.singular_values.shape[1]], rtol=1e-6)
    assert result.copying[1] != pytest.approx(ask(path, "ov_spectrum", OvSpectrumParams((later,))).copying[0], abs=1e-3)
    result = ask(path, "qk_spectrum", QkSpectrumParams((first, later), embed=DEEP))
    for i, head in enumerate((first, later)):
        E = whole.read(head)
        assert result.positivity[i] == pytest.approx(positive(E @ whole.qk(head) @ centred(E).T), abs=1e-8)
    for side in ("key", "query"):
        behind = ask(path, "qk_spectrum", QkSpectrumParams((later,), behind=first, side=side, embed=DEEP))  # type: ignore[arg-type]
        E, moved, qk = whole.read(later), whole.read(first), whole.qk(later)
        matrix = E @ qk @ (centred(moved) @ whole.ov(first)).T if side == "key" else moved @ whole.ov(first) @ qk @ centred(E).T
        assert behind.positivity[0] == pytest.approx(positive(matrix), abs=1e-8)
        plain = E @ qk @ (moved @ whole.ov(first)).T if side == "key" else moved @ whole.ov(first) @ qk @ E.T
        assert behind.positivity_raw[0] == pytest.approx(positive(plain), abs=1e-8)
        wanted = np.linalg.svd(matrix, compute_uv=False)
        np.testing.assert_allclose(behind.singular_values[0], wanted[: behind.singular_values.shape[1]], rtol=1e-6, atol=1e-9)
    scores = ask(path, "copying_scores", CopyingScoresParams(embed=DEEP))
    for head in (first, later, last):
        E = whole.read(head)
        assert scores.copying[head] == pytest.approx(positive(E @ whole.ov(head) @ W_U), abs=1e-8)
        assert scores.qk_positivity[head] == pytest.approx(positive(E @ whole.qk(head) @ centred(E).T), abs=1e-8)
    plane = ask(path, "previous_head_spectrum", PreviousHeadSpectrumParams(p="one", embed=DEEP))
    for head in (later, last):
        earlier = [Head(i, h) for i in range(head.layer) for h in range(4)]
        E, qk = whole.read(head), whole.qk(head)
        behind = lambda e: E @ qk @ (centred(whole.read(e)) @ whole.ov(e)).T  # noqa: B023
        for e in earlier:
            assert plane.pairs[head][e] == pytest.approx(positive(behind(e)), abs=1e-8)
        assert plane.weighted[head] == pytest.approx(positive(sum(map(behind, earlier))), abs=1e-8)
    assert all("first MLP" in " ".join(r.conventions) for r in (result, scores, plane))
    with pytest.raises(Refused, match="no MLP"):
        ask(directory(tmp_path / "a"), "previous_head_spectrum", PreviousHeadSpectrumParams(embed=DEEP))
    with pytest.raises(Refused, match="before the first MLP"):
        ask(path, "ov_spectrum", OvSpectrumParams((first,), embed=DEEP))
