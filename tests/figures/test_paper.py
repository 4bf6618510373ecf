"""Figures on paper, measured from the files: what stands in them, in which size and colour, and that nothing is damaged."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from PySide6.QtCore import QSize
from PySide6.QtGui import QFontMetricsF, QImage
from tokenizers import Tokenizer

from circuitlab import api
from circuitlab.disk.paths import model_dir
from circuitlab.draw.export.pictures import check, export, picture, preview
from circuitlab.draw.look.colour_bar import short
from circuitlab.draw.look.colours import rgb
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.theme import LIGHT
from circuitlab.draw.plots.edges import BADGE
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.engine.codec import describe, params_of
from circuitlab.errors import BadInput, UsageError
from circuitlab.figures.contracts.panel import panels
from circuitlab.figures.contracts.unasked import without_choice
from circuitlab.figures.marks import Axis, Edges, Figure, Heatmap, Lines, Points, RowColumn, Rows, Tokens, ids
from circuitlab.report.render import figure_of
from circuitlab.state.state import Pin
from tests.figures.paper_files import SVG, cut_short, pdf_characters, pdf_rectangles, svg_rectangles, texts
from tests.words import negative_cells_marked, negative_tokens_marked

RNG = np.random.default_rng(0)
TEXT = "Mr and Mrs Hursley, of the old mill at Brook End, were glad to say that they were perfectly punctual. Mr Hursley was"
PAGES = [
    *((name, {}) for name in panels() if name != "neurons"),
    ("attention", {"show": "scores"}),
    ("attention", {"show": "contribution"}),
    ("composition", {"form": "matrix"}),
    ("composition", {"through": "apart"}),
    ("head_finder", {"page": "table"}),
    ("circuits", {"page": "triples"}),
    ("circuits", {"page": "largest"}),
    ("induction", {"page": "stripe"}),
    ("paths", {"page": "heads"}),
    ("patching", {"page": "paths"}),
    ("side_by_side", {"page": "text"}),
    ("training", {"page": "plane"}),
    ("training", {"page": "loss by index"}),
    ("why_here", {"page": "map"}),
]


pytestmark = pytest.mark.usefixtures("qapp")  # pictures need one


def unbarred(mark: Heatmap) -> bool:
    return mark.rgb is not None or not mark.colour_bar


@cache
def drawn(name: str, view: tuple[tuple[str, str], ...]) -> Figure:
    model, panel = api.open("attn-only-2l"), panels()[name]
    state = model.state(TEXT, heads="L0H1" if name == "patching" else "L1H1")
    if name == "patching":
        other = model.state(TEXT.replace("Hursley", "Potters"))
        state = replace(state, pins=(Pin("other", other.subject, text=other.text),))
    return figure_of(model.engine, panel, state.with_view(name, params_of(panel.view, dict(view))))


@pytest.mark.slow
@pytest.mark.parametrize("width", [84.0, 174.0])
@pytest.mark.parametrize("page", PAGES, ids=lambda p: "-".join((p[0], *p[1].values())))
def test_nothing_of_a_panel_is_damaged_on_paper(page, width):
    figure = drawn(page[0], tuple(page[1].items()))
    assert figure.grid, "a figure was expected"
    paper = Paper(width_mm=width, text="fonts")
    root = ET.fromstring(picture(figure, ".svg", paper))
    wide, high = (float(v) for v in root.get("viewBox", "").split()[2:])
    written = texts(root)
    point = width / 25.4 * 72 / wide
    assert min(t.size for t in written) * point >= paper.least_pt - 0.01
    beyond = [t.said for t in written if t.box.left() < -0.5 or t.box.right() > wide + 0.5 or t.box.bottom() > high + 0.5]
    assert not beyond
    boxes = np.array([(t.box.left(), t.box.top(), t.box.right(), t.box.bottom()) for t in written])
    common = np.minimum(boxes[:, None, 2:], boxes[None, :, 2:]) - np.maximum(boxes[:, None, :2], boxes[None, :, :2])
    over = np.argwhere(np.triu((common > 1).all(axis=2), 1)).tolist()
    assert not [(written[i].said, written[j].said) for i, j in over]
    assert not cut_short(figure, [t.said for t in written])
    assert not list(root.iter(f"{SVG}image"))
    maps = [mark for mark in figure.marks() if isinstance(mark, Heatmap)]
    scales = {f"colours from {short(m.levels[0])} to {short(m.levels[1])} {m.unit}".rstrip() for m in maps if unbarred(m)}
    said = (root.findtext(f"{SVG}desc") or "").split(" · ")
    assert {part for part in said if part.startswith("colours from")} == scales, "a map has its colour bar, or words for it"
    if width > 100:
        return
    data = picture(figure, ".pdf", Paper(width_mm=width))
    assert b"/Subtype /Image" not in data
    faces = re.findall(rb"/FontDescriptor\b.*?/FontFile\d?", data, re.S)
    assert data.count(b"/Subtype /Type0") == len(set(re.findall(rb"/FontFile\d? (\d+)", data))) > 0, faces


def _others() -> list[tuple[str, dict[str, str]]]:
    """Every panel with each of its choices other than at first."""
    return [
        (name, {field.name: str(value)})
        for name, panel in panels().items()
        for field in describe(panel.view)
        for value in field.choices
        if str(value) != field.default_text
    ]


@pytest.mark.slow
@pytest.mark.parametrize("page", _others(), ids=lambda p: "-".join((p[0], *p[1], *p[1].values())))
def test_no_word_of_a_panel_is_cut_short(page):
    try:
        figure = drawn(page[0], tuple(page[1].items()))
    except BadInput:
        return  # there is nothing to draw
    for width in (84.0, 174.0):
        root = ET.fromstring(picture(figure, ".svg", Paper(width_mm=width, text="fonts", caption="full")))
        assert not cut_short(figure, [t.said for t in texts(root)])


def test_every_format_is_the_same_picture():
    paper = Paper(width_mm=84.0, dpi=72)
    figure = drawn("training", ())
    image = QImage.fromData(picture(figure, ".png", paper))
    _, _, wide, high = map(float, ET.fromstring(picture(figure, ".svg", paper)).get("viewBox", "").split())
    box = re.search(rb"/MediaBox \[([^\]]*)\]", picture(figure, ".pdf", paper))
    assert box is not None
    page = [float(v) for v in box[1].split()[2:]]
    for shape in (image.height() / image.width(), page[1] / page[0]):
        assert shape == pytest.approx(high / wide, rel=0.01)


@pytest.mark.parametrize("ink", ["colour", "grey"])
@pytest.mark.parametrize("width", [84.0, 174.0])
def test_a_preview_is_the_picture_that_is_written(width, ink):
    figure = drawn("attention", ())
    paper = Paper(width_mm=width, dpi=72, ink=ink)
    written = QImage.fromData(picture(figure, ".png", paper)).convertToFormat(QImage.Format.Format_RGB32)
    seen = preview(figure, paper, written.size())
    assert seen.image.convertToFormat(QImage.Format.Format_RGB32) == written
    assert seen.width_mm == width
    assert seen.height_mm / seen.width_mm == pytest.approx(written.height() / written.width(), rel=0.01)
    small = preview(figure, paper, QSize(60, 400), ratio=2.0)
    assert small.image.deviceIndependentSize().width() == pytest.approx(60, abs=1) and small.image.width() == 120


def test_a_preview_says_what_there_is_no_room_for():
    room = QSize(200, 400)
    words = lambda figure, **paper: " ".join(preview(figure, Paper(**paper), room).left_out)
    tokens = drawn("attention", ())
    assert "positions in place of tokens" in words(tokens) and "tokens" not in words(tokens, width_mm=300)
    assert "caption" in words(drawn("training", ())) and "caption" not in words(drawn("training", ()), caption="full")
    assert "caption" not in words(drawn("training", ()), caption="none"), "as it was asked for"
    values, names = np.ones((2, 60), np.float32), tuple(f"a name {i}" for i in range(60))
    low = Heatmap("m", values, (0.0, 1.0), x=Axis("thing", names), square=False)
    strip = Heatmap("m", np.ones((1, 60), np.float32), (0.0, 1.0))
    assert "no colour bar" in words(Figure(((strip,),), "t"))
    assert "thing: one label in" in words(Figure(((low,),), "t"))
    points = Points("p", np.zeros(30), np.zeros(30), ids(np.arange(30)), names[:30])
    assert "points without a name" in words(Figure(((points,),), "t"))
    rows = Rows("r", (RowColumn("n", np.arange(90)),), ids(np.arange(90)))
    assert "40 of 90 rows" in words(Figure(((rows,),), "t"))
    with pytest.raises(UsageError):
        preview(tokens, Paper(width_mm=20), room)


@pytest.mark.parametrize("part", [None, {"m": ((0.5, 1.5), (0.0, 9.0))}], ids=["whole", "part"])
def test_text_that_is_text_is_its_characters(part):
    title = "step 4,500: −12.67 of 3.89 (0.5)"
    axis = Axis("time: 0,1,2,3,4,5,6,7,8,9")
    figure = Figure(((Lines("m", np.arange(3.0), np.arange(3.0)[None], ("1:7,2",), x_axis=axis),),), title, (title,))
    paper = Paper(text="outlines" if part else "auto")
    characters = pdf_characters(picture(figure, ".pdf", paper, part))
    assert not [hex(ord(c)) for c in characters if 0xE000 <= ord(c) <= 0xF8FF], "private characters"
    assert set("0123456789,:.−()") <= set(characters)
    written = [t.said for t in texts(ET.fromstring(picture(figure, ".svg", Paper(text="fonts"))))]
    assert title in written and all(ord(c) < 0xE000 for text in written for c in text)


@pytest.mark.parametrize("text", ["fonts", "outlines"])
def test_a_character_that_xml_has_no_place_for_does_not_break_the_file(text):
    title = "a\x01b\x1b[31mred\ufffe"
    figure = Figure(((Lines("m", np.arange(3.0), np.arange(3.0)[None], (title,)),),), title, (title,))
    written = [t.said for t in texts(ET.fromstring(picture(figure, ".svg", Paper(text=text))))]
    assert text == "outlines" or any("[31mred" in one for one in written)


@pytest.mark.parametrize("ink", ["colour", "grey"])
@pytest.mark.parametrize("n", [39, 128])
def test_every_cell_has_its_colour_in_svg_and_pdf(n, ink):
    values = (RNG.normal(size=(n, n)) if n == 39 else RNG.random((n, n)) ** 4).astype(np.float32)
    values[RNG.random((n, n)) < 0.3] = np.nan
    values[0, 0] = values[-1, -1] = 1.0
    mark = Heatmap(
        "m", values, (-3.0, 3.0) if n == 39 else (0.0, 1.0), map="signed" if n == 39 else "magnitude", colour_bar=False
    )
    wanted = rgb(values, mark.levels, mark.map, LIGHT).astype(int)
    painted = (wanted != 255).any(axis=2)
    if ink == "grey":
        wanted = np.repeat((wanted @ (11, 16, 5) // 32)[..., None], 3, axis=2)
    figure, paper = Figure(((mark,),), "t"), Paper(ink=ink, text="fonts")
    svg = svg_rectangles(ET.fromstring(picture(figure, ".svg", paper)))
    pdf = pdf_rectangles(picture(figure, ".pdf", paper))
    for shapes, off in ((svg, 0), (pdf, 0 if ink == "colour" else 2)):  # Qt rounds a grey of a PDF its own way
        cells = [(colour, box) for colour, box in shapes if max(box[2] - box[0], box[3] - box[1]) < 20]
        assert len(cells) == painted.sum()
        boxes = np.array([box for _, box in cells])
        (left, top), (right, bottom) = boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)
        col = ((boxes[:, 0] + boxes[:, 2]) / 2 - left) / (right - left) * n
        row = ((boxes[:, 1] + boxes[:, 3]) / 2 - top) / (bottom - top) * n
        result = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour, _ in cells])
        at = row.astype(int), col.astype(int)
        assert len(set(zip(*(a.tolist() for a in at), strict=True))) == len(cells)
        assert np.abs(result - wanted[at]).max() <= off


@pytest.mark.parametrize("lettering", ["outlines", "fonts"])
def test_a_pdf_has_its_cells_where_the_svg_has_them(lettering):
    """Shares of the page's width, which is not its height."""
    mark = Heatmap("m", np.ones((6, 9), dtype=np.float32), (0.0, 1.0), colour_bar=False)
    figure, paper = Figure(((mark,),), "t"), Paper(width_mm=84, height_mm=60, text=lettering)
    dark = "#{:02x}{:02x}{:02x}".format(*rgb(np.ones(1), mark.levels, mark.map, LIGHT)[0])
    ends = []
    for root in (ET.fromstring(picture(figure, ".svg", replace(paper, text="fonts"))), None):
        boxes = svg_rectangles(root) if root is not None else pdf_rectangles(picture(figure, ".pdf", paper))
        cells = [box for colour, box in boxes if colour == dark]
        wide = float(root.get("viewBox", "").split()[2]) if root is not None else 84 / 25.4 * 72
        ends.append([f(box[i] for box in cells) / wide for i, f in ((0, min), (1, min), (2, max), (3, max))])
    assert ends[0] == pytest.approx(ends[1], abs=2e-3)
    assert ends[0][2] - ends[0][0] > 0.5


