"""The tables of a sweep read back, to be drawn: means over prompts along the training, and the value in each prompt.

Numbers are those that stand in the files, none is computed here. A line is one value of all columns that differ but for the
training step (and, in `table.csv`, the prompt).
"""

from __future__ import annotations

import csv
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from circuitlab.errors import BadInput, cause
from circuitlab.model.subject import Head
from circuitlab.sweep.summary import SUMMARY
from circuitlab.sweep.table import CELLS, TABLE

_NUMBERS = ("n", "mean", "sd", "se", "unit", "weighted_by")
_BY_PROMPT = ("cell", "prompt", "value", "unit", "weight", "status", "error")
_WHICH = ("analysis", "metric", "step", "final", "weights", "prompts")  # what is chosen, or what the axis is
_CELL = 16 << 20  # characters of one cell of a file: a prompt


class Chosen(NamedTuple):
    """What is drawn of a sweep: a metric of an analysis, on the prompts of one source ("" of one that reads none)."""

    analysis: str
    metric: str
    prompts: str

    def words(self) -> str:
        """As a list offers it."""
        return " · ".join(filter(None, (self.analysis, self.metric, self.prompts)))


@dataclass(frozen=True, eq=False)
class AlongTraining:
    """Means over prompts. `steps` [n]; `mean`, `sd`, `se` [line, n], NaN where there is none; `n` [line, n] prompts; `names`: of
    each line, what differs; `unit`: of all; `weighted_by`: "tokens" or ""; `unplaced`: rows of weights whose step no file states;
    `doubled`: steps that a checkpoint and the final weights both have, where the latter are drawn.
    """

    steps: np.ndarray
    names: tuple[str, ...]
    n: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    se: np.ndarray
    unit: str
    weighted_by: str
    unplaced: int
    doubled: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ByPrompt:
    """The value in each prompt at one step. `numbers` [m]; `texts` of the prompts; `values` [m, line], NaN for none."""

    numbers: np.ndarray
    texts: tuple[str, ...]
    names: tuple[str, ...]
    values: np.ndarray
    unit: str


