"""What an audience sees: sizes of types and figures on pages of three sizes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from PySide6.QtCore import QRect
from PySide6.QtGui import QFontMetricsF, QImage, QRegion
from PySide6.QtWidgets import QWidget

from circuitlab.draw.look.stage_theme import stage_theme
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.figures.marks import Figure, Heatmap
from circuitlab.gui.presenter.page import FilmPlace, StagePage
from circuitlab.gui.presenter.shortened import shortened

SIZES = ((1280, 720), (1920, 1080), (3840, 2160))
MAP = Figure(((Heatmap("m", np.eye(5, dtype=np.float32), (0.0, 1.0)),),), "L1H1 · pattern", ("rows sum to 1",))
LONG = "What follows the last occurrence of a token is copied, which takes two heads, one behind the other " * 2


@pytest.fixture
def page(qtbot) -> StagePage:
    stage = StagePage()
    qtbot.addWidget(stage)
    stage.resize(1280, 720)
    stage.set_step("A title", LONG, "norm folded · centred", (3, 5))
    with qtbot.waitExposed(stage):
        stage.show()
    return stage


@pytest.mark.parametrize("rows", [[1], [2], [1, 1], [2, 2], [3]], ids=str)
@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
def test_figures_have_four_fifths_of_the_pixels(page, size, rows):
    page.set_views([[QWidget() for _ in range(n)] for n in rows])
    page.resize(*size)
    region = QRegion()
    for view in page.views:
        assert not region.intersects(view.geometry()) and page.rect().contains(view.geometry())
        region = region.united(view.geometry())
    area = sum(view.width() * view.height() for view in page.views)
    assert area >= 0.8 * size[0] * size[1]
    written = [line.geometry() for line in (page.title, page.line, page.footer)]
    assert all(page.rect().contains(box) and not region.intersects(box) for box in written)
    assert not any(a.intersects(b) for i, a in enumerate(written) for b in written[:i])


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
def test_lines_are_as_large_as_they_fit_and_never_too_small(page, size):
    page.resize(*size)
    for line in (page.title, page.line, page.footer):
        font, _ = line.fitting(line.width())
        assert QFontMetricsF(font).capHeight() >= size[1] / 50
    assert page.title.fitting(page.width())[0].pixelSize() == round(size[1] / 20)
    page.set_step(LONG, "short", "", (3, 5))
    assert page.title.fitting(page.title.width())[0].pixelSize() == round(page.theme.normal)
    assert page.line.fitting(page.line.width())[0].pixelSize() == round(page.theme.normal)
    assert page.footer.text == "3 / 5"


def test_of_a_long_line_stand_whole_sentences(page):
    page.resize(1920, 1080)
    asked, told = "How can a head know what stood before?", "From its own inputs it cannot 😀."
    page.set_step("", f"{asked} {told} {LONG}", "", (3, 5))
    assert page.line.fitting(page.line.width())[1] == f"{asked} {told} …"
    page.set_step("", " ".join([LONG] * 9), "", (3, 5))
    assert page.line.fitting(page.line.width())[1].endswith("…"), "not even one sentence fits"


CLAIM = "At L1H2 the match is a copy (copying score 0.995 ± 0.002), and 1–4 of 2,048 tokens lose 0.31 nats when it is cut."


def test_a_line_is_never_cut_inside_a_number_or_a_word():
    """A character is one px wide here: a number that is cut reads as another one."""
    every = lambda text: list(dict.fromkeys(shortened(text, width, len) for width in range(1, len(text))))
    words = [
        f"At L1H2{more} …" for more in ("", " the", " the match", " the match is", " the match is a", " the match is a copy")
    ]
    assert every(CLAIM) == ["…", "At …", *words, "At L1H2 the match is a copy (copying score 0.995 ± 0.002) …"]
    told = "the score of 0.995 ± 0.002 nats that 1–4 of 2,048 tokens lose by step 14,000 is n = 2"
    parts = [
        "the",
        " score",
        " of",
        " 0.995 ± 0.002 nats",
        " that",
        " 1–4 of",
        " 2,048 tokens",
        " lose",
        " by",
        " step",
        " 14,000 is",
    ]
    assert every(told) == ["…", *("".join(parts[:n]) + " …" for n in range(1, len(parts) + 1))], (
        "a number with its unit and error"
    )
    assert shortened("First. Then 0.5 of it.", 20, len) == "First. …", "a sentence before words"
    assert shortened("3 / 5 · toy-model · norm folded · centred", 30, len) == "3 / 5 · toy-model …"
    assert shortened("0.12345678", 6, len) == "…" and shortened("头会复制前面的词这是真的", 7, len) == "头会复制前 …"


def test_a_number_at_the_edge_of_the_page_is_whole(page):
    for width in range(300, 1200, 20):
        page.resize(width, 720)
        page.set_step("", CLAIM, "", (3, 5))
        font, text = page.line.fitting(page.line.width())
        assert QFontMetricsF(font).horizontalAdvance(text) <= page.line.width()
        assert text == CLAIM or re.search(r"(0\.995 ± 0\.002\)|[a-zA-Z]|L1H2) …$", text), text


def test_views_follow_the_theme_of_the_page(page, qtbot):
    view = FigureView()
    view.show_figure(MAP)
    page.set_views([[view]])
    assert view.theme is page.theme is stage_theme(720)
    with qtbot.waitSignal(page.theme_changed) as changed:
        page.resize(1920, 1080)
    assert changed.args == [stage_theme(1080)] and view.theme is stage_theme(1080)
    page.dark = True
    assert page.dark and view.theme is stage_theme(1080, dark=True)
    assert page.grab().toImage().pixelColor(1, 1).name() == stage_theme(1080, dark=True).background


def test_views_of_before_are_hidden(page):
    first, second = QWidget(), QWidget()
    page.set_views([[first]])
    page.set_views([[second]])
    assert first.isHidden() and not second.isHidden() and page.views == [second]
    page.set_views([[first]])
    assert not first.isHidden() and second.isHidden() and page.views == [first]


def test_what_is_empty_takes_no_room(page):
    whole = QRect(page.figures())
    page.set_step("", "", "", (0, 0))
    assert page.figures().height() > whole.height() + 720 / 10
    assert page.title.isHidden() and page.line.isHidden() and page.footer.isHidden()


FRAMES = ("step 0", "step 14,000", "final weights")


def pixels(page) -> np.ndarray:
    image = page.grab().toImage().convertToFormat(QImage.Format.Format_RGB32)
    return np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), image.width(), 4)[..., :3].copy()


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("title", ["A title", LONG], ids=["short", "long"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_film_says_large_where_it_stands_and_nothing_else_moves(page, size, title, dark):
    page.resize(*size)
    page.dark = dark
    page.set_views([[QWidget()]])
    pictures, boxes = list[np.ndarray](), set()
    for i, words in enumerate(FRAMES):
        page.set_step(title, "a line", "", (3, 5), FilmPlace(words, (i + 1) / 3, FRAMES))
        font, whole = page.place.fitting(page.place.width())
        assert whole == words and QFontMetricsF(font).capHeight() >= QFontMetricsF(page.title.fitting(9e3)[0]).capHeight() - 1
        boxes.add(tuple(w.geometry().getRect() for w in (page.title, page.place, page.line, page.footer, page.views[0])))
        pictures.append(pixels(page))
    assert len(boxes) == 1
    assert not page.title.geometry().intersects(page.place.geometry())
    place = page.place.geometry()
    for frame in pictures[1:]:
        ys, xs = np.nonzero((frame != pictures[0]).any(axis=-1))
        below = ys >= page.footer.geometry().bottom()
        assert (below | ((xs >= place.left()) & (ys <= place.bottom()))).all() and below.any() and not below.all()
    accent = np.array(page.theme.colour("accent").getRgb()[2::-1])
    widths = [(picture[-1] == accent).all(axis=-1).sum() for picture in pictures]
    assert widths == [round((i + 1) / 3 * size[0]) for i in range(3)], "the bar says how far it has come"
    page.set_step(title, "a line", "", (3, 5))
    assert page.place.isHidden() and page.title.width() == page.figures().width()
    assert not (pixels(page)[-1] == accent).all(axis=-1).any()


def test_the_title_of_a_film_keeps_the_type_of_its_longest(page):
    sizes = list[int]()
    for title in ("step 0: loss 9", LONG, "step 2: loss 8"):
        page.set_step(title, "", "", (3, 5), FilmPlace("step 0", 0.5, FRAMES))
        sizes.append(page.title.fitting(page.title.width())[0].pixelSize())
    assert sizes[2] == sizes[1] < sizes[0]
    page.set_step("step 2: loss 8", "", "", (3, 5), FilmPlace("offset 1", 0.5, ("offset 1", "offset 2")))
    assert page.title.fitting(page.title.width())[0].pixelSize() == sizes[0], "another film"