def test_a_map_of_more_cells_is_a_picture_without_loss():
    values = RNG.random((200, 200)).astype(np.float32)
    figure = Figure(((Heatmap("m", values, (0.0, 1.0), colour_bar=False),),), "t")
    data = picture(figure, ".pdf", Paper())
    assert data.count(b"/Subtype /Image") == 1
    assert b"/DCTDecode" not in data
    (image,) = ET.fromstring(picture(figure, ".svg", Paper())).iter(f"{SVG}image")
    held = QImage.fromData(base64.b64decode(image.get("{http://www.w3.org/1999/xlink}href", "").partition(",")[2]))
    wanted = rgb(values, (0.0, 1.0), "magnitude", LIGHT)
    result = [[held.pixelColor(col, row).getRgb()[:3] for col in range(0, 200, 7)] for row in range(0, 200, 7)]
    assert (np.array(result) == wanted[::7, ::7]).all()
    assert "pixelated" in image.get("style", "")


def test_grey_is_grey_and_marks_what_is_negative():
    values = np.array([[1.0, -1.0], [0.5, -0.5]], dtype=np.float32)
    marks = (Heatmap("m", values, (-1.0, 1.0), map="signed"), Tokens("t", ("a", "b"), np.array([1.0, -1.0]), (-1, 1), "signed"))
    series = Lines("l", np.arange(9.0), RNG.random((3, 9)), ("one", "two", "three"))
    figure = Figure(((marks[0],), (marks[1],), (series,)), "t")
    colours = {}
    for ink in ("colour", "grey"):
        paper = Paper(ink=ink, caption="full")
        text = picture(figure, ".svg", paper).decode()
        result = set(re.findall(r'(?:fill|stroke)="#(..)(..)(..)"', text))
        colours[ink] = any(len(set(parts)) > 1 for parts in result)
        png = QImage.fromData(picture(figure, ".png", paper))
        assert png.allGray() == (ink == "grey")
        assert negative_cells_marked(text) == negative_tokens_marked(text) == (ink == "grey")
        assert len(set(re.findall(r'stroke-dasharray="([^"]*)"', text))) >= 2
    assert colours == {"colour": True, "grey": False}
    lines = [ET.fromstring(picture(figure, ".svg", Paper(ink=ink))).iter(f"{SVG}polyline") for ink in ("colour", "grey")]
    more = -len(list(lines[0])) + len(list(lines[1]))
    assert more == 2 + 4 + 1  # two cells, four on the colour bar, one token


