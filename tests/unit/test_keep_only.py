"""Keep only this circuit, against whole forward passes in which every other head is cut."""

from __future__ import annotations

from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuitlab.analysis.base import NullContext
from circuitlab.analysis.interventions import ablation_sweep
from circuitlab.analysis.interventions._other_sets import other_sets
from circuitlab.analysis.interventions.circuit_faithfulness import KeepOnlyParams, KeepOnlyResult
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, Cancelled, Refused
from circuitlab.model.config import ModelConfig
from circuitlab.model.forward import forward
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject, Target
from tests.models import CONFIGS, directory

TOKENS = (0, 5, 3, 5, 6, 5, 3, 2, 5)
OTHER = (0, 2, 2, 6, 1, 4)
EDITS = (Intervention("scale", Site("v", 0, (1,)), (2.0,)), Intervention("zero", Site("pattern", 1, (0,), (3,))))
CIRCUIT = (Head(1, 0), Head(0, 3))


class Asker:
    """An engine on one model, in double precision."""

    def __init__(self, path: Path) -> None:
        self.engine, self.ref = Engine(ModelStore()), ModelRef(f"file:{path}")
        self.conventions = Conventions(dtype="float64")

    def request(self, params: KeepOnlyParams, tokens: tuple[int, ...] = TOKENS, edits: Any = ()) -> Request:
        return Request.named("keep_only", params, Subject(self.ref, tokens, edits, self.conventions))

    def __call__(self, params: KeepOnlyParams, tokens: tuple[int, ...] = TOKENS, edits: Any = ()) -> KeepOnlyResult:
        return self.engine.answer(self.request(params, tokens, edits)).result  # type: ignore[return-value]

    def loss(self, cut: Any, how: str = "zero", edits: Any = ()) -> float:
        op, source = {"zero": ("zero", ()), "mean": ("mean", ()), "resample": ("patch", OTHER)}[how]
        cuts = tuple(Intervention(op, Site("z", i, (h,)), source=source) for i, h in sorted(cut))  # type: ignore[arg-type]
        return float(forward(self.engine.store.open(self.ref).weights(self.conventions), TOKENS, (*edits, *cuts)).losses().mean())


@pytest.fixture
def ask(tmp_path: Path) -> Asker:
    return Asker(directory(tmp_path / "m", CONFIGS["gpt2"]))


def every(config: ModelConfig) -> set[Head]:
    return {Head(i, h) for i in range(config.n_layers) for h in range(config.n_heads)}


@pytest.mark.parametrize("how", ["zero", "mean", "resample"])
@pytest.mark.parametrize("edits", [(), EDITS], ids=["plain", "edited"])
@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama", "both-norms-capped", "parallel"])
def test_shares_are_those_of_whole_passes(tmp_path: Path, name: str, how: Any, edits: Any) -> None:
    asker, heads = Asker(directory(tmp_path / "m", CONFIGS[name])), every(CONFIGS[name])
    params = KeepOnlyParams(CIRCUIT, how, OTHER if how == "resample" else (), samples=3, seed=4)
    result = asker(params, edits=edits)
    loss = lambda cut: asker.loss(cut, how, edits)
    full, none = loss(()), loss(heads)
    share = lambda value: (value - none) / (full - none)
    assert result.faithfulness == pytest.approx(share(loss(heads - set(CIRCUIT))), abs=1e-8)
    assert result.completeness == pytest.approx(1 - share(loss(CIRCUIT)), abs=1e-8)
    for (layer, head), minimality in zip(result.members.tolist(), result.minimality, strict=True):
        smaller = loss(heads - set(CIRCUIT) | {Head(layer, head)})
        assert minimality == pytest.approx(result.faithfulness - share(smaller), abs=1e-8)
    for i, members in enumerate(result.random_members):
        chosen = {Head(*h) for h in members.tolist()}
        assert len(chosen) == len(CIRCUIT)
        assert result.random_faithfulness[i] == pytest.approx(share(loss(heads - chosen)), abs=1e-8)
        assert result.random_completeness[i] == pytest.approx(1 - share(loss(chosen)), abs=1e-8)


def test_all_heads_are_faithful_and_complete(ask: Asker) -> None:
    result = ask(KeepOnlyParams(tuple(every(CONFIGS["gpt2"])), samples=2))
    assert result.faithfulness == pytest.approx(1, abs=1e-9)
    assert result.completeness == pytest.approx(1, abs=1e-9)
    assert result.rank("faithfulness") == ((1, 1), 1) and not len(result.random_members)
    assert any("no other set of 8 heads" in word for word in result.conventions)
    np.testing.assert_array_equal(ask(KeepOnlyParams(samples=2)).members, result.members)


def test_the_rank_counts_random_sets_that_do_better(ask: Asker) -> None:
    result = ask(KeepOnlyParams(CIRCUIT, samples=12, seed=1))
    for name in ("faithfulness", "completeness"):
        others, own = getattr(result, f"random_{name}"), getattr(result, name)
        assert result.rank(name) == ((1 + sum(others > own), 1 + sum(others == own)), 13)
    assert any(
        "12 random sets of 2 heads" in word and "the circuit not among them, seed 1" in word for word in result.conventions
    )
    assert result.table().n_rows == 1 + 2 + 12
    across = result.across()
    assert across["faithfulness"].shape == ()
    assert across["random_faithfulness"].shape == (12,)


