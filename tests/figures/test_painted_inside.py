"""Whatever an item of a plot paints lies in its boundary: what lies outside is not erased when it changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyqtgraph as pg
import pytest
from PySide6.QtGui import QColor, QImage, QPainter
from PySide6.QtWidgets import QApplication, QStyleOptionGraphicsItem

from circuitlab.draw.look.theme import DARK, LIGHT
from circuitlab.draw.plots.plot import Overlay, PlotMark
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.figures.marks import Axis, Figure, Heatmap, Lines, Points, ids

ROUND = 240  # px round an item
PART = 0.6  # of a pixel: a line along a boundary between two
LARGE = replace(LIGHT, small=18.0, normal=21.0, large=24.0)
TOKENS = ("<|bos|>", "·Harville", "g", "·walked", "y", "·the")


def heat(n=6, top=1.45, **more):
    values = np.linspace(-top, top, n * n).reshape(n, n).astype(np.float32)
    return Heatmap("m", values, (-top, top), map="signed", unit="nats", **more)


def curves(top=8.0, **more):
    x = np.array([1.0, 2.0, 5.0, 10.0, 20.0])
    names = tuple(f"L{i}H{i}" for i in range(3))
    return Lines("m", x, top * np.arange(15.0).reshape(3, 5), names, x_axis=Axis("tokens"), y_axis=Axis("loss, gnats"), **more)


MARKS = {
    "few cells": heat(2),
    "tokens": heat(x=Axis("source", TOKENS, tokens=True), y=Axis("destination", TOKENS, tokens=True)),
    "indices": heat(60, x=Axis("source"), y=Axis("destination")),
    "legend": heat(rgb=np.zeros((6, 6, 3), np.uint8), legend=(("L0H1", 0), ("L1Hg", 1)), colour_bar=False),
    "strip": heat(3, square=False, x=Axis("head", ("H0", "H1", "H2")), y=Axis("layer", ("L0", "L1", "Lg"))),
    "curves": curves(),
    "logarithmic": replace(curves(), x_axis=Axis("million tokens", log=True)),
    "points": Points("m", np.arange(5.0), np.arange(5.0) ** 2, ids(np.arange(5)), x_axis=Axis("real"), y_axis=Axis("imaginary")),
}


def painted(item) -> tuple[float, float, float, float] | None:
    """(left, top, right, bottom) of what an item paints, in its own coordinates; None of nothing."""
    rect = item.boundingRect()
    wide, high = int(rect.width()) + 2 * ROUND, int(rect.height()) + 2 * ROUND
    image = QImage(wide, high, QImage.Format.Format_ARGB32)
    image.fill(QColor(0, 0, 0, 0))
    painter = QPainter(image)
    painter.translate(ROUND - rect.left(), ROUND - rect.top())
    item.paint(painter, QStyleOptionGraphicsItem(), None)
    painter.end()
    alpha = np.frombuffer(image.constBits(), np.uint8).reshape(high, image.bytesPerLine())[:, 3 : 4 * wide : 4] > 40
    if not alpha.any():
        return None
    down, across = np.flatnonzero(alpha.any(axis=1)), np.flatnonzero(alpha.any(axis=0))
    left, top = rect.left() - ROUND, rect.top() - ROUND
    return left + across[0], top + down[0], left + across[-1] + 1, top + down[-1] + 1


@pytest.mark.parametrize("size", [(640, 560), (300, 200), (260, 130)], ids=str)
@pytest.mark.parametrize("theme", [LIGHT, LARGE], ids=["usual", "large"])
@pytest.mark.parametrize("name", MARKS)
def test_an_item_paints_inside_its_boundary(view, name, theme, size):
    view.set_theme(theme)
    view.resize(*size)
    view.show_figure(Figure(((MARKS[name],),), "title", ("caption",)))
    view.grab()
    QApplication.processEvents()
    widget = view.widget("m")
    # what is inside the picture is clipped to it
    items = [i for i in widget.scene().items() if not widget.box.isAncestorOf(i) and i is not widget.box]
    assert isinstance(widget, PlotMark) and len(items) > 3
    for item in items:
        if not item.isVisible() or isinstance(item, (Overlay, pg.PlotItem)) or (result := painted(item)) is None:
            continue
        rect = item.boundingRect()
        left, top, right, bottom = result
        rect = rect.adjusted(-PART, -PART, PART, PART)
        inside = left >= rect.left() and top >= rect.top() and right <= rect.right() and bottom <= rect.bottom()
        assert inside, (type(item).__name__, result, rect.getCoords())


def seen(view) -> np.ndarray:
    """[y, x, channel]: what stands on the screen, as it was painted bit by bit."""
    for _ in range(3):
        QApplication.processEvents()
    image = view.screen().grabWindow(view.winId()).toImage().convertToFormat(QImage.Format.Format_RGB32)
    return np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), -1, 4)[..., :3].copy()


@pytest.mark.parametrize("change", ["numbers", "names"])
@pytest.mark.parametrize("theme", [DARK, LARGE], ids=["dark", "large"])
@pytest.mark.parametrize("n", [2, 6])
def test_nothing_is_left_of_the_numbers_before(qtbot, n, theme, change):
    """Other numbers, or a smaller picture, since there are names below it now."""
    mark = heat(n, x=Axis("head"), y=Axis("layer"))
    if change == "numbers":
        other = replace(mark, values=mark.values / 12, levels=(-0.116, 0.116))
    else:
        other = replace(mark, x=Axis("source", TOKENS[:n], tokens=True))
    used, fresh = FigureView(theme), FigureView(theme)
    pictures = []
    for view, shown in ((used, mark), (fresh, other)):
        view.resize(420, 260)
        qtbot.addWidget(view)
        view.show_figure(Figure(((shown,),), "title", ("caption",)))
        view.show()
        pictures.append(seen(view))
    used.show_figure(Figure(((other,),), "title", ("caption",)))
    before, wanted = pictures
    assert (wanted != before).any() and len(np.unique(wanted.reshape(-1, 3), axis=0)) > 20
    assert (seen(used) == wanted).all()