@pytest.mark.parametrize("asked", [{"width_mm": -5}, {"width_mm": 100000}, {"width_mm": float("nan")}, {"height_mm": 0}])
def test_no_paper_is_like_that(asked):
    with pytest.raises(UsageError, match="figure"):
        Paper(**asked)


@pytest.mark.parametrize(
    "asked", [{"font_pt": 0}, {"dpi": 0}, {"dpi": True}, {"ink": "blue"}, {"caption": "long"}, {"text": "x"}, {"line_pt": "1"}]
)
def test_no_figure_is_drawn_so(asked):
    with pytest.raises(UsageError, match="figure"):
        Paper(**asked)


def test_the_least_type_is_no_larger_than_the_type():
    assert (Paper(font_pt=4).least_pt, Paper(font_pt=9).least_pt) == (4.0, 6.0)


def test_a_height_is_kept_or_refused():
    rows = Rows("m", (RowColumn("x", np.arange(90.0)),), ids(np.arange(90)))
    root = ET.fromstring(picture(Figure(((rows,),), "t"), ".svg", Paper(height_mm=60, text="fonts")))
    assert root.get("height") == "60mm"
    said = " ".join(t.said for t in texts(root))
    shown = int(re.search(r"(\d+) of 90", said)[1])
    assert 5 < shown < 40
    assert f"{shown - 1}.000" in said
    assert f"{shown}.000" not in said
    long = Tokens("t", tuple(["word"] * 90), np.zeros(90))
    for figure in (Figure(((long,),), "t"), Figure(((rows,),), "t", ("word",) * 200)):
        with pytest.raises(UsageError, match="height"):
            picture(figure, ".svg", Paper(height_mm=30, caption="full"))
    with pytest.raises(UsageError, match="height"):
        picture(Figure(((rows,),), "t", ("word",) * 200), ".svg", Paper(height_mm=30, caption="full"))