def test_random_sets_are_other_sets_all_different_uniform_and_repeat_by_seed() -> None:
    own = np.array([1, 4, 6])
    for of, samples in ((8, 30), (12, 40), (60, 4000)):  # most of the 55 others, some of 219, few of 34 219
        sets = other_sets(own, of, samples, 7)
        assert sets.shape == (samples, 3)
        assert len({tuple(sorted(set(one))) for one in sets.tolist()} - {(1, 4, 6)}) == samples
        assert all(len(set(one)) == 3 and one == sorted(one) for one in sets.tolist())
        np.testing.assert_array_equal(sets, other_sets(own, of, samples, 7))
        assert not np.array_equal(sets, other_sets(own, of, samples, 8))
    assert not any((other_sets(own, 12, 40, seed) == own).all(axis=1).any() for seed in range(60))
    np.testing.assert_allclose(np.bincount(sets.ravel(), minlength=60) / 4000, 3 / 60, atol=0.015)
    members = np.concatenate([other_sets(own, 8, 20, seed).ravel() for seed in range(400)])
    wanted = (comb(7, 2) - np.isin(np.arange(8), own)) * 20 / 55  # of the 55 other sets, those that have this member
    np.testing.assert_allclose(np.bincount(members, minlength=8) / 400, wanted, rtol=0.05)


def test_where_few_other_sets_are_they_are_all_taken(ask: Asker) -> None:
    every = [list(one) for one in combinations(range(8), 3)]
    for samples in (55, 56, 1000):
        assert other_sets(np.array([0, 1, 2]), 8, samples, 3).tolist() == every[1:]
    assert other_sets(np.arange(8), 8, 20, 0).shape == (0, 8)
    assert other_sets(np.array([2]), 8, 0, 0).shape == (0, 1)
    result = ask(KeepOnlyParams((Head(1, 0),), samples=20))
    assert result.random_members[:, 0].tolist() == [[i, h] for i in range(2) for h in range(4) if (i, h) != (1, 0)]
    assert result.done == 1 and result.all_others and result.rank("faithfulness")[1] == 8
    assert any("all 7 other sets of 1 head" in word for word in result.conventions)
    assert not ask(KeepOnlyParams(CIRCUIT, samples=2)).all_others


def test_another_measure(ask: Asker) -> None:
    result = ask(KeepOnlyParams(CIRCUIT, effect="target", target=Target((3, 5)), position=4, samples=2))
    weights = ask.engine.store.open(ask.ref).weights(ask.conventions)
    logits = forward(weights, TOKENS).logits()[4]
    assert result.intact == pytest.approx(float(logits[3] - logits[5]), abs=1e-10)
    assert result.unit == "logit"


def test_where_heads_change_nothing_shares_are_not_computed_and_it_is_said(tmp_path: Path) -> None:
    from circuitlab.model.saving import random_tensors, save_directory

    tensors = random_tensors(CONFIGS["gpt2"], 0, 0.35)
    silent = {k: v * (0 if k.endswith("W_O") else 1) for k, v in tensors.items()}
    save_directory(tmp_path / "m", CONFIGS["gpt2"], silent, None)
    result = Asker(tmp_path / "m")(KeepOnlyParams(CIRCUIT, samples=2))
    assert np.isnan([result.faithfulness, result.completeness, *result.minimality]).all()
    assert result.done == 1
    assert "changes nothing" in result.conventions[-1]


def test_one_token_says_why_and_the_longest_prompt_works(ask: Asker) -> None:
    assert np.isnan(ask(KeepOnlyParams(CIRCUIT, samples=2), (3,)).faithfulness)
    assert np.isfinite(ask(KeepOnlyParams(CIRCUIT, effect="target", samples=2), (3,)).faithfulness)
    assert np.isfinite(ask(KeepOnlyParams(CIRCUIT, samples=0), tuple([3, 4] * 24)).faithfulness)


class Watcher(NullContext):
    """Stops after some partial results."""

    def __init__(self, most: int) -> None:
        self.seen: list[KeepOnlyResult] = []
        self.most = most

    def partial(self, result: Any) -> None:
        self.seen.append(result)

    def tick(self, done: int, total: int, text: str = "") -> None:
        assert done <= total
        if len(self.seen) >= self.most:
            raise Cancelled


def test_what_a_cancelled_attempt_holds_is_gone_on_from(ask: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation_sweep, "AT_ONCE", 2 * len(TOKENS))
    request = ask.request(KeepOnlyParams(CIRCUIT, samples=4))
    first = Watcher(3)
    with pytest.raises(Cancelled):
        ask.engine.answer(request, first)
    assert np.isfinite(first.seen[-1].faithfulness)
    again = Watcher(10**9)
    result = ask.engine.answer(request, again).result
    assert again.seen[0].done > first.seen[-1].done
    fresh = ask.engine.answer(request, fresh=True).result
    assert isinstance(result, KeepOnlyResult) and isinstance(fresh, KeepOnlyResult)
    np.testing.assert_allclose(result.random_cut, fresh.random_cut, atol=1e-12)
    assert fresh.done == 1


def test_the_same_request_afresh_is_bit_equal(ask: Asker) -> None:
    request = ask.request(KeepOnlyParams(CIRCUIT, samples=3))
    assert ask.engine.answer(request, fresh=True).fingerprint == ask.engine.answer(request, fresh=True).fingerprint


def test_what_cannot_be_asked_is_refused(ask: Asker) -> None:
    with pytest.raises(Refused, match="another text"):
        ask(KeepOnlyParams(CIRCUIT, how="resample"))
    with pytest.raises(BadInput, match="samples is out of bounds"):
        ask(KeepOnlyParams(CIRCUIT, samples=-1))
    with pytest.raises(BadInput, match="head"):
        ask(KeepOnlyParams((Head(0, 4),)))
