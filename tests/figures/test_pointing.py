"""A click takes what the tip at the pointer named: nothing that is written round a picture moves it under a still pointer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QContextMenuEvent, QMouseEvent, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget

from circuitlab.draw.view.figure_view import FigureView
from circuitlab.figures.marks import Dials, Figure, Heatmap, Hit, Lines, Prose, RowColumn, Rows, Tokens, ids, joined
from tests import pointer
from tests.figures.test_mark_gestures import MARKS, middle, receiver

SHORT, LONG = ("one remark",), tuple(f"remark {i} of those that a figure makes of itself" for i in range(12))


def moved(target: QWidget, at: QPoint) -> None:
    """The pointer, and nothing else."""
    none = Qt.MouseButton.NoButton
    places = QPointF(at), QPointF(target.mapToGlobal(at))
    QApplication.sendEvent(target, QMouseEvent(QEvent.Type.MouseMove, *places, none, none, Qt.KeyboardModifier.NoModifier))


def clicked(view: QWidget, where: QPoint) -> None:
    """On what lies there on the screen now. As from the system: the application then forgets the Shift of an earlier click."""
    target = view.childAt(view.mapFromGlobal(where)) or view
    QTest.mouseClick(target, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, target.mapFromGlobal(where))


def settled(view: FigureView) -> None:
    for _ in range(3):
        QApplication.processEvents()
    view.grab()


def talking(view: FigureView, figure: Figure) -> list[Hit]:
    """`figure`, which says now much and now little of itself as soon as something is hovered; what the view tells."""
    told, captions = list[Hit](), [SHORT, LONG]
    view.show_figure(replace(figure, caption_parts=SHORT, title=SHORT[0]))
    settled(view)

    def hovered(hit: Hit, said: str) -> None:
        told.append(hit)
        if hit.gesture == "hover":
            captions.reverse()
            view.show_figure(replace(figure, caption_parts=captions[0], title=joined(*captions[0])[:200]))

    view.hovered.connect(hovered)
    view.picked.connect(told.append)
    return told


def places_of(target: QWidget) -> list[QPoint]:
    across, down = np.linspace(0.06, 0.94, 7), np.linspace(0.06, 0.94, 7)
    return [QPoint(round(x * target.width()), round(y * target.height())) for x in across for y in down]


@pytest.mark.parametrize("name", MARKS)
@pytest.mark.parametrize("size", [(420, 300), (760, 240)])
def test_a_click_takes_what_was_hovered(view: FigureView, name: str, size: tuple[int, int]) -> None:
    mark = MARKS[name][0]
    if isinstance(mark, Heatmap) and mark.tiles is None and mark.row_ids is None:
        mark = Heatmap("m", np.random.default_rng(0).random((24, 24)).astype(np.float32), (0.0, 1.0))  # small cells
    view.resize(*size)
    told, target = talking(view, Figure(((mark,),))), receiver(view.widget("m"))
    hovers = 0
    for at in places_of(target):
        settled(view)
        before = target.size(), target.mapTo(view, QPoint())
        told.clear()
        moved(target, at)
        settled(view)
        if not told or told[-1].gesture != "hover":
            continue
        hovers += 1
        assert (target.size(), target.mapTo(view, QPoint())) == before, "the picture has moved under the pointer"
        named = told[-1].id
        clicked(view, target.mapToGlobal(at))
        assert told[-1] == Hit("m", named, "click")
    assert hovers


def test_what_stands_above_a_map_may_grow_and_the_click_is_still_the_named_cell(view: FigureView) -> None:
    cells = Heatmap("cells", np.zeros((12, 12), np.float32), (0.0, 1.0))
    figure = lambda n: Figure(((Prose("words", (("", "A word about it. " * n),)),), (cells,)), "T", SHORT)
    view.resize(420, 420)
    view.show_figure(figure(1))
    settled(view)
    target, told = view.widget("cells").viewport(), list[Hit]()
    view.hovered.connect(lambda hit, said: (told.append(hit), view.show_figure(figure(40 if hit.gesture == "hover" else 1))))
    view.picked.connect(told.append)
    where = target.mapToGlobal(QPoint(target.width() // 3, target.height() // 2))
    moved(target, target.mapFromGlobal(where))
    settled(view)
    named = told[-1].id
    clicked(view, where)
    assert told[-1] == Hit("cells", named, "click")
    view.resize(420, 380)  # whoever moves it: the tip names the cell, and the click takes it
    settled(view)
    clicked(view, where)
    assert told[-1] == Hit("cells", named, "click")


def test_a_figure_alone_takes_the_height_that_it_needs_when_nothing_is_pointed_at(view: FigureView) -> None:
    mark = MARKS["cells"][0]
    view.resize(420, 300)
    talking(view, Figure(((mark,),)))
    target = receiver(view.widget("m"))
    moved(target, QPoint(target.width() // 2, target.height() // 2))
    settled(view)
    assert view._caption.text().endswith("…")  # in the one line there is
    QApplication.sendEvent(view.widget("m"), QEvent(QEvent.Type.Leave))
    settled(view)
    caption = view._caption
    assert caption.height() > 1.5 * caption.fontMetrics().lineSpacing()
    high = caption.height()
    view.show_figure(Figure(((mark,),), "", SHORT))
    settled(view)
    assert caption.height() == high, "what it has taken once it keeps"
    view.resize(430, 300)
    settled(view)
    assert caption.height() < high, "until the panel is of another size"


# -- the value at the pointer ----------------------------------------------------------------------------------------------


def noted(view: FigureView, mark: Any, at: QPoint | None = None) -> QWidget:
    view.resize(420, 300)
    view.show_figure(Figure(((mark,),), "T"))
    settled(view)
    target = receiver(view.widget(mark.name))
    moved(target, at or QPoint(round(0.3 * target.width()), round(0.5 * target.height())))
    assert not view.note.isHidden() and view.note.text()
    return target


CELLS = Heatmap("m", np.arange(9, dtype=np.float32).reshape(3, 3), (0.0, 9.0))


def test_the_value_at_the_pointer_goes_when_a_menu_opens_and_comes_back_with_the_next_move(view: FigureView) -> None:
    target = noted(view, CELLS)
    at = QPoint(round(0.3 * target.width()), round(0.5 * target.height()))
    menus = list[object]()
    view.context_requested.connect(lambda hit, where: menus.append(view.note.isHidden()))
    QApplication.sendEvent(target, QContextMenuEvent(QContextMenuEvent.Reason.Mouse, at, target.mapToGlobal(at)))
    assert menus == [True]
    moved(target, at + QPoint(1, 0))  # in the same cell
    assert not view.note.isHidden()


@pytest.mark.parametrize("what", ["leave the mark", "leave the view", "hide", "other marks", "nothing"])
def test_the_value_at_the_pointer_goes_with_the_pointer_and_with_the_picture(view: FigureView, what: str) -> None:
    noted(view, CELLS)
    if what == "leave the mark":
        QApplication.sendEvent(view.widget("m"), QEvent(QEvent.Type.Leave))
    elif what == "leave the view":
        QApplication.sendEvent(view, QEvent(QEvent.Type.Leave))
    elif what == "hide":
        view.hide()
        view.show()
    elif what == "other marks":
        view.show_figure(Figure(((Tokens("text", ("a", "b"), np.zeros(2)),),)))
    else:
        view.show_figure(Figure(why_empty="There is nothing to show."))
    assert view.note.isHidden()


def test_after_new_ids_under_the_pointer_its_leaving_is_told(view: FigureView) -> None:
    curves = lambda x: Lines("m", np.arange(4.0), np.full((2, 4), x) + np.array([[0.0], [0.2]]), ("a", "b"))
    noted(view, CELLS)  # the view has its size
    view.show_figure(Figure(((curves(1.0),),), "T"))
    settled(view)
    target = noted(view, curves(1.0), middle(view.widget("m"), 2, 1))
    told = list[str]()
    view.hovered.connect(lambda hit, said: told.append(hit.gesture))
    view.show_figure(Figure(((curves(5.0),),), "T"))
    assert view.note.isHidden()
    QApplication.sendEvent(view.widget("m"), QEvent(QEvent.Type.Leave))
    assert told == ["leave"] and target.isVisible()


def test_the_value_at_the_pointer_is_that_of_the_figure_that_is_drawn(view: FigureView) -> None:
    noted(view, CELLS)
    before = view.note.text()
    view.show_figure(Figure(((replace(CELLS, values=CELLS.values + 0.5),),), "T"))
    assert not view.note.isHidden() and view.note.text() != before


def test_a_wheel_that_scrolls_hovers_what_comes_under_the_pointer(view: FigureView) -> None:
    text = Tokens("m", tuple(f"word{i}" for i in range(600)), np.zeros(600))
    target = noted(view, text)
    told = list[Hit]()
    view.hovered.connect(lambda hit, said: told.append(hit))
    at = QPoint(round(0.3 * target.width()), round(0.5 * target.height()))
    none, phase = Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase
    places = QPointF(at), QPointF(target.mapToGlobal(at))
    QApplication.sendEvent(target, QWheelEvent(*places, QPoint(), QPoint(0, -240), Qt.MouseButton.NoButton, none, phase, False))
    widget = view.widget("m")
    assert widget.verticalScrollBar().value() > 0
    assert told[-1] == Hit("m", widget.id_at(QPointF(at)), "hover")
    assert view.note.text() == widget.readout(told[-1].id)


def test_a_table_tells_of_the_row_under_the_pointer(view: FigureView) -> None:
    rows = Rows("m", (RowColumn("x", np.arange(8.0)),), ids(np.arange(8)))
    view.resize(420, 300)
    told = talking(view, Figure(((rows,),)))
    table = view.widget("m").table
    at = table.visualRect(view.widget("m").model.index(3, 0)).center()
    moved(table.viewport(), at)
    settled(view)
    clicked(view, table.viewport().mapToGlobal(at))
    assert told[-1] == Hit("m", (3,), "click")


def test_a_note_goes_when_the_figure_takes_another_place(view, qtbot):
    noted(view, CELLS)
    view.resize(view.width() - 90, view.height() - 60)
    qtbot.waitUntil(view.note.isHidden)


def test_a_mark_that_goes_from_under_the_pointer_leaves_another_picture_whole(view: FigureView) -> None:
    """Its leaving is heard while the widgets of the new figure are not there yet."""
    target = noted(view, CELLS)
    pointer.move(target, QPoint(target.width() // 2, target.height() // 2))  # as from the system, which tells what is hidden
    gestures = list[str]()
    view.hovered.connect(lambda hit, readout: gestures.append(hit.gesture))
    view.show_figure(Figure(((Dials("hands", np.linspace(0, 1, 4)),), (Prose("text", (("lead", "below"),)),))))
    settled(view)
    assert view.widget("hands").isVisible() and view.widget("text").isVisible()
    assert gestures == ["leave"]