def test_columns_without_room_are_named_and_words_wrap():
    columns = (
        RowColumn("name", np.array(["a sentence that is too long for a narrow column of a journal"] * 3, dtype=object)),
        *(RowColumn(f"measure {i}", np.arange(3.0) * 1e6) for i in range(9)),
    )
    root = ET.fromstring(picture(Figure(((Rows("m", columns, ids(np.arange(3))),),), "t"), ".svg", Paper(text="fonts")))
    said = " ".join(t.said for t in texts(root))
    left_out = re.search(r"columns left out: (.*)", said)[1]
    assert left_out.startswith("measure 3, measure 4, measure 5, measure 6, measure 7, measure 8 ")
    assert "…" not in said.replace(" · …", "")
    assert all(word in said for word in "a sentence that is too long for a narrow column of a journal".split())


@pytest.mark.parametrize(("n", "shown"), [(40, 40), (47, 47), (60, 40)])
def test_a_few_rows_more_than_the_most_are_shown_rather_than_counted(n, shown):
    rows = Rows("r", (RowColumn("n", np.arange(n), digits=0),), ids(np.arange(n)))
    written = [t.said for t in texts(ET.fromstring(picture(Figure(((rows,),)), ".svg", Paper(text="fonts"))))]
    assert str(shown - 1) in written and (f"{shown} of {n}" in written) == (shown < n)


