"""Answers as files: CSV, NPZ and JSON, each with request, conventions, remainder and provenance."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from circuitlab.analysis.base import Table
from circuitlab.engine.codec import to_json
from circuitlab.engine.request import Answer
from circuitlab.errors import UsageError
from circuitlab.files import write_whole

SUFFIXES = (".csv", ".npz", ".json")


def described(answer: Answer) -> dict[str, Any]:
    """Everything about an answer but its arrays, as plain values."""
    result = answer.result
    return {
        "analysis": answer.request.analysis,
        "params": to_json(answer.request.params),
        "subject": to_json(answer.request.subject),
        "conventions": list(result.conventions),
        "remainder": None if result.remainder is None else to_json(result.remainder),
        "complete": answer.complete,
        "done": result.done,
        "provenance": to_json(answer.provenance),
    }


def scalars(answer: Answer) -> dict[str, Any]:
    """The result's own fields that are no arrays."""
    shared = {"conventions", "remainder", "done"}
    fields = (f.name for f in dataclasses.fields(answer.result) if f.name not in shared)
    found = {n: getattr(answer.result, n) for n in fields}
    return {n: to_json(v) for n, v in found.items() if not isinstance(v, np.ndarray)}


def table_text(table: Table, separator: str = ",") -> str:
    """A table as separated text with a header line; NaN is left empty."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=separator, lineterminator="\n")
    writer.writerow([f"{c.name} ({c.unit})" if c.unit else c.name for c in table.columns])
    for row in zip(*(c.values.tolist() for c in table.columns), strict=True):
        writer.writerow(["" if isinstance(v, float) and math.isnan(v) else v for v in row])
    return out.getvalue()


def json_text(answer: Answer) -> str:
    """Description, scalars and arrays as JSON; NaN is null, a complex number [real, imaginary]."""
    arrays = {name: _plain(a.tolist()) for name, a in answer.result.arrays().items()}
    return json.dumps({**described(answer), "result": {**_plain(scalars(answer)), **arrays}}, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, complex):
        return [_plain(value.real), _plain(value.imag)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def csv_text(answer: Answer) -> str:
    """The table, behind lines of `# name: value` that describe it."""
    head = "".join(f"# {k}: {json.dumps(v, ensure_ascii=False)}\n" for k, v in described(answer).items())
    return head + table_text(answer.result.table())


def npz_bytes(answer: Answer) -> bytes:
    """The arrays under their field names, and everything else as JSON text in `about`."""
    about = {**described(answer), "scalars": _plain(scalars(answer))}
    arrays: dict[str, Any] = {**answer.result.arrays(), "about": np.array(json.dumps(about, ensure_ascii=False))}
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def data_bytes(answer: Answer, form: str) -> bytes:
    """The answer as `form`: csv, npz or json. Raises `UsageError` for another."""
    if form == "npz":
        return npz_bytes(answer)
    if form not in ("csv", "json"):
        raise UsageError("That is no data format.", expected=" ".join(SUFFIXES), got=form or "no suffix")
    return (csv_text(answer) if form == "csv" else json_text(answer) + "\n").encode("utf-8")


def write_answer(answer: Answer, path: Path, form: str = "") -> None:
    """Write as `form`, "" by suffix. Raises `UsageError` for an unknown one, `BadMachine` where it cannot be written.

    A failure leaves what was there.
    """
    write_whole(path, data_bytes(answer, form or path.suffix.lower().removeprefix(".")))
