"""The induction circuit of the shipped model: what breaks when its heads are cut, and what wrote an induction score."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from circuitlab.analysis.attribution.score_expansion import ScoreExpansionParams
from circuitlab.analysis.behaviour.token_loss import TokenLossParams
from circuitlab.analysis.interventions.ablation import AblationParams, AblationResult
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.model.subject import ModelRef, Subject
from tests.shipped_models import config_of, heads_of, induction_head, previous_token_head, score_of

REF = ModelRef("builtin:attn-only-2l")
HEADS, PREVIOUS = heads_of("attn-only-2l"), previous_token_head()
INDUCTION = tuple(head for head in HEADS if score_of("attn-only-2l", "prefix_matching")[head] > 0.5)
BLOCK, SEEDS = 25, 4


def repeated(seed: int) -> tuple[int, ...]:
    once = np.random.default_rng(seed).integers(1, config_of("attn-only-2l")["d_vocab"], BLOCK).tolist()
    return (0, *once, *once)


def _drop(loss: np.ndarray) -> float:
    """By how much the mean loss of the second repetition is smaller."""
    return float(np.mean(loss[1 : BLOCK + 1]) - np.mean(loss[BLOCK + 2 :]))


def left_of_the_drop(engine: Engine, frozen: bool = False) -> dict[Any, float]:
    """Share of the second repetition's loss drop that is left without a head and without `INDUCTION`, mean over seeds."""
    shares = list[dict[Any, float]]()
    for seed in range(SEEDS):
        subject = Subject(REF, repeated(seed))
        loss: Any = engine.answer(Request.named("token_loss", TokenLossParams(), subject)).result
        cuts = (AblationParams(frozen=frozen), AblationParams(frozen=frozen, what="set", heads=INDUCTION))
        each, together = (engine.answer(Request.named("ablation", params, subject)).result for params in cuts)
        assert isinstance(each, AblationResult) and isinstance(together, AblationResult) and each.exact.all()
        cut = {head: each.token_change[head] for head in HEADS} | {INDUCTION: together.set_change[0]}
        shares.append({what: _drop(loss.loss + change) / _drop(loss.loss) for what, change in cut.items()})
    return {what: float(np.mean([one[what] for one in shares])) for what in shares[0]}


@pytest.fixture(scope="module")
def left() -> dict[Any, float]:
    return left_of_the_drop(Engine(ModelStore()))


@pytest.fixture(scope="module")
def left_frozen() -> dict[Any, float]:
    return left_of_the_drop(Engine(ModelStore()), frozen=True)


def test_without_the_induction_heads_the_drop_is_gone(left: dict[Any, float], left_frozen: dict[Any, float]) -> None:
    assert left[INDUCTION] < 0.2
    last = [head for head in HEADS if head.layer == 1]
    assert {head.layer for head in INDUCTION} == {1} and min(last, key=left.__getitem__) == induction_head()
    assert all(left_frozen[head] == pytest.approx(left[head]) for head in last), "no pattern is above them"
    assert all(left[head] > 0.85 for head in last if head not in INDUCTION)


def test_the_previous_token_head_is_needed_for_the_pattern_only(left: dict[Any, float], left_frozen: dict[Any, float]) -> None:
    assert left[PREVIOUS] < 0.2
    assert left_frozen[PREVIOUS] > 0.95
    first = sorted(left[head] for head in HEADS if head.layer == 0)
    assert first[0] == left[PREVIOUS] and all(share > 0.85 for share in first[2:]), "one more head is leant on"


def test_keys_of_the_previous_token_head_make_most_of_an_induction_score(engine: Engine) -> None:
    tokens = repeated(0)
    subject = Subject(REF, tokens)
    destination = BLOCK + 10
    params = ScoreExpansionParams(induction_head(), destination, destination - BLOCK + 1)
    result: Any = engine.answer(Request.named("score_expansion", params, subject)).result
    key = [i for i, head in enumerate(result.heads.tolist()) if tuple(head) == PREVIOUS]
    assert len(key) == 1
    of_key = result.centred[:, key[0]].sum()
    assert of_key > 0.5 * result.centred.sum() > 0
    assert result.groups_centred.sum() == pytest.approx(result.centred.sum(), rel=1e-5)
