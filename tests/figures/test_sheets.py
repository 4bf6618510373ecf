"""Sheets of several panels, measured from their files: letters, type, pictures in line, nothing over anything else."""

from __future__ import annotations

import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from PySide6.QtGui import QImage

from circuitlab import api
from circuitlab.draw.export.pictures import discard
from circuitlab.draw.export.sheets import check_sheet, laid_out, sheet_picture
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.theme import LIGHT
from circuitlab.draw.view.cell_view import Cell
from circuitlab.errors import UsageError
from circuitlab.figures.marks import Axis, Figure, Heatmap, Lines, Points, RowColumn, Rows, ids
from circuitlab.model.subject import Head
from circuitlab.report.sheet import Sheet, sheet_of
from circuitlab.state.cuts import ablation, with_edits
from circuitlab.state.state import Pin
from tests.figures.paper_files import SVG, svg_rectangles, texts
from tests.patience import SECONDS

TEXT = "Mr and Mrs Hursley, of the old mill at Brook End, were glad to say that they were perfectly punctual. Mr Hursley was"
TITLE = "Induction & 100% of L1_H1"
SETS = [
    ("attention", "predictions"),
    ("training", "spectra"),
    ("composition", "attention"),
    ("attribution", "predictions"),
    ("attention", "why_here", "logit_lens"),
    ("attention", "composition", "spectra", "predictions"),
]
RNG = np.random.default_rng(0)
MM = 25.4 / 72


pytestmark = pytest.mark.usefixtures("qapp")  # pictures need one


@cache
def sheet(panels: tuple[str, ...], pinned: bool = False) -> Sheet:
    model = api.open("attn-only-2l")
    state = model.state(TEXT, heads="L1H1")
    if pinned:
        other = model.state(TEXT.replace("Hursley", "Potters"))
        state = replace(state, pins=(Pin("other", other.subject, text=other.text),), compare="difference")
    return sheet_of(model.engine, state, panels, TITLE)


@pytest.mark.parametrize("width", [84.0, 120.0, 174.0])
def test_a_shortened_caption_begins_with_the_intervention_and_the_parts_that_it_is_in(width):
    model = api.open("attn-only-2l")
    cut = with_edits(model.state(TEXT, heads="L1H1"), ablation(Head(1, 1)))
    made = sheet_of(model.engine, cut, ("attention", "composition", "spectra", "predictions"), TITLE)
    root = ET.fromstring(made.on(Paper(width_mm=width, text="fonts", caption="short")).picture(".svg", with_view=False))
    printed = " ".join(t.said for t in texts(root))
    assert "A, D: L1H1 zeroed · attn-only-2l" in printed, "weights in B and C are read without it"
    assert "final weights · W_U centred · float32" in printed, "conventions do not give way to details"
    assert "A, D: “" in printed, "nor does what is shown of a text"
    assert width > 100 or "…" in printed, "there is no room for all"
    alone = sheet_of(model.engine, cut, ("predictions",), TITLE).on(Paper(width_mm=width, text="fonts", caption="short"))
    printed = " ".join(t.said for t in texts(ET.fromstring(alone.picture(".svg", with_view=False))))
    assert "L1H1 zeroed · attn-only-2l" in printed
    assert " · W_U centred · float32" in printed


def overlapping(boxes: np.ndarray) -> list[list[int]]:
    common = np.minimum(boxes[:, None, 2:], boxes[None, :, 2:]) - np.maximum(boxes[:, None, :2], boxes[None, :, :2])
    return np.argwhere(np.triu((common > 1).all(axis=2), 1)).tolist()


