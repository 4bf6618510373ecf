"""Parameters to text and back, one table of field types for `--set`, JSON and the panels' controls.

Field types: bool int float str Literal Head Target TextRef None, tuple[T, ...], tuple[A, B], T | None, Mapping[str, Any] and
frozen dataclasses of these. On the command line a tuple is separated by commas; "all" or "" is the empty tuple, "none" is None.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from circuitlab.analysis.base import TextRef
from circuitlab.errors import UsageError
from circuitlab.model.subject import Head, Target

P = TypeVar("P")
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def type_name(kind: Any) -> str:
    """How a field's type is called in help and errors."""
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
    found = {}
    for f in dataclasses.fields(cls):
        default = f.default
        if default is dataclasses.MISSING and f.default_factory is not dataclasses.MISSING:
            default = f.default_factory()
        found[f.name] = (hints[f.name], default)
    return found


@dataclass(frozen=True)
class FieldInfo:
    """One parameter for help and controls: its type, that type's name, the default and the default as one would type it.

    `choices` are those of a Literal; `label`, `tip`, `low`, `high` come from the field's metadata where it has any.
    """

    name: str
    kind: Any
    type_name: str
    default: Any
    default_text: str
    choices: tuple[Any, ...] = ()
    label: str = ""
    tip: str = ""
    low: float | None = None
    high: float | None = None


def describe(cls: type[Any]) -> tuple[FieldInfo, ...]:
    """Every field of a parameter or view class, in its order."""
    metadata = {f.name: f.metadata for f in dataclasses.fields(cls)}
    found = []
    for name, (kind, default) in fields(cls).items():
        said = {k: metadata[name][k] for k in ("label", "tip", "low", "high") if k in metadata[name]}
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        found.append(FieldInfo(name, kind, type_name(kind), default, as_text(default), choices, **said))
    return tuple(found)


def as_text(value: Any) -> str:
    """What `parse` reads back as this value; "…" for a default that is not there."""
    if value is dataclasses.MISSING:
        return "…"
    if isinstance(value, TextRef):
        return value.path
    if isinstance(value, (Head, Target)):
        return str(value)
    if isinstance(value, tuple):
        return ",".join(map(as_text, value)) or "all"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def parse_params(cls: type[P], pairs: Mapping[str, str]) -> P:
    """A parameter object from `key=value` texts. Raises `UsageError` for an unknown key or a bad value."""
    known = fields(cls)
    if unknown := sorted(set(pairs) - set(known)):
        raise UsageError("There is no such parameter.", expected=" ".join(known) or "none", got=" ".join(unknown))
    return _made(cls, {name: parse(known[name][0], text, name) for name, text in pairs.items()})


def params_of(cls: type[P], given: Mapping[str, Any]) -> P:
    """A parameter object from Python values, or from texts as on the command line. Raises `UsageError`."""
    known = fields(cls)
    texts = {k: v for k, v in given.items() if isinstance(v, str) or k not in known}
    made = {k: from_json(known[k][0], _several(known[k][0], v), k) for k, v in given.items() if k not in texts}
    if unknown := sorted(set(texts) - set(known)):
        raise UsageError("There is no such parameter.", expected=" ".join(known) or "none", got=" ".join(unknown))
    return _made(cls, {**made, **{k: parse(known[k][0], v, k) for k, v in texts.items()}})


def _several(kind: Any, value: Any) -> Any:
    """Values as JSON has them; one head or number where several may stand."""
    one = get_origin(kind) is tuple and (isinstance(value, Head) or not isinstance(value, (tuple, list)))
    return to_json([value] if one else value)


def _made(cls: type[P], values: Mapping[str, Any]) -> P:
    known = fields(cls)
    if missing := [n for n, (_, default) in known.items() if default is dataclasses.MISSING and n not in values]:
        raise UsageError("A parameter is missing.", expected=" ".join(missing), got=" ".join(values) or "none")
    return cls(**values)


def parse(kind: Any, text: str, name: str) -> Any:
    """One value of type `kind` from text."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        others = [a for a in get_args(kind) if a is not type(None)]
        return None if text.strip().lower() == "none" else parse(others[0], text, name)
    if origin is tuple:
        return _parse_tuple(get_args(kind), text, name)
    return _parse_plain(kind, text, name)


def _parse_tuple(kinds: tuple[Any, ...], text: str, name: str) -> tuple[Any, ...]:
    parts = text.split(",")
    if kinds[-1] is Ellipsis:
        return () if text.strip().lower() in ("", "all") else tuple(parse(kinds[0], part, name) for part in parts)
    if len(parts) != len(kinds):
        raise UsageError(f"{name} cannot be read.", expected=f"{len(kinds)} values", got=repr(text))
    return tuple(parse(kind, part, name) for kind, part in zip(kinds, parts, strict=True))


def _parse_plain(kind: Any, text: str, name: str) -> Any:
    bad = UsageError(f"{name} cannot be read.", expected=type_name(kind), got=repr(text))
    if get_origin(kind) is Literal:
        match = [c for c in get_args(kind) if str(c) == text.strip()]
        if not match:
            raise bad
        return match[0]
    if kind in (Head, Target):
        return kind.parse(text)
    if kind is TextRef:
        return TextRef(text)
    if kind is bool:
        if text.strip().lower() not in _TRUE + _FALSE:
            raise bad
        return text.strip().lower() in _TRUE
    if kind is str:
        return text
    try:
        value = kind(text.strip())
    except (TypeError, ValueError) as error:
        raise bad from error
    if isinstance(value, float) and not math.isfinite(value):
        raise bad
    return value


def to_json(value: Any) -> Any:
    """Plain JSON values of anything in the table."""
    if isinstance(value, Head):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(v) for v in value]
    return value


def from_json(kind: Any, data: Any, where: str = "") -> Any:
    """The reverse of `to_json` for a known type. Raises `UsageError` naming the place of what does not fit."""
    where = where or type_name(kind)
    bad = UsageError(f"{where} cannot be read.", expected=type_name(kind), got=repr(data)[:80])
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


def _plain_from(kind: Any, data: Any, bad: UsageError) -> Any:
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


def _tuple_from(kind: Any, data: Any, where: str, bad: UsageError) -> Any:
    parts = get_args(kind)
    if not isinstance(data, (list, tuple)):
        raise bad
    if parts and parts[-1] is Ellipsis:
        return tuple(from_json(parts[0], v, f"{where}[{i}]") for i, v in enumerate(data))
    if len(parts) != len(data):
        raise bad
    return tuple(from_json(p, v, f"{where}[{i}]") for i, (p, v) in enumerate(zip(parts, data, strict=True)))


def _object_from(kind: type[Any], data: Any, where: str, bad: UsageError) -> Any:
    if not isinstance(data, Mapping):
        raise bad
    known = fields(kind)
    if unknown := sorted(set(data) - set(known)):
        raise UsageError(f"{where} has fields that are not known.", expected=" ".join(known), got=" ".join(unknown))
    if missing := [n for n, (_, d) in known.items() if d is dataclasses.MISSING and n not in data]:
        raise UsageError(f"{where} lacks fields.", expected=" ".join(known), got="no " + " ".join(missing))
    return kind(**{n: from_json(known[n][0], v, f"{where}.{n}") for n, v in data.items()})
