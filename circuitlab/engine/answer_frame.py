"""Answers as data frames of pandas, which is imported when one is asked for: one row an entry, with the names of its axes.

A row has, for each axis, the number or the name of the entry ("L1H3", "prefix_matching", a position from 0), for a position of
the prompt also its token, and whatever whole numbers the result gives along that axis: steps of a training, ids of tokens, each
with its text. Then come the arrays, a column each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from circuitlab.analysis.base import Axis, Result, Table, TokenText, axes_with_labels, token_texts
from circuitlab.engine.answer_view import along, main_array
from circuitlab.errors import BadMachine, UsageError

if TYPE_CHECKING:
    import pandas as pd


def answer_frame(
    result: Result, names: Sequence[str], prompt: tuple[int, ...], text: TokenText | None, about: Mapping[str, object]
) -> pd.DataFrame:
    """The arrays called `names`, which have the same axes, in one long frame; without names all that have those of the first
    array of the result, or its table where it has no arrays or is read as that. `about`: for the frame's `attrs`, beside units
    and axes.

    Raises `UsageError` for other names or axes, `BadMachine` without pandas.
    """
    pandas = imported()
    names = _alike(result, names) if names or not result.FRAME_IS_TABLE else []
    if not names:
        return table_frame(result.table(), about)
    axes = axes_with_labels(result, names[0], prompt, text)
    shape = tuple(len(axis.entries) for axis in axes)
    columns: dict[str, object] = {}
    for i, axis in enumerate(axes):
        own = names if len(axes) == 1 else ()
        for name, entries in _columns(result, axis, text, leave_out=own).items():
            columns[name] = _spread(entries, i, shape)
    for name in names:
        columns[name] = _numbers(result, name)
        if text is not None and result.unit_of(name) == "token id":
            columns[f"{name} text"] = token_texts(result.arrays()[name], text).ravel()
    frame = pandas.DataFrame(columns)
    frame.attrs |= {**about, "axes": [axis.name for axis in axes], "units": {name: _unit(result, name) for name in names}}
    return frame


def wide_frame(
    result: Result, names: Sequence[str], prompt: tuple[int, ...], text: TokenText | None, about: Mapping[str, object]
) -> pd.DataFrame:
    """One array, its last axis across: of [destination, source] a matrix. Axes that have one entry besides are in `attrs` alone.

    `names`: that of the array, by default the result's first. Raises as `answer_frame`.
    """
    pandas = imported()
    name = (_alike(result, names) or ("",))[0]
    if len(names) > 1 or not name:
        raise UsageError(
            "A wide frame has one array.",
            expected="the name of one of " + " ".join(result.arrays()),
            got=" ".join(names) or "a result without arrays",
            remedy="Name one array, or take the long form.",
        )
    axes = axes_with_labels(result, name, prompt, text)
    array = result.arrays()[name]
    alone = [axis for axis in axes[:-2] if len(axis.entries) == 1]
    down = [axis for axis in axes[:-1] if axis not in alone]
    index = _index(pandas, down) if down else None
    values = array.reshape(prod(array.shape[:-1]), array.shape[-1])
    frame = pandas.DataFrame(_missing(result, name, values), index=index, columns=_index(pandas, axes[-1:]))
    at = {axis.name: axis.entries[0] for axis in alone}
    frame.attrs |= {**about, "array": name, "axes": [axis.name for axis in axes], "unit": _unit(result, name), "at": at}
    return frame


def table_frame(table: Table, about: Mapping[str, object]) -> pd.DataFrame:
    """A table as a frame; missing values are those of pandas. Where the unit differs from row to row, it is in a column."""
    frame = imported().DataFrame({column.name: column.cells() for column in table.columns})
    names = {column.name for column in table.columns}
    of_rows = lambda name: f"in the column {name} unit" if f"{name} unit" in names else ""
    frame.attrs |= {**about, "units": {column.name: column.unit or of_rows(column.name) for column in table.columns}}
    return frame


def imported() -> ModuleType:
    """pandas. Raises `BadMachine` without it."""
    try:
        import pandas
    except ImportError as error:
        raise BadMachine(
            "A data frame needs a library that is not installed.",
            expected="pandas",
            got="not installed",
            remedy='pip install "circuitlab[notebook]"',
        ) from error
    return pandas


def _alike(result: Result, names: Sequence[str]) -> list[str]:
    """These arrays, or by default all with the axes of the first one. Raises `UsageError`."""
    arrays = result.arrays()
    if not names:
        first = main_array(result)
        return [] if first is None else along(result, result.axes_of(first))
    each = {name: result.axes_of(name) for name in names if name in arrays}
    if len(each) < len(names) or len(set(each.values())) > 1:
        groups = dict.fromkeys(result.axes_of(name) for name in arrays)
        raise UsageError(
            "These arrays are not in one frame.",
            expected="arrays of the same axes: " + "; ".join(" ".join(along(result, axes)) for axes in groups),
            got=" ".join(names),
            remedy="Take a frame of each.",
        )
    return list(each)


def _columns(result: Result, axis: Axis, text: TokenText | None, leave_out: Sequence[str]) -> dict[str, np.ndarray]:
    """The entries of an axis and what else is known along it, with the texts of tokens."""
    columns = {f"{axis.name} index" if axis.name in result.arrays() else axis.name: axis.entries}
    for name, values in axis.more.items():
        if name not in leave_out:
            columns[name] = values
            if text is not None and name in result.arrays() and result.unit_of(name) == "token id":
                columns[f"{name} text"] = token_texts(values, text)
    return columns


def _spread(entries: np.ndarray, i: int, shape: tuple[int, ...]) -> np.ndarray:
    """What stands along axis `i`, for each entry of an array of this shape."""
    line = entries.reshape(tuple(len(entries) if k == i else 1 for k in range(len(shape))))
    return np.broadcast_to(line, shape).ravel()


def _numbers(result: Result, name: str) -> object:
    return _missing(result, name, result.arrays()[name].ravel())


def _missing(result: Result, name: str, values: np.ndarray) -> object:
    """The numbers, those that stand for no value as pandas has it."""
    none = values < 0 if result.has_none(name) else np.zeros(0, bool)
    if not none.any():
        return values
    return imported().arrays.IntegerArray(values.astype(np.int64), none) if values.ndim == 1 else np.where(none, np.nan, values)


def _index(pandas: ModuleType, axes: Sequence[Axis]) -> pd.Index:
    """The entries of axes as an index, each with its token."""
    levels = {name: values for axis in axes for name, values in _named(axis).items()}
    if len(axes) == 1 and len(levels) == 1:
        return pandas.Index(axes[0].entries, name=axes[0].name)
    shape = tuple(len(axis.entries) for axis in axes)
    spread = [_spread(values, i, shape) for i, axis in enumerate(axes) for values in _named(axis).values()]
    return pandas.MultiIndex.from_arrays(spread, names=list(levels))


def _named(axis: Axis) -> dict[str, np.ndarray]:
    token = f"{axis.name} token"
    return {axis.name: axis.entries, **({token: axis.more[token]} if token in axis.more else {})}


def _unit(result: Result, name: str) -> object:
    unit = result.unit_of(name)
    return unit if isinstance(unit, str) else dict(unit)
