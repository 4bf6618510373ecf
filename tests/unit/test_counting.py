"""One of something is not "1 tokens": in the source, and in what panels say of one token, one layer, one head."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import circuitlab
from circuitlab.counting import before_and_after, number_of
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.errors import CircuitLabError
from circuitlab.figures.contracts.panel import panels
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Head, ModelRef
from circuitlab.report.render import figure_of
from circuitlab.state.state import State
from tests.models import TINY, directory

SOURCE = Path(circuitlab.__file__).parent
# what stands in front of the noun is not a count of one: text, a bound that is a constant, a number with decimals
WORDS = {"between(first, last)", "short(t)", "short(self.tokens, 1000)", "NAMES[i]", "self.p.statistics", "role"}
WORDS |= {"to(d.block)", "to(d.segment)", "to(d.phrase)", "to(d.phrase_times)", "to(d.name)", "to(d.name_times)", "_count(shape)"}
WORDS |= {
    "view.values",
    "said",
    "self.block",
    "size",
    "bits / 8",
    "old",
    "short",
    "text",
    "file.name",
    "found.name",
    "name",
    "index.name",
    "value.minus",
    "' or '.join(map(str, known))",
}


def test_a_count_agrees_with_its_noun() -> None:
    assert [number_of(n, "token") for n in (0, 1, 2, 4096)] == ["0 tokens", "1 token", "2 tokens", "4,096 tokens"]
    assert [number_of(n, "entry is", "entries are") for n in (1, 3)] == ["1 entry is", "3 entries are"]


def _read(text: str) -> Fraction:
    return Fraction(text.replace("−", "-"))


@given(st.floats(0, 20), st.floats(-3, 3))
def test_two_numbers_and_their_change_agree_to_the_last_digit_shown(before: float, step: float) -> None:
    after = before + step
    first, second, change = before_and_after(before, after)
    unit = Fraction(1, 10 ** len(first.partition(".")[2]))
    assert abs(_read(first) - Fraction(before)) <= unit / 2 and abs(_read(second) - Fraction(after)) <= unit / 2
    if "e" not in change:
        assert _read(second) - _read(first) == _read(change)
        assert abs(_read(change) - (Fraction(after) - Fraction(before))) <= unit
    assert (_read(change) > 0) == (after > before) or first == second


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (3.6676, 3.8124, ("3.6676", "3.8124", "+0.1448")),  # 3.668 and 3.812, whose change would read +0.145
        (3.5, 3.25, ("3.500", "3.250", "−0.250")),
        (2.0, 2.0, ("2.000", "2.000", "0.000")),
        (2.0, 2.0001, ("2.0000", "2.0001", "+0.0001")),
        (2.0, 2.00000002, ("2.000000", "2.000000", "+2e−08")),
        (2.0, float("nan"), ("2.000", "nan", "nan")),
    ],
)
def test_a_change_is_that_of_the_numbers_beside_it(before: float, after: float, shown: tuple[str, str, str]) -> None:
    assert before_and_after(before, after) == shown


@cache
def _trees() -> dict[Path, ast.Module]:
    return {p: ast.parse(p.read_text(encoding="utf-8")) for p in sorted(SOURCE.rglob("*.py"))}


@cache
def _nouns() -> frozenset[str]:
    """The plurals of everything that is counted somewhere."""
    calls = (n for tree in _trees().values() for n in ast.walk(tree) if isinstance(n, ast.Call) and len(n.args) > 1)
    counted = (n.args[1] for n in calls if isinstance(n.func, ast.Name) and n.func.id == "number_of")
    ones = {n.value.split(" ")[-1] for n in counted if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return frozenset(f"{one}s" for one in ones if len(one) > 3)


def _numbers_before_plurals(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr):
            continue
        parts = [ast.Constant(""), *node.values]
        for before, number, after in zip(parts, parts[1:], parts[2:], strict=False):
            if not (isinstance(number, ast.FormattedValue) and isinstance(after, ast.Constant)):
                continue
            product = isinstance(before, ast.Constant) and str(before.value).endswith("× ")
            plural = re.match(r" (?:(?!with|in|as)[a-z-]*[^s ] )?([a-z]+)\b(?!/)", str(after.value))
            constant = isinstance(number.value, ast.BinOp) or ast.unparse(number.value).isupper()
            if plural and plural[1] in _nouns() and not (product or constant or ast.unparse(number.value) in WORDS):
                yield node.lineno, f"{{{ast.unparse(number.value)}}}{plural[0]}"


def test_no_number_stands_in_front_of_a_plural_in_the_source() -> None:
    result = [
        f"{p.relative_to(SOURCE)}:{line} {what}" for p, tree in _trees().items() for line, what in _numbers_before_plurals(tree)
    ]
    assert {"tokens", "positions", "heads", "layers", "interventions"} <= _nouns()
    assert not result, f"{result}: circuitlab.counting.number_of says how many"


# -- what panels say -------------------------------------------------------------------------------------------------------


def said_by(thing: Any) -> Iterator[str]:
    """Every text in a figure, axes and cells too."""
    if isinstance(thing, str):
        yield thing
    elif is_dataclass(thing) and not isinstance(thing, type):
        for field in fields(thing):
            yield from said_by(getattr(thing, field.name))
    elif isinstance(thing, (tuple, list)) or (isinstance(thing, np.ndarray) and thing.dtype == object):
        for one in thing:
            yield from said_by(one)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Engine, State]:
    """One layer of one head, one token, one intervention."""
    config = replace(TINY, n_layers=1, n_heads=1, n_kv_heads=1)
    state = State(ModelRef(f"file:{directory(tmp_path_factory.mktemp('one') / 'model', config)}")).with_tokens((5,))
    state = state.select(heads=(Head(0, 0),), destination=0)
    return Engine(ModelStore()), replace(state, edits=((Intervention("zero", Site("z", 0, (0,))), True),))


@pytest.mark.parametrize("name", panels())
def test_panels_of_one_of_everything_say_so(alone: tuple[Engine, State], name: str) -> None:
    engine, state = alone
    plural = re.compile(rf"(?<![\d.,–×/−-])(?<!× )\b1 (?:[a-z-]+ )?(?:{'|'.join(sorted(_nouns()))})\b")
    for tokens in ((5,), (5, 6)):
        try:
            texts = [*said_by(figure_of(engine, panels()[name], state.with_tokens(tokens).select(heads=(Head(0, 0),))))]
        except CircuitLabError as error:  # what this model is too small for
            texts = [str(error)]
        assert texts and not [text for text in texts if plural.search(text)]
