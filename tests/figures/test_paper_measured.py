"""Every panel on paper as poppler finds it in the written file: nothing overlaps, is cut off, covered, small or pale.

`test_paper.py` looks at the SVG with the fonts of this program; here a reader that was not written here says where words are.
"""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QMarginsF, QPointF, QRectF, QSizeF
from PySide6.QtGui import QImage, QPageLayout, QPageSize, QPainter, QPdfWriter

from circuitlab import api
from circuitlab.draw.export.pictures import picture
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.theme import LIGHT
from circuitlab.engine.codec import params_of
from circuitlab.figures.contracts.panel import Why, facts_of, panels
from circuitlab.figures.marks import Axis, Bars, Figure, Heatmap, Lines, RowColumn, Rows, Tokens, ids
from circuitlab.model.subject import Head
from circuitlab.report.render import figure_of
from circuitlab.state.cuts import ablation
from circuitlab.state.state import Pin
from tests.figures.pdf_measures import TOOLS, beyond, fonts, hidden, images, overlaps, words
from tests.figures.svg_contrast import bars, contrasts, legend_strokes
from tests.figures.test_paper import PAGES, TEXT, drawn

POPPLER = pytest.mark.skipif(any(shutil.which(tool) is None for tool in TOOLS), reason="needs poppler")
NAME = lambda page: "-".join((page[0], *page[1].values()))
LEAST_CONTRAST = 4.5  # WCAG 2 AA, of text
APART = 0.1  # of the lightness from black to white, between two lines with the same dashes
MODELS = {"cut": "attn-only-2l", "pinned": "attn-only-2l", "gpt": "gpt-mini"}
OTHERS = [Paper(font_pt=9), Paper(width_mm=120), Paper(caption="full", ink="grey")]
FEW = [
    (("attention", {}), Paper()),
    (("circuits", {}), Paper()),
    (("circuits", {"page": "largest"}), Paper(font_pt=9)),  # whose caption grows once its tables have their room
    (("composition", {}), Paper()),
    (("logit_lens", {}), Paper()),
]
LITTLE = ("", "a", "a b")  # prompts of one token to three, whose maps are shorter than the titles beside them
SMALL = [Paper(), Paper(width_mm=45), Paper(font_pt=5, least_pt=5), Paper(width_mm=120, font_pt=12)]


pytestmark = pytest.mark.usefixtures("qapp")  # pictures need one


def problems(figure: Figure, paper: Paper, folder: Path) -> dict[str, object]:
    """What is wrong with the file of a figure, by what was measured."""
    path = folder / "figure.pdf"
    path.write_bytes(data := picture(figure, ".pdf", paper))
    result = words(path)
    assert result, "it has words"
    measured = {
        "overlapping": overlaps(result),
        "beyond the page": beyond(result, data),
        "cut off or covered": hidden(path, result, folder),
        "small": [w.said for w in result if w.size < paper.least_pt - 0.01],
        "pictures": images(path),
        "not embedded": [name for name, whole in fonts(path).items() if not whole],
    }
    return {what: value for what, value in measured.items() if value}


@POPPLER
@pytest.mark.parametrize(("page", "paper"), FEW, ids=[NAME(page) for page, _ in FEW])
def test_a_column_of_a_paper_is_whole(page, paper, tmp_path):
    assert not problems(drawn(page[0], tuple(page[1].items())), paper, tmp_path)


@POPPLER
@pytest.mark.slow
@pytest.mark.parametrize("width", [84.0, 174.0])
@pytest.mark.parametrize("page", PAGES, ids=NAME)
def test_every_panel_is_whole_in_one_column_and_in_two(page, width, tmp_path):
    assert not problems(drawn(page[0], tuple(page[1].items())), Paper(width_mm=width), tmp_path)


@POPPLER
@pytest.mark.parametrize("show", ["pattern", "scores"])
@pytest.mark.parametrize("paper", SMALL, ids=["84 mm", "45 mm", "5 pt", "12 pt"])
def test_the_titles_of_a_map_of_one_cell_are_whole(paper, show, tmp_path):
    model = api.open("attn-only-2l")
    for text in LITTLE:
        figure = model.figure("attention", text=text, show=show).figure
        assert not problems(figure, paper, tmp_path)
        assert "destination" in [w.said for w in words(tmp_path / "figure.pdf")]


@POPPLER
@pytest.mark.parametrize(("title", "named"), [("short", False), ("which of very many things it is that this row is of", True)])
def test_a_title_longer_than_a_given_height_is_in_the_caption(title, named, tmp_path):
    mark = Heatmap("m", np.ones((2, 2), np.float32), (0.0, 1.0), x=Axis("to"), y=Axis(title), colour_bar=False)
    figure, paper = Figure(((mark,),), "t", ("conventions " * 60,)), Paper(height_mm=50)
    assert not problems(figure, paper, tmp_path)
    written = " ".join(w.said for w in words(tmp_path / "figure.pdf") if not w.turned)
    assert (f"down: {title}" in written) == ("across: to" in written) == named


