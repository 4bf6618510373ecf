"""Sequences of whole numbers passed from Python: lists, ranges, NumPy arrays and torch tensors."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any

from circuitlab.errors import UsageError, quoted


def elements(value: Any) -> list[Any] | None:
    """The elements in order, those of arrays as Python numbers; None for anything but a sequence: text, a set, one number."""
    if isinstance(value, (str, bytes, Mapping, set, frozenset)):
        return None
    plain = value.tolist() if hasattr(value, "tolist") else value
    try:
        return list(plain)
    except TypeError:
        return None


def whole_numbers(value: object, name: str) -> tuple[int, ...]:
    """A tuple of int. Raises `UsageError` that names the first element that is not an integer.

    In an array of floats, where no element is an int, it names the first that is not integral, if any.
    """
    values = elements(value)
    if values is None:
        raise UsageError(f"The value of {name} cannot be read.", expected="whole numbers, one after another", got=quoted(value))
    wrong = [i for i, v in enumerate(values) if not _is_whole(v)]
    if wrong:
        at = next((i for i in wrong if not isinstance(values[i], float) or values[i] % 1), wrong[0])
        raise UsageError(f"The value of {name}[{at}] cannot be read.", expected="a whole number", got=quoted(values[at]))
    return tuple(map(index, values))


def _is_whole(value: Any) -> bool:
    try:
        return index(value) is not None and not isinstance(value, bool)
    except TypeError:  # of a tensor that holds a fraction, too
        return False
