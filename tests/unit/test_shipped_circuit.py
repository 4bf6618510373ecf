"""The induction circuit of the shipped model: what breaks when its heads are cut, and what wrote an induction score."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from circuitlab.analysis.attribution.score_expansion import ScoreExpansionParams
from circuitlab.analysis.interventions.ablation import AblationParams, AblationResult
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.model.subject import Head, ModelRef, Subject

REF = ModelRef("builtin:attn-only-2l")
INDUCTION, PREVIOUS, OTHERS = Head(1, 1), Head(0, 1), (Head(1, 0), Head(0, 2), Head(0, 3))
BLOCK, SEEDS = 25, 4


def repeated(seed: int) -> tuple[int, ...]:
    once = np.random.default_rng(seed).integers(1, 4096, BLOCK).tolist()
    return (0, *once, *once)


def left_of_the_drop(engine: Engine, head: Head, frozen: bool = False) -> float:
    """Share of the second repetition's loss drop that is left without a head, mean over seeds."""
    shares = []
    for seed in range(SEEDS):
        subject = Subject(REF, repeated(seed))
        loss: Any = engine.answer(Request.named("token_loss", _params("token_loss"), subject)).result
        result = engine.answer(Request.named("ablation", AblationParams(heads=(head,), frozen=frozen), subject)).result
        assert isinstance(result, AblationResult) and result.exact[head]
        cut = loss.loss + result.token_change[head]
        drop = lambda row: np.mean(row[1 : BLOCK + 1]) - np.mean(row[BLOCK + 2 :])
        shares.append(drop(cut) / drop(loss.loss))
    return float(np.mean(shares))


def _params(name: str) -> Any:
    from circuitlab.analysis.base import find_analysis

    return find_analysis(name).params()


def test_without_the_induction_head_the_drop_is_gone(engine: Engine) -> None:
    assert left_of_the_drop(engine, INDUCTION) < 0.2
    assert left_of_the_drop(engine, INDUCTION, frozen=True) == pytest.approx(left_of_the_drop(engine, INDUCTION))  # last layer
    assert all(left_of_the_drop(engine, head) > 0.85 for head in OTHERS)


def test_the_previous_token_head_is_needed_for_the_pattern_only(engine: Engine) -> None:
    assert left_of_the_drop(engine, PREVIOUS) < 0.2
    assert left_of_the_drop(engine, PREVIOUS, frozen=True) > 0.95


def test_keys_of_the_previous_token_head_make_most_of_an_induction_score(engine: Engine) -> None:
    tokens = repeated(0)
    subject = Subject(REF, tokens)
    destination = BLOCK + 10
    params = ScoreExpansionParams(INDUCTION, destination, destination - BLOCK + 1)
    result: Any = engine.answer(Request.named("score_expansion", params, subject)).result
    key = [i for i, head in enumerate(result.heads.tolist()) if tuple(head) == PREVIOUS]
    assert len(key) == 1
    of_key = result.centred[:, key[0]].sum()
    assert of_key > 0.5 * result.centred.sum() > 0
    assert result.groups_centred.sum() == pytest.approx(result.centred.sum(), rel=1e-5)
