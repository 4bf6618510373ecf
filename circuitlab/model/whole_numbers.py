"""Sequences of whole numbers passed from Python: lists, ranges, NumPy arrays and torch tensors."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any

from circuitlab.errors import UsageError


def elements(value: Any) -> list[Any] | None:
    """The elements in order, those of arrays as Python numbers; None for anything but a sequence: text, a set, one number."""
    if isinstance(value, (str, bytes, Mapping, set, frozenset)):
        return None
    plain = value.tolist() if hasattr(value, "tolist") else value
    try:
        return list(plain)
    except TypeError:
        return None


def whole_numbers(value: Any, name: str) -> tuple[int, ...]:
    """A tuple of int. Raises `UsageError` that names the first element that is not an integer.

    In an array of floats no element is an int: the first that is not integral is named, if there is one.
    """
    several = elements(value)
    if several is None:
        raise UsageError(
            f"The value of {name} cannot be read.", expected="whole numbers, one after another", got=repr(value)[:80]
        )
    wrong = [i for i, one in enumerate(several) if isinstance(one, bool) or not hasattr(one, "__index__")]
    if wrong:
        at = next((i for i in wrong if not isinstance(several[i], float) or several[i] % 1), wrong[0])
        raise UsageError(f"The value of {name}[{at}] cannot be read.", expected="a whole number", got=repr(several[at])[:80])
    return tuple(map(index, several))
