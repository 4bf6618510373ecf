"""The numbers of a result that stand in the table of a sweep: a metric each, with its axes, its unit and its entries.

By default those that have a meaning for each prompt and the same shape for all (`Result.across`); of a result that declares none,
its first array and those beside it, as long as they are no longer than `MOST`. What is not in the table is in the arrays.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from circuitlab.analysis.base import Result, axes_with_labels
from circuitlab.analysis.behaviour.over_prompts import axes_across
from circuitlab.engine.answer_view import along, main_array
from circuitlab.errors import UsageError
from circuitlab.model.config import ModelConfig

MOST = 4096  # entries of a metric
_HEAD = re.compile(r"L(\d+)H(\d+)")

Entries = int | tuple[int | str, ...]  # a number n for 0 … n − 1


@dataclass(frozen=True)
class Measure:
    """A metric of one cell. `axes`: each axis with its entries; `values`: in the order of its array, None where there is none;
    `unit`: of all of them, or one for each."""

    name: str
    axes: tuple[tuple[str, Entries], ...]
    values: tuple[float | None, ...]
    unit: str | tuple[str, ...] = ""

    @property
    def columns(self) -> dict[str, bool]:
        """The names that say where in its array a value stands, and whether all entries there are whole numbers."""
        if self._heads:
            return {"layer": True} | {name: name == "head" or _whole(entries) for name, entries in self.axes}
        return {name: _whole(entries) for name, entries in self.axes}

    @property
    def _heads(self) -> bool:
        """Whether heads are one axis, by their names: they have two columns, as where layer and head are axes of their own."""
        known = dict(self.axes)
        heads = known.get("head")
        return "layer" not in known and isinstance(heads, tuple) and all(_HEAD.fullmatch(str(one)) for one in heads)

    def rows(self) -> list[tuple[dict[str, int | str], float | None, str]]:
        """(entry of each axis by its name, value, unit) of every value."""
        entries = [range(one) if isinstance(one, int) else one for _, one in self.axes]
        names = [name for name, _ in self.axes]
        where = np.ndindex(*map(len, entries))
        units = (self.unit,) * len(self.values) if isinstance(self.unit, str) else self.unit
        at = lambda place: {name: one[i] for name, one, i in zip(names, entries, place, strict=True)}
        apart = _apart if self._heads else dict
        return [(apart(at(place)), value, unit) for place, value, unit in zip(where, self.values, units, strict=True)]


def _whole(entries: Entries) -> bool:
    return isinstance(entries, int) or all(isinstance(one, int) for one in entries)


def _apart(at: dict[str, int | str]) -> dict[str, int | str]:
    match = _HEAD.fullmatch(str(at["head"]))
    assert match is not None
    return at | {"layer": int(match[1]), "head": int(match[2])}


def measured(name: str, result: Result, config: ModelConfig, chosen: Sequence[str] = ()) -> tuple[Measure, ...]:
    """The metrics of a result of the analysis called `name`; `chosen`: only these. Raises `UsageError` for one that it lacks."""
    across = result.across()
    known = (
        _numbers(result) | {key: array for key, array in result.arrays().items() if array.dtype.kind in "fiubc"} | dict(across)
    )
    if missing := [one for one in chosen if one not in known]:
        raise UsageError(
            f"There is no such metric in what {name} answers.",
            expected=" ".join(known) or "none",
            got=" ".join(missing),
            remedy="Name some of these in metrics, or leave it out.",
        )
    names = tuple(chosen) or _by_default(result, across, known)
    return tuple(measure for one in names for measure in _measures(name, result, config, one, known[one], one in across))


def _by_default(result: Result, across: Mapping[str, np.ndarray], known: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    if across:
        return tuple(across)
    first = main_array(result)
    beside = along(result, result.axes_of(first)) if first is not None else []
    short = tuple(name for name in beside if name in known and known[name].size <= MOST)
    return short or tuple(_numbers(result))


def _numbers(result: Result) -> dict[str, np.ndarray]:
    """The result's own numbers that have a unit."""
    fields = (f.name for f in dataclasses.fields(result) if "unit" in f.metadata and "axes" not in f.metadata)
    values = ((name, getattr(result, name)) for name in fields)
    return {name: np.array(value) for name, value in values if isinstance(value, (int, float)) and not isinstance(value, bool)}


