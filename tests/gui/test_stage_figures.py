"""Every panel on a page for an audience, measured from what is painted: nothing is too small, cut off, or over something else."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import QBuffer, QCoreApplication, QIODevice, QPoint, QRect, QRectF, QSize
from PySide6.QtGui import QFontMetricsF, QImage, QPainter
from PySide6.QtSvg import QSvgGenerator
from PySide6.QtWidgets import QWidget

from circuitlab.analysis.circuits.factors import exactness
from circuitlab.caption_parts import Essential, sampled
from circuitlab.draw.look.stage_theme import CAPITAL, stage_theme
from circuitlab.draw.look.theme import LIGHT
from circuitlab.draw.painted import tokens
from circuitlab.draw.pointing.pointer_note import place_beside
from circuitlab.draw.view._stage_room import LEAST_PICTURE
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.figures.marks import Axis, Figure, Heatmap, Lines, Points, Prose, RowColumn, Rows, Tokens, beyond, ids, joined
from circuitlab.gui.presenter.page import StagePage
from circuitlab.model.subject import Conventions
from tests import pointer
from tests.figures.paper_files import Text, texts
from tests.figures.test_paper import PAGES, drawn
from tests.models import CONFIGS

SIZES = ((1280, 720), (1920, 1080), (3840, 2160))
LINE = "The word after the last “Hursley” is what the head copies, which takes a head before it."
FEW = ("attention", "composition", "predictions", "training")
TOGETHER = (
    ("attention", "heads"),
    ("training", "induction"),
    ("composition", "attention", "ablation"),
    ("attention", "overview", "composition", "predictions"),
    ("keep_only", "prompt_sets", "training", "bigram"),
    ("virtual", "side_by_side", "term_importance", "logit_lens"),
)
_PARTS = QWidget.RenderFlag.DrawChildren | QWidget.RenderFlag.DrawWindowBackground

Made = Callable[..., tuple[StagePage, list[Any]]]


@pytest.fixture
def staged(qtbot, monkeypatch) -> Made:
    """A shown page of a size with a view for each figure, two in a row."""
    monkeypatch.setattr(tokens, "TALLEST", 0.0)  # texts are then written, not copied from a picture of them

    def make(figures: list[Figure], size: tuple[int, int], dark: bool = False) -> tuple[StagePage, list[Any]]:
        page = StagePage()
        qtbot.addWidget(page)
        page.resize(*size)
        page.dark = dark
        page.set_step("The second head finds what followed last time", LINE, "norm folded · centred", (3, 5))
        views: list[Any] = [FigureView(page.theme) for _ in figures]
        for view, figure in zip(views, figures, strict=True):
            view.show_figure(figure)
        page.set_views([views[i : i + 2] for i in range(0, len(views), 2)])
        with qtbot.waitExposed(page):
            page.show()
        QCoreApplication.processEvents()
        return page, views

    return make


def written(page: QWidget) -> list[Text]:
    """All that is written on a page, with the sizes of its type and its places."""
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    generator = QSvgGenerator(QSvgGenerator.SvgVersion.Svg11)
    generator.setOutputDevice(buffer)
    generator.setResolution(96)
    generator.setSize(page.size())
    generator.setViewBox(page.rect())
    painter = QPainter(generator)
    page.render(painter, QPoint(0, 0), page.rect(), _PARTS)
    painter.end()
    return [text for text in texts(ET.fromstring(buffer.data().data())) if text.said.strip()]


def over_others(all_texts: list[Text]) -> list[tuple[str, str]]:
    boxes = np.array([(t.box.left(), t.box.top(), t.box.right(), t.box.bottom()) for t in all_texts])
    common = np.minimum(boxes[:, None, 2:], boxes[None, :, 2:]) - np.maximum(boxes[:, None, :2], boxes[None, :, :2])
    pairs = np.argwhere(np.triu((common > 1).all(axis=2), 1)).tolist()
    return [(all_texts[i].said, all_texts[j].said) for i, j in pairs]


def is_legible(page: StagePage, views: list[Any], alone: bool) -> None:
    """Sizes, edges, shares; `alone`: nothing is scrolled, and so nothing that is written lies under something else."""
    width, height = page.width(), page.height()
    everything = written(page)
    assert len(everything) > 8
    assert not [(t.said, t.size) for t in everything if t.size * CAPITAL < height / 50 - 0.02]
    room = QRectF(page.rect()).adjusted(-0.5, -0.5, 0.5, 0.5)
    assert not [t.said for t in everything if not room.contains(t.box)]
    assert not (over_others(everything) if alone else [])
    assert sum(view.width() * view.height() for view in views) >= 0.8 * width * height
    for view in views:
        assert view.minimumSizeHint().height() <= view.height(), "its parts would lie over each other"


def panel_page(name: str, view: dict[str, str]) -> Figure:
    return drawn(name, tuple(view.items()))


@pytest.mark.parametrize("name", FEW)
def test_a_panel_is_legible(staged, name):
    page, views = staged([panel_page(name, {})], SIZES[0])
    is_legible(page, views, alone=True)
    assert not views[0].fold.isVisible()
    assert "no room" not in views[0].whole_caption


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("form", PAGES, ids=lambda p: "-".join((p[0], *p[1].values())))
def test_every_panel_is_legible_at_every_size(staged, form, size):
    page, views = staged([panel_page(*form)], size, dark=size == SIZES[1])
    is_legible(page, views, alone=True)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("names", TOGETHER, ids="+".join)
def test_several_panels_are_legible(staged, names, size):
    page, views = staged([panel_page(name, {}) for name in names], size)
    is_legible(page, views, alone=False)


@pytest.mark.parametrize("name", ["heads", "composition"])
def test_capitals_have_their_height_in_pixels(staged, name):
    page, _ = staged([panel_page(name, {})], SIZES[0])
    image = page.grab().toImage()
    heads = [text for text in written(page) if text.said in {"H0", "H1", "H2", "H3", "L0", "L1", "L0H2", "L1H1"}]
    assert len(heads) >= 4
    for text in heads:
        box = text.box.toAlignedRect().adjusted(0, -2, 0, 2)
        columns = [
            [image.pixelColor(x, y).lightness() for y in range(box.top(), box.bottom() + 1)]
            for x in range(box.left(), box.right())
        ]
        stems = [sum(abs(light - column[0]) > 60 for light in column) for column in columns]  # the tallest is that of the H or L
        assert max(stems) >= 720 // 50


@pytest.mark.parametrize(("name", "least"), [("attention", 0.34), ("overview", 0.49), ("ablation", 0.2)])
def test_maps_grow_to_the_room_they_have(staged, name, least):
    page, (view,) = staged([panel_page(name, {})], SIZES[0])
    (heat,) = [widget for widget in view._widgets.values() if isinstance(widget.mark, Heatmap)]
    frame = heat.frame()
    assert frame.width() * frame.height() / (page.width() * page.height()) >= least
    rows, cols = heat.mark.values.shape
    cell = min(frame.width() / cols, frame.height() / rows)
    beside, below = (
        heat.width() - frame.width() - heat.left_axis.width(),
        heat.height() - frame.height() - heat.bottom_axis.height(),
    )
    assert min((beside - heat.bar.extent()) / cols, below / rows) <= max(cell * 0.2, 1) + 20 / min(rows, cols)


def pattern(n: int, attended: int, row: int) -> Figure:
    """A map of n tokens over its text, of which one is attended to by another."""
    texts = tuple(f"·{'abcdefgh'[: 1 + i * i % 7]}" for i in range(n))
    axis = lambda label: Axis(label, texts, tokens=True)
    heat = Heatmap(
        "map", np.tril(np.ones((n, n), np.float32)), (0.0, 1.0), x=axis("source"), y=axis("destination"), unit="weight"
    )
    values = np.full(n, 0.2 / n, np.float32)
    values[attended] = 0.8
    return Figure(((heat,), (Tokens("text", texts, values, row=row),)), "L1H1 · pattern", ("rows sum to 1",), weights=(4.0, 1.0))


def hued(n: int, *said: str) -> Figure:
    """A pattern of several heads, each in its hue, with their names above it; `said` are further parts of its caption."""
    figure = pattern(n, 3, n - 1)
    heat, names = figure.grid[0][0], tuple((f"L{i}H{i}", i) for i in range(3))
    heat = replace(heat, rgb=np.full((n, n, 3), 200, np.uint8), legend=names, colour_bar=False)
    return replace(figure, grid=((heat,), figure.grid[1]), caption_parts=tuple(map(Essential, said)))


@pytest.mark.parametrize("size", [(1280, 720), (1280, 800), (1920, 1080)], ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("n", [8, 51, 160])
def test_a_pattern_among_four_is_a_picture_under_the_names_of_its_heads(staged, size, n):
    """The names take a line or two of the room, not as many as fit over a narrow picture, which they then make narrower."""
    page, views = staged([hued(n, "text: what one attends to", "reference before: uncut")] * 4, size)
    for view in views:
        heat = view.widget("map")
        least = view.theme.px(LEAST_PICTURE)
        assert min(heat.frame().width(), heat.frame().height()) >= least
        right = heat.viewport().rect().right()
        places, _ = heat.legend._flow(max(heat.legend.width(), heat.legend._across))
        metrics = QFontMetricsF(view.theme.font(view.theme.small))
        names = [text for text, _ in heat.mark.legend]
        ends = [at.x() + heat.legend._before() + metrics.horizontalAdvance(text) for at, text in zip(places, names, strict=True)]
        assert heat.legend.sceneBoundingRect().left() + max(ends) <= right + 1, "names are whole"
        in_one_line = heat.legend.line_width() <= heat.viewport().width() - heat.left_axis.width()
        assert len({at.y() for at in places}) == (1 if in_one_line else 2)
    everything = written(page)
    assert not [pair for pair in over_others(everything) if pair[0].startswith("L") and pair[1].startswith("·")]


def test_a_map_beside_a_plot_has_the_room_of_its_colour_bar_where_it_would_be_a_strip(staged):
    _, views = staged([panel_page("residual", {})] * 4, (1280, 800))
    for view in views:
        heat = view.widget("overlap")
        assert min(heat.frame().width(), heat.frame().height()) >= view.theme.px(40)
        assert not heat.bar.isVisible() and "colours from 0" in view._caption.text()


def test_where_a_picture_would_be_a_speck_its_text_goes_and_the_caption_says_so(staged):
    _, views = staged([hued(51, *(f"a part that must be read, with number {i} of them" for i in range(6)))] * 4, (1280, 800))
    for view in views:
        heat, words = view.widget("map"), view.widget("text")
        assert not words.isVisible() and min(heat.frame().width(), heat.frame().height()) > 40
        assert "no room for 1 more part" in view._caption.text() and "a part that must be read" in view._caption.text()
        assert view._caption.height() <= 0.3 * view.height()
    _, views = staged([hued(51)] * 4, (1280, 800))
    assert all(view.widget("text").isVisible() for view in views)


@pytest.mark.parametrize("together", [1, 2, 4])
@pytest.mark.parametrize("size", SIZES[:2], ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize(("n", "attended", "row"), [(12, 3, 11), (51, 25, 50), (51, 0, 50), (300, 150, 299), (300, 290, 299)])
def test_of_a_long_text_the_attended_token_is_shown_and_what_is_not_is_named(staged, together, size, n, attended, row):
    _, views = staged([pattern(n, attended, row)] * together, size)
    for view in views:
        words = view.widget("text")
        seen = words.viewport().rect().toRectF().adjusted(-2, -2, 2, 2)
        shown = [seen.contains(words.item_rect((i,)).translated(0, -words.offset)) for i in range(n)]
        assert shown[attended]
        said = [part for part in view.caption_parts if part.endswith("not shown") and part.startswith("token")]
        numbers = [list(map(int, pair.split("–"))) for pair in re.findall(r"\d+(?:–\d+)?", "".join(said))]
        assert {i for ends in numbers for i in range(ends[0], ends[-1] + 1)} == {i for i in range(n) if not shown[i]}
        assert not said or said[0] in view._caption.text(), "the audience reads it"


def test_the_text_follows_the_token_that_is_attended_to(staged):
    _, (view,) = staged([pattern(300, 150, 299)], SIZES[0])
    words = view.widget("text")
    captions = set()
    for attended in (0, 299, 150):
        view.show_figure(pattern(300, attended, 299))
        QCoreApplication.processEvents()
        box = words.item_rect((attended,)).translated(0, -words.offset)
        assert words.viewport().rect().contains(box.center().toPoint())
        captions.add(view.whole_caption)
    assert len(captions) == 3, "what is not shown is another part each time"


def test_a_text_that_has_room_is_shown_with_its_heading(qtbot):
    words = tokens.TokensMark(stage_theme(720))
    qtbot.addWidget(words)
    words.show_mark(Tokens("text", ("word",) * 70, np.zeros(70, np.float32), heading="model 1", row=69))
    words.show()
    lines, line = words.content_height(700) // words.line_height(), words.line_height()
    for height in (2 * line, lines * line + 1):
        words.resize(700, height)
        QCoreApplication.processEvents()
        assert words._cut == (height < lines * line)
    assert words.offset == 0


ENDS = Points("points", np.array([0.0, 1.0]), np.array([0.0, 1.0]), ids(np.arange(2)), labels=("a", "b"), chosen=(0, 1))
EARLIER = Rows(
    "earlier", (RowColumn("head", np.array(["L0H1", "L0H2"])), RowColumn("score", np.array([1.0, 2.0]))), ids(np.arange(2))
)


@pytest.mark.parametrize("size", [(960, 540), (1280, 720)])
def test_a_point_at_the_edge_of_its_plot_is_whole_with_its_ring(staged, size):
    _page, (view, *_) = staged([Figure(((ENDS,),))] * 4, size)
    plot = view.widget("points")
    for x, y in plot.to_pixels(ENDS.x, ENDS.y).tolist():
        reach = min(plot._ring_radius() + plot.theme.stroke, 0.2 * min(plot.frame().width(), plot.frame().height()))
        assert plot.frame().adjusted(-1, -1, 1, 1).contains(QRectF(x - reach, y - reach, 2 * reach, 2 * reach))


def test_a_plot_stands_over_its_table_where_it_has_no_room_beside_it(staged):
    titled = replace(ENDS, x_axis=Axis("a title as long as OV copying, Σλ / Σ|λ|"), y_axis=Axis("positivity through"))
    figure = Figure(((titled, EARLIER),), "Spectra")
    for n, size, over in ((1, (1280, 720), False), (2, (960, 540), True)):
        _, views = staged([figure] * n, size)
        plot, table = views[0].widget("points"), views[0].widget("earlier")
        assert (plot.y() + plot.height() <= table.y()) is over
        assert plot.isVisible() and table.isVisible() and not plot.notes(), "titles are whole"
        assert plot.frame().height() > table.height() / 2


def test_a_title_that_is_cut_is_in_the_caption(staged):
    words = "as wide as no plot of this size, " * 8 + "say"
    _, (view,) = staged([Figure(((replace(ENDS, x_axis=Axis(words), y_axis=Axis("b")),),))], SIZES[0])
    assert f"across: {words}" in view.caption_parts
    _, (view,) = staged([Figure(((replace(ENDS, x_axis=Axis("a"), y_axis=Axis("b")),),))], SIZES[0])
    assert not any(part.startswith(("across", "up")) for part in view.caption_parts)


@pytest.mark.parametrize("n", [5, 12, 21, 51, 300])
@pytest.mark.parametrize("size", SIZES[:2], ids=lambda s: f"{s[0]}x{s[1]}")
def test_a_pattern_fills_its_page_however_few_its_tokens(staged, n, size):
    page, (view,) = staged([pattern(n, 0, n - 1)], size)
    heat = view.widget("map")
    frame = heat.frame()
    assert frame.width() * frame.height() >= 0.25 * page.width() * page.height()
    cells = frame.width() / n, frame.height() / n
    assert max(cells) <= 1.8 * min(cells) + 1, "still a pattern"
    assert heat.left_axis.labels.shows_numbers(heat.left_axis.room) == heat.bottom_axis.labels.shows_numbers(
        heat.bottom_axis.room
    )
    assert bool(view.widget("text")._every) == heat.left_axis.labels.shows_numbers(heat.left_axis.room)


@pytest.mark.parametrize("size", SIZES[:2], ids=lambda s: f"{s[0]}x{s[1]}")
def test_numbers_beside_the_first_and_the_last_row_are_whole(staged, size):
    page, (view,) = staged([panel_page("training", {"page": "loss by index"})], size)
    assert page.isVisible()
    for mark in view._widgets.values():
        axis = pixels(mark)[:, : int(mark.left_axis.width())]
        ground = axis[0, 0]
        assert (axis != ground).any() and (axis[[0, -1]] == ground).all(), mark.mark.name


@pytest.mark.parametrize("n", [1, 4])
def test_what_is_read_beside_the_pointer_is_whole(staged, n):
    page, (view, *_) = staged([panel_page("attention", {})] * n, SIZES[0])
    (heat,) = [widget for widget in view._widgets.values() if isinstance(widget.mark, Heatmap)]
    frame = heat.frame()
    for x, y in ((0.05, 0.05), (0.1, 0.95), (0.9, 0.95)):
        pointer.move(heat.viewport(), QPoint(int(frame.left() + frame.width() * x), int(frame.top() + frame.height() * y)))
        note = view.note
        assert page.isVisible() and note.isVisible() and "weight" in note.text()
        assert note.heightForWidth(note.width()) <= note.height() and view.rect().contains(note.geometry())


def test_what_is_read_beside_the_pointer_stands_outside_the_ring(staged):
    """Wherever the pointer is, of a readout that is short, long or higher than half the room."""
    room, radius = QRect(0, 0, 940, 700), 77.0
    for size in (QSize(160, 50), QSize(700, 90), QSize(300, 400)):
        for x in range(0, 941, 20):
            for y in range(0, 701, 20):
                box = place_beside(QPoint(x, y), size, room, radius)
                near = min(max(x, box.left()), box.right() + 1), min(max(y, box.top()), box.bottom() + 1)
                assert room.contains(box) and box.size() == size
                assert math.hypot(near[0] - x, near[1] - y) >= radius, (size, x, y)
    _, (view,) = staged([panel_page("attention", {})], SIZES[0])
    (heat,) = [widget for widget in view._widgets.values() if isinstance(widget.mark, Heatmap)]
    at = heat.frame().center().toPoint()
    pointer.move(heat.viewport(), at)
    near = view.note.geometry()
    view.note.keep_apart(radius)
    away, middle = view.note.geometry(), heat.viewport().mapTo(view, at)
    assert near.adjusted(-9, -9, 9, 9).contains(middle) or near.left() - middle.x() < radius
    assert math.hypot(away.left() - middle.x(), middle.y() - away.bottom() - 1) >= radius
    view.note.keep_apart(0.0)
    assert view.note.geometry() == near


# -- coming back ------------------------------------------------------------------------------------------------------------

BACK = [("attention", {}), ("attention", {"show": "scores"}), ("term_importance", {}), ("residual", {}), ("predictions", {})]


def pixels(page: QWidget) -> np.ndarray:
    for _ in range(3):  # what a resize asks for asks for more
        QCoreApplication.processEvents()
    image = page.grab().toImage().convertToFormat(QImage.Format.Format_RGB32)
    return np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), image.width(), 4)[..., :3].copy()


def comes_back(page: StagePage, forms: Sequence[tuple[str, dict[str, str]]], still: bool = True) -> None:
    """Each figure, another one in half the width beside it, and the first again: by the same view as on the stage.

    `still`: page and figures change together, as at a step; else one after another, as where a figure comes late.
    """
    views = {role: FigureView(page.theme, page) for role in ("first", "beside")}

    def step(title: str, *figures: Figure) -> np.ndarray:
        shown = list(views.values())[: len(figures)]
        with ExitStack() as together:
            for view in shown if still else ():
                together.enter_context(view.still())
            page.set_step(title, LINE, "norm folded · centred", (1, 5), rows=[list(shown)])
            for view, figure in zip(shown, figures, strict=True):
                view.show_figure(replace(figure, title=f"{figure.title} "))  # as a panel draws it anew each time
        return pixels(page)

    for form, another in zip(forms, (*forms[1:], forms[0]), strict=True):
        before = step("A step", panel_page(*form))
        step("Another step", panel_page(*another), panel_page(*form))
        assert (step("A step", panel_page(*form)) == before).all(), form


@pytest.mark.parametrize("still", [True, False], ids=["together", "one after another"])
def test_a_step_that_comes_back_looks_as_it_did(staged, still):
    page, _ = staged([], SIZES[0])
    comes_back(page, BACK, still)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES[:2], ids=lambda s: f"{s[0]}x{s[1]}")
def test_every_panel_that_comes_back_looks_as_it_did(staged, size):
    page, _ = staged([], size)
    comes_back(page, PAGES)


def table(chosen: int, *words: str, size: float = 1.0) -> Figure:
    """A table in its own order with a row for each word, of which one is chosen."""
    columns = (
        RowColumn("token", np.array(words), tokens=True),
        RowColumn("p", size * np.arange(len(words)) / 60, digits=2, bar=True, levels=(0.0, size)),
    )
    return Figure(((Rows("t", columns, ids(np.arange(len(words))), chosen=(chosen,)),),))


@pytest.mark.parametrize("other", [table(3, *"abcdef" * 10, size=1e9), table(59, *"abcdef" * 10)], ids=["wide", "far"])
def test_a_table_that_comes_back_after_another_has_its_columns_and_its_rows(staged, other):
    page, (view,) = staged([first := table(8, *"abcdef" * 10)], SIZES[0])
    before = pixels(page)
    view.forget_hand()
    view.show_figure(other)
    mark = view.widget("t")
    mark.table.selectRow(mark.table.rowAt(0) + 1)
    assert (pixels(page) != before).any()
    view.forget_hand()
    view.show_figure(replace(first))
    assert (pixels(page) == before).all()


# -- captions ---------------------------------------------------------------------------------------------------------------

READING, EXACT = Conventions().words(None), exactness(CONFIGS["gpt2"])
PARTS = (
    *READING,
    EXACT,
    "zero ablation of z",
    "later patterns recomputed",
    Essential("remainder 1"),
)
MAP = Heatmap("m", np.eye(3, dtype=np.float32), (0.0, 1.0))


def test_a_caption_in_brief_is_its_first_clause_and_what_must_be_read():
    figure = Figure(((MAP,),), "t", PARTS)
    assert figure.brief == ("zero ablation of z", "remainder 1")
    assert Figure(((MAP,),), "t", (READING[1], Essential("so far: 25%"), "sample")).brief == ("so far: 25%",)
    assert Figure(((MAP,),), "t", (EXACT, READING[1])).brief == ()
    of_many = sampled("16 samples of 50 random tokens × 2, seed 0")
    assert Figure(((MAP,),), "t", (EXACT, "a clause", of_many)).brief == ("a clause", of_many)
    assert Figure(((MAP,),), "t", (EXACT, "a clause", f"control: {of_many}")).brief == ("a clause",)
    assert Figure(((MAP,),), "t", ("exact", "a clause")).brief == ("exact",), "words alone decide nothing"
    for chosen in product((True, False), (True, False), ("float32", "float64")):
        for config in (None, *CONFIGS.values()):
            assert Figure(((MAP,),), "t", Conventions(*chosen).words(config)).brief == ()


def test_the_stage_says_it_in_brief_and_the_window_in_full(staged):
    _, (view,) = staged([Figure(((MAP,),), "t", PARTS)], SIZES[0])
    shown = lambda: view._caption.text()
    assert shown() == "zero ablation of z · remainder 1"
    assert "later patterns recomputed" in view.accessibleDescription() and "norm folded" in view.accessibleDescription()
    view.set_theme(replace(stage_theme(720), words="full"))
    assert "later patterns recomputed" in shown()


def test_a_title_is_not_said_twice(staged):
    page, (view,) = staged([Figure(((MAP,),), "L1H1 · pattern")], SIZES[0])
    assert view._title.isVisible()
    page.set_step("L1H1 · pattern", LINE, "", (1, 1))
    assert not view._title.isVisible() and view.accessibleName() == "L1H1 · pattern"
    page.set_step("another", LINE, "", (1, 1))
    assert view._title.isVisible()
    view.show_figure(Figure(((MAP,),), "L1H1 · pattern · † your note"))
    page.set_step("L1H1 · pattern", LINE, "", (1, 1))
    assert view._title.text() == "† your note" and view.accessibleName() == "L1H1 · pattern · † your note"


@pytest.mark.parametrize(
    ("above", "title", "rest"),
    [
        ("a · b", "a · b", ""),
        ("a", "a · b · c", "b · c"),
        ("a · be…", "a · better · c", "better · c"),
        ("a · x", "a · b", "a · b"),
        ("", "a · b", "a · b"),
        ("a · b · c", "a · b", ""),
        ("a · b · c", "a · d", "a · d"),
        ("a · 10 × 25", "a · 10\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}25", ""),
        ("a · 10 ×…", "a · 10\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}25", "10\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}25"),
    ],
)
def test_of_a_title_stands_what_the_one_above_does_not_say(above, title, rest):
    assert beyond(above, title) == rest


@pytest.mark.parametrize("on_stage", [True, False])
def test_what_is_cut_is_the_last_of_a_title_to_give_way(qtbot, on_stage):
    """On a stage, and in a window while the pointer is on an item and nothing may move."""
    cut = "✕ L1H1 zeroed"
    scores = "L1H1 0.93, rank 1 of 8 on 10 × 25 × 4 random tokens" + ", and more" * 8
    title = joined("prefix matching", scores, cut, "beside uncut")
    view = FigureView(stage_theme(720) if on_stage else LIGHT)
    qtbot.addWidget(view)
    view.show_figure(Figure(((MAP,),), "prefix matching"))
    view.resize(800, 200)
    with qtbot.waitExposed(view):
        view.show()
    view._freeze(not on_stage)
    view.show_figure(Figure(((MAP,),), title, cut=cut))
    assert view._title.text().startswith("prefix") and view._title.text().endswith(f"… · {cut}")
    view._freeze(False)
    view.resize(6000, 200)
    QCoreApplication.processEvents()
    assert view._title.text() == title


# -- what has no room -------------------------------------------------------------------------------------------------------

NUMBERS = Rows(
    "m",
    tuple(RowColumn(name, np.arange(300.0)) for name in ("number", "twice", "thrice")),
    ids(np.arange(300)),
    searchable=True,
)


def rows_in_sight(table: Any) -> range:
    row = table.table.verticalHeader().defaultSectionSize()
    return range(
        table.table.verticalScrollBar().value(), table.table.verticalScrollBar().value() + table.table.viewport().height() // row
    )


def test_a_table_says_how_many_of_its_rows_are_in_sight(staged):
    _, (view,) = staged([Figure(((NUMBERS,),), "t")], SIZES[0])
    table = view.widget("m")
    assert not table.filter_box.isVisible() and not table.table.verticalScrollBar().isVisible()
    assert table.more.text() == f"{len(rows_in_sight(table))} of 300"
    table.table.verticalScrollBar().setValue(100)
    seen = rows_in_sight(table)
    assert table.more.text() == f"{seen.start + 1}–{seen.stop} of 300"
    few = replace(NUMBERS, columns=tuple(replace(c, values=np.arange(3.0)) for c in NUMBERS.columns), ids=ids(np.arange(3)))
    view.show_figure(Figure(((few,),), "t"))
    assert not table.more.isVisible()
    view.show_figure(Figure(((replace(NUMBERS, total=4096),),), "t"))
    assert table.more.text() == f"{len(rows_in_sight(table))} of 4,096"
    view.show_figure(Figure(((replace(NUMBERS, total=4096, gap=150),),), "t"))
    assert table.more.text() == f"the {len(rows_in_sight(table))} largest of 4,096"
    view.show_figure(Figure(((replace(few, total=4096),),), "t"))
    assert table.more.isVisible() and table.more.text() == "3 of 4,096", "also where all that is listed has room"


def rows_painted(view: FigureView) -> int:
    """How many lines of numbers stand on a view."""
    return len({round(text.box.top()) for text in written(view) if re.fullmatch(r"[0-9.,]+", text.said)})


@pytest.mark.parametrize("size", (*SIZES, (1280, 800)), ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("n", [1, 4])
def test_the_count_below_a_table_is_of_the_rows_that_are_painted(staged, size, n):
    """Also where the line of the count turns out higher than its type is, as it does on some screens."""
    figures = [Figure(((replace(NUMBERS, total=4096),),), "t", ("words " * 20, "more of them " * 20))] * n
    page, views = staged(figures, size)
    for more in (0, 1, page.height() // 12):
        for table in (view.widget("m") for view in views):
            table.more.setContentsMargins(0, 0, 0, more)
        QCoreApplication.processEvents()
        for view, table in ((view, view.widget("m")) for view in views):
            rows = rows_painted(view)
            assert rows > 1 and table.more.text() == f"{rows} of 4,096"


def test_columns_without_room_are_left_out_whole(staged):
    names = [f"column no. {i}" for i in range(8)]
    mark = replace(NUMBERS, columns=tuple(RowColumn(name, np.arange(300.0)) for name in names))
    page, (view, _) = staged([Figure(((mark,),), "t"), Figure(((MAP,),))], SIZES[0])
    assert "columns left out" in view._caption.text()
    headers = [text.said for text in written(page) if text.said in names]
    assert 2 <= len(headers) < 8


@pytest.mark.parametrize(
    ("name", "n", "left_out"), [("logit_lens", 2, ()), ("prompt_sets", 4, ("same sign",)), ("heads", 4, ("#", "sd", "control"))]
)
def test_a_table_keeps_the_columns_that_it_has_room_for(staged, name, n, left_out):
    page, views = staged([panel_page(name, {})] * n, SIZES[0])
    tables = [widget for view in views for widget in view._widgets.values() if isinstance(widget.mark, Rows)]
    assert [table._widths.left_out for table in tables] == [left_out] * n
    names = [column.name for column in tables[0].mark.columns if column.name not in left_out]
    said = [text.said for text in written(page)]
    assert all(said.count(name) >= n for name in names), "no title is cut"


def test_parts_of_a_figure_without_room_are_left_out_and_said(staged):
    curve = Lines("a", np.arange(9.0), np.arange(9.0)[None], ("c",), x_axis=Axis("x", bare=True), y_axis=Axis("y"))
    last = replace(curve, name="b", x_axis=Axis("x"))
    words = Tokens("w", ("a", "b"), np.zeros(2))
    figure = Figure(((words,), (curve,), (last,), (replace(NUMBERS, searchable=False),)), "t", ("a clause",))
    whole = Figure(((curve,), (last,)), "t")
    page, (view, *_) = staged([figure, whole, whole, whole], SIZES[0])
    shown = [name for name in "abwm" if view.widget(name).isVisible()]
    assert shown == ["b"]  # with the axis; texts go first, then tables, then pictures
    assert "no room for 3 more parts" in view._caption.text()
    page.set_views([[view]])
    page.resize(1920, 1080)
    assert all(view.widget(name).isVisible() for name in "abwm")
    assert "no room" not in view._caption.text()


@pytest.mark.parametrize("size", [SIZES[0], (960, 540), (960, 420)])
def test_titles_of_stacked_curves_are_whole_and_the_curves_aligned(staged, size):
    page, (view,) = staged([panel_page("training", {})], size)
    assert not [text.said for text in written(page) if text.said.rstrip().endswith("…")]
    assert len({round(widget.frame().left()) for widget in view._widgets.values()}) == 1


def test_curves_over_one_axis_begin_at_one_place(staged):
    near = Lines("a", np.arange(9.0), np.arange(9.0)[None] * 1e-3, ("c",), x_axis=Axis("x", bare=True), y_axis=Axis("y"))
    far = replace(near, name="b", ys=np.arange(9.0)[None] * 1e6, x_axis=Axis("x"))
    _, (view,) = staged([Figure(((near,), (far,)), "t")], SIZES[0])
    lefts = {round(view.widget(name).frame().left()) for name in "ab"}
    rights = {round(view.widget(name).frame().right()) for name in "ab"}
    assert len(lefts) == len(rights) == 1


@pytest.mark.parametrize("size", [*SIZES[:2], (1280, 800)], ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("title", ["score, nats", "score,nats" * 9])
def test_the_title_beside_a_plot_is_whole_where_only_a_line_ends_it_below(staged, title, size):
    """Below the line of an axis whose numbers are written under another plot there are a few pixels, and no more."""
    curve = Lines("a", np.arange(9.0), np.arange(9.0)[None], ("c",), x_axis=Axis("x", bare=True), y_axis=Axis(title))
    figure = Figure(((curve,), (replace(curve, name="b"),), (replace(curve, name="c", x_axis=Axis("x")),)), "t")
    _, (view,) = staged([figure], size)
    for plot in (view.widget(name) for name in "abc"):
        label, axis = plot.left_axis.label, plot.left_axis
        margin = label.document().documentMargin()
        box = label.mapRectToScene(label.boundingRect().adjusted(margin, margin, -margin, -margin))
        assert box.top() >= -0.5 and box.bottom() <= plot.viewport().height() + 0.5
        middle = axis.mapRectToScene(QRectF(0, 0, 1, axis.height())).center().y()
        assert abs(box.center().y() - middle) < 2, "as far beyond its axis at one end as at the other"


def test_prose_has_the_width_of_its_page(staged):
    said = Figure(((replace(NUMBERS, searchable=False),), (Prose("p", (("lead", "words " * 60),)),)), "t")
    for size in ((1280, 800), (1920, 1080)):
        page, (view,) = staged([said], size)
        prose = view.widget("p")
        prose.content_height(prose.viewport().width())
        assert prose._document.idealWidth() > 0.85 * page.width()


@pytest.mark.parametrize("size", [(1280, 800), (1920, 1080)], ids=lambda s: f"{s[0]}x{s[1]}")
def test_evidence_ends_with_what_is_strongest_of_all(staged, size):
    page, _ = staged([panel_page("evidence", {})], size)
    assert "strongest" in {text.said for text in written(page)}


def side_by_side(repeats: int, row: int | None) -> Figure:
    """Three models' losses on a text that is so many times as long as that of the panel."""
    figure = panel_page("side_by_side", {"page": "text"})
    longer = lambda mark: replace(
        mark, texts=mark.texts * repeats, values=np.tile(mark.values, repeats), tips=(), row=row, locked=row is not None
    )
    return replace(figure, grid=tuple((longer(mark),) for (mark,) in figure.grid))


