"""What holds of every answer: it answers or refuses in words, is finite, adds up; and when two answers say the same."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from circuitlab.analysis.base import Result
from tests.zoo.asked import Asked

EXACT = 1e-9  # of the largest number of a field, or of what a remainder is judged by


def check_remainder(found: Result) -> None:
    """What a decomposition leaves over is rounding."""
    left = found.remainder
    assert left is None or left.size <= EXACT * max(1.0, left.of), f"the parts do not add up: {left}"


def not_computed(found: Result) -> set[str]:
    """The fields that have NaN in them. Fails for infinities."""
    fields = set[str]()
    for name, array in numbers(found).items():
        if array.dtype.kind in "fc":
            assert not np.isinf(array).any(), f"{name} has an infinity"
            if np.isnan(array).any():
                fields.add(name)
    return fields


def numbers(found: Result) -> dict[str, np.ndarray]:
    """Its arrays and floats by name, as arrays."""
    values = {f.name: getattr(found, f.name) for f in dataclasses.fields(found) if f.name != "done"}
    return {n: np.asarray(v) for n, v in values.items() if isinstance(v, np.ndarray) or type(v) is float}


def _alike(one: np.ndarray, other: np.ndarray, tolerance: float) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype.kind not in "fc":
        return bool((one == other).all())
    if one.dtype.kind == "c":
        rows = zip(one.reshape(-1, one.shape[-1]), other.reshape(-1, one.shape[-1]), strict=True)
        return not one.size or all(_same_set(a, b, tolerance) for a, b in rows)
    size = float(np.abs(one[~np.isnan(one)]).max(initial=1.0))
    return bool(np.allclose(one, other, rtol=tolerance, atol=tolerance * size, equal_nan=True))


def _same_set(one: np.ndarray, other: np.ndarray, tolerance: float) -> bool:
    """Whether two lists of eigenvalues are the same numbers in any order. Nearly equal ones have lost digits already."""
    left, near = list(other), np.sqrt(tolerance) * max(float(np.abs(one).max(initial=0)), 1e-12)
    for value in one:
        best = min(range(len(left)), key=lambda i: abs(left[i] - value))
        if abs(left.pop(best) - value) > near:
            return False
    return True


POSITIONS = ("position", "destination", "source", "query", "key")  # axes along the prompt, where they are as long


def about(asked: Asked, at: int) -> Asked:
    """Asked of one position, where that can be asked."""
    names = {field.name for field in dataclasses.fields(asked.params)}
    changes: dict[str, Any] = {name: at for name in ("position", "destination") if name in names}
    changes |= {"effect": "target"} if "effect" in names else {}
    changes |= {"how": "zero"} if getattr(asked.params, "how", "") == "mean" else {}  # a mean is over all positions
    return dataclasses.replace(asked, params=dataclasses.replace(asked.params, **changes))


def differences_before(end: int, one: Result, other: Result, n: int, apart_from: frozenset[str]) -> list[str]:
    """The fields in which two answers on `n` tokens are not the same at the positions before `end`.

    Parts that only one of them has, such as what interventions write, are nothing there.
    """
    mine, its = (_before(end, result, n) for result in (one, other))
    return [field for field in mine if field not in apart_from and not _same_parts(one, other, field, mine[field], its[field])]


def _before(end: int, result: Result, n: int) -> dict[str, np.ndarray]:
    found = numbers(result)
    for field, array in found.items():
        axes = result.axes_of(field) if array.ndim else ()
        found[field] = array[
            tuple(
                slice(end) if axis in POSITIONS and size == n else slice(None)
                for axis, size in zip(axes, array.shape, strict=True)
            )
        ]
    return found


def _same_parts(one: Result, other: Result, field: str, mine: np.ndarray, its: np.ndarray) -> bool:
    """Whether two arrays are the same, entries along axes with names being matched by these."""
    for at, axis in enumerate(one.axes_of(field) if mine.ndim else ()):
        names, others = (next(iter(result.naming(axis).values()), None) for result in (one, other))
        if names is None or others is None or names == others or axis in POSITIONS:
            continue
        for array, own, there in ((mine, names, others), (its, others, names)):
            further = np.array([name not in there for name in own])
            if np.nan_to_num(np.compress(further, array, axis=at)).any() and array.dtype.kind in "fc":
                return False
        common = [name for name in names if name in others]
        mine, its = (
            np.take(array, [own.index(name) for name in common], axis=at) for array, own in ((mine, names), (its, others))
        )
    return _alike(mine, its, 1e-7)


def differences(one: Result, other: Result, apart_from: frozenset[str] = frozenset(), tolerance: float = 1e-7) -> list[str]:
    """The fields in which two answers of one analysis are not the same."""
    mine, its = numbers(one), numbers(other)
    return [field for field in mine if field not in apart_from and not _alike(mine[field], its[field], tolerance)]
