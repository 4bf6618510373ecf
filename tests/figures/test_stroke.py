"""`Theme.stroke` in every mark, measured from pixels: lines are as many times as wide, dots and rings as many times as large."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QSize
from PySide6.QtGui import QColor, QImage

from circuitlab.disk.paths import resource
from circuitlab.draw.export.pictures import picture, render
from circuitlab.draw.look.colours import NEUTRAL
from circuitlab.draw.look.paper import INCH, POINTS, Paper
from circuitlab.draw.look.stage_theme import stage_theme
from circuitlab.draw.look.theme import LIGHT, Theme
from circuitlab.draw.plots.lines import PLAIN
from circuitlab.figures.contracts.hues import composition_rgb, hue_rgb
from circuitlab.figures.marks import (
    Axis,
    Bars,
    Dials,
    Edges,
    Figure,
    Heatmap,
    Lines,
    Mark,
    Points,
    RowColumn,
    Rows,
    Tiles,
    Tokens,
    ids,
)
from tests.figures.svg_contrast import contrast

SIZE = QSize(600, 420)
# Each ink of the theme is a colour of its own here, so that its pixels can be told from all others.
INKS = replace(LIGHT, line="#00a000", faint="#a000a0", muted="#0000d0", text="#d00000", accent="#00c0c0")
ZEROS = np.zeros((6, 6), np.float32)
MAP = Heatmap("m", ZEROS, (0.0, 1.0), colour_bar=False)
FLAT = Lines("m", np.arange(3.0), np.full((1, 3), 0.5), ("a",), x_axis=Axis(bare=True), y_axis=Axis(bare=True))
DOTS = Points("m", np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 0.0]), ids(np.arange(3)))
GRAPH = Edges(
    "m",
    np.array([[0.0, 0.0], [1.0, 1.0]]),
    ("", ""),
    np.array([0, 1]),
    np.array([[0, 1]]),
    np.ones(1),
    np.zeros(1, np.int64),
)
PAIR = Rows("m", (RowColumn("x", np.zeros(2)),), ids(np.arange(2)), chosen=(0,))


def on_white(rgb: tuple[int, ...], alpha: float) -> QColor:
    return QColor(*(round(255 - (255 - part) * alpha) for part in rgb))


LINE, DISC = 1, 2  # the power of the stroke that an area grows with
CASES: dict[str, tuple[Mark, str | QColor, int]] = {
    "curve": (FLAT, QColor(*PLAIN[0]), LINE),
    "chosen curve": (replace(FLAT, chosen=(0,)), QColor(*PLAIN[0]), LINE),
    "curve of one point": (replace(FLAT, x=np.zeros(1), ys=np.zeros((1, 1))), QColor(*PLAIN[0]), DISC),
    "where one stands": (replace(FLAT, current=1.0), "accent", LINE),
    "marked step": (replace(FLAT, marks=((1.0, ""),)), "faint", LINE),
    "axes and grid": (replace(FLAT, x_axis=Axis(), y_axis=Axis()), "line", LINE),
    "points": (DOTS, on_white(NEUTRAL, 215 / 255), DISC),
    "selected point": (replace(DOTS, chosen=(1,)), "accent", DISC),
    "edge": (GRAPH, on_white(composition_rgb(0, False), (55 + 200 * 7.5 / 8) / 255), LINE),
    "selected node": (replace(GRAPH, chosen_nodes=(0,)), "accent", LINE),
    "framed cell": (replace(MAP, framed=np.eye(6, dtype=bool)), "muted", LINE),
    "crosshair": (replace(MAP, row=2, col=3), "accent", LINE),
    "tiles": (replace(MAP, tiles=Tiles(2, 2, 2, 2)), "line", LINE),
    "ranges": (replace(MAP, x=Axis(spans=((0, 3, ""), (3, 6, "")))), "faint", LINE),
    "ablated cell": (replace(MAP, struck=((1, 1),)), "text", LINE),
    "undefined cell": (replace(MAP, values=np.full((6, 6), np.nan, np.float32), hatched=np.ones((6, 6), bool)), "line", LINE),
    "legend": (replace(MAP, legend=(("", 3),)), QColor(*hue_rgb(3, False)), DISC),
    "colour bar": (replace(MAP, colour_bar=True), "line", LINE),
    "selected bar": (Bars("m", np.ones(2), ("", ""), chosen=(0,)), "accent", LINE),
    "selected token": (Tokens("m", ("aa", "bb"), np.full(2, np.nan), row=0, locked=True), "accent", LINE),
    "hand of a dial": (Dials("m", np.full(3, 0.5)), "text", LINE),
    "selected row": (PAIR, "accent", LINE),
}


pytestmark = pytest.mark.usefixtures("qapp")  # pictures need one


def pixels(image: QImage) -> np.ndarray:
    image = image.convertToFormat(QImage.Format.Format_RGB32)
    return np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), image.width(), 4)[..., 2::-1].astype(float)


def inked(image: QImage, ink: QColor, least: float = 0.3) -> np.ndarray:
    """[row, column] how much of each pixel a line of this colour covers; 0 where that is less than `least`, or another colour."""
    colour, picture = np.array([ink.red(), ink.green(), ink.blue()], float), pixels(image)
    way = colour - 255
    part = (picture - 255) @ way / (way @ way)
    off = np.abs(picture - 255 - part[..., None] * way).max(axis=2)
    return np.where((off < 12) & (part > least), np.minimum(part, 1.0), 0.0)


def area(mark: Mark, ink: str | QColor, stroke: float) -> float:
    theme = replace(INKS, stroke=stroke) if ink == "line" else replace(INKS, stroke=stroke, line=INKS.background)
    return float(inked(render(Figure(((mark,),)), SIZE, theme), theme.colour(ink) if isinstance(ink, str) else ink).sum())


@pytest.mark.parametrize("name", CASES)
def test_lines_are_as_many_times_as_wide_and_dots_as_large(name):
    mark, ink, power = CASES[name]
    thin = area(mark, ink, 1.0)
    assert thin > 5
    assert area(mark, ink, 2.5) / thin == pytest.approx(2.5**power, rel=0.35)


@pytest.mark.parametrize(("mark", "wide"), [(FLAT, 1.5), (replace(FLAT, chosen=(0,)), 2.5)], ids=["curve", "chosen"])
@pytest.mark.parametrize("stroke", [1.0, 2.5])
@pytest.mark.parametrize("ratio", [1.0, 2.0])
def test_a_curve_is_as_wide_as_its_stroke_says_on_any_screen(mark, wide, stroke, ratio):
    image = render(Figure(((mark,),)), SIZE, replace(INKS, stroke=stroke, line=INKS.background), ratio)
    across = inked(image, QColor(*PLAIN[0]), least=0.05)[:, image.width() // 2].sum()
    assert across == pytest.approx(wide * stroke * ratio, abs=0.3)


@pytest.mark.parametrize("dpi", [150, 600])
@pytest.mark.parametrize("line_pt", [0.5, 1.0])
def test_lines_and_dots_of_a_page_have_their_size_at_any_resolution(line_pt, dpi):
    paper = Paper(width_mm=84.0, line_pt=line_pt, dpi=dpi, caption="none")
    point, stroke = dpi / POINTS, line_pt / paper.font_pt * LIGHT.small  # dots of the file, px at stroke 1
    curve = QImage.fromData(picture(Figure(((FLAT,),)), ".png", paper))
    assert curve.width() == round(84 / INCH * dpi)
    across = inked(curve, QColor(*PLAIN[0]), least=0.12)[:, curve.width() // 2].sum()
    assert across == pytest.approx(1.5 * line_pt * point, rel=0.1, abs=0.3)
    dot = Points("m", np.zeros(1), np.zeros(1), ids(np.arange(1)), hues=np.array([3]))
    disc = inked(QImage.fromData(picture(Figure(((dot,),)), ".png", paper)), on_white(hue_rgb(3, False), 215 / 255)).sum()
    across = np.sqrt(disc * 4 / np.pi)
    assert across == pytest.approx(dot.size * stroke * paper.font_pt / LIGHT.small * point, rel=0.1)


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_a_weak_edge_of_a_stage_has_three_to_one_on_its_ground_and_is_thinner_than_a_strong_one(kind):
    for theme in (stage_theme(1080, dark=True), stage_theme(1080)):
        ink = QColor(*composition_rgb(kind, theme.dark))
        assert contrast(ink.name(), theme.background) >= 3
    covered = []
    for weight in (0.0, 1.0):
        graph = replace(GRAPH, weights=np.array([weight]), kinds=np.array([kind]))
        part = inked(render(Figure(((graph,),)), QSize(900, 600), theme), ink, least=0.05)[200:400]
        assert part.max() >= 0.95, "in its full colour, however weak"
        covered.append(part.sum())
    assert covered[1] > 2 * covered[0]


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_no_edge_on_paper_is_faint(kind):
    graph = replace(GRAPH, weights=np.array([0.0]), kinds=np.array([kind]))
    image = QImage.fromData(picture(Figure(((graph,),)), ".png", Paper()))
    row = inked(image, QColor(*composition_rgb(kind, False)), least=0.05)[image.height() // 3 : image.height() * 2 // 3]
    assert row.max() >= 0.95, "in its full colour, however weak"


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
def test_no_edge_of_a_stage_is_fainter_than_a_screen_shows(weight):
    themes: dict[str, Callable[[], Theme]] = {"window": lambda: LIGHT, "stage": lambda: stage_theme(1080)}
    ink = QColor(*composition_rgb(0, False))
    strongest = {}
    for name, theme in themes.items():
        image = render(Figure(((replace(GRAPH, weights=np.array([weight])),),)), QSize(900, 600), theme())
        strongest[name] = inked(image, ink, least=0.05)[200:400].max()
    assert strongest["stage"] >= 0.95
    if weight == 0:
        assert strongest["window"] < 0.3


def test_there_is_no_pen_that_the_stroke_does_not_reach():
    rooms = resource("..").resolve() / "circuitlab" / "draw"
    sources = [path for path in rooms.rglob("*.py") if path.name != "theme.py"]
    assert len(sources) > 30
    assert not [path.name for path in sources if re.search(r"\b(?:QPen|mkPen)\(", path.read_text("utf-8"))]
