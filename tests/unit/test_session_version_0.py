"""What was copied as JSON before there were session files still opens, as the same State."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuitlab.errors import BadInput
from circuitlab.model.subject import Subject
from circuitlab.session_files.session_text import parse_session
from circuitlab.state.state import UNCUT, Pin
from circuitlab.story.resolver import Resolver
from tests.session_files import opened, version_0
from tests.unit.test_capture import UNSHRUNK, resolver, states, words

__all__ = ["resolver"]  # the fixture
HERE = Path("/somewhere/else")


@settings(UNSHRUNK, max_examples=80)
@given(data=st.data())
def test_a_copied_state_opens_as_the_same_state(resolver: Resolver, data: st.DataObject) -> None:
    state = replace(data.draw(states(resolver)), front="")
    again = opened(version_0(state), HERE, resolver.engine)
    assert replace(again, special=state.special) == state, "there was no such switch: a text that may spell a token is letters"


def test_an_uncut_state_that_was_kept_among_the_pins_is_read_off_the_state_again(resolver: Resolver) -> None:
    cut = resolver.state(words('text = "ab cab"\ncut = ["L0H1"]'))
    pins = tuple(Pin(label, Subject(cut.model, cut.tokens)) for label in (UNCUT, "mine"))
    table = version_0(replace(cut, pins=pins))
    assert [pin.label for pin in opened(table, HERE, resolver.engine).pins] == ["mine"]


def test_notes_and_views_of_unknown_panels_are_kept(resolver: Resolver) -> None:
    table = version_0(resolver.state(words('text = "ab"')))
    table["state"] |= {"views": {"of tomorrow": {"x": 1}}, "notes": [{"text": "why?", "panel": "attention"}], "bookmarks": []}
    session = parse_session(json.dumps(table).encode(), HERE)
    assert session.now.view == {"of tomorrow": {"x": 1}}
    assert [(note.text, note.panel) for note in session.notes] == [("why?", "attention")]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("heads", []),
        ("heads", ["L-1H0"]),
        ("heads", [[0, 0]]),
        ("heads", ["L9H9"]),
        ("destination", -1),
        ("destination", 99),
        ("source", "x"),
        ("edge", ["L0H0"]),
        ("target", {"direction": [float("nan")]}),
        ("target", {"direction": [1.0]}),
    ],
)
def test_a_selection_that_cannot_stand_is_refused_or_made_to_stand(resolver: Resolver, key: str, value: Any) -> None:
    state = resolver.state(words('text = "ab cab"'))
    for pinned in (False, True):
        table = version_0(replace(state, pins=(Pin("p", state.subject),)))
        (table["state"]["pins"][0] if pinned else table["state"])["selection"][key] = value
        try:
            opened_state = opened(table, HERE, resolver.engine)
        except BadInput:
            continue
        for selection in (opened_state.selection, *(pin.selection for pin in opened_state.pins)):
            assert selection.heads and all(0 <= n < 4 for head in selection.heads for n in head)
            assert selection == selection.clamped(len(state.tokens))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"circuitlab": 2, "state": {}}', '{"circuitlab": 1}', "[" * 5000])
def test_what_is_no_session_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_session(text.encode(), HERE)