class SweepTable:
    """The tables in the folder of a sweep, as they were when it was made. Raises `BadInput` where they are not there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows = list(_rows(folder / SUMMARY))
        self.counts: Counter[str] = Counter()  # cells by status
        self.why: Counter[str] = Counter()  # how often each reason was given
        self.conventions: dict[str, set[str]] = {}  # of each analysis
        self.versions: set[str] = set()
        self.weights: dict[tuple[str, str], str] = {}  # sha256, of (model, step)
        self._texts: dict[tuple[str, str], str] = {}  # of (source, number)
        for cell in _rows(folder / CELLS):
            self._take(cell)
        self.sha256 = {name: _sha256(folder / name) for name in (TABLE, SUMMARY)}

    def _take(self, cell: Mapping[str, str]) -> None:
        self.counts[cell["status"]] += 1
        if cell["error"]:
            self.why[cell["error"]] += 1
        if cell["conventions"]:
            self.conventions.setdefault(cell["analysis"], set()).add(cell["conventions"])
            self.versions.add(cell["versions"])
        if cell["weights"]:
            self.weights[cell["model"], cell["step"]] = cell["weights"]
        self._texts[cell["prompts"], cell["prompt"]] = cell["text"]

    @cached_property
    def choices(self) -> tuple[Chosen, ...]:
        """What can be drawn, in the order of the file."""
        return tuple(dict.fromkeys(Chosen(row["analysis"], row["metric"], row["prompts"]) for row in self._rows))

    def along_training(self, chosen: Chosen) -> AlongTraining:
        """The means of one metric at every step."""
        rows = [row for row in self._rows if (row["analysis"], row["metric"], row["prompts"]) == tuple(chosen)]
        names = _names(rows, [name for name in (rows[0] if rows else ()) if name not in (*_WHICH, *_NUMBERS)])
        placed = [row for row in rows if row["step"]]
        lines = list(dict.fromkeys(name for name, row in zip(names, rows, strict=True) if row["step"]))
        steps = sorted({int(row["step"]) for row in placed})
        shape = len(lines), len(steps)
        arrays = {name: np.full(shape, np.nan) for name in ("n", "mean", "sd", "se")}
        final: dict[tuple[str, int], set[str]] = {}
        for name, row in sorted(zip(names, rows, strict=True), key=lambda pair: pair[1]["final"] == "true"):
            if not row["step"]:
                continue
            step = int(row["step"])
            final.setdefault((name, step), set()).add(row["final"])
            for kind, array in arrays.items():
                array[lines.index(name), steps.index(step)] = float(row[kind]) if row[kind] else np.nan
        doubled = tuple(sorted({step for (_, step), kinds in final.items() if len(kinds) > 1}))
        unit = " / ".join(dict.fromkeys(row["unit"] for row in rows))
        by, unplaced = next((row["weighted_by"] for row in rows), ""), len(rows) - len(placed)
        at = np.array(steps, dtype=np.int64)
        return AlongTraining(at, tuple(lines), **arrays, unit=unit, weighted_by=by, unplaced=unplaced, doubled=doubled)

    def steps(self) -> tuple[str, ...]:
        """The steps that it has, as they stand in the file: "" for weights whose step no file states."""
        return tuple(sorted({row["step"] for row in self._rows}, key=lambda step: int(step or 0)))

    def by_prompt(self, chosen: Chosen, step: str) -> ByPrompt:
        """The value in each prompt at a step, which is read from the table now. Raises `BadInput`."""
        result = [row for row in _rows(self.folder / TABLE) if _is(row, chosen, step)]
        names = _names(result, [name for name in (result[0] if result else ()) if name not in (*_WHICH, *_BY_PROMPT)])
        lines, numbers = list(dict.fromkeys(names)), list(dict.fromkeys(row["prompt"] for row in result))
        values = np.full((len(numbers), len(lines)), np.nan)
        places = {number: i for i, number in enumerate(numbers)}, {name: i for i, name in enumerate(lines)}
        for name, row in sorted(zip(names, result, strict=True), key=lambda pair: pair[1]["final"] == "true"):
            values[places[0][row["prompt"]], places[1][name]] = float(row["value"]) if row["value"] else np.nan
        texts = tuple(self._texts.get((chosen.prompts, number), "") for number in numbers)
        unit = " / ".join(dict.fromkeys(row["unit"] for row in result))
        return ByPrompt(np.array([int(number or 0) for number in numbers]), texts, tuple(lines), values, unit)


def _is(row: Mapping[str, str], chosen: Chosen, step: str) -> bool:
    return row["step"] == step and (row["analysis"], row["metric"], row["prompts"]) == tuple(chosen)


def _names(rows: list[dict[str, str]], columns: list[str]) -> list[str]:
    """What tells each row apart from those of other lines, in the columns that differ: heads as L0H1, others by value."""
    differ = [name for name in columns if len({row[name] for row in rows}) > 1]
    heads = {"layer", "head"} <= set(columns) and "head" in {name for name in columns if any(row[name] for row in rows)}
    shown = [name for name in differ if not (heads and name in ("layer", "head"))]
    return [" · ".join((*_at(row, shown), *_head(row, heads))) or "value" for row in rows]


def _head(row: Mapping[str, str], heads: bool) -> tuple[str, ...]:
    return (str(Head(int(row["layer"]), int(row["head"]))),) if heads and row["layer"] and row["head"].isdecimal() else ()


def _at(row: Mapping[str, str], columns: list[str]) -> Iterator[str]:
    """The values of a row in words; those that say themselves what they are, without their column's name."""
    for name in columns:
        value = row[name]
        if name == "edit":
            yield value or "unmodified"
        elif name in ("model", "dtype") or (value and not value.replace(".", "").replace("-", "").isdecimal() and name != "bos"):
            yield value
        elif value:
            yield f"{name.removeprefix('set.')} {value}"


def _rows(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a table, by column. Raises `BadInput` where it cannot be read."""
    csv.field_size_limit(_CELL)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            columns = next(rows, [])
            yield from (dict(zip(columns, row, strict=True)) for row in rows)
    except (OSError, ValueError, csv.Error) as error:
        remedy = "They are written when a sweep ends or is stopped; the same command goes on with one that was killed."
        raise BadInput("The folder has no tables yet.", expected=path.name, got=cause(error), remedy=remedy) from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