def _measures(analysis: str, result: Result, config: ModelConfig, name: str, array: np.ndarray, across: bool) -> list[Measure]:
    axes = _axes(analysis, result, config, name, array)
    unit = result.unit_across(name) if across else result.unit_of(name)
    units = unit if isinstance(unit, str) else _of_entries(unit, axes, array.shape)
    parts = {f"{name}.real": np.real(array), f"{name}.imag": np.imag(array)} if array.dtype.kind == "c" else {name: array}
    none = array.dtype.kind in "iu" and result.has_none(name)
    return [Measure(one, axes, _values(part, none), units) for one, part in parts.items()]


def _values(array: np.ndarray, none: bool) -> tuple[float | None, ...]:
    """Every number exactly, as a float; None for NaN, and below 0 where that means no value."""
    flat = np.asarray(array, np.float64).ravel()
    lacking = np.isnan(flat) | ((flat < 0) if none else False)
    return tuple(None if lacks else value for value, lacks in zip(flat.tolist(), lacking.tolist(), strict=True))


def _axes(analysis: str, result: Result, config: ModelConfig, name: str, array: np.ndarray) -> tuple[tuple[str, Entries], ...]:
    """The axes with their entries: as the result declares them, where these are they, else as they are averaged over."""
    own = result.arrays().get(name)
    if own is not None and own.ndim >= array.ndim:
        declared = axes_with_labels(result, name)
        if own.shape == array.shape:
            return tuple((axis.name, _entries(axis.entries)) for axis in declared)
        leading = [axis for axis in declared if axis.name not in ("position", "destination", "source")]
        if tuple(len(axis.entries) for axis in leading) == array.shape:
            return tuple((axis.name, _entries(axis.entries)) for axis in leading)
    known = {axis.name: axis.entries for one in result.arrays() for axis in axes_with_labels(result, one)}
    names = zip(axes_across(analysis, name, array.shape, config), array.shape, strict=True)
    return tuple((axis, _entries(known[axis]) if axis in known and len(known[axis]) == n else n) for axis, n in names)


def _entries(entries: np.ndarray) -> Entries:
    if entries.dtype.kind in "iu":
        return len(entries) if (entries == np.arange(len(entries))).all() else tuple(entries.tolist())
    return tuple(map(str, entries.tolist()))


def _of_entries(unit: Mapping[str, str], axes: Sequence[tuple[str, Entries]], shape: tuple[int, ...]) -> tuple[str, ...]:
    """The unit of each value, where the entries of one axis have units of their own."""
    for i, (_, entries) in enumerate(axes):
        if isinstance(entries, tuple) and any(one in unit for one in entries):
            line = np.array([unit.get(str(one), "") for one in entries], dtype=object)
            spread = line.reshape(tuple(len(line) if k == i else 1 for k in range(len(shape))))
            return tuple(np.broadcast_to(spread, shape).ravel().tolist())
    return ("",) * prod(shape)


def to_line(measure: Measure) -> list[object]:
    """As plain values, for the journal."""
    axes = [[name, entries if isinstance(entries, int) else list(entries)] for name, entries in measure.axes]
    return [measure.name, axes, list(measure.values), measure.unit if isinstance(measure.unit, str) else list(measure.unit)]


def from_line(line: Sequence[Any]) -> Measure:
    """The reverse of `to_line`."""
    name, axes, values, unit = line
    plain = tuple((axis, entries if isinstance(entries, int) else tuple(entries)) for axis, entries in axes)
    return Measure(name, plain, tuple(values), unit if isinstance(unit, str) else tuple(unit))
