"""What of a step's words about panels cannot be followed is said by name; what can is not."""

from __future__ import annotations

from typing import Any

import pytest

from circuitlab.errors import BadInput
from circuitlab.figures.contracts.panel import view_types
from circuitlab.lessons.lesson import lessons
from circuitlab.story.panel_names import need_panels, need_settings, unfollowed, unread_settings
from circuitlab.story.setup import Setup

VIEWS = view_types()
SHOWN = ("attention", "logit_lens")


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"colour": "mauve"}, "mauve"), ({"frobnicate": 3}, "frobnicate"), ({"colour": "probability", "top": "many"}, "top")],
)
def test_a_setting_that_cannot_be_read_is_named(settings: dict[str, Any], named: str) -> None:
    setup = Setup(show=SHOWN, view={"logit_lens": settings})
    why = unread_settings(setup, VIEWS)
    assert list(why) == ["logit_lens"] and named in why["logit_lens"]
    (words,) = unfollowed(setup, VIEWS)
    assert "logit_lens" in words and named in words
    for refuse in (lambda: need_panels(setup, VIEWS), lambda: need_settings(setup, VIEWS, "logit_lens")):
        with pytest.raises(BadInput, match="logit_lens") as raised:
            refuse()
        assert named in str(raised.value)
    need_settings(setup, VIEWS, "attention")  # whose settings are read


def test_settings_of_a_panel_that_is_not_shown_are_let_be() -> None:
    setup = Setup(show=("attention",), view={"logit_lens": {"frobnicate": 3}})
    assert unfollowed(setup, VIEWS) == () and unread_settings(Setup(view=setup.view), VIEWS)
    need_panels(setup, VIEWS)


def test_all_settings_of_the_shipped_lessons_are_read() -> None:
    shipped, wrong = lessons()
    setups = [step.setup for lesson in shipped for step in lesson.steps if step.setup is not None]
    assert not wrong and sum(bool(setup.view) for setup in setups) > 20
    assert [words for setup in setups for words in unfollowed(setup, VIEWS)] == []


def test_a_panel_that_there_is_not_is_named_beside_them() -> None:
    setup = Setup(show=("attentoin", "logit_lens"), view={"logit_lens": {"frobnicate": 3}})
    assert len(unfollowed(setup, VIEWS)) == 2 and "attentoin" in unfollowed(setup, VIEWS)[0]
