"""The numbers behind a figure, as a report gives them: a table to read, a file to take away, and no word of this machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from circuitlab.analysis.base import PLAIN, Column, Table
from circuitlab.counting import number, number_of
from circuitlab.engine.engine import Engine, memory_words
from circuitlab.engine.export_data import AnswerExport, export_of
from circuitlab.engine.export_difference import Difference, differences
from circuitlab.engine.request import TableOf
from circuitlab.engine.stored_answer import NO_NAMES, placeless_request
from circuitlab.errors import BadInput
from circuitlab.figures.marks import Figure, joined
from circuitlab.model.subject import ModelRef
from circuitlab.report.answer_names import file_name, models_by_role, named_answers
from circuitlab.report.own_tables import own_files, own_tables
from circuitlab.report.render import Sides

MOST_ROWS = 100  # of a table, shown
LARGEST_FILE = 2**20  # bytes of one answer's file
PER_NUMBER = 24  # characters of a number in JSON, at most
FORMS = ("json", "npz")  # the first whose file is not too large
NONE = "–"
Leading = Callable[[Table], np.ndarray]  # the rows of a table by index, those first that a figure draws
_VAGUE = {"largest", "mean", "value"}  # names that do not say of what: the unit does, which a title leaves out of plain numbers


@dataclass(frozen=True)
class ShownTable:
    """The beginning of a table as text. `numeric`: which columns hold numbers; `rows`: how many there are in all; `left_out`: as
    of a `Table`."""

    heads: tuple[str, ...]
    numeric: tuple[bool, ...]
    cells: tuple[tuple[str, ...], ...]
    rows: int
    left_out: str = ""


@dataclass(frozen=True)
class AnswerData:
    """One answer of a figure. `name`: that of its file, without suffix; `title`: analysis and side, in words.

    `file`: its bytes, None where it is left out, `why`; `form`: their format.
    """

    name: str
    title: str
    table: ShownTable
    form: str = ""
    file: bytes | None = None
    why: str = ""


def answers_data(
    engine: Engine,
    answers: Sides,
    models: Mapping[ModelRef, str] = NO_NAMES,
    files: Mapping[str, str] = NO_NAMES,
    reference: str = "",
    leading: Leading | None = None,
    drawn: TableOf | None = None,
) -> tuple[AnswerData, ...]:
    """The data of each answer of a figure, those of now first, then the differences of what differs. `models`, `files`: as in
    `stored_bytes`; `reference`: what the other side is called; `leading`: as of a panel, of its tables; `drawn`: as of an
    `AnswerExport`. Raises `BadModel`.
    """
    named = named_answers(answers, reference, models)
    exported = [(one, export_of(engine, one.answer, drawn=drawn)) for one in named]
    data = [_data(export, one.name, one.title, models, files, leading) for one, export in exported]
    exports = {
        side: {role: export_of(engine, one, drawn=drawn) for role, one in roles.items()} for side, roles in answers.items()
    }
    among = models_by_role(answers, models)
    for role, change in differences(exports["now"], exports["ref"]).items():
        now = change.now.answer.request
        if now.asked != change.reference.answer.request.asked:
            title = joined(now.analysis.name.replace("_", " "), among.get(("now", role), ""))
            name, title = file_name(role, "now", among, difference=True), f"{title}, now minus {reference or 'reference'}"
            data.append(_difference(name, title, change, models, files, leading))
    return tuple(data)


def tables_data(figure: Figure) -> tuple[AnswerData, ...]:
    """The tables of a figure whose cells are in no answer's table, as data beside those of the answers."""
    files = own_files(figure)
    return tuple(
        AnswerData(name, f"{name}, as drawn", shown_table(table), "csv", files[f"{name}.csv"])
        for name, table in own_tables(figure).items()
    )


def _placeless(export: AnswerExport, models: Mapping[ModelRef, str], files: Mapping[str, str]) -> AnswerExport:
    """Without folders of this machine and how long it took: the same session gives the same file. Raises `BadInput`."""
    request = placeless_request(export.answer.request, models, files)
    provenance = replace(export.answer.provenance, seconds=0.0)
    return replace(export, answer=replace(export.answer, request=request, provenance=provenance))


def _difference(
    name: str,
    title: str,
    change: Difference,
    models: Mapping[ModelRef, str],
    files: Mapping[str, str],
    leading: Leading | None,
) -> AnswerData:
    table = shown_table(change.table, leading=leading)
    try:
        now, reference = (_placeless(side, models, files) for side in (change.now, change.reference))
    except BadInput as error:
        return AnswerData(name, title, table, why=error.what)
    data = Difference(now, reference, change.table).data("json")
    if len(data) > LARGEST_FILE:
        return AnswerData(name, title, table, why="it is too much for a page; the files of both sides have its numbers")
    return AnswerData(name, title, table, "json", data)


def _data(
    export: AnswerExport,
    name: str,
    title: str,
    models: Mapping[ModelRef, str],
    files: Mapping[str, str],
    leading: Leading | None,
) -> AnswerData:
    table = shown_table(export.table(), leading=leading)
    try:
        export = _placeless(export, models, files)
    except BadInput as error:
        return AnswerData(name, title, table, why=error.what)
    for form in FORMS:
        data = _file(export, form)
        if data is not None and len(data) <= LARGEST_FILE:
            return AnswerData(name, title, table, form, data)
    why = f"its numbers take {memory_words(export.answer.result.nbytes)}, too much for a page; `circuitlab compute` writes them"
    return AnswerData(name, title, table, why=why)


def _file(export: AnswerExport, form: str) -> bytes | None:
    """The file; None where it would be much too large: it is not written to find out."""
    numbers = sum(array.size for array in export.answer.result.arrays().values())
    if form == "json" and numbers > LARGEST_FILE:
        return None
    return None if numbers * (8 if form == "npz" else 1) > 2**26 else export.data(form)


def shown_table(table: Table, most: int = MOST_ROWS, leading: Leading | None = None) -> ShownTable:
    """The first rows of a table as text, in the order of the table, or of `leading`."""
    rows = (np.arange(table.n_rows) if leading is None else leading(table))[:most]
    begun = Table(tuple(replace(column, values=column.values[rows]) for column in table.columns))
    columns = [tuple(_cell(value, column) for value in column.cells()) for column in begun.columns]
    heads = tuple(map(_head, table.columns))
    numeric = tuple(map(_is_numeric, table.columns))
    return ShownTable(heads, numeric, tuple(zip(*columns, strict=True)), table.n_rows, table.left_out)


def _head(column: Column) -> str:
    """The title in words, with the unit where without it nobody would know what the numbers are, and not where the name is it."""
    name = column.name.replace("_", " ")
    words = set(re.findall(r"\w+", name))
    if column.unit in ("", "dimensionless") or column.unit in words or (column.unit in PLAIN and _VAGUE.isdisjoint(words)):
        return name
    return f"{name} ({column.unit})"


def rows_words(table: ShownTable) -> str:
    """How much of a table is shown: "12 rows", "the first 100 of 1,521 rows"."""
    shown = len(table.cells)
    rows = number_of(table.rows, "row") if shown == table.rows else f"the first {shown} of {number_of(table.rows, 'row')}"
    return joined(rows, table.left_out)


def _is_numeric(column: Column) -> bool:
    return column.of != "tokens" and column.values.dtype.kind in "fiuc"


def _cell(value: object, column: Column) -> str:
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return number(int(value), "d")
    return number(value, ".4g") if isinstance(value, (float, np.floating)) else str(value)
