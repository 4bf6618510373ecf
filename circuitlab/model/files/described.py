"""Descriptions of a pickle's contents: its tensors before any is created, and its objects, which are never created.

People save their arguments, paths, sets, arrays and configuration objects beside the weights. Pickle stores an object as its
class and its attributes, which can be read without either: `Inert`.

A value that a pickle names twice is there once, and thirty tuples of two are a thousand million values to whoever walks or prints
them: everything here looks at a bounded part.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch

from circuitlab.disk.json_types import JsonDict

_DEEPEST, _MOST_MODULES, _MOST_TENSORS = 64, 20_000, 100_000  # nesting of modules, their number, and that of their tensors
_PLAIN = (str, int, float, bool, list, tuple, dict, type(None))
_OF_MODULES = ("_parameters", "_buffers", "_modules")
MOST_OF_MODULES, _LONGEST_NAME = 2**19, 1000  # entries of modules that are looked at; characters of a name in a dictionary
_SEEN = 64  # values of a container by which its kind is told
_CHARACTERS = 64  # of a text that count as one value
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 100
_SHORT.maxlevel, _SHORT.maxtuple, _SHORT.maxlist, _SHORT.maxdict = 3, 12, 12, 6


@dataclass(frozen=True)
class Storage:
    """A run of numbers in the file, known by `key`; `n` counts elements of `dtype`."""

    key: str
    dtype: torch.dtype
    n: int


@dataclass(frozen=True, repr=False)
class Strided:
    """A tensor: its offset in its storage (in elements of `dtype`), sizes and strides, none of them checked yet."""

    storage: Storage
    dtype: torch.dtype
    offset: Any
    shape: Any
    stride: Any

    def __repr__(self) -> str:
        return kind_of(self)


@dataclass(frozen=True)
class Other:
    """A tensor that is not a plain strided one; `kind` says what it is."""

    kind: str


@dataclass(frozen=True, eq=False)
class OddKey:
    """A dictionary key that is neither text nor a number, described in words. Equal to no other key."""

    text: str

    def __str__(self) -> str:
        return self.text


def key_of(key: object) -> str | int | OddKey:
    """A key that a dictionary may hold: a text, a whole number, or words on what it was.

    Nothing nested is hashed: endlessly nested tuples would end the process.
    """
    if type(key) is int or (type(key) is str and len(key) <= _LONGEST_NAME):
        return key
    text = _in_words(key)
    return OddKey(text if text.isprintable() else ascii(text)[1:-1])


def _in_words(key: object, depth: int = 2) -> str:
    if isinstance(key, tuple) and depth:
        inner = ", ".join(_in_words(part, depth - 1) for part in key[:4])
        return f"({inner}{', …' if len(key) > 4 else ',' if len(key) == 1 else ''})"
    if isinstance(key, str | bytes):
        return repr(key[:40])[:40]
    if isinstance(key, int | float | None):
        return repr(key)[:40] if not isinstance(key, int) or abs(key) < 10**18 else "a large number"
    return kind_of(key)[:60]


def in_short(value: object, most: int = 80) -> str:
    """The beginning of what a value would be as text, in ASCII, however much is in it."""
    return _SHORT.repr(value).encode("ascii", "backslashreplace").decode()[:most]


@dataclass(frozen=True, repr=False)
class Mark:
    """What a `name` in the pickle stands for here: `make` is the effect of calling it, `value` its meaning.

    Without either the name is unknown: it and its instances may occur in the pickle, but it is never called.
    """

    make: Callable[..., object] | None = None
    value: object = None
    name: str = ""

    def __repr__(self) -> str:
        return kind_of(self)[:60]


@dataclass(eq=False, repr=False, slots=True)
class Inert:
    """An object that was not created: the name of its class, and its attributes or entries by name."""

    kind: str
    entries: JsonDict = field(default_factory=dict)

    def __repr__(self) -> str:
        return self.kind[:60]

    def take(self, state: object) -> None:
        """Add the attributes that BUILD would set."""
        for part in attributes(state):
            self.entries.update({k: v for k, v in part.items() if isinstance(k, str)})

    @property
    def is_module(self) -> bool:
        """Whether this was a torch module, by the dictionaries that each of them has."""
        return all(isinstance(self.entries.get(name), dict) for name in _OF_MODULES)


def attributes(state: object) -> list[dict[object, object]]:
    """What BUILD sets: a dictionary, or a pair of dictionaries (the second for slots)."""
    parts = state if isinstance(state, tuple) and len(state) == 2 else (state,)
    return [part for part in parts if isinstance(part, dict)]


def state_dict(module: Inert, room: int = MOST_OF_MODULES) -> tuple[JsonDict, int]:
    """The parameters and buffers of a torch module that was saved whole, under the names of its `state_dict()`; and what is left
    of `room`, the entries of modules that are looked at.

    Buffers that `state_dict()` would leave out are included: their names are stored in a set, which is not read.
    """
    tensors: JsonDict = {}
    waiting, count = [("", module, 0)], 0
    while waiting and count < _MOST_MODULES and len(tensors) < _MOST_TENSORS:  # a shared one counts each time
        (at, module, depth), count = waiting.pop(), count + 1
        room -= sum(len(module.entries[part]) for part in _OF_MODULES) * (1 + len(at) // _CHARACTERS)
        if room < 0:
            break
        for part in ("_parameters", "_buffers"):
            tensors |= {at + str(name): value for name, value in module.entries[part].items() if value is not None}
        inner = module.entries["_modules"].items() if depth < _DEEPEST and len(at) < _LONGEST_NAME else ()
        waiting += [(f"{at}{name}.", m, depth + 1) for name, m in inner if isinstance(m, Inert) and m.is_module]
    return tensors, room


def kind_of(value: object) -> str:
    """The kind of a value that is not plain, in a few words."""
    if isinstance(value, Inert):
        return value.kind
    if isinstance(value, Mark):
        return value.name or "a name"
    if isinstance(value, Strided | Other):
        return "a tensor"
    if isinstance(value, dict | list | tuple):
        inner = value.values() if isinstance(value, dict) else value
        shape = "a dictionary" if isinstance(value, dict) else "a list"
        tensors = any(isinstance(v, Strided | Other) for v in islice(inner, _SEEN))
        return f"{shape} with tensors" if tensors else f"{shape} of objects"
    return type(value).__name__


def named_parts(value: object) -> dict[Any, Any] | None:
    """The entries of a dictionary, or the attributes of an `Inert` object; None for anything else."""
    return value if isinstance(value, dict) else value.entries if isinstance(value, Inert) else None


def plain(value: object, budget: int = 10_000, depth: int = 16) -> tuple[bool, int]:
    """Whether `value` is numbers, text and containers of them, within `budget` values and `depth` levels; and the values counted.

    A shared value counts each time, a long text as several.
    """
    level, count = [value], 0
    for _ in range(depth):
        count += len(level)
        if count > budget or not all(isinstance(v, _PLAIN) for v in level):
            return False, count
        count += sum(len(v) // _CHARACTERS for v in level if isinstance(v, str))
        inner = [v.values() if isinstance(v, dict) else v for v in level if isinstance(v, list | tuple | dict)]
        if sum(map(len, inner)) > budget - count:
            return False, count
        if any(isinstance(k, OddKey) for v in level if isinstance(v, dict) for k in v):
            return False, count
        level = [x for items in inner for x in items]
    return not level, count
