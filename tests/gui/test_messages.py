"""What the status line says, and that it ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from PySide6.QtWidgets import QMessageBox

from circuitlab.draw.tables.rows import RowsMark
from circuitlab.errors import BadModel
from circuitlab.figures.marks import Figure, Hit
from circuitlab.gui.shell.errors import ErrorDialog
from circuitlab.gui.shell.window import Window
from circuitlab.model.subject import Head
from tests import pointer
from tests.gui.driving import dock, settle

OPEN = QMessageBox.open  # before the fixture of every test takes its place


def test_an_error_is_shown_while_its_reporter_goes_on(
    qtbot: Any, window: Window, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No event loop inside a handler: what comes after the report of an error is done before anybody has read it."""
    monkeypatch.setattr(ErrorDialog, "open", OPEN)
    window.context.failed.emit(BadModel("The first."))
    boxes = window.findChildren(ErrorDialog)
    assert [box.text() for box in boxes] == ["The first."] and boxes[0].isVisible()
    window.context.failed.emit(BadModel("The second."))
    assert window.findChildren(ErrorDialog) == boxes and "The second." in caplog.text
    boxes[0].reject()
    qtbot.waitUntil(lambda: not window.findChildren(ErrorDialog))
    window.context.failed.emit(BadModel("The third."))
    (box,) = window.findChildren(ErrorDialog)
    assert box.isVisible() and box.text() == "The third."
    box.reject()


def test_a_message_is_covered_by_what_is_pointed_at_and_ends(qtbot: Any, window: Window) -> None:
    status, view = window.status, dock(window, "attention").view
    window.state_commands.pin()
    message = status.readout.text()
    assert message
    assert status.message_timer.isActive()
    view.hovered.emit(Hit("text", (3,), "hover"), "position 3")
    assert status.readout.text() == "position 3"
    view.hovered.emit(Hit("text", (), "leave"), "")
    assert status.readout.text() == message
    status.message_timer.setInterval(1)
    status.say("a second one")
    qtbot.waitUntil(lambda: status.readout.text() == "")
    view.hovered.emit(Hit("text", (), "leave"), "")
    assert status.readout.text() == "", "an ended message does not come back"


def test_the_end_of_a_message_leaves_the_value_that_is_pointed_at(qtbot: Any, window: Window) -> None:
    status = window.status
    status.say("done")
    window.context.readout.emit("position 3")
    status.message_timer.timeout.emit()
    assert status.readout.text() == "position 3"


def test_the_value_that_is_pointed_at_is_that_of_the_figure_that_is_drawn(qtbot: Any, window: Window) -> None:
    """In the status line as beside the pointer: when the figure changes under a pointer that rests, or under nothing."""
    context, status, view = window.context, window.status, dock(window, "attention").view
    mark = next(iter(view._widgets.values()))
    pointer.move(mark.viewport(), mark._box(3, 1, 1, 1).center().toPoint())
    before = status.readout.text()
    assert before == view.note.text() == mark.readout((3, 1))
    context.show(context.document.recorded.with_heads(Head(1, 1)), "another head")
    settle(qtbot, window)
    assert status.readout.text() == view.note.text() == mark.readout((3, 1)) != before
    view.show_figure(Figure(why_empty="Nothing."))
    assert status.readout.text() == "" and not view.note.isVisible()


def test_a_row_that_is_pointed_at_is_read_again(qtbot: Any, window: Window) -> None:
    window.layout_of_docks.go_to("heads")
    settle(qtbot, window)
    view = dock(window, "heads").view
    rows = next(widget for widget in view._widgets.values() if isinstance(widget, RowsMark))
    rows._entered(rows.table.model().index(0, 0))
    before = window.status.readout.text()
    assert before and before == rows.readout(0)
    other = replace(rows.mark, columns=rows.mark.columns[:2])
    grid = tuple(tuple(other if mark is rows.mark else mark for mark in row) for row in view.figure.grid)
    view.show_figure(replace(view.figure, grid=grid))
    assert window.status.readout.text() == rows.readout(0) != before


def test_a_pin_is_taken_away_where_it_stands(qtbot: Any, window: Window) -> None:
    top = window.top
    assert not top.unpin.isVisible()
    window.state_commands.pin()
    settle(qtbot, window)
    assert top.unpin.isVisible() and "same" in top.pinned.text()
    window.state_commands.ablate()
    assert top.pinned.text() == "vs uncut"
    top.unpin.click()
    settle(qtbot, window)
    assert not window.context.document.recorded.pins and not top.unpin.isVisible()
    assert top.pinned.text() == "vs uncut", "the cut is still there"


def test_undo_and_redo_say_what_they_did(qtbot: Any, window: Window) -> None:
    window.state_commands.ablate()
    settle(qtbot, window)
    label = window.context.document.undo_label
    assert "L0H0" in label
    for step, words in ((window.undo, "Undone"), (window.redo, "again")):
        step()
        settle(qtbot, window)
        assert label in window.status.readout.text() and words in window.status.readout.text()
