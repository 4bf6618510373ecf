"""`rope-induction` against its definition, evaluated slowly at all parameters; its bounds on texts out to break them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch

from circuitlab.analysis.checks.rope_clock import RotationClockParams
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadModel
from circuitlab.model.config import Rotary
from circuitlab.model.constructed import RopeInduction, build, closed_forms
from circuitlab.model.constructed.matrices import configuration
from circuitlab.model.forward import forward
from circuitlab.model.positions import rotate
from circuitlab.model.subject import Conventions, ModelRef, Subject
from tests.reference import slow_rope_induction as slow

EPSILON = 0.01
CHOICES: dict[str, list[Any]] = {
    "alpha": [0.0, 0.5, 12.8, 50.0, 1e4],
    "beta": [0.0, 1.0, 17.9, 615.0, 1e4],
    "gamma": [0.0, 1.0, 20.0, 400.0],
    "sigma": [0.0, 0.2, 0.5, 0.985, 1.0],
    "d_head": [2, 4, 6, 32, 64],
    "frequencies": ["geometric", "equal"],
    "base": [1.0, 50.0, 1e4, 1e12],
    "period": [1.0, 2.5, 8.0, 1e6],
    "token_in_key": [0.0, 0.0, 0.05, 0.3, 1.0],
    "bos": [True, True, True, False],
    "n_ctx": [2, 3, 5, 8, 12],
}
FULL = {"one-hot": 0, "sinusoidal": 2, "rank-one": 1}


def _drawn(variant: str, rng: np.random.Generator) -> RopeInduction:
    """Parameters from all over what is allowed, its ends included."""
    q: dict[str, Any] = {name: values[int(rng.integers(len(values)))] for name, values in CHOICES.items()}
    q["letters"] = int(rng.choice([2, 3, 5, 26] + ([52] if variant == "one-hot" else [])))
    q["offset"] = int(rng.integers(1, q["n_ctx"]))
    q["rank"] = int(rng.integers(0, (FULL[variant] or q["letters"]) + 1)) if rng.random() < 0.5 else 0
    return RopeInduction(variant=variant, **q)  # type: ignore[arg-type]


def _prompts(p: RopeInduction, rng: np.random.Generator, count: int) -> list[tuple[int, ...]]:
    """One letter alone, two in turn, and random texts of few letters: what rivals and early rows can make most of."""
    bos = (0,) * p.bos
    made = [bos + (1,) * (p.n_ctx - len(bos)), (bos + (1, 2) * p.n_ctx)[: p.n_ctx]]
    for _ in range(count):
        few, n = int(rng.integers(2, p.letters + 1)), int(rng.integers(1, p.n_ctx))
        made.append(bos + tuple(int(t) for t in rng.integers(1, few + 1, n)))
    return made


# -- the formulas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", sorted(FULL))
def test_the_closed_forms_are_the_definition_at_all_parameters(variant: str) -> None:
    rng = np.random.default_rng(6)
    for _ in range(40):
        p = _drawn(variant, rng)
        tokens = _prompts(p, rng, 1)[-1]
        wanted = slow.rope_induction(tokens, **dataclasses.asdict(p))
        np.testing.assert_allclose(closed_forms.attention_0(p, tokens), wanted.first, atol=1e-7, err_msg=f"{p} {tokens}")
        np.testing.assert_allclose(closed_forms.attention_1(p, tokens), wanted.second, atol=1e-7, err_msg=f"{p} {tokens}")
        np.testing.assert_allclose(
            closed_forms.logits(p, tokens), wanted.logits, atol=1e-7 * max(1.0, p.gamma), err_msg=f"{p} {tokens}"
        )


@pytest.mark.parametrize("variant", sorted(FULL))
def test_the_matrices_are_the_definition_too(variant: str) -> None:
    rng = np.random.default_rng(7)
    for _ in range(12):
        p = _drawn(variant, rng)
        tokens = _prompts(p, rng, 1)[-1]
        run, wanted = forward(build(p).weights.as_stored(), tokens), slow.rope_induction(tokens, **dataclasses.asdict(p))
        for layer, attention in ((0, wanted.first), (1, wanted.second)):
            np.testing.assert_allclose(run.get("pattern", layer)[0].numpy(), attention, atol=1e-7, err_msg=f"{p} {tokens}")
        np.testing.assert_allclose(run.logits().numpy(), wanted.logits, atol=1e-7 * max(1.0, p.gamma))


def test_turning_twice_is_turning_by_the_sum_and_a_score_knows_only_the_difference() -> None:
    rng, rotary = np.random.default_rng(0), Rotary(pairs="interleaved")
    q, k = (torch.from_numpy(rng.normal(size=(1, 12))) for _ in range(2))
    torch.testing.assert_close(rotate(rotate(q, rotary, 3), rotary, 8), rotate(q, rotary, 11))
    for m, n in ((0, 5), (9, 2), (4, 4)):
        score = float(rotate(q, rotary, m)[0] @ rotate(k, rotary, n)[0])
        assert score == pytest.approx(float(q[0] @ rotate(k, rotary, n - m)[0]))


@pytest.mark.parametrize("letters", [2, 5, 26, 52])
def test_one_hot_letters_need_three_times_the_vocabulary_and_one(letters: int) -> None:
    assert configuration(RopeInduction(letters=letters)).d_model == 3 * (letters + 1) + 1


# -- the checked numbers ---------------------------------------------------------------------------------------------------


def test_the_smallest_weight_of_layer_0_and_the_largest_stray_mass_of_layer_1() -> None:
    p, rows = RopeInduction(), np.arange(1, 64)
    last_is_new = (0, *np.random.default_rng(0).integers(1, 26, 62).tolist(), 26)  # 63 rivals, and BOS the best of all
    assert closed_forms.attention_0(p, last_is_new)[rows, rows - 1].min() == pytest.approx(0.9997, abs=5e-5)
    assert 1 - closed_forms.attention_1(p, last_is_new)[63, 0] == pytest.approx(0.0082, abs=1e-4)
    assert 63 * math.exp(-17.9 / 2) / (1 + 63 * math.exp(-17.9 / 2)) == pytest.approx(0.0081, abs=5e-5)
    assert closed_forms.alpha_needed(RopeInduction.preset("sinusoidal"), 1e-4) == pytest.approx(19.5, abs=0.05)


def test_layer_1_does_not_prefer_the_latest_of_several_matches() -> None:
    A, B, C = 1, 2, 3
    for tokens in ((0, A, B, 7, 8, 9, A, C, 5, A), (0, A, C, 7, 8, 9, A, B, 5, A)):
        result = closed_forms.logits(RopeInduction(), tokens)[-1]
        assert result[B] == pytest.approx(result[C], rel=1e-6) and result[B] == pytest.approx(10, abs=0.1)


# -- the bounds ------------------------------------------------------------------------------------------------------------


def _least(p: RopeInduction, tokens: tuple[int, ...]) -> tuple[float, float]:
    """The least mass that a row of either layer puts where the theorem says."""
    first, second, o = closed_forms.attention_0(p, tokens), closed_forms.attention_1(p, tokens), p.offset
    one = [first[m, m - o] for m in range(o, len(tokens))]
    two = []
    for m in range(1, len(tokens)):
        held = [n for n in range(o, m + 1) if tokens[n - o] == tokens[m]]
        two.append(second[m, held or [0]].sum())
    return min(one, default=1.0), min(two, default=1.0)


def test_at_the_bounds_no_text_breaks_them() -> None:
    rng, tried = np.random.default_rng(8), 0
    for _ in range(250):
        p = _drawn("sinusoidal" if rng.random() < 0.3 else "one-hot", rng)
        alpha = closed_forms.alpha_needed(p, EPSILON)
        if not alpha < 1e6:
            continue
        p = dataclasses.replace(p, alpha=alpha)
        beta = closed_forms.beta_needed(p, EPSILON)
        if beta < 1e6:
            p, tried = dataclasses.replace(p, beta=beta), tried + 1
        for tokens in _prompts(p, rng, 3):
            first, second = _least(p, tokens)
            assert first >= 1 - EPSILON - 1e-9, f"{p} {tokens}"
            assert second >= 1 - EPSILON - 1e-9 or not beta < 1e6, f"{p} {tokens}"
    assert tried >= 10


def test_a_bound_suffices_and_less_may_do() -> None:
    p = RopeInduction(alpha=10.0)
    first, _ = _least(p, (0, *np.random.default_rng(0).integers(1, 27, 63).tolist()))
    assert first == pytest.approx(0.998, abs=1e-3) and closed_forms.alpha_needed(p, EPSILON) > 12
    words = build(p).notes[0]
    assert "α = 10 is below the bound" in words and "12.8" in words and "suffices" not in words


def test_a_key_that_holds_tokens_needs_a_larger_alpha_or_there_is_none() -> None:
    needed = [closed_forms.alpha_needed(RopeInduction(token_in_key=s), EPSILON) for s in (0.0, 0.01, 0.05, 0.1, 0.3, 1.0)]
    assert needed == sorted(needed) and needed[3] > 10 * needed[0] and needed[4:] == [math.inf, math.inf]
    # A stands where it should look, M beside it: M's coordinate and the key's pull the same way
    tokens = (0, *(t for t in range(1, 27) for _ in range(2)), *range(26, 15, -1))[:64]
    plain, held = RopeInduction(token_in_key=0.1), RopeInduction(token_in_key=0.1, alpha=needed[3])
    assert _least(plain, tokens)[0] < 1 - EPSILON < _least(held, tokens)[0], "what suffices without the token is too little"
    assert "no α suffices on every text" in build(RopeInduction(token_in_key=1.0)).notes[0]
    none = [slow.rope_induction((0, 5, 6, 7, 5), token_in_key=1.0, alpha=a).first[4, 3] for a in (1.0, 10.0, 100.0)]
    assert max(none) < 0.5, "a key of nothing but the token finds itself"


def test_rows_in_front_of_the_offset_may_take_a_letter_for_their_own_past() -> None:
    """With two hands, row 1 of offset 4 stands nearer to the peak than BOS does, and claims that its own letter lies 4 behind."""
    p = RopeInduction(d_head=4, offset=4, letters=3, alpha=305.0)
    assert p.alpha >= closed_forms.alpha_needed(p, EPSILON)
    result = slow.rope_induction((0, 1, 2, 2, 1), **dataclasses.asdict(p))
    assert result.first[4, 0] > 1 - EPSILON and result.first[1, 1] > 0.99
    assert result.second[4, 1] > 0.99, "nothing is 4 behind an A here: the theorem would have it rest on BOS"
    assert closed_forms.beta_needed(p, EPSILON) == math.inf
    for offset in (1, 2, 3):  # with 16 hands BOS is the highest there
        p = RopeInduction(offset=offset)
        assert closed_forms.astray(p, 12.8) < 1e-3 and closed_forms.beta_needed(p, EPSILON) == pytest.approx(17.9, abs=0.05)


@pytest.mark.parametrize("n", range(1, 9))
def test_prompts_shorter_than_the_offset(n: int) -> None:
    for offset in (3, 5, 7, 9):
        ref = ModelRef(f"construct:rope-induction?offset={offset}")
        request = Request.named(
            "rotation_clock", RotationClockParams(), Subject(ref, tuple(range(n)), (), Conventions(dtype="float64"))
        )
        result: Any = Engine(ModelStore()).answer(request).result
        assert not result.wanted[1, :, 1:].any() and result.wanted[1, :, 0].all(), "nothing is that far behind: all rest on BOS"
        assert np.isnan(result.margin).all() and result.right() == (0, 0)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"n_ctx": 4097}, "n_ctx"),
        ({"d_head": 514}, "d_head"),
        ({"base": 0.5}, "base"),
        ({"period": 0.5}, "period"),
        ({"alpha": 2e6}, "alpha"),
        ({"gamma": math.inf}, "gamma"),
        ({"sigma": -0.01}, "sigma"),
        ({"token_in_key": 1.01}, "token_in_key"),
        ({"rank": -1}, "rank"),
        ({"letters": 1}, "letters"),
        ({"alpha": True}, "alpha"),
        ({"offset": 1.0}, "offset"),
    ],
)
def test_what_lies_beyond_the_ends_is_refused_by_name(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(BadModel) as caught:
        RopeInduction(**changes)
    assert word in caught.value.what and caught.value.expected and caught.value.got


@pytest.mark.parametrize(
    "changes",
    [
        {"n_ctx": 4096, "offset": 4095},
        {"d_head": 512, "letters": 52, "token_in_key": 0.02},
        {"n_ctx": 2, "letters": 2, "d_head": 2},
        {"frequencies": "equal", "period": 1.0},
        {"alpha": 1e6, "beta": 1e6, "gamma": 1e6},
        {"alpha": 0.0, "beta": 0.0, "gamma": 0.0},
    ],
    ids=str,
)
def test_the_ends_themselves_work(changes: dict[str, Any]) -> None:
    p = RopeInduction(**changes)
    tokens = (0, 1, 2, 1, 2)[: p.n_ctx]
    assert all(len(note) > 10 and "nan" not in note for note in build(p).notes)
    assert all(np.isfinite(made(p, tokens)).all() for made in (closed_forms.attention_0, closed_forms.logits))
    assert closed_forms.alpha_needed(p, EPSILON) > 0 and closed_forms.beta_needed(p, EPSILON) > 0
