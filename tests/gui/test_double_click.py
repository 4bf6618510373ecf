"""A double-click on what is not chosen yet, as a hand does it: the first click is answered and drawn before the second comes."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtCore import QPoint, Qt

from circuitlab.draw.tables.rows import RowsMark
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.figures.contracts.panel import panels
from circuitlab.figures.marks import Hit, Prose
from circuitlab.figures.panels.evidence.arguments import ARGUMENTS
from circuitlab.gui.shell.window import Window
from tests.figures.test_mark_gestures import receiver, second_press
from tests.figures.test_pointing import moved
from tests.gui.driving import dock, docks_on_screen, settle
from tests.gui.test_pointing import places_in

QUICK = ("theory", "circuits")
WALKED = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in panels()]


@pytest.mark.parametrize("name", WALKED)
def test_a_double_click_on_what_is_not_chosen_is_one_in_every_panel(qtbot: Any, window: Window, name: str) -> None:
    window.layout_of_docks.go_to(name)
    settle(qtbot, window)
    view = dock(window, name).view
    for mark in (one.name for one in view.figure.marks() if not isinstance(one, Prose)):
        window.layout_of_docks.go_to(name)
        settle(qtbot, window)
        if mark in {one.name for one in view.figure.marks()}:
            _click_and_press_again(qtbot, window, view, mark)


def _click_and_press_again(qtbot: Any, window: Window, view: FigureView, name: str) -> None:
    told = list[Hit]()
    view.picked.connect(told.append)
    widget = view.widget(name)
    target, at = receiver(widget), places_in(widget)[1]
    moved(target, at)
    settle(qtbot, window)
    qtbot.mouseClick(target, Qt.MouseButton.LeftButton, pos=at)
    settle(qtbot, window)
    if told and view.isVisible() and widget in [view.widget(one.name) for one in view.figure.marks()]:
        second_press(target, at)
        settle(qtbot, window)
        (click,) = told[:1]
        gone = isinstance(widget, RowsMark) and len(told) == 1 and widget.place_of(click.id) < 0
        assert told[1:] == ([] if gone else [Hit(click.mark, click.id, "double-click")])
    view.picked.disconnect(told.append)


def test_a_row_of_evidence_opens_its_picture_at_once(qtbot: Any, window: Window) -> None:
    window.layout_of_docks.go_to("evidence")
    settle(qtbot, window)
    table = dock(window, "evidence").view.widget("arguments").table
    cell = table.visualRect(table.model().index(2, 0)).center()
    assert isinstance(cell, QPoint)
    moved(table.viewport(), cell)
    qtbot.mouseClick(table.viewport(), Qt.MouseButton.LeftButton, pos=cell)
    settle(qtbot, window)
    assert "evidence" in docks_on_screen(window)
    second_press(table.viewport(), cell)
    settle(qtbot, window)
    assert ARGUMENTS[2].panel in docks_on_screen(window)
    assert "evidence" not in docks_on_screen(window)
