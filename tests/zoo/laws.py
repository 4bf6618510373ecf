"""What holds of every answer: it answers or refuses in words, is finite, adds up; and when two answers say the same."""

from __future__ import annotations

import dataclasses

import numpy as np

from circuitlab.analysis.base import Result

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


def differences(one: Result, other: Result, apart_from: frozenset[str] = frozenset(), tolerance: float = 1e-7) -> list[str]:
    """The fields in which two answers of one analysis are not the same."""
    mine, its = numbers(one), numbers(other)
    return [field for field in mine if field not in apart_from and not _alike(mine[field], its[field], tolerance)]