def test_words_of_a_narrow_table_wrap_where_they_can_most_and_rows_are_as_high_as_their_own():
    text = lambda *cells: np.array(cells, dtype=object)
    strengths = text("medium", "weak", "strong", "strong")
    columns = (
        RowColumn("argument", text("2 co-perturbation", "3 direct ablation", "4 generality", "strongest")),
        RowColumn("here", text("4 of 5 models", "not computed by any of us", "8.15 nats", "")),
        *(RowColumn(name, strengths) for name in ("small attn", "small MLP", "large")),
    )
    mark = Rows("m", columns, ids(np.arange(4)), strong=(3,))
    roots = [ET.fromstring(picture(Figure(((m,),)), ".svg", Paper(text="fonts"))) for m in (mark, replace(mark, strong=()))]
    written = [t.said for t in texts(roots[0])]
    assert "2 co-perturbation" in written and "not computed by any of us" not in written, "the longest gives way"
    assert {"small", "attn", "MLP"} <= set(written), "titles wrap first"
    heights = [float(root.get("viewBox", "").split()[3]) for root in roots]
    assert heights[0] == heights[1], "a bold row makes no other one higher"


def test_numbers_of_an_axis_stand_apart_however_narrow_it_is():
    y = np.random.default_rng(0).random((1, 9))  # whatever ran before
    for low, high in ((0, 2500), (-300, 300), (0, 0.00004), (1e6, 5e6)):
        x = np.linspace(low, high, 9)
        lines = Lines("l", x, y, ("a",), x_axis=Axis("x"), y_axis=Axis("y"))
        for width in (30.0, 84.0, 174.0):
            written = texts(ET.fromstring(picture(Figure(((lines,),)), ".svg", Paper(width_mm=width, text="fonts"))))
            row = [t.box for t in written if t.said.strip() not in ("x", "y")]
            assert len(row) >= (8 if width > 80 else 4)
            assert not any((a.adjusted(-2, 0, 2, 0) & b).isValid() for i, a in enumerate(row) for b in row[i + 1 :])


