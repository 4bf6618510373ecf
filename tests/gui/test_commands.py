"""Commands that go somewhere go there: heads, tokens, comparisons; a key that points has the direction of its arrow."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtWidgets import QMenu

from circuitlab.gui.places.arrangements import ARRANGEMENTS
from circuitlab.gui.shell.command import CommandAction
from circuitlab.gui.shell.commands import COMMANDS
from circuitlab.gui.shell.window import Window
from circuitlab.model.subject import Head
from tests.gui.driving import go, settle

KEYS = {c.name: c.shortcut for c in COMMANDS}


def test_heads_are_walked_like_the_arrows_of_their_keys(qtbot: Any, window: Window) -> None:
    assert window.context.document.recorded.selection.heads == (Head(0, 0),)
    walk = ("right", Head(0, 1)), ("right", Head(0, 2)), ("down", Head(1, 2)), ("left", Head(1, 1)), ("up", Head(0, 1))
    for way, head in (*walk, ("up", Head(1, 1)), ("down", Head(0, 1))):  # over the edge to the other side
        assert KEYS[f"head-{way}"] == f"Alt+{way.title()}"
        assert go(window, f"head-{way}").selection.heads == (head,)
    assert set(go(window, "all-heads").selection.heads) == {Head(0, h) for h in range(4)}
    settle(qtbot, window)


def test_tokens_are_walked_from_the_end_and_no_further_than_the_ends(qtbot: Any, window: Window) -> None:
    last = len(window.context.document.recorded.tokens) - 1
    for way, at in (("left", last - 1), ("left", last - 2), ("right", last - 1), ("right", last), ("right", last)):
        assert KEYS[f"token-{way}"] == f"Alt+Shift+{way.title()}"
        assert go(window, f"token-{way}").selection.destination == at
    for _ in range(last + 1):
        state = go(window, "token-left")
    assert (state.selection.destination, state.selection.locked) == (0, True)
    settle(qtbot, window)


def test_the_newest_pin_is_the_reference_and_comparisons_take_turns(qtbot: Any, window: Window) -> None:
    first = go(window, "pin").pins[0]
    go(window, "ablate")
    second = go(window, "pin").pins[0]
    state = window.context.document.recorded
    assert (first.subject.edits, len(second.subject.edits)) == ((), 1)
    assert state.pins == (second, first) and state.reference == second
    assert f"{state.selection.head} zeroed" in second.label and "zeroed" not in first.label, "which head is cut, not how many"
    assert [go(window, "compare").compare for _ in range(3)] == ["reference", "difference", "now"]
    assert go(window, "unpin").pins == ()
    settle(qtbot, window)


@pytest.mark.parametrize(
    ("name", "key"), [("undo", "Ctrl+Z"), ("compare", "Ctrl+D"), ("pin", "Ctrl+P"), ("palette", "Ctrl+Shift+P")]
)
def test_keys_that_the_readme_names(name: str, key: str) -> None:
    assert key in KEYS[name].split(", ")


def test_the_menu_of_arrangements_says_what_each_is_for(window: Window) -> None:
    actions = {
        a.command.title: a for a in window.menus.actions if isinstance(a, CommandAction) and a.command.submenu == "Arrange"
    }
    tips = {title: action.toolTip() for title, action in actions.items()}
    assert len(tips) == len(set(tips.values())) == len(ARRANGEMENTS) and not set(tips) & set(tips.values())
    assert "ablate" in tips["Arrange: Cut"].lower()
    menus = [menu for action in actions.values() for menu in action.associatedObjects() if isinstance(menu, QMenu)]
    assert len(menus) == len(ARRANGEMENTS) and all(menu.toolTipsVisible() for menu in menus)
