"""Where a model comes from: each kind is read from its text and written as the same text, whatever the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuitlab.model.origin import Builtin, Constructed, File, Hub, InSession, Origin, Stored, Unknown, origin_of
from circuitlab.model.subject import ModelRef

KINDS = ("builtin", "file", "hub", "construct", "stored", "session")


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("builtin:attn-only-2l", Builtin("attn-only-2l")),
        ("file:C:\\runs\\mine", File("C:\\runs\\mine")),
        ("hub:openai-community/gpt2@main", Hub("openai-community/gpt2@main")),
        ("construct:rope-induction?alpha=4", Constructed("rope-induction?alpha=4")),
        ("stored:0a1b/mine", Stored("0a1b/mine")),
        ("session:mine", InSession("mine")),
        ("file:", File("")),
        ("builtin", Unknown("", "builtin")),
        ("Builtin:a", Unknown("a", "Builtin:a")),
    ],
)
def test_a_text_is_read_as_its_kind(text: str, origin: Origin) -> None:
    assert origin_of(text) == origin
    assert ModelRef.of(origin).source == text
    assert ModelRef(text).origin == origin


@given(st.one_of(st.text(), st.builds("{}:{}".format, st.sampled_from(KINDS), st.text())))
def test_what_is_read_is_written_as_it_was(text: str) -> None:
    assert str(origin_of(text)) == text


def test_two_kinds_with_one_name_are_not_equal() -> None:
    origins = [Builtin("a"), File("a"), Hub("a"), Constructed("a"), Stored("a"), InSession("a"), Unknown("a", "a")]
    assert len({str(one) for one in origins}) == len(origins) == len(set(origins))