@pytest.mark.parametrize("width", [84.0, 174.0])
@pytest.mark.parametrize("panels", SETS, ids="-".join)
def test_nothing_of_a_sheet_is_damaged(panels, width):
    made = sheet(panels).on(Paper(width_mm=width, text="fonts"))
    root = ET.fromstring(made.picture(".svg", with_view=False))
    assert root.get("width") == f"{width:g}mm"
    wide, high = (float(v) for v in root.get("viewBox", "").split()[2:])
    written = texts(root)
    point = width / 25.4 * 72 / wide
    assert min(t.size for t in written) * point >= made.paper.least_pt - 0.01
    letters = {t.said: t for t in written if re.fullmatch("[A-D]", t.said) and t.size > 11.5}
    assert list(letters) == list("ABCD"[: len(panels)])
    assert {t.size for t in letters.values()} == {round(LIGHT.small * 1.2)}
    assert max(t.size for t in written if t not in letters.values()) * point <= 7.01, "one size of type"
    boxes = np.array([(t.box.left(), t.box.top(), t.box.right(), t.box.bottom()) for t in written])
    assert not [t.said for t in written if t.box.left() < -0.5 or t.box.right() > wide + 0.5 or t.box.bottom() > high + 0.5]
    assert not [(written[i].said, written[j].said) for i, j in overlapping(boxes)]
    assert not list(root.iter(f"{SVG}image"))
    for column in (0, wide / 2):
        own = [t.box.left() for t in letters.values() if column <= t.box.left() < column + wide / 2]
        assert not own or max(own) - min(own) < 0.5, "letters stand below one another"
        assert not own or min(own) - column < 20


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="needs poppler")
@pytest.mark.parametrize("width", [84.0, 174.0])
def test_a_pdf_is_what_other_programs_read(width, tmp_path):
    made, path = sheet(("attention", "composition", "predictions")).on(Paper(width_mm=width)), tmp_path / "a.pdf"
    made.save(path, data=False)
    run = lambda *words: subprocess.run([*words], capture_output=True, text=True, check=True, timeout=SECONDS).stdout
    page = re.search(r"Page size: +([\d.]+) x", run("pdfinfo", str(path)))
    assert page is not None and float(page[1]) * MM == pytest.approx(width, abs=0.2)
    assert len(run("pdfimages", "-list", str(path)).splitlines()) == 2, "a header alone"
    fonts = run("pdffonts", str(path)).splitlines()[2:]
    assert fonts and all(line.split()[-5] == "yes" for line in fonts), "embedded"
    words = re.findall(
        r'<word xMin="(.*?)" yMin="(.*?)" xMax="(.*?)" yMax="(.*?)">(.*?)</word>', run("pdftotext", "-bbox", path, "-")
    )
    places = {word: [float(v) for v in box] for *box, word in reversed(words)}
    assert [letter for letter in "ABC" if letter in places] == ["A", "B", "C"]
    beside = width > 100
    assert (places["A"][1] == pytest.approx(places["B"][1], abs=0.3)) == beside
    assert (places["A"][0] == pytest.approx(places["C"][0], abs=0.3)) and places["C"][1] > places["B"][1]
    assert not re.search("[\ue000-\uf8ff]", run("pdftotext", str(path), "-"))


# pictures in line ------------------------------------------------------------------------------------------------------


def lines(name: str = "l", scale: float = 1.0, names: tuple[str, ...] = ("one",)) -> Lines:
    values = RNG.random((len(names), 9)) * scale
    return Lines(name, np.arange(9.0), values, names, x_axis=Axis("step"), y_axis=Axis("loss"))


def full(n: int, m: int, **more: Any) -> Heatmap:
    return Heatmap("m", np.full((n, m), 0.7, np.float32), (0.0, 1.0), x=Axis("source"), y=Axis("destination"), **more)


def cells(*marks: Any) -> list[Cell]:
    return [Cell("ABCDEFG"[i], Figure(((mark,),), f"figure {i}", ("float32",))) for i, mark in enumerate(marks)]


def drawn(parts: list[Cell], width: float = 174.0, columns: int | None = None) -> tuple[ET.Element, float]:
    """The SVG of a sheet, and the mm of a px in it."""
    root = ET.fromstring(sheet_picture(parts, ".svg", Paper(width_mm=width, text="fonts"), columns=columns).data)
    return root, width / float(root.get("viewBox", "").split()[2])


