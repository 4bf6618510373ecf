"""What every result says of its arrays: axes by name and a unit, and that the names can be true."""

from __future__ import annotations

import dataclasses

import numpy as np

from circuitlab.analysis.base import Result


def check_axes(result: Result) -> None:
    """Every array has a name for each axis, and axes of one name are equally long."""
    sizes: dict[str, int] = {}
    for name, array in result.arrays().items():
        axes = result.axes_of(name)
        assert len(axes) == array.ndim, (type(result).__name__, name, axes, array.shape)
        assert isinstance(result.unit_of(name), str)
        for axis, size in zip(axes, array.shape, strict=True):
            assert sizes.setdefault(axis, size) == size, (type(result).__name__, name, axis, sizes[axis], size)


def undeclared(result: type[Result]) -> list[str]:
    """Array fields without axes."""
    arrays = (f for f in dataclasses.fields(result) if f.type in ("np.ndarray", np.ndarray))
    return [f.name for f in arrays if not f.metadata.get("axes")]
