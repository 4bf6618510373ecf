"""Exports parse, have the asked size, say what the figure says, and are on white."""

from __future__ import annotations

import io
import re
import signal
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from PIL import Image
from PySide6.QtCore import QSize
from PySide6.QtGui import QImage
from PySide6.QtSvg import QSvgRenderer

from circuitlab.draw.export import _png, pictures
from circuitlab.draw.export.pictures import export, picture, render
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.theme import DARK, LIGHT
from circuitlab.errors import BadMachine, CircuitLabError, UsageError
from circuitlab.figures.marks import (
    Axis,
    Bars,
    Edges,
    Figure,
    Heatmap,
    Lines,
    Points,
    RowColumn,
    Rows,
    Tokens,
    empty,
    ids,
)

RNG = np.random.default_rng(0)
NAMES = tuple("abcdefgh")
SVG = "{http://www.w3.org/2000/svg}"

MARKS = {
    "heatmap": Heatmap("m", RNG.random((8, 8)).astype(np.float32), (0, 1), x=Axis("source", NAMES, True), unit="weight"),
    "points": Points("m", RNG.random(8), RNG.random(8), ids(np.arange(8)), NAMES, x_axis=Axis("real"), y_axis=Axis("imaginary")),
    "lines": Lines("m", np.arange(8.0), RNG.random((2, 8)), ("one", "two"), x_axis=Axis("step"), y_axis=Axis("loss")),
    "bars": Bars("m", RNG.normal(size=8), NAMES, unit="logits"),
    "edges": Edges(
        "m", RNG.random((8, 2)), NAMES, np.arange(8), RNG.integers(0, 8, (9, 2)), RNG.random(9), RNG.integers(0, 3, 9)
    ),
    "tokens": Tokens("m", NAMES, RNG.random(8)),
    "rows": Rows(
        "m",
        (RowColumn("token", np.array(NAMES, dtype=object)), RowColumn("p", RNG.random(8), bar=True)),
        ids(np.arange(8)),
    ),
}


@pytest.fixture(params=MARKS)
def figure(request, qapp) -> Figure:
    return Figure(((MARKS[request.param],),), "L1H3 <s> & more", ("norm folded", "centred", "float32"), (8, 20))


def said(root: ET.Element) -> str:
    """What a file's text says, as text or beside its outlines."""
    texts = ["".join(t.itertext()) for t in root.iter(f"{SVG}text")]
    return " ".join((*texts, *(g.get("aria-label", "") for g in root.iter(f"{SVG}g"))))


@pytest.mark.parametrize("text", ["outlines", "fonts"])
def test_svg(figure, tmp_path, text):
    path = tmp_path / "figure.svg"
    export(figure, path, Paper(width_mm=120, text=text))
    root = ET.parse(path).getroot()
    assert root.tag == f"{SVG}svg"
    assert root.get("width") == "120mm"
    assert "L1H3 <s> & more" in said(root)
    assert "norm folded" in said(root)
    assert "showing 8 of 20" in said(root)
    assert not list(root.iter(f"{SVG}image"))  # cells and bars are rectangles
    assert bool(list(root.iter(f"{SVG}text"))) == (text == "fonts")
    assert ("@font-face" in path.read_text(encoding="utf-8")) == (text == "fonts")
    assert "vector-effect" not in path.read_text(encoding="utf-8")
    assert QSvgRenderer(str(path)).isValid()


