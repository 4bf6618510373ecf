"""What was measured of one model, in `witnesses.json` beside its weights, with what it was measured on."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from circuitlab.disk.files import write_whole
from circuitlab.disk.json_types import JsonDict
from circuitlab.errors import BadModel, cause
from circuitlab.model.subject import Head
from circuitlab.witnesses.estimate import Mean, plain

FILE = "witnesses.json"
FORMAT = "circuitlab-witnesses-2"
_MEANS = ("names", "said_twice", "random", "in_context", "words")


@dataclass(frozen=True)
class Witnesses:
    """All rows of the table of one model.

    `step`: of training, None for the final weights. `sets`: by name of a prompt set, `first`, `over_other`, `probability`;
    `names`: by name of a set, share of the names of several tokens that are said to the end. `said_twice`: `first`, `once`,
    `second` (nats), and of the best induction head `mass`, `bos`; `random`: `prefix_matching`, `saved` (nats); `in_context`:
    `score`, `controlled` (nats); `words`: `split`, the share of words of several tokens. `heads`: [layer][head] lists, `on_bos`,
    `own_tokens`, `by_weights`, `in_use` (different sources among the strongest skip-trigrams); `best`: heads by what they are
    best at; `protocol`: texts and sizes; `absent`: why a part was not measured, whose numbers are NaN.
    """

    model: str
    step: int | None
    sets: dict[str, dict[str, Mean]]
    names: dict[str, Mean]
    said_twice: dict[str, Mean]
    random: dict[str, Mean]
    in_context: dict[str, Mean]
    words: dict[str, Mean]
    heads: dict[str, list[list[float]]]
    dead: tuple[str, ...]
    best: dict[str, str]
    protocol: JsonDict
    absent: dict[str, str]


def as_json(witnesses: Witnesses) -> JsonDict:
    """Plain values: of a mean `mean`, `error`, `n`; None for what was not measured."""
    return {"format": FORMAT, **plain({field.name: getattr(witnesses, field.name) for field in fields(witnesses)})}


def write_record(folder: Path, witnesses: Witnesses) -> Path:
    """Write `witnesses.json` whole or not at all. Raises `BadMachine`."""
    path = folder / FILE
    write_whole(path, (json.dumps(as_json(witnesses), indent=1) + "\n").encode())
    return path


def read_record(folder: Path) -> Witnesses:
    """The record beside a model's weights. Raises `BadModel` where there is none or it cannot be read."""
    path = folder / FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.pop("format") != FORMAT:
            raise ValueError("another format")
        means = lambda part: {name: _mean(value) for name, value in data[part].items()}
        data["sets"] = {name: {k: _mean(v) for k, v in rows.items()} for name, rows in data["sets"].items()}
        data |= {part: means(part) for part in _MEANS}
        data["heads"] = {name: [[_number(x) for x in row] for row in rows] for name, rows in data["heads"].items()}
        return Witnesses(**{**data, "dead": tuple(data["dead"])})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadModel(
            f"{FILE} cannot be read.",
            expected=f"a file of format {FORMAT} beside the weights",
            got=cause(error),
            remedy="Measure the model again: circuitlab witnesses MODEL --card --text FILES.",
        ) from error


def _mean(value: dict[str, Any]) -> Mean:
    return Mean(_number(value["mean"]), _number(value["error"]), int(value["n"]))


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def rows_of(values: np.ndarray, digits: int = 4) -> list[list[float]]:
    """[layer][head] lists of an array [layer, head]."""
    return [[round(float(x), digits) for x in row] for row in values]


def named(**heads: Head | None) -> dict[str, str]:
    """Heads by what they are best at; none where there is none."""
    return {what: str(head) for what, head in heads.items() if head is not None}
