"""Whether two values are the same down to their bits: arrays with dtype and shape, NaN, signs of zero, types of numbers."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from circuitlab.caption_parts import Part


def check_same(one: Any, other: Any, where: str = "") -> None:
    """Fails with the place of the first difference. Of functions only the type counts."""
    assert type(one) is type(other), (where, type(one), type(other))
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), where
        if one.dtype == object:
            check_same(one.tolist(), other.tolist(), where)
        else:
            assert one.tobytes() == other.tobytes(), where
    elif isinstance(one, float):
        assert struct.pack("d", one) == struct.pack("d", other), (where, one, other)
    elif isinstance(one, complex):
        check_same((one.real, one.imag), (other.real, other.imag), where)
    elif dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            check_same(getattr(one, field.name), getattr(other, field.name), f"{where}.{field.name}")
    elif isinstance(one, Mapping):
        assert list(one) == list(other), (where, list(one), list(other))
        for key, value in one.items():
            check_same(value, other[key], f"{where}[{key!r}]")
    elif isinstance(one, (tuple, list)):
        assert len(one) == len(other), (where, one, other)
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            check_same(a, b, f"{where}[{i}]")
    elif isinstance(one, Part):
        assert (str(one), one.sense) == (str(other), other.sense), (where, one, other)
    elif not callable(one):
        assert one == other, (where, one, other)
