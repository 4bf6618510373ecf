"""Parameters to text and back, one table of field types for `--set`, JSON and the panels' controls.

Field types: those of `model.plain`, which is the JSON half; Head, Target, TextRef, SeriesRef have forms of their own. On the
command line the elements of a tuple are separated by commas; the empty tuple is "", or "all" for heads and "none" for numbers and
files; None is "none".
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from circuitlab.analysis.base import SeriesRef, TextRef
from circuitlab.counting import number_of
from circuitlab.disk.paths import resource
from circuitlab.engine.store import reference
from circuitlab.errors import UsageError, advising, bounded, quoted
from circuitlab.model.plain import fields, from_json, out_of_bounds, to_json, type_name
from circuitlab.model.subject import Head, Target
from circuitlab.model.whole_numbers import elements, whole_numbers

P = TypeVar("P")
_REMEDY = "`circuitlab analyses` and `circuitlab panels` list the parameters, their types and their defaults."
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True)
class FieldInfo:
    """One parameter, for help and controls: its type and the type's name, its default, and the default as text.

    `choices`: the values of a Literal; `label`, `tip`, `low`, `high` come from the field's metadata.
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
    """Every field of a parameter or view class, in order of declaration."""
    metadata = {f.name: f.metadata for f in dataclasses.fields(cls)}
    infos = []
    for name, (kind, default) in fields(cls).items():
        shown = {k: metadata[name][k] for k in ("label", "tip", "low", "high") if k in metadata[name]}
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        text = _empty(kind) if default == () else as_text(default)
        infos.append(FieldInfo(name, kind, type_name(kind), default, text, choices, **shown))
    return tuple(infos)


def _empty(kind: object) -> str:
    """The name of the empty tuple: "all" for heads, "none" for numbers and files."""
    element = get_args(kind)[0]
    return "all" if element is Head else "" if element is str else "none"


def as_text(value: object) -> str:
    """The text that `parse` reads back as this value; "…" for a missing default."""
    if value is dataclasses.MISSING:
        return "…"
    if isinstance(value, TextRef):
        return value.path
    if isinstance(value, SeriesRef):
        return value.source
    if isinstance(value, (Head, Target)):
        return str(value)
    if isinstance(value, tuple):
        return ",".join(map(as_text, value))
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def parse_params(cls: type[P], pairs: Mapping[str, str]) -> P:
    """A parameter object from `key=value` texts. Raises `UsageError` for an unknown key or a bad value."""
    declared = fields(cls)
    with advising(_REMEDY):
        _refuse_unknown(pairs, declared)
        return _constructed(cls, {name: _parsed(declared[name][0], text, name) for name, text in pairs.items()})


def _refuse_unknown(names: Mapping[str, object], declared: Mapping[str, object]) -> None:
    if unknown := sorted(set(names) - set(declared)):
        got = " ".join(bounded(name) or "no name" for name in unknown)
        raise UsageError("There is no such parameter.", expected=" ".join(declared) or "none", got=got)


def params_of(cls: type[P], values: Mapping[str, object]) -> P:
    """A parameter object from Python values, or from texts as on the command line. Raises `UsageError`."""
    declared = fields(cls)
    with advising(_REMEDY):
        _refuse_unknown(values, declared)
        return _constructed(cls, {name: _value(declared[name][0], value, name) for name, value in values.items()})


def _value(kind: object, value: object, name: str) -> object:
    """One value of type `kind`, from text or a Python value, as may be each element of a tuple; one element needs no tuple."""
    if isinstance(value, str):
        return _parsed(kind, value, name)
    if get_origin(kind) is not tuple:
        return from_json(kind, to_json(value), name)
    kinds, several = get_args(kind), None if isinstance(value, Head) else elements(value)
    several = [value] if several is None else several
    if kinds[-1] is Ellipsis:
        if kinds[0] is int:
            return whole_numbers(several, name)
        return tuple(_value(kinds[0], one, f"{name}[{i}]") for i, one in enumerate(several))
    if len(kinds) != len(several):
        raise UsageError(f"The value of {name} cannot be read.", expected=number_of(len(kinds), "value"), got=quoted(value))
    return tuple(_value(k, one, f"{name}[{i}]") for i, (k, one) in enumerate(zip(kinds, several, strict=True)))


def _constructed(cls: type[P], values: Mapping[str, object]) -> P:
    declared = fields(cls)
    if missing := [n for n, (_, default) in declared.items() if default is dataclasses.MISSING and n not in values]:
        raise UsageError("A parameter is missing.", expected=" ".join(missing), got=" ".join(values) or "none")
    params = cls(**values)
    if (wrong := out_of_bounds(params)) is not None:
        name, expected, got = wrong
        raise UsageError(f"The value of {name} is out of bounds.", expected=expected, got=got)
    return params


def parse(kind: object, text: str, name: str) -> Any:
    """One value of type `kind` from text. Raises `UsageError`."""
    with advising("Write it as expected."):
        return _parsed(kind, text, name)


def _parsed(kind: object, text: str, name: str) -> object:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        others = [a for a in get_args(kind) if a is not type(None)]
        return None if text.strip().lower() == "none" else _parsed(others[0], text, name)
    if origin is tuple:
        return _parse_tuple(kind, text, name)
    return _parse_plain(kind, text, name)


def _parse_tuple(kind: object, text: str, name: str) -> tuple[object, ...]:
    kinds, parts = get_args(kind), text.split(",")
    if kinds[-1] is Ellipsis:
        if text.strip().lower() in ("", _empty(kind)):
            return ()
        place = lambda i: name if len(parts) == 1 else f"{name}[{i}]"
        return tuple(_parsed(kinds[0], part, place(i)) for i, part in enumerate(parts))
    if len(parts) != len(kinds):
        raise UsageError(f"The value of {name} cannot be read.", expected=number_of(len(kinds), "value"), got=quoted(text))
    return tuple(_parsed(kind, part, f"{name}[{i}]") for i, (kind, part) in enumerate(zip(kinds, parts, strict=True)))


def _prompt_set(text: str) -> str:
    """The path of the shipped prompt set of this name, where no file has it; else the text itself."""
    if not re.fullmatch(r"\w{1,60}", text):  # no file system has longer names than a few hundred bytes
        return text
    path = resource("prompts", f"{text}.tsv")
    return str(path) if path.is_file() and not Path(text).exists() else text


def _parse_plain(kind: Any, text: str, name: str) -> object:
    bad = UsageError(f"The value of {name} cannot be read.", expected=type_name(kind), got=quoted(text))
    if get_origin(kind) is Literal:
        match = [c for c in get_args(kind) if str(c) == text.strip()]
        if not match:
            raise bad
        return match[0]
    if kind in (Head, Target):
        return kind.parse(text)
    if kind is TextRef:
        return TextRef(_prompt_set(text) if name == "file" else text)
    if kind is SeriesRef:
        return SeriesRef(reference(text.strip()).source)
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
