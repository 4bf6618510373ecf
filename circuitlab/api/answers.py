"""What an answer holds: its table, its file, and its difference to another one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from circuitlab.analysis.base import Result
from circuitlab.api.engines import engine_of
from circuitlab.engine.export_data import export_of, table_text, write_answers
from circuitlab.engine.export_difference import Difference, differences
from circuitlab.engine.request import Answer
from circuitlab.errors import UsageError


def table(answer: Answer[Result] | Difference) -> str:
    """The table of an answer or a difference as tab-separated text, with the text of each token beside its id."""
    if isinstance(answer, Difference):
        return table_text(answer.table, "\t")
    return table_text(export_of(engine_of(answer), answer, identified=False).table(), "\t")


def difference(now: Answer[Result], reference: Answer[Result]) -> Difference:
    """Two answers of the same analysis in one table: each number now, in the reference, and now minus the reference.

    Rows are matched by their identifying columns (`engine.export_difference`), as in the files of a panel beside a reference; a
    row that only one side has gets no difference. Raises `UsageError` if the columns differ or the rows cannot be matched.
    """
    sides = (export_of(engine_of(answer), answer, identified=False) for answer in (now, reference))
    by_role = differences(*({"": side} for side in sides))
    if not by_role:
        names = " and ".join(answer.request.analysis.name for answer in (now, reference))
        raise UsageError(
            "These answers have no difference.",
            expected="the same columns, and rows that can be told apart",
            got=names,
            remedy="Compare two answers of one analysis that differ in the model, the prompt or the interventions.",
        )
    return by_role[""]


def save(answer: Answer[Result] | Difference, path: str | Path) -> None:
    """Write CSV, NPZ or JSON, by suffix, with the hash of the weights."""
    if isinstance(answer, Difference):
        sides = {"now": answer.now.answer, "reference": answer.reference.answer}
        identified = {name: export_of(engine_of(one), one) for name, one in sides.items()}
        write_answers({"difference": replace(answer, **identified)}, Path(path))
        return
    write_answers({"answer": export_of(engine_of(answer), answer)}, Path(path))