@pytest.mark.parametrize("together", [1, 4])
@pytest.mark.parametrize("size", [(1280, 720), (1280, 800), (1920, 1080), (1280, 400)], ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize(("repeats", "row"), [(1, 38), (2, 70), (3, None), (3, 100), (8, 300)])
def test_a_text_among_others_says_which_model_it_is_of(staged, together, size, repeats, row):
    """Lines of tokens go before a heading does, the same ones of each, and the caption says which."""
    page, views = staged([side_by_side(repeats, row)] * together, size)
    said = [text.said for text in written(page)]
    for view in views:
        texts = [view.widget(mark.name) for mark in view.figure.marks()]
        shown = [words for words in texts if words.isVisible()]
        assert shown
        for words in shown:
            begun = words.mark.heading.split(" ")[0]
            assert sum(one.startswith(begun) for one in said) >= len(views) or (together > 1 and begun in "".join(said))
            assert words.viewport().height() >= (words._above + 1) * words.line_height(), "a line stands below the heading"
        assert (
            len({(words.offset, words.viewport().height() // words.line_height()) for words in shown}) == 1 or not shown[0]._cut
        )
        gone = len(texts) - len(shown)
        assert (f"no room for {gone} more part" in view._caption.text()) is bool(gone)
        n, words = len(shown[0].mark.texts), shown[0]
        seen = QRectF(words.viewport().rect()).adjusted(-2, words._above * words.line_height() - 2, 2, 2)
        hidden = {i for i in range(n) if not seen.contains(words.item_rect((i,)).translated(0, -words.offset))}
        parts = {part for part in view.caption_parts if part.endswith("not shown")}
        numbers = [list(map(int, pair.split("–"))) for pair in re.findall(r"\d+(?:–\d+)?", "".join(parts))]
        assert {i for ends in numbers for i in range(ends[0], ends[-1] + 1)} == hidden
        assert row is None or row not in hidden
        assert len(parts) <= 1 and all(part in view._caption.text() for part in parts), "the audience reads it"
