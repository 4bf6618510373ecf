"""Frozen objects as plain JSON values and back: parameters, sessions, exports.

Field types: bool int float str Literal Head None, tuple[T, ...], tuple[A, B], T | None, Mapping[str, Any] and frozen
dataclasses of these.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from circuitlab.errors import UsageError, quoted
from circuitlab.model.subject import Head


def type_name(kind: object) -> str:
    """The name of a field's type in help and errors."""
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        parts = get_args(kind)
        return f"{type_name(parts[0])}[,…]" if parts[-1] is Ellipsis else ",".join(map(type_name, parts))
    if get_origin(kind) in (Union, types.UnionType):
        return "|".join("none" if a is type(None) else type_name(a) for a in get_args(kind))
    return getattr(kind, "__name__", str(kind))


def fields(cls: type[Any]) -> dict[str, tuple[Any, Any]]:
    """(type, default) of every field of a parameter class; default MISSING where there is none."""
    hints = get_type_hints(cls)
    by_name = {}
    for f in dataclasses.fields(cls):
        default = f.default
        if default is dataclasses.MISSING and f.default_factory is not dataclasses.MISSING:
            default = f.default_factory()
        by_name[f.name] = (hints[f.name], default)
    return by_name


def out_of_bounds(value: Any) -> tuple[str, str, str] | None:
    """(name, expected, got) of the first number outside the bounds its field declares: `low` and `high`, or `typed`."""
    for f in dataclasses.fields(value):
        number, (low, high) = getattr(value, f.name), f.metadata.get("typed") or (f.metadata.get("low"), f.metadata.get("high"))
        if not isinstance(number, (int, float)) or isinstance(number, bool):
            continue
        if (low is not None and number < low) or (high is not None and number > high):
            bounds = f"at least {low:g}" if high is None else f"at most {high:g}" if low is None else f"{low:g} to {high:g}"
            return f.name, bounds, quoted(number)
    return None


def to_json(value: object) -> Any:
    """Plain JSON values of any of the types above."""
    if isinstance(value, Head):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(v) for v in value]
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    return value


def from_json(kind: object, data: object, where: str = "") -> Any:
    """The reverse of `to_json` for a given type. Raises `UsageError` naming the field that does not fit."""
    where = where or type_name(kind)
    bad = UsageError(f"The value of {where} cannot be read.", expected=type_name(kind), got=quoted(data))
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        if data is None and type(None) in get_args(kind):
            return None
        return from_json(next(a for a in get_args(kind) if a is not type(None)), data, where)
    if origin is tuple:
        return _tuple_from(kind, data, where, bad)
    if origin is Literal:
        if data not in get_args(kind):
            raise bad
        return data
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _object_from(kind, data, where, bad)
    return _plain_from(kind, data, bad)


def _plain_from(kind: Any, data: Any, bad: UsageError) -> object:
    if kind is Any or get_origin(kind) is not None:
        return data
    if kind is Head:
        if not isinstance(data, str):
            raise bad
        return Head.parse(data)
    if kind is float and isinstance(data, int) and not isinstance(data, bool) and abs(data) < 2**1000:
        return float(data)
    if isinstance(data, float) and not math.isfinite(data):
        raise bad
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise bad
    return data


def _tuple_from(kind: object, data: object, where: str, bad: UsageError) -> object:
    parts = get_args(kind)
    if not isinstance(data, (list, tuple)):
        raise bad
    if parts and parts[-1] is Ellipsis:
        return tuple(from_json(parts[0], v, f"{where}[{i}]") for i, v in enumerate(data))
    if len(parts) != len(data):
        raise bad
    return tuple(from_json(p, v, f"{where}[{i}]") for i, (p, v) in enumerate(zip(parts, data, strict=True)))


def _object_from(kind: type[object], data: object, where: str, bad: UsageError) -> object:
    if not isinstance(data, Mapping):
        raise bad
    by_name = fields(kind)
    if unknown := sorted(set(data) - set(by_name)):
        raise UsageError(
            f"The value of {where} has fields that are not known.", expected=" ".join(by_name), got=" ".join(unknown)
        )
    if missing := [n for n, (_, d) in by_name.items() if d is dataclasses.MISSING and n not in data]:
        raise UsageError(f"The value of {where} lacks fields.", expected=" ".join(by_name), got="no " + " ".join(missing))
    return kind(**{n: from_json(by_name[n][0], v, f"{where}.{n}") for n, v in data.items()})