def test_a_badge_above_the_top_row_has_room(qtbot):
    xy = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    badges, ends = ("prev 0.98", "", "ind 0.93", ""), np.array([[0, 2]])
    graph = Edges("g", xy, tuple("abcd"), np.arange(4), ends, np.ones(1), np.zeros(1, int), badges=badges, rows=((0.0, "L0"),))
    view = FigureView(paper=Paper())
    qtbot.addWidget(view)
    view.show_figure(Figure(((graph,),), "t"))
    for width, height in ((374, 260), (374, 180), (240, 200), (775, 420)):
        view.resize(width, height)
        view.grab()
        widget, boxes = view.widget("g"), view.widget("g")._boxes()
        assert min(box.top() for box in boxes) - BADGE >= widget.frame().top()
        assert max(box.bottom() for box in boxes) <= widget.frame().bottom()
        assert min(box.left() for box in boxes) > widget.frame().left() + QFontMetricsF(
            LIGHT.font(LIGHT.small)
        ).horizontalAdvance("L0")


def test_a_badge_stands_whole_or_not_at_all(qtbot):
    """Heads side by side that match prefixes: of two badges one over the other the lower would read 0.8."""
    n = 9
    xy, badges = np.stack([np.arange(n), np.zeros(n)], axis=1), tuple(f"ind 0.8{i}" for i in range(n))
    ends, names = np.array([[0, 8]]), tuple(f"L17H{i}" for i in range(n))
    graph = Edges("g", xy, names, np.arange(n), ends, np.ones(1), np.zeros(1, int), badges=badges, chosen_nodes=(4,))
    shown = []
    for width in (60.0, 84.0, 174.0):
        root = ET.fromstring(picture(Figure(((graph,),)), ".svg", Paper(width_mm=width, text="fonts")))
        row = [t for t in texts(root) if t.said.startswith("ind ")]
        assert {t.said for t in row} <= set(badges) and "ind 0.84" in {t.said for t in row}, "the chosen one before others"
        assert not any((a.box.adjusted(1, 0, -1, 0) & b.box).isValid() for i, a in enumerate(row) for b in row[i + 1 :])
        shown.append(len(row))
    assert shown[0] < shown[2] == n