def test_png(figure, tmp_path):
    path = tmp_path / "figure.PNG"
    export(figure, path, Paper(width_mm=100, dpi=254))
    image = QImage(str(path))
    assert image.width() == 1000
    assert image.pixelColor(2, 2).name() == "#ffffff"
    assert image.dotsPerMeterX() == image.dotsPerMeterY() == 10000
    assert image.text("Title") == figure.title
    assert figure.caption in image.text("Description")
    # The picture fills the page: something is drawn in the lower and the right part, not in one corner only.
    pixels = np.frombuffer(image.convertToFormat(QImage.Format.Format_Grayscale8).constBits(), np.uint8)
    dark = pixels.reshape(image.height(), -1)[:, : image.width()] < 200
    assert dark[-image.height() // 8 :].any()
    assert dark[:, -image.width() // 4 :].any()


@pytest.mark.parametrize("ink", ["colour", "grey"])
def test_a_png_that_is_drawn_in_strips_is_the_picture_that_is_drawn_at_once(figure, monkeypatch, ink):
    """Read with Pillow; a strip does not end where anything of the picture does."""
    paper = Paper(width_mm=100, dpi=254, ink=ink)
    whole = Image.open(io.BytesIO(picture(figure, ".png", paper)))
    monkeypatch.setattr(_png, "STRIP", 1000 * 37)
    strips = Image.open(io.BytesIO(picture(figure, ".png", paper)))
    assert strips.mode == ("L" if ink == "grey" else "RGB") and strips.text["Title"] == figure.title
    assert strips.info["dpi"] == pytest.approx((254, 254))
    assert np.array_equal(np.asarray(strips), np.asarray(whole)) and len(np.unique(np.asarray(strips))) > 2


@pytest.mark.parametrize("size", [(1, 1), (3, 50), (50, 3)])
def test_every_dot_of_a_png_is_the_one_that_was_drawn(monkeypatch, size):
    monkeypatch.setattr(_png, "STRIP", 7)
    width, height = size
    dots = RNG.integers(0, 256, (height, width, 4)).astype(np.uint8)
    dots[..., 3] = 255
    drawn = lambda top, rows: QImage(dots[top:].tobytes(), width, rows, QImage.Format.Format_RGB32).copy()
    image = Image.open(io.BytesIO(_png.png_of(drawn, size, 1000, {"Title": "α"}, grey=False)))
    assert np.array_equal(np.asarray(image), dots[..., 2::-1]) and image.text["Title"] == "α"


def test_an_interrupt_is_heard_between_two_strips(figure, monkeypatch):
    drawn = []
    draw = pictures._image

    def interrupted(view, size, top=0):
        drawn.append(top)
        signal.raise_signal(signal.SIGINT)
        return draw(view, size, top)

    monkeypatch.setattr(_png, "STRIP", 1000)
    monkeypatch.setattr(pictures, "_image", interrupted)
    with pytest.raises(KeyboardInterrupt):
        picture(figure, ".png", Paper(width_mm=100, dpi=254))
    assert drawn == [0] and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_pdf(figure, tmp_path):
    path = tmp_path / "figure.pdf"
    export(figure, path, Paper(width_mm=100))
    data = path.read_bytes()
    assert data.startswith(b"%PDF-")
    assert data.rstrip().endswith(b"%%EOF")
    box = re.search(rb"/MediaBox \[([^\]]*)\]", data)
    assert box is not None
    assert float(box[1].split()[2]) == pytest.approx(100 / 25.4 * 72, abs=1)


def test_larger_type_means_less_on_the_same_page(qapp, tmp_path):
    tall = []
    for points in (6.0, 12.0):
        export(Figure(((Tokens("t", tuple("abcdefgh") * 60, np.zeros(480)),),), "t"), tmp_path / "t.png", Paper(font_pt=points))
        tall.append(QImage(str(tmp_path / "t.png")).height())
    assert tall[1] > 2 * tall[0]


def test_a_long_table_says_what_it_left_out(qapp, tmp_path):
    rows = Rows("m", (RowColumn("x", np.arange(1000.0)),), ids(np.arange(1000)))
    export(Figure(((rows,),), "t"), tmp_path / "t.svg")
    words = said(ET.parse(tmp_path / "t.svg").getroot())
    assert "40" in words and "1,000" in words


def test_reasons_are_exported_too(qapp, tmp_path):
    export(empty("Nothing here yet.", "Attention"), tmp_path / "t.svg")
    assert "Nothing here yet." in said(ET.parse(tmp_path / "t.svg").getroot())


def test_unknown_format_and_unwritable_path(qapp, tmp_path):
    figure = Figure(((MARKS["bars"],),), "t")
    with pytest.raises(UsageError, match="format"):
        export(figure, tmp_path / "t.docx")
    with pytest.raises(BadMachine):
        export(figure, tmp_path / "missing" / "t.png")


def test_a_figure_with_a_part_that_cannot_be_drawn_is_not_written(qapp, tmp_path, monkeypatch):
    def fail(*_: object) -> None:
        raise RuntimeError("no ink")

    monkeypatch.setattr("circuitlab.draw.heatmap.heatmap.paint_rules", fail)
    figure = Figure(((MARKS["heatmap"],),), "t")
    for suffix in ("png", "svg", "pdf"):
        path = tmp_path / f"t.{suffix}"
        path.write_text("before")
        with pytest.raises(CircuitLabError, match="no ink"):
            export(figure, path)
        assert path.read_text() == "before"
    assert render(figure, QSize(300, 300)).width() == 300  # the screen says so in the picture


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda t: t.name)
def test_render_has_the_asked_size_and_background(figure, theme):
    image = render(figure, QSize(500, 400), theme, 2.0)
    assert (image.width(), image.height()) == (1000, 800)
    assert image.pixelColor(1, 1).name() == theme.background


def test_pictures_leave_no_window_behind(qapp):
    before = len(qapp.topLevelWidgets())
    render(Figure(((MARKS["heatmap"],),), "t"), QSize(300, 300))
    assert len(qapp.topLevelWidgets()) == before
