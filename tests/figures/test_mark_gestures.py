"""One path for all gestures of all marks: hover, click, Shift-click, double-click, keys and the menu give the same id."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QContextMenuEvent, QMouseEvent
from PySide6.QtWidgets import QApplication

from circuitlab.figures.marks import (
    Bars,
    Dials,
    Edges,
    Figure,
    Heatmap,
    Hit,
    Lines,
    Mark,
    Points,
    Prose,
    RowColumn,
    Rows,
    Tiles,
    Tokens,
    ids,
)

N = np.arange(3)
GRAPH = Edges(
    "m",
    np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 1.0]]),
    ("L0H0", "L0H1", "L1H0"),
    np.zeros(3, int),
    np.array([[0, 2], [1, 2]]),
    np.ones(2),
    np.zeros(2, int),
    node_ids=ids(np.array([0, 0, 1]), np.array([0, 1, 0])),
    edge_ids=ids(*np.array([[1, 0, 0, 0, 2], [1, 0, 0, 1, 2]]).T),
)
CURVES = Lines("m", N.astype(float), np.array([[0.0, 0.0, 0.0], [9.0, 9.0, 9.0]]), ("a", "b"))


def middle(widget: Any, x: float, y: float) -> QPoint:
    """Of the viewport, for a place in data units."""
    ((left, top),) = widget.to_pixels(np.array([x]), np.array([y]))
    return QPoint(round(left), round(top))


def boxed(widget: Any, item: tuple[int, ...]) -> QPoint:
    return widget.item_rect(item).center().toPoint()


# name: a mark, the place of one of its items in its widget, and the id that a panel must read there
MARKS: dict[str, tuple[Mark, Any, tuple[int, ...]]] = {
    "cells": (Heatmap("m", np.ones((3, 3), np.float32), (0.0, 1.0)), lambda w: middle(w, 2.5, 1.5), (1, 2)),
    "cells with ids": (
        Heatmap("m", np.ones((3, 3), np.float32), (0.0, 1.0), row_ids=ids(N + 1, N + 5), col_ids=ids(N + 7)),
        lambda w: middle(w, 2.5, 1.5),
        (2, 6, 9),
    ),
    "tiles": (
        Heatmap("m", np.ones((10, 10), np.float32), (0.0, 1.0), tiles=Tiles(2, 2, 4, 4)),
        lambda w: middle(w, 8, 2),
        (0, 1),
    ),
    "points": (Points("m", N.astype(float), N.astype(float), ids(N, N + 4)), lambda w: middle(w, 1, 1), (1, 5)),
    "curves": (CURVES, lambda w: middle(w, 1, 9), (1,)),
    "curves with steps": (
        replace(CURVES, steps=True, curve_ids=ids(N[:2], N[:2] + 3), step_ids=ids(N + 30)),
        lambda w: middle(w, 1, 9),
        (1, 4, 31),
    ),
    "a node": (GRAPH, lambda w: middle(w, 0.5, 1.0), (0, 1, 0)),
    "an edge": (GRAPH, lambda w: middle(w, 0.75 - 0.007, 0.5), (1, 1, 0, 0, 1, 2)),
    "plain edges": (replace(GRAPH, edge_ids=None), lambda w: middle(w, 0.75 - 0.007, 0.5), (1, 1)),
    "bars": (Bars("m", np.array([1.0, 2.0]), ("a", "b")), lambda w: boxed(w, (1,)), (1,)),
    "tokens": (Tokens("m", ("one", "two"), np.zeros(2)), lambda w: boxed(w, (1,)), (1,)),
    "dials": (Dials("m", np.zeros(3)), lambda w: boxed(w, (2,)), (2,)),
    "rows": (
        Rows("m", (RowColumn("x", np.array([1.0, 2.0])),), ids(np.array([40, 41]), np.array([7, 8]))),
        lambda w: w.table.visualRect(w.model.index(1, 0)).center(),
        (41, 8),
    ),
}


def receiver(widget: Any) -> Any:
    return getattr(widget, "table", widget).viewport()


def test_every_mark_that_has_items_is_here() -> None:
    assert {type(mark) for mark, _, _ in MARKS.values()} == {*get_args(Mark)} - {Prose}


@pytest.mark.parametrize("name", MARKS)
def test_every_gesture_tells_the_same_id(view: Any, qtbot: Any, name: str) -> None:
    mark, place, wanted = MARKS[name]
    view.show_figure(Figure(((mark,),), "Figure"))
    view.grab()
    QApplication.processEvents()
    widget = view.widget("m")
    at, target, left = place(widget), receiver(widget), Qt.MouseButton.LeftButton
    told = list[Hit]()
    view.hovered.connect(lambda hit, said: told.append(hit))
    view.picked.connect(told.append)
    view.context_requested.connect(lambda hit, where: told.append(hit))
    move = (QMouseEvent.Type.MouseMove, QPointF(at), QPointF(target.mapToGlobal(at)), Qt.MouseButton.NoButton)
    QApplication.sendEvent(target, QMouseEvent(*move, Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier))
    assert told[-1] == Hit("m", wanted, "hover")
    qtbot.mouseClick(target, left, Qt.KeyboardModifier.NoModifier, at)
    assert told[-1] == Hit("m", wanted, "click")
    qtbot.mouseDClick(target, left, Qt.KeyboardModifier.NoModifier, at)
    assert Hit("m", wanted, "double-click") in told[-2:]
    mouse, keyboard = QContextMenuEvent.Reason.Mouse, QContextMenuEvent.Reason.Keyboard
    QApplication.sendEvent(target, QContextMenuEvent(mouse, at, target.mapToGlobal(at)))
    assert told[-1] == Hit("m", wanted, "click")
    QApplication.sendEvent(target, QContextMenuEvent(keyboard, QPoint(0, 0), QPoint(0, 0)))  # about what is hovered or current
    assert told[-1] == Hit("m", wanted, "click")


def second_press(target: Any, at: QPoint) -> None:
    """The button goes down and up again soon after a click, which is how a double-click ends."""
    left = Qt.MouseButton.LeftButton
    for kind, held in ((QMouseEvent.Type.MouseButtonDblClick, left), (QMouseEvent.Type.MouseButtonRelease, left ^ left)):
        event = QMouseEvent(kind, QPointF(at), QPointF(target.mapToGlobal(at)), left, held, Qt.KeyboardModifier.NoModifier)
        QApplication.sendEvent(target, event)


@pytest.mark.parametrize("name", MARKS)
@pytest.mark.parametrize("pointed", [True, False])
def test_a_double_click_is_one_although_its_first_click_draws_the_mark_anew(
    view: Any, qtbot: Any, name: str, pointed: bool
) -> None:
    mark, place, wanted = MARKS[name]
    view.show_figure(Figure(((mark,),), "Figure"))
    view.grab()
    QApplication.processEvents()
    widget, told = view.widget("m"), list[Hit]()
    at, target, left = place(widget), receiver(widget), Qt.MouseButton.LeftButton
    view.picked.connect(told.append)
    if pointed:
        move = (QMouseEvent.Type.MouseMove, QPointF(at), QPointF(target.mapToGlobal(at)), Qt.MouseButton.NoButton)
        QApplication.sendEvent(target, QMouseEvent(*move, Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier))
    qtbot.mousePress(target, left, pos=at)
    view.show_figure(Figure(((deepcopy(mark),),), "What was previewed"))
    QApplication.processEvents()
    qtbot.mouseRelease(target, left, pos=at)
    view.show_figure(Figure(((deepcopy(mark),),), "Chosen"))
    view.grab()
    QApplication.processEvents()
    second_press(target, at)
    assert told == [Hit("m", wanted, "click"), Hit("m", wanted, "double-click")]


def test_of_rows_that_a_click_puts_in_another_order_both_presses_mean_the_first(view: Any, qtbot: Any) -> None:
    mark = Rows("m", (RowColumn("x", np.arange(3.0)),), ids(N + 4))
    view.show_figure(Figure(((mark,),), "Figure"))
    view.grab()
    QApplication.processEvents()
    widget, told = view.widget("m"), list[Hit]()
    view.picked.connect(told.append)
    target, left = receiver(widget), Qt.MouseButton.LeftButton
    at, below = (widget.table.visualRect(widget.model.index(row, 0)).center() for row in (0, 2))
    qtbot.mouseClick(target, left, pos=at)
    view.show_figure(Figure(((replace(mark, columns=(RowColumn("x", np.arange(3.0)[::-1]),), ids=ids(N[::-1] + 4)),),), "Figure"))
    QApplication.processEvents()
    second_press(target, at)
    assert told == [Hit("m", (4,), "click"), Hit("m", (4,), "double-click")]
    told.clear()
    qtbot.mouseClick(target, left, pos=at)
    second_press(target, below)  # far from the first: another click
    qtbot.mousePress(target, left, pos=at)
    qtbot.mouseRelease(target, left, pos=below)  # a drag is none
    assert told == [Hit("m", (6,), "click"), Hit("m", (4,), "click")]
    told.clear()
    qtbot.mouseClick(target, left, pos=at)
    view.show_figure(Figure(((replace(mark, columns=(RowColumn("x", np.ones(1)),), ids=ids(N[:1])),),), "Other rows"))
    QApplication.processEvents()
    second_press(target, at)  # the row has gone, and another stands there that nobody pointed at
    assert told == [Hit("m", (6,), "click")]


@pytest.mark.parametrize("name", MARKS)
def test_what_was_read_of_a_figure_goes_when_another_tab_comes_before_it(view: Any, name: str) -> None:
    mark, place, _ = MARKS[name]
    view.show_figure(Figure(((mark,),), "Figure"))
    view.grab()
    QApplication.processEvents()
    widget, status = view.widget("m"), list[str]()
    view.hovered.connect(lambda hit, words: status.append(words))
    view.reread.connect(status.append)
    at, target = place(widget), receiver(widget)
    move = (QMouseEvent.Type.MouseMove, QPointF(at), QPointF(target.mapToGlobal(at)), Qt.MouseButton.NoButton)
    QApplication.sendEvent(target, QMouseEvent(*move, Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier))
    assert status[-1]
    view.hide()
    assert status[-1] == ""


@pytest.mark.parametrize("name", [n for n in MARKS if n != "rows"])
def test_keys_walk_and_choose_in_ids_of_the_mark(view: Any, qtbot: Any, name: str) -> None:
    mark, _, wanted = MARKS[name]
    view.show_figure(Figure(((mark,),), "Figure"))
    view.grab()
    widget = view.widget("m")
    told = list[Hit]()
    view.picked.connect(told.append)
    for key in (Qt.Key.Key_Right, Qt.Key.Key_Down, Qt.Key.Key_Left, Qt.Key.Key_Up):
        qtbot.keyClick(widget, key)
        qtbot.keyClick(widget, Qt.Key.Key_Return)
        assert told[-1].gesture == "click"
        if name not in ("an edge", "plain edges"):  # keys walk over nodes
            assert len(told[-1].id) == len(wanted)
