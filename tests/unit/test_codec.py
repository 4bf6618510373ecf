"""The codec: help, command line, JSON and Python values all read and write the same parameters."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from circuitlab.analysis.base import TextRef, analyses
from circuitlab.analysis.interventions.patching import PatchingParams
from circuitlab.engine.codec import as_text, describe, fields, from_json, params_of, parse, parse_params, to_json
from circuitlab.engine.texts import Texts
from circuitlab.errors import BadInput, UsageError
from circuitlab.figures.contracts.panel import panels
from circuitlab.model.forward import forward
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Head
from circuitlab.model.whole_numbers import whole_numbers
from tests.models import TINY, weights_of

heads = st.builds(Head, st.integers(0, 99), st.integers(0, 99))
words = st.text(st.characters(codec="utf-8"), max_size=9)


@dataclass(frozen=True)
class Everything:
    a: bool = False
    b: int = 1
    c: float = 0.5
    d: str = ""
    e: Literal["x", "y"] = "x"
    f: Head = Head(0, 0)
    g: tuple[Head, ...] = ()
    h: int | None = None
    i: tuple[float, ...] = ()
    j: TextRef = TextRef("")
    k: tuple[Head, Head] = (Head(0, 0), Head(1, 1))
    m: Literal[1, 2] = 1


everything = st.builds(
    Everything,
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    words,
    st.sampled_from(["x", "y"]),
    heads,
    st.lists(heads, max_size=3).map(tuple),
    st.none() | st.integers(),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=3).map(tuple),
    words.map(TextRef),
    st.tuples(heads, heads),
    st.sampled_from([1, 2]),
)


@given(everything)
def test_what_help_would_say_is_read_back(value: Everything) -> None:
    assert parse_params(Everything, {name: as_text(getattr(value, name)) for name in fields(Everything)}) == value


@given(everything)
def test_json_is_strict_and_read_back(value: Everything) -> None:
    text = json.dumps(to_json(value), allow_nan=False)
    assert from_json(Everything, json.loads(text)) == value


@given(everything)
def test_python_values_are_taken_as_they_are(value: Everything) -> None:
    assert params_of(Everything, {n: getattr(value, n) for n in fields(Everything)}) == value


def test_python_values_may_be_texts_lists_or_one_of_several() -> None:
    assert params_of(Everything, {"g": "L1H2,L0H0"}).g == (Head(1, 2), Head(0, 0))
    assert params_of(Everything, {"g": ["L1H2"]}).g == (Head(1, 2),)
    assert params_of(Everything, {"g": Head(1, 2), "i": 3}) == Everything(g=(Head(1, 2),), i=(3.0,))


@pytest.mark.parametrize("given", [{"a": 1}, {"b": 1.5}, {"b": True}, {"e": "z"}, {"g": [3]}, {"zz": 1}, {"c": float("nan")}])
def test_python_values_of_the_wrong_kind_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        params_of(Everything, given)


@pytest.mark.parametrize(
    ("name", "text"),
    [("a", "maybe"), ("b", "1.5"), ("c", "inf"), ("e", "z"), ("f", "H1"), ("g", "L0H0,,"), ("k", "L0H0"), ("h", "?")],
)
def test_a_bad_value_is_refused_with_what_was_expected(name: str, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(fields(Everything)[name][0], text, name)
    assert caught.value.expected
    assert caught.value.got


def test_a_missing_parameter_is_named() -> None:
    @dataclass(frozen=True)
    class Needs:
        path: str

    with pytest.raises(UsageError, match="missing") as caught:
        parse_params(Needs, {})
    assert caught.value.expected == "path"


def test_every_default_of_every_analysis_and_panel_is_read_back() -> None:
    for kind in (*(a.params for a in analyses().values()), *(p.view for p in panels().values())):
        for field in describe(kind):
            assert parse(field.kind, field.default_text, field.name) == field.default, (kind, field)


def test_describe_says_what_a_control_needs() -> None:
    result = {f.name: f for f in describe(Everything)}
    assert result["e"].choices == ("x", "y")
    assert result["g"].type_name == "Head[,…]"
    assert result["k"].type_name == "Head,Head"
    assert result["h"].type_name == "int|none"
    assert result["a"].default_text == "false"


# -- texts -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reads:
    one: TextRef
    many: tuple[TextRef, ...] = ()


def test_a_text_is_known_by_its_hash(tmp_path: Path) -> None:
    a, texts = tmp_path / "a.txt", Texts()
    a.write_text("abc")
    params = Reads(TextRef(str(a)), (TextRef(str(a)), TextRef("elsewhere", "f" * 64)))
    assert texts.settled(params, read=False) is None  # whoever must not block gets no answer, and no file is read
    made = texts.settled(params)
    assert made is not None
    assert made.one.sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, "abc"
    assert made.many == (made.one, TextRef("elsewhere", "f" * 64))
    assert texts.settled(params, read=False) == made
    a.write_text("abcd")
    again = texts.settled(params)
    assert again is not None
    assert again.one.sha256 != made.one.sha256
    gone = Reads(TextRef(str(tmp_path / "b.txt")))
    assert texts.settled(gone, read=False) is None
    with pytest.raises(BadInput):
        texts.settled(gone)
    with pytest.raises(BadInput):
        texts.settled(Reads(TextRef(str(tmp_path))))


def test_parameters_without_texts_are_the_same_object() -> None:
    value = Everything(j=TextRef("x", "y"))
    assert Texts().settled(value, read=False) is value


FLOATS: list[tuple[Any, int]] = [
    ([0, 1, 2.0, 3], 2),
    ([0, 1, 2.5], 2),
    (np.array([0, 1.5, 2]), 1),
    (torch.tensor([0, 1, 2.5]), 2),
    (np.array([0.0, 1.0]), 0),
    ([1, True], 1),
    ([[1, 2]], 0),
    ("0,1.5,2", 1),
]


@pytest.mark.parametrize(("given", "at"), FLOATS)
def test_an_error_names_the_number_that_is_not_whole(given: Any, at: int) -> None:
    """The same element for parameters, prompts and interventions; of an array of floats the first that cannot be meant."""
    with pytest.raises(UsageError) as caught:
        params_of(PatchingParams, {"source": given})
    assert f" source[{at}] " in caught.value.what
    if isinstance(given, str):
        return
    with pytest.raises(UsageError) as caught:
        Intervention("patch", Site("z", 0), source=given)
    assert f" source[{at}] " in caught.value.what and caught.value.got in repr(list(given)).lower()
    with pytest.raises(UsageError) as caught:
        whole_numbers(given, "tokens")
    assert f" tokens[{at}] " in caught.value.what


@pytest.mark.parametrize(
    "given", [(1, 2), [1, 2], range(1, 3), np.array([1, 2]), torch.tensor([1, 2]), np.array([1, 2], np.uint16)]
)
def test_whole_numbers_come_in_any_sequence(given: Any) -> None:
    assert params_of(PatchingParams, {"source": given}).source == (1, 2)
    made = Intervention("patch", Site("z", 0, heads=given), source=given)
    assert (made.source, made.site.heads) == ((1, 2), (1, 2)) and {type(i) for i in made.source} == {int}
    for none in ({1, 2}, "12", 1):
        with pytest.raises(UsageError, match="source"):
            Intervention("patch", Site("z", 0), source=none)  # type: ignore[arg-type]


def test_ids_of_the_other_prompt_are_not_said_to_be_of_this_one() -> None:
    w, _ = weights_of(TINY)
    with pytest.raises(BadInput, match="The prompt has") as caught:
        forward(w, (1, 2, TINY.d_vocab))
    assert caught.value.got == f"{TINY.d_vocab} at position 2"
    edit = Intervention("patch", Site("z", 0), source=(1, TINY.d_vocab))
    with pytest.raises(BadInput, match="The other prompt has"):
        forward(w, (1, 2), (edit,))
