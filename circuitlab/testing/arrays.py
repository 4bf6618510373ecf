"""What every result says of its arrays: axes by name and a unit, and that the names can be true."""

from __future__ import annotations

import dataclasses

import numpy as np

from circuitlab.analysis.base import PLAIN, Result, Unit

# what stands for a thing among others, and is no quantity
NAMES = ("token id", "position", "rank", "index", "order", "true or false", "text", "layers and heads")


def check_axes(result: Result) -> None:
    """Every array has a name for each axis, axes of one name are equally long, and numbers have a unit that suits them."""
    sizes: dict[str, int] = {}
    for name, array in result.arrays().items():
        axes, unit = result.axes_of(name), result.unit_of(name)
        where = (type(result).__name__, name, axes, unit)
        assert len(axes) == array.ndim, (*where, array.shape)
        for axis, size in zip(axes, array.shape, strict=True):
            assert sizes.setdefault(axis, size) == size, (*where, axis, sizes[axis], size)
        _check_unit(array, unit, where)
        if array.dtype.kind in "iu" and array.size and array.min() < 0:
            assert result.has_none(name) or unit == "positions", (*where, "below 0, and not said to be none")


def _check_unit(array: np.ndarray, unit: Unit, where: tuple[object, ...]) -> None:
    assert unit, where
    if isinstance(unit, str):
        assert array.dtype.kind not in "fc" or unit not in NAMES, where
        assert (array.dtype.kind == "b") == (unit == "true or false") and (array.dtype.kind == "U") == (unit == "text"), where
        return
    assert array.dtype.kind == "f" and all(unit.values()) and len(unit) in array.shape, where


def check_columns(result: Result) -> None:
    """A column that holds an array's very numbers has its unit, unless that is a mapping or goes without saying."""
    for column in result.table().columns:
        for name, array in result.arrays().items():
            unit = result.unit_of(name)
            same = column.values.dtype == array.dtype and array.dtype.kind == "f" and array.size == len(column.values) > 1
            if same and isinstance(unit, str) and np.array_equal(array.ravel(), column.values, equal_nan=True):
                where = (type(result).__name__, name, unit, column.name, column.unit)
                assert column.unit == unit or (unit in PLAIN and not column.unit) or np.isnan(array).all(), where


def undeclared(result: type[Result]) -> list[str]:
    """Array fields without axes or unit."""
    arrays = (f for f in dataclasses.fields(result) if f.type in ("np.ndarray", np.ndarray))
    return [f.name for f in arrays if not f.metadata.get("axes") or not f.metadata.get("unit")]
