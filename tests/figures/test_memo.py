"""What is derived of answers is remembered by the answers themselves, never by a number that another object may take over."""

from __future__ import annotations

import ast
import gc
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circuitlab.figures
from circuitlab.engine.request import Answer
from circuitlab.figures.contracts import memo as module
from circuitlab.figures.contracts.memo import _GROUPS, MOST, memo


class Result:
    def __init__(self, value: float) -> None:
        self.value = value


def test_the_same_objects_give_the_same_thing() -> None:
    a, b = Result(1.0), np.zeros(3)
    first = memo((a, b, None), "sum", object)
    assert memo((a, b, None), "sum", object) is first
    assert memo((a, b, None), "other", object) is not first
    assert memo((a, None, b), "sum", object) is not first
    assert memo((a,), "sum", object) is not first


def test_an_object_that_takes_the_place_of_another_gets_its_own() -> None:
    """What lies at the same address as one that is gone: 200 differences to answers that nobody holds."""
    here, stale, places = Result(0.5), 0, set[int]()
    for i in range(200):
        there = Result(float(i))
        places.add(id(there))
        change = memo((here, there), "change", lambda there=there: here.value - there.value)
        stale += change != here.value - float(i)
        del there
    assert stale == 0
    assert len(places) < 200  # addresses were taken over, or this shows nothing


def test_nothing_stays_of_what_is_gone() -> None:
    gc.collect()
    before = len(_GROUPS)
    a, b = Result(1.0), Result(2.0)
    memo((a, b), "kept", lambda: np.zeros(10))
    memo((b,), "kept", lambda: np.zeros(10))
    assert len(_GROUPS) == before + 2
    del b
    gc.collect()
    assert len(_GROUPS) == before
    many = [Result(0.0) for _ in range(2 * MOST)]
    for one in many:
        memo((a, one), "holds its key", lambda one=one: one)
    assert len(_GROUPS) <= MOST


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_with_any_one_of_its_objects_a_value_goes(gone: int) -> None:
    of = [Result(1.0), Result(2.0), Result(3.0)]
    value = memo(tuple(of), "value", lambda: np.zeros(10))
    ref = weakref.ref(value)
    del value
    assert ref() is not None
    del of[gone]
    gc.collect()
    assert ref() is None


def test_an_answer_stands_for_its_result_and_one_object_for_a_tuple_of_it() -> None:
    """An answer is made anew whenever it is given; its result stays in the engine's cache."""
    one, other = Result(1.0), Result(2.0)
    answer: Any = lambda result: Answer(None, result, True, None)  # type: ignore[arg-type]
    first = memo(answer(one), "key", object)
    assert memo(answer(one), "key", object) is first
    assert memo((answer(one),), "key", object) is first
    assert memo(one, "key", object) is first
    assert memo(answer(other), "key", object) is not first


def test_the_end_of_the_process_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module's names go before what it remembers."""
    told = list[object]()
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    one = Result(1.0)
    memo((one,), "kept", object)
    monkeypatch.setattr(module, "_GROUPS", None)
    del one
    gc.collect()
    assert not told


def test_no_figure_remembers_by_id() -> None:
    for file in Path(circuitlab.figures.__file__).parent.rglob("*.py"):
        calls = (n for n in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(n, ast.Call))
        named = [n.lineno for n in calls if isinstance(n.func, ast.Name) and n.func.id == "id"]
        assert not named, f"{file.name} uses id() at line {named}"
    memos = [f for f in Path(circuitlab.figures.__file__).parent.rglob("*.py") if "weakref" in f.read_text(encoding="utf-8")]
    assert [f.name for f in memos] == ["memo.py"], "one memo for all figures"
