"""The numbers behind the figures of a report, as tables of its PDF: small, their first rows, none wider than the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from PySide6.QtGui import QFont, QFontMetricsF

from circuitlab.counting import number_of
from circuitlab.draw.look.theme import LIGHT
from circuitlab.figures.marks import joined
from circuitlab.report.answer_data import AnswerData, ShownTable, rows_words
from circuitlab.report.markup import text, visible
from circuitlab.report.plates import StepPlate

NUMBERS = "Numbers of the figures"
ROWS = 20  # of a table, shown
LONGEST = 32  # characters of a cell
TYPE = 7.0  # pt
GAP = 12.0  # px between columns
DOTS = 96  # of the layout, an inch: with more of them Qt would not scale what is left empty at the sides
LARGE = 200  # px of the type that is measured
_SOFT = "\u200b"  # a line may end here
LETTERING = replace(LIGHT, tabular=False)  # tabular figures cannot be searched in a PDF


def numbers_html(plates: Sequence[StepPlate], width: float) -> Iterator[str]:
    """The appendix in parts, none where no figure has numbers. `width`: of the page, in px of the layout."""
    heading = f"<h2>{NUMBERS}</h2>"
    for number, one in enumerate(plates, start=1):
        parts = zip(one.figures, one.caption.parts, strict=True)
        answers = [(part.letter, data) for figure, part in parts for data in figure.data]
        if not answers:
            continue
        yield f"{heading}<h3>Figure {number}</h3>"
        heading = ""
        for letter, data in answers:
            yield from _answer(letter, data, width)


def _answer(letter: str, data: AnswerData, width: float) -> Iterator[str]:
    table = replace(data.table, cells=data.table.cells[:ROWS])
    yield f"<h4>{text(joined(letter, data.title, rows_words(table)))}</h4>"
    if not table.heads:
        return
    columns = _columns(table, width)
    yield _table(columns)
    if rest := _rest(table.rows - len(table.cells), table.heads[len(columns) :]):
        where = data.why or "in the HTML report, and in the data of the step's sheet"
        yield f'<p class="rest">{text(f"{rest}: {where}")}</p>'


def _rest(rows: int, heads: tuple[str, ...]) -> str:
    """What of a table is not shown, "" where all is."""
    columns = f"{number_of(len(heads), 'more column')} ({', '.join(heads)})" if heads else ""
    return " and ".join(filter(None, (number_of(rows, "more row") if rows else "", columns)))


# -- columns ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    """`width`: of its cells, without the gaps; `head`: with soft ends of lines where it is broken."""

    head: str
    numeric: bool
    cells: tuple[str, ...]
    width: float


def _columns(table: ShownTable, width: float) -> list[_Column]:
    """As many as the page has room for, from the left; their heads are broken where that gains room. The first always."""
    whole = _measured(table, lambda head: head)
    columns = whole if _ends(whole)[-1] <= width else _measured(table, lambda head: re.sub(r"([_\s])", rf"\1{_SOFT}", head))
    count = sum(end <= width for end in _ends(columns))
    return columns[: max(count, 1)]


def _ends(columns: list[_Column]) -> list[float]:
    """Where each column ends, in px."""
    return list(accumulate(column.width + GAP for column in columns))


def _measured(table: ShownTable, broken: Callable[[str], str]) -> list[_Column]:
    bold, plain = _measure(QFont.Weight.DemiBold), _measure(QFont.Weight.Normal)
    columns: list[_Column] = []
    for i, (title, numeric) in enumerate(zip(table.heads, table.numeric, strict=True)):
        head, cells = broken(_short(title)), tuple(_short(row[i]) for row in table.cells)
        widths = [*map(bold, head.split(_SOFT)), *map(plain, cells)]
        columns.append(_Column(head, numeric, cells, max(widths) + 2))  # as it is laid out it may be a little wider
    return columns


def _measure(weight: QFont.Weight) -> Callable[[str], float]:
    """The width of words in px of the layout, measured in large type: no advance is rounded to a dot."""
    font = LETTERING.font()
    font.setPixelSize(LARGE)
    font.setWeight(weight)
    metrics, scale = QFontMetricsF(font), TYPE * DOTS / 72 / LARGE
    return lambda words: metrics.horizontalAdvance(words) * scale


def _short(words: str) -> str:
    """A cell in one line, as it is shown."""
    line = visible(words).replace("\n", "\\n").replace("\t", "\\t")
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def _table(columns: list[_Column]) -> str:
    align = ['align="right"' if column.numeric else 'align="left"' for column in columns]
    heads = "".join(
        f'<th class="cell" width="{column.width + GAP:.0f}" {side} valign="bottom">{text(column.head)}</th>'
        for column, side in zip(columns, align, strict=True)
    )
    row = lambda cells: "".join(f'<td class="cell" {side}>{text(cell)}</td>' for cell, side in zip(cells, align, strict=True))
    body = "".join(f"<tr>{row(cells)}</tr>" for cells in zip(*(column.cells for column in columns), strict=True))
    return f'<table cellspacing="0" cellpadding="1"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'
