"""Right-click on a token of the prompt: choose, cut, patch, measure, copy, for the token that is pointed at."""

from __future__ import annotations

import re
from typing import Any

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QAction, QContextMenuEvent, QGuiApplication
from PySide6.QtWidgets import QApplication

from circuitlab.gui.docks.token_menu import TokenMenu
from circuitlab.gui.shell.window import Window
from circuitlab.model.subject import Head, Target
from tests.figures.test_pointing import moved
from tests.gui.driving import dock, settle

AT = 3


def opened(window: Window, at: int = AT) -> TokenMenu:
    """The menu over a token, by a right click on it."""
    strip = window.prompt.losses.view.widget("prompt")
    place = strip.item_rect((at,)).center().toPoint() - QPoint(0, strip.verticalScrollBar().value())
    target = strip.viewport()
    moved(target, place)
    assert not window.prompt.losses.view.note.isHidden()
    where = target.mapToGlobal(place)
    QApplication.sendEvent(target, QContextMenuEvent(QContextMenuEvent.Reason.Mouse, place, where))
    menu = window.prompt.token_menu
    assert menu.isVisible() and window.prompt.losses.view.note.isHidden()
    return menu


def titles(menu: Any) -> list[str]:
    return [a.text().replace("&&", "&") for a in menu.actions() if a.isVisible() and a.text()]


def entry(menu: Any, start: str) -> QAction:
    return next(a for a in menu.actions() if a.isVisible() and a.text().startswith(start))


def chosen(menu: TokenMenu, action: QAction) -> None:
    menu.close()
    action.trigger()


def test_it_offers_what_can_be_done_at_that_position(window: Window) -> None:
    document = window.context.document
    tokens, facts = document.recorded.tokens, window.context.facts()
    menu, text = opened(window), facts.token_text(tokens[AT])
    assert titles(menu)[:3] == [f"Choose position {AT}, ‘{text}’", "Intervene, measure", f"Measure ‘{text}’"]
    assert {"Copy token", f"Copy id {tokens[AT]}", "Pin as the reference", "Copy image"} <= set(titles(menu))
    assert f"Zero {document.recorded.selection.head} at position {AT}" in titles(menu.offers_menu)
    menu.close()


def test_choosing_cutting_and_measuring_are_about_the_token_that_was_pointed_at(qtbot: Any, window: Window) -> None:
    document = window.context.document
    tokens = document.recorded.tokens
    menu = opened(window)
    chosen(menu, menu.choose)
    assert (document.recorded.selection.destination, document.recorded.selection.locked) == (AT, True)
    menu = opened(window, 1)  # another one than the chosen
    chosen(menu, entry(menu.offers_menu, f"Zero {document.recorded.selection.head} at position 1"))
    ((edit, on),) = document.recorded.edits
    assert on and edit.site.positions == (1,)
    menu = opened(window, 1)
    chosen(menu, menu.measure)
    assert document.recorded.selection.target == Target((tokens[1],))
    window.undo()
    window.undo()
    menu = opened(window)
    assert titles(menu)[0].startswith("Release")
    chosen(menu, menu.choose)
    assert document.recorded.selection.destination is None
    settle(qtbot, window)


def test_patches_are_offered_from_another_prompt(qtbot: Any, window: Window) -> None:
    window.state_commands.pin()
    window.prompt.editor.setPlainText("two two one two one")
    window.prompt.commit()
    settle(qtbot, window)
    menu = opened(window)
    assert any(re.search(rf"\b0\b.*\b{AT}\b", title) for title in titles(menu.offers_menu))
    menu.close()


def test_a_token_is_copied_as_it_stands_in_the_text(window: Window) -> None:
    tokens, clipboard = window.context.document.recorded.tokens, QGuiApplication.clipboard()
    tokenizer = window.context.tokenizer()
    assert tokenizer is not None
    menu = opened(window)
    chosen(menu, menu.copy_token)
    assert clipboard.text() == tokenizer.decode((tokens[AT],)) and clipboard.text() in window.context.document.recorded.text
    chosen(opened(window), menu.copy_id)
    assert clipboard.text() == str(tokens[AT])


def test_by_the_menu_key_and_beside_the_tokens(qtbot: Any, window: Window) -> None:
    strip = window.prompt.losses.view.widget("prompt")
    strip.setFocus(Qt.FocusReason.TabFocusReason)
    for _ in range(2):
        qtbot.keyClick(strip, Qt.Key.Key_Right)
    QApplication.sendEvent(strip.viewport(), QContextMenuEvent(QContextMenuEvent.Reason.Keyboard, QPoint(0, 0), QPoint(0, 0)))
    menu = window.prompt.token_menu
    assert titles(menu)[0].startswith("Choose position 1,")
    menu.close()
    window.state_commands.release()
    menu.aim(None)
    assert not any(title.startswith(("Choose", "Measure", "Copy token", "Copy id")) for title in titles(menu))


def test_another_prompt_by_the_time_of_choosing(window: Window, qtbot: Any) -> None:
    menu, said = opened(window), list[str]()
    window.context.message.connect(said.append)
    window.prompt.editor.setPlainText("one")
    window.prompt.commit()
    settle(qtbot, window)
    now = window.context.document.recorded
    for action in (menu.choose, menu.measure, menu.copy_token):
        chosen(menu, action)
    assert window.context.document.recorded == now and len(said) == 3


@pytest.mark.parametrize("head", [Head(0, 1), Head(1, 2)])
def test_a_panels_menu_offers_the_same_at_that_position(window: Window, head: Head) -> None:
    window.context.document.apply(window.context.document.recorded.with_heads(head), "head")
    panel = dock(window, "attention")
    from circuitlab.figures.marks import Hit

    panel.actions_menu.aim(Hit("text", (AT,), "click"))
    menu = opened(window)
    assert titles(menu.offers_menu) == titles(panel.actions_menu.offers_menu)
    menu.close()
