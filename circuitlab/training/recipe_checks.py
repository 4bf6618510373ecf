"""Checks of a recipe: possible sizes, rates and shares, stages that cover every step, a model that can be built."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

from circuitlab.errors import BadInput, BadModel, quoted
from circuitlab.training.recipe import SHARES, Recipe

DRAWN = ("W_E", "W_U", "W_Q", "W_K", "W_V", "W_O", "W_in", "W_out", "W_gate")
FORMATS = ("circuitlab", "gpt2")
PRECISIONS = ("float32", "bfloat16")
METHODS = ("adamw", "muon")
_DERIVED = ("d_vocab", "d_vocab_out", "n_ctx", "prepend_bos", "family")  # fields of the configuration that follow from the rest

_Test = tuple[str, Callable[[Any], bool]]


def _whole(least: int) -> _Test:
    return f"a whole number of at least {least}", lambda v: type(v) is int and v >= least


def _number(expected: str, fits: Callable[[float], bool]) -> _Test:
    return expected, lambda v: type(v) in (int, float) and abs(v) <= sys.float_info.max and fits(v)


def _pair(expected: str, fits: Callable[[Any, Any], bool]) -> _Test:
    kinds = (int, float)
    return expected, lambda v: isinstance(v, tuple) and len(v) == 2 and all(type(x) in kinds for x in v) and fits(*v)


_POSITIVE = _number("a number above 0", lambda v: v > 0)
_SHARE = _number("a share from 0 to 1", lambda v: 0 <= v <= 1)
_LENGTHS = _pair("two whole numbers, the shorter first", lambda a, b: type(a) is type(b) is int and 1 <= a <= b)
_TEXT = ("text", lambda v: isinstance(v, str))
MOST_TOKENS = 2**24  # of a step: more than the largest models were trained with; beyond it memory fills before torch reports it
_TESTS: dict[str, dict[str, _Test]] = {
    "": {
        "name": _TEXT,
        "title": _TEXT,
        "seed": ("a whole number from 0, below 2⁶³", lambda v: type(v) is int and 0 <= v < 2**63),
        "vocab": ("a whole number from 2 to 1,000,000", lambda v: type(v) is int and 2 <= v <= 1_000_000),
        "tokenizer_bytes": _number("bytes, at least 1", lambda v: v >= 1),
        "positions_amplitude": _number("a finite number", lambda v: True),
        "positions_angles": _pair("two angles above 0 and up to π, the larger first", lambda a, b: 0 < b <= a <= math.pi),
        "model": ("a table", lambda v: isinstance(v, dict)),
        "init": ("a table", lambda v: isinstance(v, dict)),
        "notes": ("a list of text", lambda v: isinstance(v, tuple) and all(isinstance(x, str) for x in v)),
    },
    "stages": {
        "start": _whole(0),
        "context": _whole(4),
        "batch": _whole(1),
        "repeats": _number("a number of at least 0", lambda v: v >= 0),
        "counts": _number("a number above 0, at most 1,000", lambda v: 0 < v <= 1000),
    },
    "data": {
        **dict.fromkeys(SHARES, _SHARE),
        **dict.fromkeys(("block", "segment", "phrase", "phrase_times", "name", "name_times", "passage"), _LENGTHS),
    },
    "optimiser": {
        "steps": _whole(1),
        "rate": _POSITIVE,
        "warmup": _whole(0),
        "final": _SHARE,
        "betas": _pair("two numbers from 0, below 1", lambda a, b: 0 <= a < 1 and 0 <= b < 1),
        "weight_decay": _number("a number of at least 0", lambda v: v >= 0),
        "clip": _POSITIVE,
        "precision": (" or ".join(PRECISIONS), lambda v: v in PRECISIONS),
        "method": (" or ".join(METHODS), lambda v: v in METHODS),
        "matrix_rate": _POSITIVE,
        "momentum": _number("a number from 0, below 1", lambda v: 0 <= v < 1),
        "matrix_decay": _number("a number of at least 0", lambda v: v >= 0),
        "loss_share": _number("a share above 0, at most 1", lambda v: 0 < v <= 1),
    },
    "checkpoints": {
        "first": _whole(1),
        "every": _whole(1),
        "band": _pair("two steps, the earlier first", lambda a, b: type(a) is type(b) is int and 0 <= a <= b),
    },
    "export": {"format": (" or ".join(FORMATS), lambda v: v in FORMATS)},
}


def checked(recipe: Recipe, name: str) -> Recipe:
    """The recipe, checked. Raises `BadInput`, which names the first impossible value."""
    for part, tests in _TESTS.items():
        values = recipe.stages if part == "stages" else (getattr(recipe, part),) if part else (recipe,)
        for value in values:
            for key, (expected, fits) in tests.items():
                if not fits(got := getattr(value, key)):
                    where = f"[{part}] {key}" if part else key
                    raise BadInput(f"{name}: {where} cannot have this value.", expected=expected, got=quoted(got))
    starts = [s.start for s in recipe.stages]
    if 0 not in starts or len(set(starts)) != len(starts):
        got = f"starts at {', '.join(map(str, starts))}" if starts else "none"
        raise BadInput(f"{name} has no stage from step 0.", expected="[[stages]] with start = 0, and each start once", got=got)
    if (most := max(s.batch * s.context for s in recipe.stages)) > MOST_TOKENS:
        expected = f"batch × context of at most {MOST_TOKENS:,} tokens"
        raise BadInput(f"{name}: [stages] batch is too large for a step.", expected=expected, got=f"{most:,}")
    most = recipe.data.times(max(1.0, *(s.repeats for s in recipe.stages)))
    if (repeated := most.self_copy + most.phrases + most.names + most.passages) > 1 + 1e-9 or most.random_repeat > 1:
        expected = "self_copy, phrases, names and passages that sum to 1 at most, times a stage's repeats: a sequence has one"
        got = f"{repeated:g}, and random_repeat {most.random_repeat:g}"
        raise BadInput(f"{name}: [data] shares do not fit.", expected=expected, got=got)
    for key, value in recipe.init.items():
        if key not in DRAWN or not _number("", lambda v: v >= 0)[1](value):
            expected = f"standard deviations of {' '.join(DRAWN)}"
            raise BadInput(f"{name}: [init] {key} cannot have this value.", expected=expected, got=f"{key} = {value!r}"[:80])
    _check_model(recipe, name)
    return recipe


def _check_model(recipe: Recipe, name: str) -> None:
    if derived := sorted(set(recipe.model) & set(_DERIVED)):
        raise BadInput(
            f"{name}: [model] states what follows from the rest.", expected="vocab and [[stages]] context", got=" ".join(derived)
        )
    try:
        config = recipe.config()
    except BadModel as error:
        raise BadInput(
            f"{name}: [model] is impossible: {error.what}",
            expected=error.expected,
            got=error.got,
        ) from error
    if config.stored_positions and config.d_model % 2:
        raise BadInput(f"{name}: stored positions need an even width.", expected="an even d_model", got=str(config.d_model))
    shortest = min(s.context for s in recipe.stages)
    if recipe.data.random_repeat and recipe.data.block[0] > (shortest - 1) // 2:
        raise BadInput(
            f"{name}: [data] block does not fit a sequence twice.",
            expected=f"at most {(shortest - 1) // 2} in a context of {shortest}",
            got=str(recipe.data.block[0]),
        )
    if recipe.export.format == "gpt2":
        from circuitlab.training.huggingface_export import why_not

        if reason := why_not(config):
            raise BadInput(f"{name}: [export] this is not a GPT-2.", expected="GPT-2's architecture", got=reason)
