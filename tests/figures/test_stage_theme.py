"""Themes for an audience: contrasts by the definition of WCAG 2, capitals measured from the bundled fonts and from pixels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import QPointF
from PySide6.QtGui import QColor, QFontMetricsF, QImage, QPainter
from PySide6.QtWidgets import QApplication, QHeaderView, QWidget

from circuitlab.draw.look.colours import NEUTRAL
from circuitlab.draw.look.stage_theme import PROJECTOR, PROJECTOR_DARK, stage_theme
from circuitlab.draw.look.theme import Theme
from circuitlab.draw.tables.rows import RowsMark
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.figures.marks import Figure, RowColumn, Rows, ids

SIZES = ((1280, 720), (1920, 1080), (3840, 2160))
# Every ink of a text with the grounds that it stands on; tints are the accent over the background.
PAIRS = [
    *((ink, ground) for ink in ("text", "muted", "faint", "accent") for ground in ("background", "window")),
    *((ink, "raised") for ink in ("text", "muted", "accent")),
    ("on_accent", "accent"),
    *(("text", tint) for tint in (0.07, 0.14)),
]


pytestmark = pytest.mark.usefixtures("qapp")  # fonts need one


def luminance(colour: QColor) -> float:
    """Relative luminance of WCAG 2.2, written out from its definition."""
    channels = (colour.redF(), colour.greenF(), colour.blueF())
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in channels]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one: QColor, other: QColor) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def over(theme: Theme, tint: float) -> QColor:
    """The accent as a tint over the background."""
    accent, ground = (np.array([c.redF(), c.greenF(), c.blueF()]) for c in map(theme.colour, ("accent", "background")))
    return QColor.fromRgbF(*(tint * accent + (1 - tint) * ground).tolist())


def test_the_definition_of_contrast():
    assert contrast(QColor("#000000"), QColor("#ffffff")) == pytest.approx(21)
    assert contrast(QColor("#767676"), QColor("#ffffff")) == pytest.approx(4.54, abs=0.01)  # the grey that just passes AA


@pytest.mark.parametrize("theme", [PROJECTOR, PROJECTOR_DARK], ids=lambda t: t.name)
@pytest.mark.parametrize(("ink", "ground"), PAIRS, ids=str)
def test_every_text_has_seven_to_one_on_its_ground(theme, ink, ground):
    below = over(theme, ground) if isinstance(ground, float) else theme.colour(ground)
    assert contrast(theme.colour(ink), below) >= 7.0


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("height", [h for _, h in SIZES])
@pytest.mark.parametrize("mono", [False, True])
def test_the_smallest_capital_is_a_fiftieth_of_the_height(height, mono, dark):
    theme = stage_theme(height, dark)
    assert theme.dark is dark
    small = theme.font(theme.small, mono=mono)
    assert QFontMetricsF(small).capHeight() >= height / 50
    assert theme.least == theme.small < theme.normal < theme.large
    image = QImage(2 * height // 50, 3 * height // 50, QImage.Format.Format_RGB32)
    image.fill(theme.colour("background"))
    painter = QPainter(image)
    painter.setFont(small)
    painter.setPen(theme.colour("text"))
    painter.drawText(QPointF(2, 2 * height // 50), "H")
    painter.end()
    pixels = np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), -1, 4)[..., :3].astype(int)
    inked = (np.abs(pixels - pixels[0, 0]).sum(axis=2) > 60).any(axis=1)
    assert inked.sum() >= height // 50


def test_strokes_grow_with_the_picture():
    assert stage_theme(1080).stroke == pytest.approx(2.5)
    assert stage_theme(2160).stroke == pytest.approx(5.0)
    assert replace(stage_theme(720), stroke=1.0).weakest == 1


def numbers(levels: tuple[float, float], **more: Any) -> Rows:
    values = RowColumn("value", np.array([levels[1], 0.5 * levels[0] + 0.5]), digits=2, bar=True, levels=levels)
    return Rows("m", (RowColumn("name", np.array(["a", "b"], dtype=object)), values), ids(np.arange(2)), **more)


def seen(widget: QWidget) -> np.ndarray:
    """[y, x, 3] int: the pixels of a widget."""
    image = widget.grab().toImage().convertToFormat(QImage.Format.Format_RGB32)
    pixels = np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), -1, 4)
    return pixels[..., 2::-1].astype(int)


def rgb_of(colour: QColor) -> np.ndarray:
    """Its channels."""
    return np.array([colour.red(), colour.green(), colour.blue()])


def broad(pixels: np.ndarray, least: int) -> list[tuple[int, int, int]]:
    """The colours of at least so many pixels, the commonest first."""
    colours, counts = np.unique(pixels.reshape(-1, 3), axis=0, return_counts=True)
    order = np.argsort(-counts)
    return [tuple(colours[i].tolist()) for i in order if counts[i] >= least]


def staged(qtbot, dark: bool, width: int, mark: Rows) -> RowsMark:
    """A table as a view of a stage shows it."""
    view = FigureView(stage_theme(720, dark))
    qtbot.addWidget(view)
    view.resize(width, 360)
    view.show_figure(Figure(((mark,),), "title"))
    view.show()
    QApplication.processEvents()
    (rows,) = view.findChildren(RowsMark)
    return rows


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("levels", [(0.0, 2.0), (-2.0, 2.0)], ids=["neutral", "signed"])
def test_bars_of_tables_have_three_to_one_on_their_ground(qtbot, dark, levels):
    rows = staged(qtbot, dark, 900, numbers(levels, chosen=(0,)))
    for row in range(2):
        cell = rows.table.visualRect(rows.model.index(row, 1))
        pixels = seen(rows.table.viewport())[cell.top() + 1 : cell.bottom(), cell.left() + 1 : cell.right()]
        one, other = broad(pixels, 200)[:2]
        assert contrast(QColor(*one), QColor(*other)) >= 3.0


@pytest.mark.parametrize("dark", [False, True])
def test_in_a_narrow_cell_of_a_stage_the_bar_lies_below_the_number(qtbot, dark):
    rows = staged(qtbot, dark, 300, numbers((0.0, 2.0)))
    header = rows.table.horizontalHeader()
    header.setSectionResizeMode(1, QHeaderView.ResizeMode.Interactive)
    header.resizeSection(1, 100)
    cell = rows.table.visualRect(rows.model.index(0, 1))
    pixels = seen(rows.table.viewport())[cell.top() : cell.bottom() + 1, cell.left() : cell.right() + 1]
    barred = (pixels == np.array(NEUTRAL)).all(axis=2).sum(axis=1) > 8
    inked = (np.abs(pixels - rgb_of(rows.theme.colour("text"))).sum(axis=2) < 30).any(axis=1)
    assert barred.any() and inked.any()
    assert np.flatnonzero(barred).min() > np.flatnonzero(inked).max()


@pytest.mark.parametrize("dark", [False, True])
def test_the_heading_of_a_table_is_in_the_ink_of_its_stage(qtbot, dark):
    rows = staged(qtbot, dark, 900, numbers((0.0, 2.0), heading="nats of each order"))
    ink = rows.heading.palette().color(rows.heading.foregroundRole())
    assert contrast(ink, rows.theme.colour("background")) >= 7.0
