"""What is seen of a figure is said in its own units and shown again, in a figure of another size and another shape too."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QApplication

from circuitlab.draw.export.pictures import as_seen
from circuitlab.draw.plots.plot import LEAST_PART, fitted
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.figures.marks import Axis, Bars, Edges, Figure, Heatmap, Lines, Points, RowColumn, Rows, ids
from circuitlab.story.zoom import TablePart
from tests import pointer

N = 40
NOTHING, PHASE = Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase
MAP = Heatmap("map", np.random.default_rng(0).random((N, N)).astype(np.float32), (0.0, 1.0), x=Axis("source"), y=Axis("query"))
RISE = Lines("rise", 10.0 ** np.linspace(0, 4, N), np.linspace(1, 9, N)[None] ** 2, ("a",), x_axis=Axis("step", log=True))
DOTS = Points("dots", np.arange(N, dtype=float), np.arange(N, dtype=float) ** 2, ids(np.arange(N)))
GRAPH = Edges(
    "graph",
    np.stack([np.arange(8) % 4, np.arange(8) // 4], axis=-1).astype(np.float32),
    tuple(f"n{i}" for i in range(8)),
    np.arange(8),
    np.array([[0, 5], [2, 7]]),
    np.array([0.5, 1.0], np.float32),
    np.array([0, 1]),
)
PLOTS = {"map": MAP, "rise": RISE, "dots": DOTS, "graph": GRAPH}


def table(n: int = 60, **more: Any) -> Rows:
    words = np.array([f"w{i * 7 % n}" for i in range(n)], dtype=object)
    columns = RowColumn("word", words), RowColumn("score", np.arange(n)[::-1] * 0.5)
    return Rows("table", columns, ids(np.arange(n)), searchable=True, **more)


def show(view: FigureView, *marks: Any) -> list[Any]:
    view.show_figure(Figure(tuple((mark,) for mark in marks), "T"))
    view.grab()
    QApplication.processEvents()
    return [view.widget(mark.name) for mark in marks]


def wheel(widget: Any, notches: int = 2, at: QPointF | None = None) -> None:
    target = widget.viewport()
    at = at or QPointF(target.rect().center())
    for _ in range(abs(notches)):
        target.grab()  # a plot knows where the pointer is once it is painted
        turn = QPoint(0, 120 if notches > 0 else -120)
        where = QPointF(target.mapToGlobal(at.toPoint()))
        QApplication.sendEvent(target, QWheelEvent(at, where, QPoint(), turn, Qt.MouseButton.NoButton, NOTHING, PHASE, False))
    QApplication.processEvents()


def other_view(qtbot: Any, *marks: Any, width: int = 900, height: int = 700) -> FigureView:
    made = FigureView()
    made.resize(width, height)
    qtbot.addWidget(made)
    with qtbot.waitExposed(made):
        made.show()
    show(made, *marks)
    return made


numbers = st.floats(-1e9, 1e9) | st.floats(allow_nan=True, allow_infinity=True)


@given(st.tuples(numbers, numbers), st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
@example((-30.0, 4.0), 0.0, 10.0)  # a quarter of it is here
def test_what_is_shown_of_an_axis_is_never_empty(asked: tuple[float, float], low: float, size: float) -> None:
    whole = (low, low + size)
    room = fitted(asked, whole)
    if room is None:
        lowest, highest = sorted(asked)
        rest = min(highest, whole[1]) - max(lowest, whole[0])
        assert any(map(math.isnan, asked)) or rest <= LEAST_PART * (whole[1] - whole[0])
        return
    inside = min(room[1], whole[1]) - max(room[0], whole[0])
    assert inside >= 0.499 * (room[1] - room[0]) > 0, "at least half of what is seen is in the figure"
    assert room in (tuple(sorted(asked)), whole) or (whole[0] <= room[0] and room[1] <= whole[1])
    assert fitted(room, whole) == room, "what was shown is shown again"


@pytest.mark.parametrize("name", PLOTS)
def test_a_wheel_and_a_drag_are_shown_again_in_a_view_of_another_size(view: FigureView, qtbot: Any, name: str) -> None:
    mark = PLOTS[name]
    (widget,) = show(view, mark)
    assert view.visible_parts() == {}, "the whole is not said"
    middle = widget.frame().center()
    with qtbot.waitSignal(view.turned):
        wheel(widget, 4, middle)
    place = widget.viewport().mapTo(widget, middle.toPoint())
    pointer.drag(widget, place, place + QPoint(10, 6), place + QPoint(18, 9))
    QApplication.processEvents()
    parts = view.visible_parts()
    assert parts == json.loads(json.dumps(parts)) or {n: list(p) for n, p in parts.items()} == json.loads(json.dumps(parts))  # type: ignore[arg-type]
    left, bottom, right, top = parts[name]  # type: ignore[misc]
    if name == "rise":
        assert 1 <= left < right <= 1.1e4, "values, and not their logarithms"
    other = other_view(qtbot, mark)
    assert other.show_visible_parts(parts) == ()
    np.testing.assert_allclose(other.widget(name).box.viewRange(), widget.box.viewRange(), rtol=1e-9)
    np.testing.assert_allclose(other.visible_parts()[name], (left, bottom, right, top), rtol=1e-9)  # type: ignore[arg-type]
    assert other.show_visible_parts({}) == () and other.visible_parts() == {} and other.parts() == {}


def test_all_of_it_and_a_margin_is_the_whole(view: FigureView) -> None:
    (widget,) = show(view, MAP)
    wheel(widget, -3, widget.frame().center())
    assert widget.box.viewRange()[0][0] < 0 and view.visible_parts() == {} and view.part_words() == ""


def test_a_part_that_another_figure_does_not_have_is_fitted_or_left(view: FigureView) -> None:
    (widget,) = show(view, Heatmap("map", np.ones((10, 10), np.float32), (0.0, 1.0)))
    ranges = lambda: [tuple(side) for side in widget.box.viewRange()]
    asked = lambda *box: view.show_visible_parts({"map": box})
    assert asked(2.0, 3.0, 5.0, 7.0) == () and ranges() == [(2, 5), (3, 7)]
    assert asked(8.0, 8.0, 20.0, 20.0) == ("map",) and ranges() == [(8, 10), (8, 10)], "clamped"
    assert asked(0.0, 3.0, 20.0, 7.0) == () and ranges() == [(0, 10), (3, 7)], "the whole width of a longer prompt"
    assert asked(5.0, 7.0, 2.0, 3.0) == () and ranges() == [(2, 5), (3, 7)], "either corner first"
    for nothing in (
        (12.0, 12.0, 20.0, 20.0),
        (3.0, 3.0, 3.0, 3.0),
        (float("nan"), 0.0, 5.0, 5.0),
        (1.0, 2.0),
        (2.0, 2.0, 2.0 + 1e-9, 5.0),
    ):
        asked(2.0, 3.0, 5.0, 7.0)
        assert asked(*nothing) == ("map",) and ranges() == [(0, 10), (0, 10)] and view.visible_parts() == {}
    assert asked(-1e300, -1e300, 1e300, 1e300) == () and ranges() == [(0, 10), (0, 10)]
    assert view.show_visible_parts({"map": TablePart((1, 2))}) == ("map",)
    (rise,) = show(view, RISE)
    assert view.show_visible_parts({"rise": (-5.0, 1.0, 100.0, 9.0)}) == ("rise",), "no logarithm"
    assert view.visible_parts() == {} and np.isfinite(rise.box.viewRange()).all()


def test_rows_of_a_table_their_order_and_filter(view: FigureView, qtbot: Any) -> None:
    mark = table()
    (widget,) = show(view, mark)
    assert view.visible_parts() == {}
    with qtbot.waitSignal(view.turned):
        wheel(widget.table, -4)
    first, last = view.visible_parts()["table"]  # type: ignore[misc]
    assert first == widget.table.verticalScrollBar().value() > 0 and first < last < 60
    other = other_view(qtbot, mark, height=300)
    assert other.show_visible_parts(view.visible_parts()) == ()
    assert other.widget("table").table.rowAt(0) == first
    assert other.visible_parts()["table"][0] == first  # type: ignore[index]
    header = widget.table.horizontalHeader()
    at = QPoint(header.sectionViewportPosition(1) + 20, header.height() // 2)
    qtbot.mouseClick(header.viewport(), Qt.MouseButton.LeftButton, pos=at)
    qtbot.mouseClick(header.viewport(), Qt.MouseButton.LeftButton, pos=at)
    qtbot.keyClicks(widget.filter_box, "w1")
    wheel(widget.table, -1)
    part = view.visible_parts()["table"]
    assert isinstance(part, TablePart) and part.filter == "w1" and part.sort and part.sort[0] == "score"
    assert other.show_visible_parts({"table": part}) == ()
    there = other.widget("table")
    assert there.model.order.tolist() == widget.model.order.tolist() and there.filter_box.text() == "w1"
    assert other.visible_parts()["table"] == TablePart(other.visible_parts()["table"].rows, part.sort, "w1")  # type: ignore[union-attr]
    seen, _ = as_seen(other.figure, other.visible_parts())
    (rows,) = seen.marks()
    assert isinstance(rows, Rows) and rows.ids[:, 0].tolist() == widget.model.order.tolist(), "on paper as on the screen"
    other.show_visible_parts({})
    assert other.visible_parts() == {} and there.model.order.tolist() == list(range(60))
    assert there.table.verticalScrollBar().value() == 0 and not there.filter_box.text()


def test_words_of_another_table_do_what_they_can(view: FigureView) -> None:
    (widget,) = show(view, table(8, sort=(1, "up")))
    assert view.visible_parts() == {} and widget.model.order[0] == 7
    assert view.show_visible_parts({"table": (50.0, 60.0)}) == ("table",)
    assert view.show_visible_parts({"table": TablePart(None, ("gone", "up"))}) == ("table",) and widget.model.order[0] == 7
    assert view.show_visible_parts({"table": TablePart(None, ())}) == () and widget.model.order[0] == 0
    assert view.visible_parts() == {"table": TablePart(None, ())}, "as they come, where the table is sorted by itself"
    assert view.show_visible_parts({"table": (0.0, 0.0, 1.0, 1.0)}) == ("table",) and view.visible_parts() == {}


def test_the_row_at_the_top_waits_for_the_table_to_have_its_size(qtbot: Any) -> None:
    made = other_view(qtbot, table(), width=500, height=2400)
    assert made.widget("table").table.verticalScrollBar().maximum() == 0, "all rows are seen"
    assert made.show_visible_parts({"table": (30.0, 39.0)}) == ()
    assert made.visible_parts()["table"][0] == 30  # type: ignore[index]
    for height in (400, 300):
        made.resize(500, height)
        QApplication.processEvents()
        assert made.widget("table").table.rowAt(0) == 30


def test_the_selection_is_followed_where_nobody_scrolls(view: FigureView) -> None:
    show(view, table(chosen=(50,)))
    widget = view.widget("table")
    assert widget.table.verticalScrollBar().value() > 0 and view.visible_parts() == {}, "that is how the table comes"
    wheel(widget.table, 20)
    assert view.visible_parts()["table"][0] == 0, "away from the selection, to the top"  # type: ignore[index]
    view.show_visible_parts({})
    assert widget.table.verticalScrollBar().value() > 0


def test_a_wheel_on_a_table_that_is_seen_whole_says_nothing(view: FigureView) -> None:
    show(view, table(4, chosen=(2,)))
    wheel(view.widget("table").table, -2)
    assert view.visible_parts() == {}


def test_bars_are_scrolled_by_their_rows(view: FigureView, qtbot: Any) -> None:
    mark = Bars("bars", np.linspace(0, 1, 80), tuple(f"b{i}" for i in range(80)))
    (widget,) = show(view, mark)
    with qtbot.waitSignal(view.turned):
        wheel(widget, -6)
    first, last = view.visible_parts()["bars"]  # type: ignore[misc]
    assert 0 < first < last < 80
    other = other_view(qtbot, mark, height=260)
    assert other.show_visible_parts(view.visible_parts()) == () and other.visible_parts()["bars"][0] == first  # type: ignore[index]
    there = other.widget("bars")
    assert there.id_at(QPointF(40, 2)) == (int(first),)
    other.show_visible_parts({})
    assert other.visible_parts() == {} and there.id_at(QPointF(40, 2)) == (0,)
