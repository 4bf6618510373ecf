"""A map of many layers turns in a wide and low room; what is pointed at, kept and written stays that of the mark."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QPointF, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from circuitlab.draw.look.colours import rgb
from circuitlab.draw.look.theme import LIGHT
from circuitlab.figures.marks import Axis, Figure, Heatmap, Rows, Tiles
from circuitlab.figures.marks.texts import RowColumn
from tests import pointer

RNG = np.random.default_rng(3)
LAYERS, HEADS = 30, 9
VALUES = RNG.uniform(-1, 1, (LAYERS, HEADS)).astype(np.float32)
X, Y = Axis("head", tuple(f"H{h}" for h in range(HEADS))), Axis("layer", tuple(f"L{i}" for i in range(LAYERS)))


def heat(**more) -> Heatmap:
    return Heatmap("map", **({"values": VALUES, "levels": (-1.0, 1.0), "map": "signed", "x": X, "y": Y, "turns": True} | more))


def shown(view, mark, size=(900, 260), *beside):
    view.resize(*size)
    view.show_figure(Figure(((mark, *beside),), "title", ("caption",)))
    view.grab()
    QApplication.processEvents()
    return view.widget("map")


def centre(widget, row, col):
    """Of a cell as it is drawn."""
    return QPointF(*widget.to_pixels(np.array([col + 0.5]), np.array([row + 0.5]))[0]).toPoint()


def test_tiles_keep_their_own_rows_and_columns():
    tiles = Tiles(rows=3, cols=2, height=4, width=5, gap=2, chosen=((2, 1),))
    sheet = np.full(tiles.extent(), np.nan, np.float32)
    each = RNG.normal(size=(3, 2, 4, 5)).astype(np.float32)
    for row, col in np.ndindex(3, 2):
        sheet[row * 6 : row * 6 + 4, col * 7 : col * 7 + 5] = each[row, col]
    turned = Heatmap("map", sheet, (-1.0, 1.0), tiles=tiles, struck=((0, 1),), hints={(2, 0): "word"}).turned()
    assert turned.tiles is not None
    assert (turned.tiles.rows, turned.tiles.cols, turned.tiles.chosen) == (2, 3, ((1, 2),))
    assert turned.struck == ((1, 0),)
    assert turned.hints == {(0, 2): "word"}
    for row, col in np.ndindex(3, 2):
        np.testing.assert_array_equal(turned.values[col * 6 : col * 6 + 4, row * 7 : row * 7 + 5], each[row, col])
    assert np.isfinite(turned.values).sum() == each.size
    np.testing.assert_array_equal(turned.turned().values, sheet)


def test_a_wide_low_room_turns_it_and_its_cells_are_larger(view):
    view.set_theme(LIGHT)
    plain = shown(view, heat(turns=False)).frame()
    turned = shown(view, heat())
    assert turned.mark.values.shape == (HEADS, LAYERS)
    assert turned.frame().width() * turned.frame().height() > 4 * plain.width() * plain.height()
    image, wanted = turned.viewport().grab().toImage(), rgb(VALUES, (-1.0, 1.0), "signed", LIGHT)
    for layer, head in ((0, 0), (29, 8), (17, 3), (4, 7)):
        seen = image.pixelColor(centre(turned, head, layer))
        assert np.abs(np.array(seen.getRgb()[:3]) - wanted[layer, head].astype(int)).max() <= 1


@pytest.mark.parametrize("size", [(300, 900), (900, 900)])
def test_a_room_that_is_high_enough_does_not(view, size):
    assert shown(view, heat(), size).mark.values.shape == (LAYERS, HEADS)


def test_few_layers_never_turn(view):
    assert shown(view, heat(values=VALUES[:2], y=Axis("layer", Y.ticks[:2])), (300, 900)).mark.values.shape == (2, HEADS)


def test_a_stage_does_not_turn(view):
    view.set_theme(replace(LIGHT, name="stage", stage=True))
    assert shown(view, heat()).mark.values.shape == (LAYERS, HEADS)


def test_hits_and_readouts_are_of_the_mark(view):
    widget = shown(view, heat(hints={(17, 3): "a hint"}))
    hits, read = [], []
    view.picked.connect(hits.append)
    view.hovered.connect(lambda hit, words: read.append((hit.id, words)))
    where = centre(widget, 3, 17)
    pointer.move(widget.viewport(), where)
    QTest.mouseClick(widget.viewport(), Qt.MouseButton.LeftButton, pos=where)
    assert read[0][0] == (17, 3)
    assert read[0][1].startswith("L17H3 · ")
    assert "a hint" in read[0][1]
    assert hits[-1].id == (17, 3)


def test_what_is_seen_stays_when_the_room_turns_it(view):
    widget = shown(view, heat(), (300, 900))
    widget.show_part(((2.0, 6.0), (10.0, 20.0)))
    before, kept = widget.visible_part(), widget.kept_part()
    widget = shown(view, heat(), (900, 260))
    assert widget.mark.values.shape == (HEADS, LAYERS)
    assert widget.visible_part() == pytest.approx(before)
    assert np.ravel(widget.kept_part()) == pytest.approx(np.ravel(kept))


def test_a_crosshair_uploads_no_other_pixels(view):
    widget = shown(view, heat(row=1, col=2))
    pixels = widget.mark.values
    widget = shown(view, heat(row=17, col=3))
    assert widget.mark.values is pixels
    assert (widget.mark.row, widget.mark.col) == (3, 17)


def test_beside_a_table_it_has_half_of_the_room(view):
    column = RowColumn("name", np.array([f"a{i}" for i in range(270)], dtype=object))
    widget = shown(view, heat(), (900, 260), Rows("table", (column,), np.arange(270)[:, None]))
    assert widget.mark.values.shape == (HEADS, LAYERS)
    assert widget.frame().width() > 300


def rows_of(widget):
    """How many rows of a table are seen."""
    return widget.table.viewport().height() // widget.table.rowHeight(0)


def test_in_a_narrow_low_panel_its_cells_have_the_room_of_the_colour_bar(view):
    """380 × 220 px: beside its colour bar its nine columns had 16 px."""
    column = RowColumn("name", np.array([f"a{i}" for i in range(270)], dtype=object))
    widget = shown(view, heat(unit="score"), (380, 220), Rows("table", (column,), np.arange(270)[:, None]))
    assert widget.frame().width() / HEADS >= 3 and widget.frame().height() / LAYERS >= 3
    assert "colours from −1 to 1 score" in view.whole_caption
    few = shown(view, heat(values=VALUES[:8, :4], x=Axis("head", X.ticks[:4]), y=Axis("layer", Y.ticks[:8])), (900, 260))
    assert few.bar.isVisible(), "cells of a few px have their scale beside them"


def test_it_stands_beside_its_table_where_over_it_two_rows_would_be_left(view):
    column = RowColumn("name", np.array([f"a{i}" for i in range(270)], dtype=object))
    table = Rows("table", (column,), np.arange(270)[:, None])
    widget = shown(view, heat(), (420, 290), table)
    at = lambda one: one.mapTo(view, one.rect().topLeft())
    assert at(widget).x() < at(view.widget("table")).x() and at(widget).y() == at(view.widget("table")).y()
    assert rows_of(view.widget("table")) >= 5 and widget.frame().height() / LAYERS >= 4
    few = shown(view, heat(values=VALUES[:2], y=Axis("layer", Y.ticks[:2])), (420, 290), table)
    assert at(few).y() < at(view.widget("table")).y(), "two layers are large over it"


def test_small_tiles_are_longer_where_there_is_height(view):
    tiles = Tiles(rows=9, cols=30, height=24, width=24)
    sheet = np.zeros(tiles.extent(), np.float32)
    sheets = Heatmap("map", sheet, (0.0, 1.0), tiles=tiles, colour_bar=False)
    frame = shown(view, sheets, (380, 240)).frame()
    assert 1.4 < frame.height() / 9 / (frame.width() / 30) <= 1.75
    assert frame.height() / 9 < 26, "and no longer than a tile that can be read"
    large = shown(view, sheets, (1200, 1000)).frame()
    assert large.height() / 9 == pytest.approx(large.width() / 30, rel=0.02)


def test_over_its_table_it_takes_the_height_that_it_fills_when_it_is_turned(view):
    """410 × 520 px: the table began 90 px below the map."""
    column = RowColumn("name", np.array([f"a{i}" for i in range(270)], dtype=object))
    widget = shown(view, heat(), (410, 520), Rows("table", (column,), np.arange(270)[:, None]))
    assert widget.mark.values.shape == (HEADS, LAYERS)
    below = view.widget("table").mapTo(view, view.widget("table").rect().topLeft()).y()
    bottom = widget.viewport().mapTo(view, widget.frame().bottomLeft().toPoint()).y()
    assert 0 < below - bottom < 70, "room for the labels of its layers, and no more"


def test_a_low_room_takes_no_colour_bar_away(view):
    """475 × 190 px: what is too low for larger cells keeps its scale."""
    column = RowColumn("name", np.array([f"a{i}" for i in range(270)], dtype=object))
    widget = shown(view, heat(), (475, 190), Rows("table", (column,), np.arange(270)[:, None]))
    wide, high = widget.viewport().width(), widget.viewport().height()
    larger = widget.measured(wide, high, False, True).picture > widget.measured(wide, high, True, True).picture
    assert widget.bar.isVisible() is not larger