def test_labels_of_tokens_are_never_smaller_than_the_least_size():
    sizes = set()
    for n in range(20, 40, 3):
        tokens = Axis("source", tuple(f"token{i}" for i in range(n)), True)
        figure = Figure(((Heatmap("m", RNG.random((n, n)).astype(np.float32), (0.0, 1.0), x=tokens, y=tokens),),), "t")
        root = ET.fromstring(picture(figure, ".svg", Paper(text="fonts")))
        point = 84 / 25.4 * 72 / float(root.get("viewBox", "").split()[2])
        sizes |= {round(t.size * point, 2) for t in texts(root) if t.said.startswith("token")}
    assert len(sizes) >= 2 and min(sizes) >= 6


def test_a_figure_names_model_step_and_prompt_and_its_file_says_all():
    model = api.open("attn-only-2l")
    n = len(Tokenizer.from_file(str(model_dir("attn-only-2l") / "tokenizer.json")).encode(TEXT).ids)
    made = model.at_step(model.steps[3]).figure("attention", text=TEXT, heads="L1H1").figure
    assert made.about == (
        "attn-only-2l",
        f"step {model.steps[3]:,}",
        f"“Mr and Mrs Hursley, of the old mill …” ({n + 1} tokens, BOS first)",
    )
    bare = model.figure("attention", text=TEXT, heads="L1H1", bos=False).figure
    assert bare.about[-1].endswith(f"({n} tokens, no BOS)")
    assert model.figure("spectra", text=TEXT).figure.about == ("attn-only-2l", "final weights")  # of weights alone
    for caption in ("short", "full", "none"):
        root = ET.fromstring(picture(made, ".svg", Paper(caption=caption, text="fonts")))
        said = " ".join(t.said for t in texts(root))
        assert ("Mr and Mrs Hursley" in said.partition("attn-only-2l")[2]) == (caption != "none")
        description = root.find(f"{SVG}desc")
        xmp = re.search(rb"<x:xmpmeta.*</x:xmpmeta>", picture(made, ".pdf", Paper(caption=caption)), re.S)
        held = (description.text, "".join(ET.fromstring(xmp[0]).itertext()))
        assert all(part in text for part in (*made.about, made.caption) for text in held)


@pytest.mark.parametrize("name", ["attention", "composition", "circuits", "spectra", "training"])
def test_a_paper_on_which_a_figure_cannot_be_read_is_refused_with_one_on_which_it_can(name, tmp_path):
    figure, kept = drawn(name, ()), tmp_path / "kept.svg"
    kept.write_text("as it was")
    for asked in (Paper(width_mm=20), Paper(font_pt=40)):
        with pytest.raises(UsageError) as refused:
            export(figure, kept, asked)
        assert kept.read_text() == "as it was"
        with pytest.raises(UsageError):
            check(figure, asked)
        sizes = [float(v) for v in re.findall(r"(?:at least|at most) ([\d.]+)", refused.value.expected)]
        enough = [replace(asked, width_mm=sizes[0])]
        enough += [replace(asked, font_pt=sizes[1])] if len(sizes) > 1 else []
        for paper in enough:
            root = ET.fromstring(picture(figure, ".svg", replace(paper, text="fonts", caption="none")))
            wide = float(root.get("viewBox", "").split()[2])
            assert not [t.said for t in texts(root) if t.box.left() < -0.5 or t.box.right() > wide + 0.5]


def test_a_head_that_nobody_chose_is_called_the_first_one():
    model = api.open("attn-only-2l")
    assert "L0H0 (first head)" in model.figure("attention", text=TEXT).title
    assert "first" not in model.figure("attention", text=TEXT, heads="L0H0").title


def test_hatching_is_the_same_lines_in_every_format():
    values, hatched = np.full((3, 3), 0.5, np.float32), np.zeros((3, 3), bool)
    hatched[1, 1:] = True
    figure = Figure(((Heatmap("m", values, (0.0, 1.0), hatched=hatched, colour_bar=False),),), "t")
    root = ET.fromstring(picture(figure, ".svg", Paper()))
    assert not list(root.iter(f"{SVG}pattern"))
    assert not list(root.iter(f"{SVG}image"))
    assert len(list(root.iter(f"{SVG}polyline"))) > 15
    assert b"/PatternType" not in picture(figure, ".pdf", Paper())