@POPPLER
@pytest.mark.slow
@pytest.mark.parametrize("name", ["attn-only-2l", "gpt-mini"])
@pytest.mark.parametrize("page", [*PAGES, ("neurons", {})], ids=NAME)
def test_every_panel_is_whole_with_a_prompt_of_few_tokens(page, name, tmp_path):
    model, panel = api.open(name), panels()[page[0]]
    for text in LITTLE:
        state = model.state(text).with_view(page[0], params_of(panel.view, page[1]))
        if page[0] == "patching":
            other = model.state(text.replace("a", "c"))
            state = replace(state, pins=(Pin("other", other.subject, text=other.text),))
        if isinstance(panel.requests(state, facts_of(model.engine, state.model)), Why):
            continue
        figure = figure_of(model.engine, panel, state)
        for width in (84.0, 174.0):
            assert not figure.grid or not problems(figure, Paper(width_mm=width), tmp_path)


@POPPLER
@pytest.mark.slow
@pytest.mark.parametrize("paper", OTHERS, ids=["9 pt", "120 mm", "grey"])
@pytest.mark.parametrize("page", PAGES, ids=NAME)
def test_every_panel_is_whole_in_other_type_and_ink(page, paper, tmp_path):
    assert not problems(drawn(page[0], tuple(page[1].items())), paper, tmp_path)


@POPPLER
@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("page", [*PAGES, ("neurons", {})], ids=NAME)
def test_every_panel_is_whole_with_a_cut_a_reference_and_another_model(page, kind, tmp_path):
    model, panel = api.open(MODELS[kind]), panels()[page[0]]
    state = model.state(TEXT, heads="L1H1").with_view(page[0], params_of(panel.view, page[1]))
    if kind == "cut":
        state = replace(state, edits=((ablation(Head(1, 1)), True),), compare="difference")
    if kind == "pinned" or page[0] == "patching":
        other = model.state(TEXT.replace("Hursley", "Potters"))
        compare = "difference" if kind == "pinned" else "now"
        state = replace(state, pins=(Pin("another prompt", other.subject, other.selection, other.text),), compare=compare)
    if not isinstance(panel.requests(state, facts_of(model.engine, state.model)), Why):
        figure = figure_of(model.engine, panel, state)
        assert not figure.grid or not problems(figure, Paper(), tmp_path)


# -- in grey ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ink", ["colour", "grey"])
@pytest.mark.parametrize("page", [("circuits", {}), ("side_by_side", {}), ("patching", {})], ids=NAME)
def test_text_can_be_read_on_its_ground(page, ink):
    root = ET.fromstring(picture(drawn(page[0], tuple(page[1].items())), ".svg", Paper(text="fonts", ink=ink)))
    low = [(round(ratio, 2), said) for said, ratio in contrasts(root) if ratio < LEAST_CONTRAST and said.strip("·")]
    assert not low


@pytest.mark.parametrize("ink", ["colour", "grey"])
def test_bars_have_three_to_one_on_their_ground(ink):
    numbers = np.array([0.9, -0.8, 0.7, -0.6])
    columns = (
        RowColumn("one", abs(numbers), bar=True, levels=(0.0, 1.0)),
        RowColumn("two", numbers, bar=True, levels=(-1.0, 1.0)),
    )
    table = Rows("t", columns, np.arange(4).reshape(-1, 1), chosen=(1,))
    chart = Bars("b", numbers, tuple("abcd"))
    for mark, count in ((table, 8), (chart, 4)):
        root = ET.fromstring(picture(Figure(((mark,),), "t"), ".svg", Paper(text="fonts", ink=ink)))
        drawn_bars = [ratio for box, ratio in bars(root) if 8 < box.width() < 300 and box.height() > 5]
        assert len(drawn_bars) == count and min(drawn_bars) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("ink", ["colour", "grey"])
@pytest.mark.parametrize("page", PAGES, ids=NAME)
def test_all_text_can_be_read_on_its_ground(page, ink):
    test_text_can_be_read_on_its_ground(page, ink)