def frames(root: ET.Element, columns: int = 2) -> list[tuple[float, float, float]]:
    """Left, top and bottom of every picture: of a map its cells, of a plot its upright grid lines and the axis beside them."""
    result: list[tuple[float, float, float]] = []
    boxes = [box for _, box in svg_rectangles(root)]
    mapped = np.array([box for box in boxes if all(6 < box[i + 2] - box[i] < 30 for i in (0, 1))])  # cells
    uprights: dict[tuple[float, float], list[float]] = {}
    for line in root.iter(f"{SVG}polyline"):
        points = [tuple(map(float, pair.split(","))) for pair in line.get("points", "").split()]
        (x0, y0), (x1, y1) = points[0], points[-1]
        if len(points) == 2 and x0 == x1 and abs(y1 - y0) > 60:
            side = columns == 2 and x0 > float(root.get("viewBox", "").split()[2]) / 2
            uprights.setdefault((side, round(min(y0, y1) / 20)), []).append((x0, min(y0, y1), max(y0, y1)))
    for lines_of_one in uprights.values():
        left, *_ = min(lines_of_one)
        _, top, bottom = sorted(lines_of_one)[len(lines_of_one) // 2]
        result.append((left, top, bottom))
    for side in np.unique(np.round(mapped[:, 0] > 380)) if len(mapped) else ():
        own = mapped[(mapped[:, 0] > 380) == side]
        result.append((own[:, 0].min(), own[:, 1].min(), own[:, 3].max()))
    return result


def test_pictures_of_a_row_have_equal_tops_and_heights():
    """A map, a plot with a legend of two lines above it, and a title of several lines over one of them."""
    many = tuple(f"a rather long name of series {i}" for i in range(4))
    for left, right in ((full(12, 12), lines(names=many)), (lines(names=many), full(20, 14)), (full(9, 9), full(12, 9))):
        parts = cells(left, right)
        parts[1] = replace(parts[1], figure=replace(parts[1].figure, title="a title that is much too long for one line " * 3))
        root, mm = drawn(parts)
        result = frames(root)
        assert len(result) == 2, result
        (_, top, bottom), (_, other_top, other_bottom) = result
        assert abs(top - other_top) * mm <= 0.1 and abs(bottom - other_bottom) * mm <= 0.1
        assert (bottom - top) * mm > 20


def test_left_axes_of_a_column_stand_below_one_another():
    for column in (cells(lines(), lines(scale=1e5), lines(scale=1e-3)), cells(full(20, 20), lines(scale=1e4))):
        root, mm = drawn(column, 84.0)
        lefts = [left for left, *_ in frames(root, 1)]
        assert len(lefts) == len(column)
        assert (max(lefts) - min(lefts)) * mm <= 0.3  # half a line of an axis is outside of its picture


def test_a_legend_and_a_colour_bar_that_are_equal_are_there_once():
    def said(*marks: Any) -> list[str]:
        return [t.said for t in texts(drawn(cells(*marks))[0])]

    both = said(lines(names=("one", "two")), lines(names=("one", "two")))
    assert both.count("one") == both.count("two") == 1 and any("legend as in A" in t for t in both)
    other = said(lines(names=("one", "two")), lines(names=("one", "three")))
    assert other.count("one") == 2 and not any("legend as in" in t for t in other)
    unit = {"unit": "weight"}
    maps = said(full(9, 9, **unit), full(9, 9, **unit))
    assert maps.count("weight") == 1 and any("colours as in B" in t for t in maps)
    assert said(full(9, 9, **unit), replace(full(9, 9, **unit), levels=(0.0, 2.0))).count("weight") == 2
    assert said(full(9, 9, **unit), full(9, 9, **unit), full(9, 9, **unit), full(9, 9, **unit)).count("weight") == 2, "one a row"


def test_a_table_has_the_rows_that_its_neighbour_leaves_room_for():
    rows = Rows("t", (RowColumn("x", np.arange(90.0)), RowColumn("y", np.arange(90.0))), ids(np.arange(90)))
    beside = [t.said for t in texts(drawn(cells(full(20, 20), rows))[0])]
    shown = int(next(m[1] for t in beside if (m := re.fullmatch(r"(\d+) of 90", t))))
    assert 12 <= shown < 40 and f"{shown - 1}.000" in " ".join(beside)
    below, _ = drawn(cells(full(20, 20), rows), 84.0)
    (again,) = [m for t in texts(below) if (m := re.fullmatch(r"(\d+) of 90", t.said))]
    assert int(again[1]) == 12


def high(letter: str) -> Cell:
    """Three plots below one another."""
    return Cell(letter, Figure(tuple((replace(lines(), name=f"plot {i}"),) for i in range(3)), "high", ("float32",)))


@pytest.mark.parametrize(
    ("parts", "rows"),
    [
        ([*cells(full(4, 16)), high("B")], ["A", "B"]),  # a low map is as wide as the sheet
        ([*cells(lines()), high("B")], ["AB"]),  # a plot as high as the part beside it
        ([*cells(full(20, 20), full(20, 20), full(4, 16)), high("D")], ["AB", "C", "D"]),
        ([*cells(full(20, 20), full(20, 20)), high("C"), high("D")], ["AB", "CD"]),
    ],
)
def test_nothing_is_blank_below_a_part_that_stands_beside_a_high_one(parts: list[Cell], rows: list[str]) -> None:
    view = laid_out(parts, Paper(width_mm=174))
    try:
        assert ["".join(one.cell.letter for one in row) for row in view.rows] == rows
        for row in view.rows:
            highest = max(one.height() for one in row)
            assert all(one.height() > 0.85 * highest for one in row)
            assert row[-1].geometry().right() > view.width() - 3 * len(row)
    finally:
        discard(view)


@pytest.mark.parametrize(
    ("marks", "rows"),
    [
        ((full(12, 12), full(12, 12), lines()), ["AB", "C"]),  # whose height is free
        ((full(12, 12), full(12, 12), full(12, 12)), ["ABC"]),
        ((full(6, 40), full(12, 12), full(12, 12)), ["A", "BC"]),  # as wide as the sheet
        ((full(12, 12), full(12, 12), full(6, 40)), ["AB", "C"]),
        ((full(12, 12), full(12, 12), full(6, 40), full(12, 12), full(12, 12)), ["AB", "C", "DE"]),
    ],
)
def test_no_part_stands_beside_an_empty_half(marks, rows):
    view = laid_out(cells(*marks), Paper(width_mm=174))
    try:
        shown = ["".join(one.cell.letter for one in row) for row in view.rows]
        assert shown == rows
        for row in view.rows:
            assert row[-1].geometry().right() > view.width() - 3 * len(row), "a row ends at the right of the sheet"
            assert max(one.height() for one in row) < 0.6 * view.width()
    finally:
        discard(view)


def test_what_has_no_room_in_a_column_has_a_row_for_itself_or_is_refused():
    wide = Rows("t", tuple(RowColumn(f"measure {i}", np.arange(9.0) * 1e6) for i in range(6)), ids(np.arange(9)))
    root, _ = drawn(cells(lines(), lines(), wide, lines()))
    tops = {t.said: t.box.top() for t in texts(root) if re.fullmatch("[A-D]", t.said) and t.size > 11.5}
    assert tops["A"] == tops["B"] < tops["C"] < tops["D"]
    narrow = Points(
        "p", RNG.random(3), RNG.random(3), ids(np.arange(3)), x_axis=Axis("an axis with a rather long title below it")
    )
    for asked in (Paper(width_mm=30), Paper(width_mm=84, font_pt=40, least_pt=6)):
        with pytest.raises(UsageError, match="Part B") as refused:
            check_sheet(cells(full(3, 3), narrow), asked)
        at_least = float(re.search(r"at least (\d+) mm", refused.value.expected)[1])
        check_sheet(cells(full(3, 3), narrow), replace(asked, width_mm=at_least))
        if at_most := re.search(r"at most ([\d.]+) pt", refused.value.expected):
            check_sheet(cells(full(3, 3), narrow), replace(asked, font_pt=float(at_most[1])))
    with pytest.raises(UsageError, match="Part B"):
        check_sheet(cells(full(3, 3), narrow), Paper(width_mm=84), columns=2)
    with pytest.raises(UsageError, match="height"):
        check_sheet(cells(full(9, 9), lines()), Paper(width_mm=84, height_mm=40))


def test_a_sheet_is_the_same_bytes_again_and_grey_where_it_is_asked_to_be():
    made = sheet(("attention", "composition"))
    for suffix in (".svg", ".pdf", ".png"):
        assert made.picture(suffix) == made.picture(suffix)
    grey = QImage.fromData(made.on(Paper(width_mm=174, dpi=72, ink="grey")).picture(".png"))
    assert grey.allGray() and grey.width() == round(174 / 25.4 * 72)
    for width in (84.0, 120.0, 174.0):
        picture = QImage.fromData(made.on(Paper(width_mm=width, dpi=300)).picture(".png"))
        assert picture.width() == round(width / 25.4 * 300)
