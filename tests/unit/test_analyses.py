"""Every analysis against its definition, written out in loops over positions in double precision."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch

from circuitlab.analysis.attention.head_scores import HeadScoresParams
from circuitlab.analysis.attention.overview import GAP, OverviewParams, pooled
from circuitlab.analysis.attention.pattern import AttentionParams, Show
from circuitlab.analysis.attention.score_definitions import SCORES
from circuitlab.analysis.base import analyses
from circuitlab.analysis.behaviour.predictions import PredictionsParams
from circuitlab.analysis.behaviour.samples import different_random
from circuitlab.analysis.behaviour.token_loss import TokenLossParams
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, CircuitLabError
from circuitlab.model.forward import forward
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Head, ModelRef, Subject
from circuitlab.testing import Bench, check_afresh, check_answer
from circuitlab.testing.analyses import TOKENS
from tests.models import CONFIGS, TINY, directory
from tests.reference.slow_forward import SlowModel
from tests.rounding import check_largest, check_ranks

OF_TWO_RUNS = ("patching", "path_patching")  # without another prompt they need something that the first run has cut
CUT = (Intervention("zero", Site("result", 0)),)


@pytest.fixture
def ask(tmp_path: Path) -> Bench:
    return Bench(directory(tmp_path / "m"))


def _slow(asker: Bench, tokens: tuple[int, ...] = TOKENS) -> Any:
    from safetensors.numpy import load_file

    return SlowModel(asker.weights.config, load_file(Path(asker.ref.source[5:]) / "model.safetensors")).run(tokens)


def test_attention_is_the_pattern_and_empty_above_the_diagonal(ask: Bench) -> None:
    result = ask("attention", AttentionParams((Head(1, 2), Head(0, 1))))
    patterns = _slow(ask)[2]
    for row, (layer, head) in enumerate(result.heads):
        for d in range(len(TOKENS)):
            np.testing.assert_allclose(result.values[row, d, : d + 1], patterns[layer][head][d, : d + 1], atol=1e-5)
            assert np.isnan(result.values[row, d, d + 1 :]).all()


@pytest.mark.parametrize("name", ["attention-only", "llama", "smeared"])
def test_weighted_attention_is_pattern_times_length_of_what_is_carried(tmp_path: Path, name: str) -> None:
    asker = Bench(directory(tmp_path / "m", CONFIGS[name]))
    model = asker.engine.store.open(asker.ref)
    seen = model.weights(Subject(asker.ref).conventions)
    run = forward(seen, TOKENS)
    head = 3
    v = run.get("v", 1)[seen.config.kv_head(head)].double()
    W_O = seen.layer(1).W_O[head].double()
    pattern = run.get("pattern", 1)[head].double()
    for show, carried in (("value_weighted", v), ("contribution", v @ W_O)):
        result = asker("attention", AttentionParams((Head(1, head),), show))
        for d in range(len(TOKENS)):
            for s in range(d + 1):
                wanted = float(pattern[d, s]) * math.sqrt(float((carried[s] ** 2).sum()))
                assert result.values[0, d, s] == pytest.approx(wanted, abs=1e-5)


def test_scores_are_what_softmax_reads(ask: Bench) -> None:
    scores = ask("attention", AttentionParams((Head(1, 0),), "scores")).values[0]
    pattern = ask("attention", AttentionParams((Head(1, 0),))).values[0]
    for d in range(len(TOKENS)):
        weights = np.exp(scores[d, : d + 1].astype(float))
        np.testing.assert_allclose(pattern[d, : d + 1], weights / weights.sum(), atol=1e-5)


def test_the_overview_holds_every_head_in_its_tile(ask: Bench) -> None:
    result = ask("attention_overview", OverviewParams(size=64))
    every = ask("attention", AttentionParams())
    edge = result.tile + GAP
    assert result.step == 1
    for (layer, head), values in zip(every.heads, every.values, strict=True):
        tile = result.sheet[layer * edge : layer * edge + result.tile, head * edge : head * edge + result.tile]
        np.testing.assert_array_equal(tile, values)
        assert result.largest[layer, head] == np.nanmax(values)


@pytest.mark.parametrize("show", ["pattern", "scores"])
def test_the_overviews_row_of_a_head_is_of_destinations_that_can_choose(ask: Bench, show: Show) -> None:
    """Position 0 attends to itself alone, so that the largest of each pattern is 1."""
    result = ask("attention_overview", OverviewParams(show, size=64))
    every = ask("attention", AttentionParams((), show))
    columns = {c.name: c.values for c in result.table().columns}
    assert list(columns)[1:4] == ["largest after position 0", "destination", "source"]
    for row, values in enumerate(every.values):
        later = values[1:]
        dest, src = columns["destination"][row], columns["source"][row]
        assert columns["largest after position 0"][row] == np.nanmax(later) == values[dest, src] and dest > 0
        at = range(1, len(values))
        for name, sources in (("same position", at), ("position before", range(len(values) - 1)), ("position 0", [0] * len(at))):
            expected = np.mean([values[d, s] for d, s in zip(at, sources, strict=True)])
            assert columns[f"mean on {name}"][row] == pytest.approx(expected, rel=1e-5)
    if show == "pattern":
        assert len(set(np.round(columns["largest after position 0"], 6))) > 1 and (result.largest.round(6) == 1).all()


def test_what_an_overview_has_nothing_of_is_no_column(ask: Bench) -> None:
    found = ask("attention_overview", OverviewParams(leave_out_bos=True)).table()
    assert "mean on position 0" not in [c.name for c in found.columns] and "mean on position before" in [
        c.name for c in found.columns
    ]
    one = ask("attention_overview", OverviewParams(), tokens=TOKENS[:1])
    assert [c.name for c in one.table().columns] == ["head", "largest"] and (one.place == -1).all()


def test_pooling_takes_the_largest_of_each_block() -> None:
    values = torch.rand(2, 7, 7)
    values[:, *torch.triu_indices(7, 7, 1)] = torch.nan
    small = pooled(values, 3)
    assert small.shape == (2, 3, 3)
    for i in range(3):
        for j in range(3):
            block = values[1, 3 * i : 3 * i + 3, 3 * j : 3 * j + 3]
            assert bool(torch.isnan(small[1, i, j])) == bool(torch.isnan(block).all())
            if not bool(torch.isnan(block).all()):
                assert small[1, i, j] == np.nanmax(block.numpy())


def test_the_overview_leaves_the_first_source_out_where_asked(ask: Bench) -> None:
    result = ask("attention_overview", OverviewParams(size=64, leave_out_bos=True))
    assert np.isnan(result.sheet[: result.tile, 0]).all()


def test_predictions_are_the_softmax_of_the_logits(ask: Bench) -> None:
    logits = _slow(ask)[0]
    result = ask("predictions", PredictionsParams(3, 5))
    p = np.exp(logits[3] - logits[3].max())
    p /= p.sum()
    check_largest(result.ids, p)
    np.testing.assert_allclose(np.exp(result.log_probs), p[result.ids], rtol=1e-4)
    np.testing.assert_allclose(result.logits, logits[3][result.ids] - logits[3].mean(), atol=1e-4)
    assert result.entropy == pytest.approx(float(-(p * np.log(p)).sum()), rel=1e-4)
    assert result.actual == TOKENS[4]
    check_ranks(result.actual_rank, p, p[TOKENS[4]])
    last = ask("predictions", PredictionsParams())
    assert last.position == 8
    assert last.actual == -1
    with pytest.raises(BadInput):
        ask("predictions", PredictionsParams(9))


def test_token_loss_is_minus_the_log_probability(ask: Bench) -> None:
    logits = _slow(ask)[0]
    result = ask("token_loss", TokenLossParams())
    assert np.isnan(result.loss[0])
    for i in range(1, len(TOKENS)):
        row = logits[i - 1]
        wanted = math.log(np.exp(row - row.max()).sum()) + row.max() - row[TOKENS[i]]
        assert result.loss[i] == pytest.approx(wanted, abs=1e-4)
        assert result.rank[i] == int((row > row[TOKENS[i]]).sum()) + 1
    assert result.mean == pytest.approx(float(np.mean(result.loss[1:])))


def _slow_score(name: str, A: np.ndarray, t: list[int]) -> float:
    n, per = len(t), []
    for d in range(n):
        if name == "prefix_matching":
            targets = [s for s in range(1, d + 1) if t[s - 1] == t[d]]
            per += [sum(A[d, s] for s in targets)] if targets else []
        elif name == "duplicate_token":
            targets = [s for s in range(d) if t[s] == t[d]]
            per += [sum(A[d, s] for s in targets)] if targets else []
        elif name == "entropy":
            per.append(-sum(a * math.log(a) for a in A[d] if a > 0))
        elif name == "mean_distance":
            per.append(sum(A[d, s] * (d - s) for s in range(d + 1)))
        elif d >= 1:
            per.append({"previous_token": A[d, d - 1], "first_token": A[d, 0], "current_token": A[d, d]}[name])
    return float(np.mean(per)) if per else float("nan")


@pytest.mark.parametrize("tokens", [TOKENS, (0, 5, 5, 7, 5, 5, 5, 9, 9)])  # what followed a token may be itself
def test_head_scores_on_the_prompt_are_those_of_the_definitions(ask: Bench, tokens: tuple[int, ...]) -> None:
    result = ask("head_scores", HeadScoresParams(on="text"), tokens)
    patterns = _slow(ask, tokens)[2]
    for i, name in enumerate(SCORES):
        for layer in range(2):
            for head in range(4):
                wanted = _slow_score(name, patterns[layer][head], list(tokens))
                assert result.mean[i, layer, head] == pytest.approx(wanted, abs=1e-5), name
    assert np.isnan(result.spread).all()


def test_head_scores_on_random_tokens_repeat_what_they_say(ask: Bench) -> None:
    params = HeadScoresParams(block=5, repeats=3, samples=4, seed=7)
    result = ask("head_scores", params)
    rng = np.random.default_rng(7)
    allowed = np.array([t for t in range(260) if t != 0])
    prompts = [[0, *once.tolist() * 3] for once in rng.choice(allowed, size=(4, 5))]
    each = np.array(
        [
            [[_slow_score("prefix_matching", _slow(ask, tuple(p))[2][layer][h], p) for h in range(4)] for layer in range(2)]
            for p in prompts
        ]
    )
    np.testing.assert_allclose(result.of("prefix_matching"), each.mean(0), atol=1e-5)
    np.testing.assert_allclose(result.spread[0], each.std(0, ddof=1), atol=1e-5)
    drawn, _ = different_random(allowed, (4, 15), np.random.default_rng(8))
    for name in ("prefix_matching", "duplicate_token"):  # of the control: the positions of the repeated tokens, other tokens
        control = [
            [[_slow_score(name, A[layer][h], p) for h in range(4)] for layer in range(2)]
            for p, row in zip(prompts, drawn.tolist(), strict=True)
            for A in [_slow(ask, (0, *row))[2]]
        ]
        np.testing.assert_allclose(result.control[result.names.index(name)], np.mean(control, axis=0), atol=1e-5)
    again = ask("head_scores", replace(params, seed=8))
    assert not np.allclose(result.mean, again.mean, equal_nan=True)


def test_scores_without_a_target_are_not_computed(ask: Bench) -> None:
    result = ask("head_scores", HeadScoresParams(on="text"), (1, 2, 3))
    assert np.isnan(result.of("prefix_matching")).all()
    assert not np.isnan(result.of("previous_token")).any()
    assert np.isnan(ask("head_scores", HeadScoresParams(on="text"), (1,)).of("previous_token")).all()


def test_random_tokens_that_do_not_fit_are_fewer_and_said(ask: Bench) -> None:
    said = ask("head_scores", HeadScoresParams(block=25, repeats=4)).conventions
    assert any("23 random tokens × 2 (no room for 25 × 4)" in words for words in said)


@pytest.mark.parametrize("name", OF_TWO_RUNS)
@pytest.mark.parametrize("source", [(), TOKENS])
def test_a_patch_from_the_very_same_run_is_refused(ask: Bench, name: str, source: Any) -> None:
    params = replace(analyses()[name].params(), source=source)
    with pytest.raises(BadInput, match="nothing to patch"):
        ask(name, params)
    assert ask(name, params, edits=CUT).table().n_rows > 0


def test_a_head_that_is_not_there_is_the_same_error_everywhere(ask: Bench) -> None:
    for name, found in analyses().items():
        for field, kind in get_type_hints(found.params).items():
            if kind not in (Head, Head | None, tuple[Head, ...]) or name == "virtual_weight":  # which asks for ends, not heads
                continue
            for bad in (Head(9, 9), Head(0, 9)):
                params = replace(found.params(), **{field: (bad,) if kind == tuple[Head, ...] else bad})
                with pytest.raises(BadInput, match=r"no such head|earlier|before|later"):
                    ask(name, params, edits=CUT if name in OF_TWO_RUNS else ())


def test_interventions_reach_every_analysis_of_a_prompt(ask: Bench) -> None:
    cut = (Intervention("zero", Site("result", 0)), Intervention("zero", Site("result", 1)))
    free = ask("token_loss", TokenLossParams()).loss
    assert not np.allclose(ask("token_loss", TokenLossParams(), edits=cut).loss[1:], free[1:])


def test_model_facts_count_what_is_there(ask: Bench) -> None:
    result = ask("model_facts", analyses()["model_facts"].params(), ())
    assert result.n_parameters == TINY.n_parameters()
    assert result.exactness == "exact"
    values = {name: value for _, name, value in result.facts}
    assert values["heads"] == "4"
    assert "1/√d_head" in values["score scale"]


@pytest.mark.parametrize(("tokenizer", "prepend", "said"), [(True, True, "before"), (True, False, "not"), (False, True, "not")])
def test_bos_is_in_front_of_prompts_only_where_prompts_get_one(tmp_path: Path, tokenizer: bool, prepend: bool, said: str) -> None:
    asker = Bench(directory(tmp_path / "m", tokenizer=tokenizer, prepend_bos=prepend))
    facts = {name: value for _, name, value in asker("model_facts", analyses()["model_facts"].params(), ()).facts}
    assert facts["BOS"].startswith(said)
    begins = any("BOS +" in word for word in asker("head_scores", HeadScoresParams(samples=1), ()).conventions)
    assert begins == (said == "before")


@pytest.mark.parametrize("config", ["attention-only", "llama", "both-norms-capped", "odd"])
@pytest.mark.parametrize("tokens", [(1,), (1, 2), tuple([3] * 48)])
@pytest.mark.parametrize("name", analyses())
def test_every_analysis_stands_short_and_long_prompts(tmp_path: Path, config: str, tokens: Any, name: str) -> None:
    bench = Bench.on(tmp_path / "m", config, tokenizer=False)
    check_answer(bench, name, tokens, edits=CUT if name in OF_TWO_RUNS else ())


@pytest.mark.parametrize("name", analyses())
def test_the_same_request_computed_afresh_is_bit_equal(tmp_path: Path, name: str) -> None:
    check_afresh(Bench.on(tmp_path / "m").ref, name, edits=CUT if name in OF_TWO_RUNS else ())


def test_a_model_without_layers_is_answered_or_refused_in_words(tmp_path: Path) -> None:
    """The zero-layer transformer has no heads: whatever asks for one says so, and nothing breaks."""
    ref = ModelRef(f"file:{directory(tmp_path / 'm', n_layers=0)}")
    engine = Engine(ModelStore())
    answered = set()
    for name, found in analyses().items():
        try:
            engine.answer(Request.named(name, found.params(), Subject(ref, (0, 1, 2, 3, 1, 2, 3))))
            answered.add(name)
        except CircuitLabError as error:
            assert str(error).strip()
    assert {"bigram", "direct_path", "path_expansion", "predictions", "token_loss", "logit_lens"} <= answered