@pytest.mark.parametrize("ink", ["colour", "grey"])
def test_a_number_can_be_read_on_every_colour_of_a_map(ink):
    scale = np.linspace(-1, 1, 37).astype(np.float32)
    paper = Paper(width_mm=400, text="fonts", ink=ink, caption="none")
    for name, values, levels in (
        ("signed", scale, (-1.0, 1.0)),
        ("loss", abs(scale), (0.0, 1.0)),
        ("magnitude", abs(scale), (0.0, 1.0)),
    ):
        n = len(values)
        texts = np.array([["wwww"] * n], dtype=object)
        column = RowColumn("value", values, map=name, levels=levels)
        for mark in (
            Rows("m", (RowColumn("row", np.arange(n)), column), ids(np.arange(n))),
            Tokens("m", ("word",) * n, values, levels, map=name),
            Heatmap("m", values[None], levels, map=name, texts=texts, square=False, x=Axis("x"), y=Axis("y")),
        ):
            result = contrasts(ET.fromstring(picture(Figure(((mark,),), "t"), ".svg", paper)))
            assert len(result) > n, "each has its text"
            assert min(ratio for _, ratio in result) >= LEAST_CONTRAST, (name, type(mark).__name__)


@pytest.mark.parametrize("page", [("training", {}), ("residual", {}), ("composition", {})], ids=NAME)
def test_lines_are_told_apart_in_grey_by_dashes_or_by_how_dark_they_are(page):
    root = ET.fromstring(picture(drawn(page[0], tuple(page[1].items())), ".svg", Paper(text="fonts", ink="grey")))
    groups = legend_strokes(root)
    assert groups
    for strokes in groups:
        for (grey, dashes), (other, others) in combinations(strokes, 2):
            assert dashes != others or abs(grey - other) > APART * 255


def test_as_many_lines_as_a_legend_names_are_told_apart():
    names = tuple(f"line {i}" for i in range(6))
    mark = Lines("m", np.arange(5.0), np.arange(30.0).reshape(6, 5), names)
    (strokes,) = legend_strokes(ET.fromstring(picture(Figure(((mark,),), "t"), ".svg", Paper(text="fonts", ink="grey"))))
    assert len({dashes for _, dashes in strokes}) == 6


# -- what measures --------------------------------------------------------------------------------------------------------


def _page(path: Path, act: Callable[[QPainter], None]) -> Path:
    writer = QPdfWriter(str(path))
    writer.setResolution(96)
    size = QPageSize(QSizeF(84, 50), QPageSize.Unit.Millimeter, "", QPageSize.SizeMatchPolicy.ExactMatch)
    writer.setPageLayout(QPageLayout(size, QPageLayout.Orientation.Portrait, QMarginsF(0, 0, 0, 0)))
    painter = QPainter(writer)
    painter.setFont(replace(LIGHT, tabular=False).font(11))
    act(painter)
    painter.end()
    return path


def _clipped(painter: QPainter) -> None:
    painter.setClipRect(QRectF(20, 20, 40, 30))
    painter.drawText(QPointF(30, 40), "beyond an edge")


def _covered(painter: QPainter) -> None:
    painter.drawText(QPointF(30, 40), "covered")
    painter.fillRect(QRectF(20, 25, 80, 10), "#ffffff")


def _turned(painter: QPainter) -> None:
    painter.translate(50, 80)
    painter.rotate(-90)
    painter.drawText(QPointF(0, 0), "upwards")
    painter.drawText(QPointF(4, 3), "again")


def _small(painter: QPainter) -> None:
    painter.scale(0.5, 0.5)
    painter.drawText(QPointF(60, 60), "small")


@POPPLER
def test_the_measures_find_what_is_wrong(tmp_path):
    measured = lambda act: (path := _page(tmp_path / "page.pdf", act), words(path))
    path, result = measured(_clipped)
    assert hidden(path, result, tmp_path) == ["beyond", "an", "edge"][: len(hidden(path, result, tmp_path))] != []
    path, result = measured(_covered)
    assert hidden(path, result, tmp_path) == ["covered"]
    path, result = measured(lambda p: p.drawText(QPointF(30, 40), "whole"))
    assert not hidden(path, result, tmp_path) and not beyond(result, path.read_bytes()) and not images(path)
    assert result[0].size == pytest.approx(11 * 72 / 96) and all(fonts(path).values())
    _, result = measured(lambda p: (p.drawText(QPointF(30, 40), "12.5"), p.drawText(QPointF(45, 41), "13.5")))
    assert overlaps(result) == [("12.5", "13.5")]
    _, result = measured(_turned)
    assert [w.turned for w in result] == [True, True] and len(overlaps(result)) == 1
    path, result = measured(lambda p: p.drawText(QPointF(300, 40), "overtheedge"))
    assert beyond(result, path.read_bytes())
    _, result = measured(_small)
    assert result[0].size == pytest.approx(11 * 72 / 96 / 2)
    image = QImage(20, 20, QImage.Format.Format_RGB32)
    path, _ = measured(lambda p: (p.drawImage(QRectF(10, 10, 50, 50), image), p.drawText(QPointF(99, 99), "a")))
    assert images(path)
