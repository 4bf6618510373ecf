"""Tables of one figure: one scale for one unit, a key to it, and a gap that is seen where rows are left out."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QRect
from PySide6.QtWidgets import QApplication

from circuitlab import api
from circuitlab.draw.export.pictures import picture
from circuitlab.draw.look.colour_bar import short
from circuitlab.draw.look.colours import rgb
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.theme import LIGHT
from circuitlab.figures.contracts.panel import find_panel
from circuitlab.figures.marks import Figure, RowColumn, Rows, ids
from circuitlab.figures.panels.circuits.panel import CircuitsView
from circuitlab.report.render import figure_of
from circuitlab.state.state import Pin
from tests.figures.paper_files import texts
from tests.shipped_models import config_of

K, VOCABULARY = 3, config_of("attn-only-2l")["d_vocab"]


@pytest.fixture(scope="module")
def bench():
    model = api.open("attn-only-2l")
    return model, model.state("Captain Harville and", heads="L1H1").with_view("circuits", CircuitsView(k=K))


def tables(model, state) -> list[Rows]:
    figure = figure_of(model.engine, find_panel("circuits"), state)
    return [mark for mark in figure.marks() if isinstance(mark, Rows)]


def scales(found: list[Rows], name: str) -> set[tuple[float, float]]:
    return {c.levels for table in found for c in table.columns if c.map is not None and c.name == name}


def test_one_unit_has_one_scale_and_one_key(bench):
    result = tables(*bench)
    assert len(result) == 4
    for name in ("logit", "score"):
        ((low, high),) = scales(result, name)
        values = np.concatenate([c.values for table in result for c in table.columns if c.name == name])
        assert high == -low == pytest.approx(np.abs(values).max())
        assert sum(table.key for table in result if table.columns[1].name == name) == 1
    assert all((table.gap, table.total) == (K, VOCABULARY) for table in result)


def test_a_difference_keeps_its_keys_and_has_no_gap(bench):
    model, state = bench
    pin = Pin("before", model.at_step(model.steps[-2]).state("Captain Harville and").subject, text="Captain Harville and")
    result = tables(model, replace(state, pins=(pin,), compare="difference"))
    assert len(result) == 4 and all(table.gap is None for table in result)
    assert [table.columns[1].name for table in result] == ["Δ"] * 4
    assert [table.key for table in result] == [False, False, True, True]
    for either in (result[::2], result[1::2]):
        ((low, high),) = scales(either, "Δ")
        assert high == -low == pytest.approx(max(np.nanmax(np.abs(table.columns[1].values)) for table in either))


def test_on_paper_a_gap_says_how_many_are_listed_and_a_key_what_colours_mean(qapp, bench):
    model, state = bench
    figure = figure_of(model.engine, find_panel("circuits"), state)
    written = texts(ET.fromstring(picture(figure, ".svg", Paper(text="fonts"))))
    gaps = [t for t in written if f"{2 * K} of {VOCABULARY:,}" in t.said]
    assert len(gaps) == 4
    for table, gap in zip(
        (m for row in figure.grid for m in row), sorted(gaps, key=lambda t: (t.box.top(), t.box.left())), strict=True
    ):
        column = table.columns[1]
        said = [f"{v:.{column.digits}f}".replace("-", "−") for v in column.values[K - 1 : K + 1]]
        near = sorted((t for t in written if abs(t.box.top() - gap.box.top()) < 30), key=lambda t: t.box.top())
        above = [t.said for t in near if t.box.bottom() <= gap.box.top() and t.said == said[0]]
        below = [t.said for t in near if t.box.top() >= gap.box.bottom() and t.said == said[1]]
        assert above and below, (table.name, said)
    for name in ("logit", "score"):
        (high,) = {c.levels[1] for m in figure.marks() for c in m.columns if c.name == name}
        assert [t.said for t in written].count(f"{name} {short(-high)}") == 1


def table(top: float, scale: float, **more) -> Rows:
    values = np.array([top, top / 2, -top / 2, -top])
    words = np.array(["a", "b", "c", "d"], dtype=object)
    columns = (RowColumn("token", words, tokens=True), RowColumn("logit", values, map="signed", levels=(-scale, scale)))
    return Rows("table", columns, ids(np.arange(4)), **more)


def shown(view, mark):
    view.show_figure(Figure(((mark,),), "Table"))
    view.grab()
    QApplication.processEvents()
    return view.widget("table")


def cell(widget, row: int, column: int) -> QRect:
    return widget.table.visualRect(widget.model.index(row, column))


def test_another_scale_of_the_same_numbers_is_another_colour(view):
    mark = table(2.0, 2.0)
    shown(view, mark)
    other = replace(mark, columns=(mark.columns[0], replace(mark.columns[1], levels=(-4.0, 4.0))))
    widget = shown(view, other)
    room = cell(widget, 0, 1)
    seen = widget.table.viewport().grab().toImage().pixelColor(room.left() + 3, room.top() + 4).getRgb()[:3]
    wanted = rgb(np.array([2.0], np.float32), (-4.0, 4.0), "signed", LIGHT)[0]
    assert np.abs(np.array(seen) - wanted.astype(int)).max() <= 1


def test_a_gap_is_seen_while_rows_stand_in_their_order(view):
    widget = shown(view, table(2.0, 2.0, gap=2, total=90))
    assert "4 of 90" in widget.more.text()
    ground = LIGHT.colour("background").rgb()

    def gapped(row: int) -> bool:
        room = cell(widget, row, 1)
        image = widget.table.viewport().grab().toImage()
        return image.pixel(room.left() + 3, room.top() + 1) == ground

    assert [gapped(row) for row in range(4)] == [False, False, True, False]
    widget.model.sort(1)
    assert not any(gapped(row) for row in range(4))


@pytest.mark.parametrize(("size", "drawn"), [((400, 400), True), ((400, 170), False), ((90, 400), False)])
def test_a_key_stands_below_where_there_is_room_else_the_caption_says_it(view, size, drawn):
    view.resize(*size)
    widget = shown(view, table(2.0, 3.5, key=True))
    assert widget.key.isVisible() == drawn
    assert all(end in view.accessibleDescription() for end in ("logit", "−3.5", "3.5")) != drawn
    if drawn:
        image = widget.key.grab().toImage()
        colours = {image.pixel(x, image.height() // 2) for x in range(image.width())}
        ends = rgb(np.array([-3.5, 3.5], np.float32), (-3.5, 3.5), "signed", LIGHT)
        for end in ends.astype(int).tolist():
            assert min(np.abs(np.array([c >> 16 & 255, c >> 8 & 255, c & 255]) - end).max() for c in colours) <= 4
