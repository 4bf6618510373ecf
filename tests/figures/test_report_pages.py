"""A report as PDF, measured by poppler: its pages, what stands together on them, fonts, vectors."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QSizeF
from PySide6.QtGui import QTextDocument

import circuitlab.api as lab
from circuitlab.analysis.base import Column, Table
from circuitlab.errors import UsageError
from circuitlab.figures.contracts.panel import find_panel
from circuitlab.figures.marks import Axis, Figure, Heatmap, RowColumn, Rows, ids
from circuitlab.model.subject import ModelRef
from circuitlab.report.answer_data import AnswerData, shown_table
from circuitlab.report.content import Report, ReportFigure, Section
from circuitlab.report.page_breaks import PageBreaks, blocks_of
from circuitlab.report.page_tables import NUMBERS, ROWS
from circuitlab.report.pages import pages_parts
from circuitlab.report.step_figures import StepFigure
from circuitlab.state.state import State
from tests.figures.test_report import HOSTILE
from tests.patience import SECONDS
from tests.unit.test_session_results import talk

pytestmark = pytest.mark.skipif(shutil.which("pdftotext") is None, reason="needs poppler: pdftotext, pdffonts, pdfimages")
STATE = State(ModelRef("builtin:attn-only-2l"))
A4 = (595.0, 842.0)  # points
TEXT = "A line of text that is long enough to be broken, and to be read as one paragraph by whoever reads it. "


def poppler(program: str, path: Path, *more: str) -> str:
    files = [str(path), "-"] if program == "pdftotext" else [str(path)]
    done = subprocess.run([program, *more, *files], check=True, capture_output=True, text=True, timeout=SECONDS)
    assert not done.stderr, "it has found the file in order"
    return done.stdout


def map_of(number: int, rows: int, columns: int) -> ReportFigure:
    """A figure whose first and last rows have names of their own."""
    values = np.linspace(0, 1, rows * columns, dtype=np.float32).reshape(rows, columns)
    names = (f"first{number}x", *(f"r{i}" for i in range(rows - 2)), f"last{number}x")
    mark = Heatmap("map", values, (0.0, 1.0), Axis("source"), Axis("row", names))
    figure = Figure(((mark,),), f"map {number}", ("centred", f"end{number}x"), about=(f"of{number}x",))
    return ReportFigure(StepFigure(find_panel("attention"), STATE, figure))


def report(sizes: tuple[int, ...]) -> Report:
    """A report of a step for each size: the more, the longer its text and the higher its figure."""
    sections = tuple(
        Section(f"head{i}x", "\n\n".join([TEXT * (1 + size % 3)] * (size % 7)), figures=(map_of(i, 4 + size, 9),))
        for i, size in enumerate(sizes, start=1)
    )
    return Report("Maps", "maps.circuitlab", sections)


def written(path: Path, what: Report) -> list[str]:
    """The text of each page."""
    path.write_bytes(b"".join(pages_parts(what)))
    return poppler("pdftotext", path, "-layout").split("\f")[:-1]


def headings_that_end_a_page(pages: list[str]) -> list[str]:
    lasts = ([line for line in page.splitlines() if line.strip()][-2] for page in pages)  # above the foot
    return [line for line in lasts if re.search(r"head\d+x$", line)]


@pytest.mark.parametrize("lines", (1, 2, 4))
def test_no_heading_ends_a_page_and_no_short_paragraph_is_parted(tmp_path: Path, lines: int) -> None:
    sections = tuple(Section(f"head{i}x", f"{TEXT * lines} end{i}x" if i % 4 else "## part\n\nA word.") for i in range(1, 90))
    pages = written(tmp_path / "words.pdf", Report("Words", "", sections))
    assert len(pages) > 4 and not headings_that_end_a_page(pages)
    whole = "".join(pages)
    assert all(len(re.findall(rf"end{i}x", whole)) == 1 for i in range(1, 90) if i % 4), "nothing stands on two pages"
    assert all(len(re.findall(rf"head{i}x$", whole, re.MULTILINE)) == 1 for i in range(1, 90))
    for page in pages[1:] if lines < 3 else ():
        first = page.strip().splitlines()[0]
        assert re.search(r"head\d+x|^(part|A word|A line)", first), "a page begins with a heading or a whole paragraph"


@pytest.mark.parametrize("sizes", ((3, 8, 20, 5, 31, 12, 6, 9), (60, 2, 17, 26, 4, 11, 13), (1,)))
def test_nothing_is_parted_that_belongs_together(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    pages = written(tmp_path / "maps.pdf", report(sizes))
    assert all(re.search(rf"Maps\s+{i}\s*/\s*{len(pages)}\s*$", page) for i, page in enumerate(pages, start=1))
    page_of = lambda word: [i for i, page in enumerate(pages) if re.search(rf"{word}\b", page)]
    for i in range(1, len(sizes) + 1):
        [of_figure] = page_of(f"Figure {i}")
        assert page_of(f"first{i}x") == page_of(f"last{i}x") == page_of(f"end{i}x") == page_of(f"of{i}x") == [of_figure]
    assert not headings_that_end_a_page(pages)
    if len(sizes) > 3:
        for i, title in enumerate((f"head{i}x" for i in range(1, len(sizes) + 1)), start=1):
            [said] = re.findall(rf"^\s*{i}\s+{title}\s+(\d+)$", pages[0], re.MULTILINE)
            assert int(said) - 1 == page_of(title)[-1]


def test_what_leads_to_a_figure_stands_on_its_page(tmp_path: Path) -> None:
    sizes = (20, 25, 31, 18, 22, 27, 33, 24, 29, 19)
    remarked = (replace(one, remarks=(f"lead{i}x {TEXT * (i % 3)}",)) for i, one in enumerate(report(sizes).sections, start=1))
    pages = written(tmp_path / "leads.pdf", Report("Maps", "", tuple(remarked)))
    page_of = lambda word: [i for i, page in enumerate(pages) if re.search(rf"{word}\b", page)]
    assert [page_of(f"lead{i}x") for i in range(1, 11)] == [page_of(f"first{i}x") for i in range(1, 11)]


def test_a_short_text_of_several_paragraphs_stays_with_its_figure(qapp: object) -> None:
    """A heading, its text, the line on its film and the figure, wherever on a page they come."""
    pages: list[int] = []
    for high in range(20, 330, 8):  # px
        document = QTextDocument()
        figure = "<p><img src='x' width='40' height='{}'></p>"
        words = "<h4>head</h4><p>text</p><p>film</p>"
        document.setHtml(f"{figure.format(high)}<p>caption before</p>{words}{figure.format(90)}<p>caption</p>")
        document.setPageSize(QSizeF(400, 400))
        breaks = PageBreaks(document, lambda block, height: None)
        breaks.settle()
        _, _, *blocks = blocks_of(document)
        assert [block.text() for block in (blocks[0], blocks[-1])] == ["head", "caption"]
        assert len({breaks.page_of(block) for block in blocks}) == 1, high
        pages.append(breaks.page_of(blocks[0]))
    assert set(pages) == {0, 1} and pages == sorted(pages)


def test_a_page_ends_neither_with_a_heading_nor_with_the_head_of_a_table(qapp: object) -> None:
    rows = "".join(f"<tr><td>{i}</td></tr>" for i in range(4))
    table = f"<table><thead><tr><th>column</th></tr></thead><tbody>{rows}</tbody></table>"
    pages: list[int] = []
    for above in range(200, 400, 4):  # px
        document = QTextDocument()
        document.setHtml(f"<p style='margin: 0'>x</p><h4 style='margin-top: {above}px'>head</h4>{table}")
        document.setPageSize(QSizeF(400, 400))
        breaks = PageBreaks(document, lambda block, height: None)
        breaks.settle()
        page = {block.text(): breaks.page_of(block) for block in blocks_of(document)}
        assert page["head"] == page["0"], above
        pages.append(page["head"])
    assert pages == sorted(pages) and 0 < sum(pages) < len(pages) // 2, "no more is moved than must be"


def test_every_figure_stays_on_the_paper(tmp_path: Path) -> None:
    path = tmp_path / "maps.pdf"
    written(path, report((60, 31, 3, 90)))
    boxes = poppler("pdftotext", path, "-bbox")
    words = re.findall(r'<word xMin="([-\d.]+)" yMin="([-\d.]+)" xMax="([-\d.]+)" yMax="([-\d.]+)">', boxes)
    assert len(words) > 200
    for word in words:
        left, top, right, bottom = map(float, word)
        assert left > 40 and top > 40 and right < A4[0] - 40 and bottom < A4[1] - 20


@pytest.mark.parametrize("rows", (6, 20, 30))
def test_a_figure_is_as_wide_as_the_page_however_high(tmp_path: Path, rows: int) -> None:
    mark = Rows("table", tuple(RowColumn(f"end{name}x", np.arange(float(rows))) for name in "ab"), ids(np.arange(rows)))
    shown = ReportFigure(StepFigure(find_panel("attention"), STATE, Figure(((mark,),), "a table")))
    path = tmp_path / "table.pdf"
    written(path, Report("Tables", "", (Section("head", TEXT, figures=(shown,)),)))
    boxes = poppler("pdftotext", path, "-bbox")
    [right] = re.findall(r'xMax="([-\d.]+)" yMax="[-\d.]+">endbx<', boxes)
    assert A4[0] - 18 / 25.4 * 72 - float(right) < 15, "points from the margin"


def test_a_word_wider_than_the_page_is_broken(tmp_path: Path) -> None:
    path, long = tmp_path / "long.pdf", "x" * 500
    written(path, Report(long, "long.circuitlab", (Section(long, long),)))
    words = re.findall(r'xMax="([-\d.]+)" yMax="[-\d.]+">(x+)[^<]*</word>', poppler("pdftotext", path, "-bbox"))
    assert sum(len(word) for _, word in words) >= 3 * len(long)
    assert all(float(right) < A4[0] - 40 for right, _ in words)


def test_fonts_are_inside_and_figures_are_vectors(tmp_path: Path) -> None:
    path = tmp_path / "maps.pdf"
    written(path, report((3, 8)))
    fonts = poppler("pdffonts", path).splitlines()[2:]
    assert fonts and all(re.search(r"\byes (yes|no)\s+yes\b", line) for line in fonts)
    assert not poppler("pdfimages", path, "-list").splitlines()[2:]
    assert re.search(r"Page size:\s+595\.?\d* x 84[12]\.?\d* pts \(A4\)", poppler("pdfinfo", path))


def test_the_same_report_gives_the_same_bytes(tmp_path: Path) -> None:
    one, other = (b"".join(pages_parts(report((3, 8)))) for _ in range(2))
    assert one == other
    assert one != b"".join(pages_parts(report((3, 9))))


def numbers(name: str, rows: int, columns: int) -> AnswerData:
    """A table whose every cell is a word of its own."""
    cells = (np.array([f"{name}r{row}c{column}z" for row in range(rows)]) for column in range(columns))
    table = Table(tuple(Column(f"{name}_column_{i}z", each) for i, each in enumerate(cells)))
    return AnswerData(name, f"title{name}x", shown_table(table), "json", b"{}")


def test_the_numbers_behind_each_figure_are_tables_that_go_on_their_pages(tmp_path: Path) -> None:
    """Small and large tables: their first rows, each once; heads on every page; what is left out is counted and named."""
    sizes = {
        f"t{i}": (rows, columns) for i, (rows, columns) in enumerate([(1, 2), (20, 3), (21, 40), (45, 7), (90, 5), (0, 2)] * 3)
    }
    figures = [replace(map_of(i, 4, 9), data=(numbers(name, *size),)) for i, (name, size) in enumerate(sizes.items())]
    path = tmp_path / "numbers.pdf"
    sections = tuple(Section(f"step{i}x", figures=(figure,)) for i, figure in enumerate(figures))
    pages = written(path, Report("Numbers", "", sections))
    first = int(re.findall(rf"{NUMBERS}\s+(\d+)", pages[0])[0]) - 1
    assert NUMBERS in pages[first] and len(pages) > first + 1
    appendix = [re.sub(r"\s+", " ", page) for page in pages[first:]]
    whole, repeated = " ".join(appendix), 0
    for name, (rows, columns) in sizes.items():
        cells = re.findall(rf"\b{name}r(\d+)c(\d+)z", whole)
        fitted = 1 + max((int(column) for _, column in cells), default=columns - 1)
        expected = [(str(row), str(column)) for row in range(min(rows, ROWS)) for column in range(fitted)]
        assert sorted(cells) == sorted(expected), "each cell once, no gap between columns"
        assert fitted == columns or (columns == 40 and fitted > 5 and f"{columns - fitted} more columns" in whole)
        assert all(f"{name} column {i}z" in whole for i in range(fitted, columns)), "those left out are named"
        assert rows <= ROWS or f"{rows - ROWS} more row{'s' if rows - ROWS > 1 else ''}" in whole
        on = [page for page in appendix if f"{name}r" in page]
        for page in on:
            head = page.find(f"{name} ")
            assert 0 <= head < page.index(f"{name}r"), "the heads stand above the rows of each page"
        assert not on or f"title{name}x" in on[0], "no title is parted from its table"
        repeated += len(on) > 1
    assert repeated, "a table goes over a page, or nothing is tested"
    boxes = re.findall(r'xMin="([-\d.]+)" yMin="[-\d.]+" xMax="([-\d.]+)" yMax="([-\d.]+)">', poppler("pdftotext", path, "-bbox"))
    assert all(float(left) > 40 and float(right) < A4[0] - 40 and float(low) < A4[1] - 20 for left, right, low in boxes)


def test_a_table_of_hostile_words_stays_text(tmp_path: Path) -> None:
    words = np.array([*HOSTILE, "w" * 400, "a\nb\tc"])
    table = shown_table(Table((Column("<b>head</b>", words), Column("x" * 300, np.arange(len(words))))))
    figure = replace(map_of(1, 4, 9), data=(AnswerData("a", HOSTILE[0], table, "json", b"{}"),))
    path = tmp_path / "hostile.pdf"
    text = "".join(written(path, Report("Words", "", (Section("one", figures=(figure,)),))))
    assert HOSTILE[0][:20] in text and "<b>head</b>" in text and "a\\nb\\tc" in text
    right = [float(x) for x in re.findall(r'xMax="([-\d.]+)"', poppler("pdftotext", path, "-bbox"))]
    assert max(right) < A4[0] - 40


def test_its_outline_leads_to_each_step(tmp_path: Path) -> None:
    """Titles and pages as poppler lists them; the places are those of the headings on the paper."""
    path, odd = tmp_path / "outline.pdf", "(5 0 R) \u05d0\u4e2d\U0001d11e \\ <b>"
    maps = report((3, 8, 20, 5, 31))
    pages = written(path, replace(maps, sections=(*maps.sections, Section(odd))))
    items = re.findall(r'<item page="(\d+)">(.*?)</item>', poppler("pdftohtml", path, "-xml", "-i", "-stdout"))
    titles = [*(f"{i} head{i}x" for i in range(1, 6)), f"6 {odd}", "Where this comes from"]
    assert [unescape(title) for _, title in items] == titles
    assert all(re.search(title.replace(" ", r"\s+"), pages[int(page) - 1]) for page, title in items[:5])
    entries = re.findall(rb"/Title <FEFF(\w+)>[^>]*/XYZ null ([\d.]+) null", path.read_bytes())
    places = {bytes.fromhex(title.decode()).decode("utf-16-be"): float(place) for title, place in entries}
    assert set(places) == set(titles)
    bounds = re.findall(r"<page.*?</page>", poppler("pdftotext", path, "-bbox"), re.DOTALL)
    for page, title in items[:5]:
        tops = re.findall(rf'yMin="([\d.]+)"[^>]*>{title.split()[1]}<', bounds[int(page) - 1])
        assert abs(float(tops[-1]) - (A4[1] - places[title])) < 8
    data = path.read_bytes()
    table = data[int(data.split()[-2]) :].split()
    assert int(re.findall(rb"/Size (\d+)", data)[-1]) == int(table[2]), "the trailer counts the objects of the outline"


def test_texts_links_and_markup(tmp_path: Path) -> None:
    section = Section(HOSTILE[0], "See [here](https://x.org/a) and [there](javascript:alert(1)). " + r"\]]> &lt;", aside="secret")
    path = tmp_path / "a.pdf"
    text = "".join(written(path, Report(HOSTILE[5], "a&b", (section, Section("two")))))
    flat = " ".join(text.split())
    assert all(words in flat for words in (HOSTILE[0], HOSTILE[5], "a&b", "]]> <")) and "secret" not in flat
    assert re.findall(r"https?://\S+|javascript\S*", poppler("pdfinfo", path, "-url")) == ["https://x.org/a"]


def test_a_session_becomes_a_pdf(tmp_path: Path) -> None:
    path = tmp_path / "talk.pdf"
    content = lab.session(talk(tmp_path / "t")).report(path)
    text = " ".join(poppler("pdftotext", path, "-layout").split())  # wherever a line ends
    assert "The model lost of talk.circuitlab was not found." in text and "got: none" in text
    assert "Put the model beside the session file" in text
    assert [len(section.figures) for section in content.sections] == [1, 2, 1, 0]
    assert re.findall(r"Figure \d+\.(?: A\b)?", text) == ["Figure 1.", "Figure 2. A", "Figure 3."], "two of a step are one sheet"
    with pytest.raises(UsageError):
        lab.session(tmp_path / "t" / "talks" / "talk.circuitlab").report(tmp_path / "talk.ps")
