"""Theory against measurement: against slow definitions, published critical values, and models of which the answer is known."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from circuitlab.analysis.attention.head_scores import HeadScoresParams, head_scores
from circuitlab.analysis.base import NullContext
from circuitlab.analysis.behaviour.samples import repeated_random
from circuitlab.analysis.checks.theory_and_measurement import (
    BLOCK,
    MEASURED,
    PREDICTED,
    TheoryAndMeasurementParams,
    TheoryAndMeasurementResult,
    theory_and_measurement,
)
from circuitlab.analysis.circuits.own_tokens import OwnTokensParams, own_tokens
from circuitlab.analysis.composition.scores import CompositionParams, composition
from circuitlab.analysis.rank_correlation import FEWEST, TELLING, _interval, correlation, rank_differences, ranks
from circuitlab.counting import number
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore, reference
from circuitlab.errors import Cancelled, Refused
from circuitlab.model.forward import forward
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.saving import random_tensors, save_directory
from circuitlab.model.subject import Conventions, ModelRef, Subject
from circuitlab.model.weights import bos_of
from tests.models import CONFIGS, TINY, directory

WIDE = replace(TINY, n_ctx=64)  # room for 25 random tokens twice
EXACT = Conventions(dtype="float64")


def answer(
    source: str, params: TheoryAndMeasurementParams | None = None, engine: Engine | None = None
) -> TheoryAndMeasurementResult:
    subject = Subject(reference(source), (), (), EXACT)
    request = Request(theory_and_measurement, params or TheoryAndMeasurementParams(), subject)
    return (engine or Engine(ModelStore())).answer(request).result


def slow_ranks(values: list[float]) -> list[float]:
    """The mean of the places that a value may take when the largest stands first."""
    return [sum(b > a for b in values) + (sum(b == a for b in values) + 1) / 2 for a in values]


@pytest.mark.parametrize("n", [2, 3, 5, 12])
def test_rank_correlation_is_that_of_the_ranks(n: int) -> None:
    rng = np.random.default_rng(n)
    for _ in range(20):
        a, b = rng.integers(0, 6, n).astype(float), rng.normal(size=n)
        slow = slow_ranks(a.tolist()), slow_ranks(b.tolist())
        np.testing.assert_array_equal(ranks(a), slow[0])
        np.testing.assert_array_equal(rank_differences(a, b), np.subtract(slow[1], slow[0]))
        rho = correlation(a, b).rho
        if len(set(a.tolist())) == 1:
            assert math.isnan(rho)
        else:
            assert rho == pytest.approx(float(np.corrcoef(*slow)[0, 1]), abs=1e-12)


def test_entries_without_both_values_are_left_out() -> None:
    a, b = np.array([[1.0, 2.0, np.nan], [3.0, 5.0, 4.0]]), np.array([[np.nan, 1.0, 9.0], [3.0, 2.0, 4.0]])
    one = correlation(a, b)
    assert one.n == 4 and one.rho == pytest.approx(np.corrcoef([1, 2, 4, 3], [1, 3, 2, 4])[0, 1])
    np.testing.assert_array_equal(rank_differences(a, b), [[np.nan, 0, np.nan], [-1, 2, -1]])


@pytest.mark.parametrize(("n", "critical"), [(8, 0.738), (10, 0.648), (12, 0.587), (20, 0.447), (30, 0.362)])
def test_intervals_leave_0_where_published_tables_say(n: int, critical: float) -> None:
    """Two-sided critical values of Spearman's ρ at 5 % (Zar 1984, table B.20; 8 heads exact)."""
    assert _interval(critical - 0.05, n)[0] < 0 < _interval(critical + 0.05, n)[0]
    assert _interval(-critical + 0.05, n)[1] > 0 > _interval(-critical - 0.05, n)[1]
    low, high = _interval(0.0, n)
    assert low == pytest.approx(-high)


def test_ranks_that_agree_wholly_have_an_interval_too() -> None:
    for n in (FEWEST, 5, TELLING, 7, 8, 30):
        low, high = _interval(1.0, n)
        below = 1 - 12 / (n**3 - n)
        assert high == 1 and low < below and (low > 0) == (n >= TELLING)
        assert math.atanh(low) == pytest.approx(math.atanh(below) - 1.959964 * math.sqrt((1 + below**2 / 2) / (n - 3)), abs=1e-5)
        assert _interval(-1.0, n) == (-1.0, -low)
    assert all(map(math.isnan, _interval(1.0, FEWEST - 1)))


def test_by_chance_fewer_than_one_interval_in_twenty_misses_0() -> None:
    """Of all orders that n different values can have; with fewer than six none does."""
    for n in range(FEWEST, 9):
        orders = np.array(list(itertools.permutations(range(n))))
        squares, count = np.unique(((orders - np.arange(n)) ** 2).sum(axis=1), return_counts=True)
        ends = [_interval(1 - 6 * float(square) / (n**3 - n), n) for square in squares]
        missed = sum(int(k) for (low, high), k in zip(ends, count, strict=True) if low > 0 or high < 0) / len(orders)
        assert (missed == 0) if n < TELLING else (0.03 < missed < 0.05), n


