"""Values of results that are not arrays as JSON and back, bit for bit: what JSON has no form for is an object with one key.

Kinds: None, bool, int, float (NaN with its bits, infinities), complex, str, `Part`, `Essential`, `Head`, `Remainder`, numpy
scalars, tuples, lists, and mappings from str; a list of JSON is a tuple.
"""

from __future__ import annotations

import math
import struct
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import numpy as np

from circuitlab.analysis.base import Remainder
from circuitlab.caption_parts import NO_SENSE, About, Essential, Part, Sense
from circuitlab.counting import number_of
from circuitlab.model.subject import Head

Typed = TypeVar("Typed")


def as_json(value: object) -> object:
    """A value as JSON. Raises `TypeError` for one of another kind."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}
    if type(value) is tuple:
        return [as_json(one) for one in value]
    if type(value) is Head:
        return {"head": [value.layer, value.head]}
    if isinstance(value, Part) and type(value) in (Part, Essential):
        return _part_as_json(value)
    if type(value) is complex:
        return {"complex": [as_json(value.real), as_json(value.imag)]}
    if type(value) is Remainder:
        return {"remainder": [as_json(part) for part in (value.size, value.of, value.unit, value.what)]}
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        return {"number": [value.dtype.str, value.tobytes().hex()]}
    if type(value) is list:
        return {"list": [as_json(one) for one in value]}
    if isinstance(value, Mapping) and all(type(key) is str for key in value):
        return {"mapping": [[key, as_json(one)] for key, one in value.items()]}
    raise TypeError(f"{type(value).__name__} cannot be stored")


def from_json(data: object) -> Any:
    """The reverse of `as_json`. Raises `ValueError` for anything else."""
    if isinstance(data, list):
        return tuple(from_json(one) for one in data)
    if not isinstance(data, dict):
        return data
    if len(data) == 1:
        ((tag, inner),) = data.items()
        try:
            return _TAGS[tag](inner)
        except (KeyError, TypeError, struct.error) as error:
            raise ValueError(f"a value tagged {tag!r}"[:80]) from error
    raise ValueError("an object with one key was expected")


def _mapping(pairs: Any) -> dict[str, object]:
    read = {str(key): from_json(one) for key, one in pairs}
    if len(read) < len(pairs):
        raise ValueError("a key twice")
    return read


def _number(parts: Any) -> object:
    kind, data = parts
    dtype = np.dtype(kind)
    if dtype.kind not in "biufc" or len(data) != 2 * dtype.itemsize:
        raise ValueError("a number was expected")
    return np.frombuffer(bytes.fromhex(data), dtype)[0]


def _part_as_json(part: Part) -> dict[str, Any]:
    text, sense, essential = str(part), part.sense, isinstance(part, Essential)
    if essential and sense == NO_SENSE:
        return {"essential": text}
    about = None if sense.about is None else sense.about.value
    return {"part": [text, essential, about, list(sense.quantities), sense.brief, sense.of_differences]}


def _part(parts: Any) -> Part:
    kinds = (str, bool, str | None, tuple[str, ...], str, str | None)

    def made(
        text: str, essential: bool, about: str | None, quantities: tuple[str, ...], brief: str, of_differences: str | None
    ) -> Part:
        sense = Sense(None if about is None else About(about), quantities, brief, of_differences)
        return Essential(text, sense) if essential else Part(text, sense)

    return _typed(kinds, parts, made)


def _typed(kinds: tuple[Any, ...], parts: object, make: Callable[..., Typed]) -> Typed:
    if not isinstance(parts, list) or len(parts) != len(kinds):
        raise ValueError(f"{number_of(len(kinds), 'value')} expected")
    values = [from_json(part) for part in parts]
    if not all(fits(kind, value) for kind, value in zip(kinds, values, strict=True)):
        raise ValueError("values of other kinds were expected")
    return make(*values)


_TAGS: dict[str, Callable[[Any], Any]] = {
    "float": lambda text: struct.unpack(">d", bytes.fromhex(text))[0],
    "head": lambda parts: _typed((int, int), parts, Head),
    "essential": lambda text: _typed((str,), [text], Essential),
    "part": _part,
    "complex": lambda parts: _typed((float, float), parts, complex),
    "remainder": lambda parts: _typed((float, float, str, str), parts, Remainder),
    "number": _number,
    "list": lambda items: list(from_json(items)),
    "mapping": _mapping,
}


def fits(kind: Any, value: Any) -> bool:
    """Whether a value is of a declared type of a result's field."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any or (origin is None and not isinstance(kind, type)):
        return True
    if origin is Literal:
        return any(type(one) is type(value) and one == value for one in parts)
    if origin in (Union, types.UnionType):
        return any(fits(one, value) for one in parts)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        kinds = parts[:1] * len(value) if parts[-1:] == (Ellipsis,) else parts
        return len(kinds) == len(value) and all(map(fits, kinds, value))
    if kind is bool:
        return isinstance(value, (bool, np.bool_))
    if kind is float:
        return isinstance(value, (float, int, np.floating, np.integer)) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return isinstance(value, origin or kind)