def test_a_choice_that_nobody_made_is_not_drawn():
    model = api.open("attn-only-2l")
    for name in ("overview", "composition", "head_finder", "paths", "heads"):
        plain, asked = (model.figure(name, text=TEXT, **one).figure for one in ({}, {"heads": "L0H0"}))
        chosen = lambda f: [
            value
            for mark in f.marks()
            for value in (
                getattr(mark, "chosen", ()),
                getattr(mark, "chosen_nodes", ()),
                getattr(getattr(mark, "tiles", None), "chosen", ()),
                getattr(mark, "row", None) or (),
            )
            if value != () and value is not None
        ]
        assert not chosen(plain), name
        assert chosen(asked) or name == "heads", name
    figure = drawn("attention", ())
    assert without_choice(figure, True, False).marks()[1].row == figure.marks()[1].row


@pytest.mark.parametrize("gap", [None, 20])
@pytest.mark.parametrize("height", [None, 60, 110])
@pytest.mark.parametrize("total", [0, 4096])
def test_a_table_says_once_how_many_of_its_rows_are_drawn(gap, height, total):
    column = RowColumn("x", np.arange(40.0) + 100)
    rows = Rows("m", (column,), ids(np.arange(40)), ranked=True, total=total, gap=gap)
    written = [
        t.said for t in texts(ET.fromstring(picture(Figure(((rows,),), "t"), ".svg", Paper(height_mm=height, text="fonts"))))
    ]
    n_drawn = sum(bool(re.fullmatch(r"1\d\d\.000", t)) for t in written)
    counts = [m for t in written if (m := re.search(r"(\d+) (?:largest )?of ([\d,]+)", t))]
    assert (n_drawn == 40) == (height is None)
    if total == 0 and n_drawn == 40:
        assert not counts
    else:
        ((count,)) = counts
        assert (int(count[1]), count[2]) == (n_drawn, "4,096" if total else "40")
        assert ("largest" in count[0]) == (gap is not None and n_drawn <= gap)


@pytest.mark.parametrize(
    ("name", "view"),
    [
        ("bigram", {}),
        ("predictions", {}),
        ("circuits", {}),
        ("circuits", {"page": "triples"}),
        ("circuits", {"page": "largest"}),
        ("composition", {"form": "list"}),
    ],
)
def test_a_list_of_the_first_of_many_knows_how_many_there_are(name, view):
    figure = drawn(name, tuple(view.items()))
    tables = [mark for mark in figure.marks() if isinstance(mark, Rows)]
    assert tables and all(mark.total > len(mark.ids) for mark in tables)
    assert figure.shown is None, "the table counts what is seen of it"


@pytest.mark.parametrize(("low", "high", "numbered"), [(5e6, 6.9e7, True), (0.0, 3.2e6, True), (5.03e11, 5.67e11, False)])
def test_an_axis_of_millions_on_narrow_paper_shows_its_scale_or_the_caption_says_it(low, high, numbered):
    x = np.linspace(low, high, 20)
    curve = Lines("curve", x, np.arange(20.0)[None], ("c",), x_axis=Axis("tokens"), y_axis=Axis("loss"))
    paper = Paper(width_mm=30.0, font_pt=6.5, least_pt=5.0, text="fonts")
    root = ET.fromstring(picture(Figure(((curve,),), "T", ("caption",)), ".svg", paper))
    numbers = [text.said for text in texts(root) if re.fullmatch(r"\d+(e\d+)?", text.said) and "e" in text.said]
    beside_zero = 1 if low == 0.0 else 2
    assert (len(numbers) >= beside_zero) is numbered
    assert ("tokens from 5" in (root.findtext(f"{SVG}desc") or "")) is not numbered