def test_each_quantity_says_what_it_is_by_chance_and_of_how_much(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", WIDE, n_ctx=128, d_vocab=9000, d_vocab_out=9000)
    engine, subject = Engine(ModelStore()), Subject(ModelRef(f"file:{path}"), (), (), EXACT)
    result = answer(f"file:{path}", engine=engine)
    part_on = lambda name: " ".join(part for part in result.conventions if part.startswith(f"{name}: "))
    assert "512 of 9,000 rows: ± 2.2 %" in part_on("own token in top 10") and "chance 0.0011" in part_on("own token in top 10")
    tokens = 25 + (bos_of(engine.store.open(subject.model).weights(EXACT)) is not None)
    for on in ("repeated", "unrepeated"):
        assert number(2 / tokens - 1) in part_on(f"copying ({on})")
    scores = engine.answer(Request(head_scores, HeadScoresParams(), subject)).result
    control = scores.control[scores.names.index("prefix_matching")]
    assert f"{number(control.min())} to {number(control.max())}" in part_on("prefix matching")
    assert "25 random tokens, seed 0" in part_on("copying (unrepeated)") and "× 4" in part_on(
        "prefix matching, copying (repeated)"
    )
    assert not part_on("K-composition") and any("not computed: K-composition" in part for part in result.conventions)


def test_predictions_and_measures_are_their_slow_definitions(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", WIDE)
    t = {k: v.astype(np.float64) for k, v in load_file(path / "model.safetensors").items()}
    engine = Engine(ModelStore())
    params = TheoryAndMeasurementParams(previous=0.068, samples=2, frozen=False)
    result = answer(f"file:{path}", params, engine)
    W_E, W_U = t["embed.W_E"], t["unembed.W_U"]
    W_U = W_U - W_U.mean(axis=1, keepdims=True)
    centred = W_E - W_E.mean(axis=0)
    score = lambda values: values.real.sum() / np.abs(values).sum()
    W_OV = np.einsum(
        "lhdk,lhke->lhde", np.stack([t[f"layers.{i}.W_V"] for i in (0, 1)]), np.stack([t[f"layers.{i}.W_O"] for i in (0, 1)])
    )
    W_QK = np.einsum(
        "lhdk,lhek->lhde", np.stack([t[f"layers.{i}.W_Q"] for i in (0, 1)]), np.stack([t[f"layers.{i}.W_K"] for i in (0, 1)])
    )
    previous = engine.answer(Request(head_scores, HeadScoresParams(), Subject(ModelRef(f"file:{path}"), (), (), EXACT))).result
    p = previous.of("previous_token")
    assert (p[0] >= 0.068).any() and (p[0] < 0.068).any(), "some heads count, some do not"
    top_ten = lambda rows: ((rows >= np.diag(rows)[:, None]).sum(1) <= 10).mean()
    through = np.einsum("e,eij->ij", p[0], W_OV[0])
    norm = np.linalg.norm
    for layer, head in np.ndindex(2, 4):
        at = (layer, head)
        rows = W_E @ W_OV[at] @ W_U
        assert result.of("own token in top 10")[at] == pytest.approx(top_ten(rows), abs=1.5 / 260)
        assert result.of("OV copying")[at] == pytest.approx(score(np.linalg.eigvals(rows)), abs=1e-6)
        assert result.of("QK positivity")[at] == pytest.approx(score(np.linalg.eigvals(W_E @ W_QK[at] @ centred.T)), abs=1e-6)
        if not layer:
            assert np.isnan(result.of("K-composition")[at]) and result.source[at].tolist() == [-1, -1]
            continue
        keys = np.linalg.eigvals(W_E @ W_QK[at] @ through.T @ centred.T)
        assert result.of("positivity through earlier heads")[at] == pytest.approx(score(keys), abs=1e-6)
        K = {e: norm(W_OV[0, e] @ W_QK[at].T) / norm(W_OV[0, e]) / norm(W_QK[at]) for e in range(4) if p[0, e] >= 0.068}
        assert result.of("K-composition")[at] == pytest.approx(max(K.values()), rel=1e-6)
        assert result.source[at].tolist() == [0, max(K, key=lambda e: K[e])]
    weights = engine.store.open(ModelRef(f"file:{path}")).weights(EXACT)
    rise = np.zeros((2, 4))
    for tokens in map(tuple, repeated_random(weights.config, bos_of(weights), BLOCK, 2, 2, 0).tolist()):
        second = slice(len(tokens) - BLOCK, None)  # losses[i] is that of token i + 1
        plain = forward(weights, tokens).losses().numpy()[second].mean()
        for layer, head in np.ndindex(2, 4):
            cut = forward(weights, tokens, (Intervention("zero", Site("z", layer, (head,))),))
            rise[layer, head] += (cut.losses().numpy()[second].mean() - plain) / 2
    np.testing.assert_allclose(result.of("ablation"), rise, atol=1e-9)
    for i, j in np.ndindex(len(PREDICTED), len(MEASURED)):
        a, b = result.predicted[i].ravel(), result.measured[j].ravel()
        both = np.isfinite(a) & np.isfinite(b)
        assert result.n[i, j] == both.sum() == (4 if i >= 3 else 8)
        slow = np.corrcoef(slow_ranks(a[both].tolist()), slow_ranks(b[both].tolist()))[0, 1]
        assert result.rho[i, j] == pytest.approx(slow, abs=1e-12)
        assert result.low[i, j] <= result.rho[i, j] <= result.high[i, j]


def test_it_reads_the_answers_that_others_have_and_computes_none_again(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", WIDE)
    engine, subject = Engine(ModelStore()), Subject(ModelRef(f"file:{path}"), (), (), EXACT)
    before = engine.answer(Request(own_tokens, OwnTokensParams(), subject))
    result = answer(f"file:{path}", engine=engine)
    np.testing.assert_array_equal(result.of("own token in top 10"), before.result.top10)
    assert engine.cached(Request(composition, CompositionParams(), subject)) is not None
    assert engine.cached(Request(head_scores, HeadScoresParams(), subject)) is not None
    scores = engine.answer(Request(head_scores, HeadScoresParams(), subject)).result
    np.testing.assert_array_equal(result.of("prefix matching"), scores.of("prefix_matching"))


def test_the_constructed_model_lies_on_the_diagonal() -> None:
    """Head L1H0 copies and completes, L0H0 does neither: by weights and by measurement, in values as in ranks."""
    result = answer("rope-induction")
    own, prefix = result.of("own token in top 10"), result.of("prefix matching")
    assert np.isnan(own[0, 0]), "the map of L0H0 is 0: no token is before another"
    np.testing.assert_allclose(own[1], prefix[1], atol=0.05)
    np.testing.assert_allclose(prefix, [[0], [1]], atol=0.02)
    assert result.of("positivity through earlier heads")[1, 0] == pytest.approx(prefix[1, 0], abs=0.02)
    assert result.of("OV copying")[1, 0] == pytest.approx(result.of("copying (repeated)")[1, 0], abs=0.02)
    assert result.source.tolist() == [[[-1, -1]], [[0, 0]]]
    for measured in ("prefix matching", "ablation"):
        at = PREDICTED.index("own token in top 10"), MEASURED.index(measured)
        assert math.isnan(result.rho[at]) and result.n[at] == 1 and math.isnan(result.low[at]), "one head has no order"


def test_random_models_give_nothing(tmp_path: Path) -> None:
    """Six models of 24 heads: about one interval in twenty misses 0, and no earlier head is a previous-token head."""
    config = replace(WIDE, n_layers=3, n_heads=8, n_kv_heads=8, d_vocab=120, d_vocab_out=120)
    missed = computed = 0
    for seed in range(6):
        save_directory(tmp_path / f"{seed}", config, random_tensors(config, seed, 0.35), None)
        result = answer(f"file:{tmp_path / str(seed)}")
        assert not result.n[PREDICTED.index("K-composition")].any()
        assert any(part.startswith("not computed: K-composition") for part in result.conventions)
        missed += int(((result.low > 0) | (result.high < 0)).sum())
        computed += int(np.isfinite(result.low).sum())
    assert computed == 6 * 4 * 4 and missed / computed < 0.1


def test_what_has_no_meaning_is_not_computed_and_part_on(tmp_path: Path) -> None:
    one = answer(f"file:{directory(tmp_path / 'one', WIDE, n_layers=1)}")
    assert not one.n[PREDICTED.index("K-composition")].any() and one.n[PREDICTED.index("OV copying")].all()
    assert any("not computed" in part and "one layer" in part for part in one.conventions)
    full = answer(f"file:{directory(tmp_path / 'full', CONFIGS['gpt2'], n_ctx=64)}")
    left_out = " ".join(part for part in full.conventions if "leave out" in part)
    assert all(word in left_out for word in ("MLPs", "norm", "biases", "positions"))
    with pytest.raises(Refused):
        answer(f"file:{directory(tmp_path / 'none', TINY, n_layers=0)}")


def test_it_can_be_cancelled_at_every_quantity_and_goes_on(tmp_path: Path) -> None:
    class Stops(NullContext):
        left, words = 0, ""

        def tick(self, done: int, total: int, text: str = "") -> None:
            self.words, self.left = text, self.left - 1
            if self.left < 0:
                raise Cancelled

    path, engine, stopped = directory(tmp_path / "m", WIDE), Engine(ModelStore()), 0
    request = Request(theory_and_measurement, TheoryAndMeasurementParams(), Subject(ModelRef(f"file:{path}"), (), (), EXACT))
    ctx = Stops()
    for ctx.left in range(0, 400, 20):
        try:
            result = engine.answer(request, ctx)
        except Cancelled:
            stopped += 1
            continue
        assert result.complete and np.isfinite(result.result.rho[:4]).all()
        break
    else:
        raise AssertionError(f"never done: {ctx.words}")
    assert stopped, "nothing was cancelled"
