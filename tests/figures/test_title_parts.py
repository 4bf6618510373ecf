"""Titles are put together from parts and told apart by them, whatever a label of somebody's own says."""

from __future__ import annotations

import pickle

from circuitlab.figures.marks.title import Title, TitleParts, parts_of, with_parts

TITLE = "L0H1 · pattern"


def test_parts_stand_in_their_order_whenever_they_come() -> None:
    one = with_parts(with_parts(with_parts(TITLE, beside="beside a"), cut="L0H2 cut"), side="a")
    other = with_parts(with_parts(with_parts(TITLE, side="a"), cut="L0H2 cut"), beside="beside a")
    assert one == other == "a · L0H1 · pattern · L0H2 cut · beside a"
    assert with_parts(one, side="", cut="", beside="") == TITLE


def test_a_label_with_the_sign_between_parts_stays_one_part() -> None:
    odd = with_parts(TITLE, side="mine · L0H1 · pattern", note="earlier prompt")
    assert parts_of(odd).side == "mine · L0H1 · pattern" and parts_of(odd).own == ("L0H1", "pattern")
    assert with_parts(odd, side="") == f"{TITLE} · earlier prompt"


def test_a_title_goes_between_processes_with_its_parts() -> None:
    title = Title(TitleParts(("a",), side="b"))
    back = pickle.loads(pickle.dumps(title))
    assert back == title == "b · a" and parts_of(back) == parts_of(title)
