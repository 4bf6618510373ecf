"""The same question asked of every checkpoint of a series, as one file: each answer keeps its own description.

CSV: the tables under one another, the training step in front. JSON: a list of answers. NPZ: arrays with the checkpoint as a new
first axis where all have one shape, else one array a step, `NAME.step-N`; `step` [checkpoint], −1 for the final weights.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from circuitlab.analysis.base import Column, Table
from circuitlab.engine.export_data import described, json_text, table_text
from circuitlab.engine.request import Answer

FINAL = -1
Stepped = Sequence[tuple[int | None, Answer]]  # (training step, its answer); None: the final weights


def joined_table(answers: Stepped) -> Table:
    """All rows of all tables, behind a column `step` (text: "final" for the final weights)."""
    tables = [(step, answer.result.table()) for step, answer in answers]
    said = [np.full(t.n_rows, "final" if step is None else str(step), dtype=object) for step, t in tables]
    names = [(c.name, c.unit) for c in tables[0][1].columns]
    columns = (
        Column(name, np.concatenate([np.asarray(t.columns[i].values, dtype=object) for _, t in tables]), unit)
        for i, (name, unit) in enumerate(names)
    )
    return Table((Column("step", np.concatenate(said)), *columns))


def series_bytes(answers: Stepped, form: str) -> bytes:
    """`answers` as csv, json or npz."""
    if form == "npz":
        return _npz(answers)
    if form == "json":
        parts = (f'{{"step": {json.dumps(step)}, "answer": {json_text(answer)}}}' for step, answer in answers)
        return ("[" + ",\n".join(parts) + "]\n").encode("utf-8")
    head = "".join(f"# {k}: {json.dumps(v, ensure_ascii=False)}\n" for k, v in _about(answers).items())
    return (head + table_text(joined_table(answers))).encode("utf-8")


def _about(answers: Stepped) -> dict[str, Any]:
    """What all answers share, from the last; what each has of its own, by step."""
    whole = described(answers[-1][1])
    own = [{"step": step, "weights": a.provenance.weights, "seconds": a.provenance.seconds} for step, a in answers]
    return {**whole, "checkpoints": own}


def _npz(answers: Stepped) -> bytes:
    arrays = [answer.result.arrays() for _, answer in answers]
    made: dict[str, Any] = {"step": np.array([FINAL if step is None else step for step, _ in answers])}
    for name in arrays[0]:
        if len({(a[name].shape, a[name].dtype) for a in arrays}) == 1:
            made[name] = np.stack([a[name] for a in arrays])
        else:
            made |= {f"{name}.step-{s}": a[name] for s, a in zip(made["step"], arrays, strict=True)}
    out = io.BytesIO()
    np.savez_compressed(out, **made, about=np.array(json.dumps(_about(answers), ensure_ascii=False)))
    return out.getvalue()
