"""The same request for every checkpoint of a series, as one file; each answer keeps its own description.

Every format states for each answer `step`, the training steps done, and `final`, whether these are the final weights. CSV: the
tables concatenated, with these two columns first. JSON: a list of answers. NPZ: arrays with the checkpoint as a new first axis if
all have one shape, else one array each, `NAME.step-N` and `NAME.final`; `step` float64 [checkpoint], NaN if no file states it;
`final` bool [checkpoint].
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from circuitlab.analysis.base import Column, Table
from circuitlab.engine.export_data import AnswerExport, described, json_text, masks, missing, table_text


def joined_table(answers: Sequence[AnswerExport]) -> Table:
    """All rows of all tables, after the columns `step` (None if no file states it) and `final`."""
    tables = [what.table() for what in answers]
    repeated = lambda values: np.array([v for v, t in zip(values, tables, strict=True) for _ in range(t.n_rows)], dtype=object)
    columns = (
        replace(column, values=np.concatenate([np.asarray(t.columns[i].values, dtype=object) for t in tables]))
        for i, column in enumerate(tables[0].columns)
    )
    final = repeated([json.dumps(what.final) for what in answers])
    return Table((Column("step", repeated([what.step for what in answers])), Column("final", final), *columns))


def series_bytes(answers: Sequence[AnswerExport], form: str) -> bytes:
    """`answers` as csv, json or npz."""
    if form == "npz":
        return _npz(answers)
    if form == "json":
        return ("[" + ",\n".join(map(json_text, answers)) + "]\n").encode("utf-8")
    head = "".join(f"# {k}: {json.dumps(v, ensure_ascii=False)}\n" for k, v in _about(answers).items())
    return (head + table_text(joined_table(answers))).encode("utf-8")


def _about(answers: Sequence[AnswerExport]) -> dict[str, object]:
    """What all answers share, from the last, and what differs for each, in order."""
    whole = described(answers[-1])
    provenances = [(what, what.answer.provenance) for what in answers]
    own = [{"step": w.step, "final": w.final, "weights": p.weights, "seconds": p.seconds} for w, p in provenances]
    return {**{k: v for k, v in whole.items() if k not in ("step", "final")}, "checkpoints": own}


def _npz(answers: Sequence[AnswerExport]) -> bytes:
    lacking = [missing(what.answer.result) for what in answers]
    arrays = [what.answer.result.arrays() | masked for what, masked in zip(answers, lacking, strict=True)]
    about = {**_about(answers), "missing": masks(lacking[0])}
    arrays_by_name: dict[str, Any] = {
        "step": np.array([np.nan if what.step is None else what.step for what in answers], np.float64),
        "final": np.array([what.final for what in answers]),
    }
    for name in arrays[0]:
        if len({(a[name].shape, a[name].dtype) for a in arrays}) == 1:
            arrays_by_name[name] = np.stack([a[name] for a in arrays])
            if name in about["axes"]:
                about["axes"][name] = ["checkpoint", *about["axes"][name]]
        else:
            which = ["final" if what.final else f"step-{what.step}" for what in answers]
            arrays_by_name |= {f"{name}.{one}": a[name] for one, a in zip(which, arrays, strict=True)}
    out = io.BytesIO()
    np.savez_compressed(out, **arrays_by_name, about=np.array(json.dumps(about, ensure_ascii=False)))
    return out.getvalue()
