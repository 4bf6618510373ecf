"""Descriptions of a pickle's contents: its tensors before any is created, and its objects, which are never created.

People save their arguments, paths, sets, arrays and configuration objects beside the weights. Pickle stores an object as its
class and its attributes, which can be read without either: `Inert`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

_DEEPEST, _MOST_MODULES, _MOST_TENSORS = 64, 20_000, 100_000  # nesting of modules, their number, and that of their tensors
_PLAIN = (str, int, float, bool, list, tuple, dict, type(None))
_OF_MODULES = ("_parameters", "_buffers", "_modules")


@dataclass(frozen=True)
class Storage:
    """A run of numbers in the file, known by `key`; `n` counts elements of `dtype`."""

    key: str
    dtype: torch.dtype
    n: int


@dataclass(frozen=True)
class Strided:
    """A tensor: its offset in its storage (in elements of `dtype`), sizes and strides, none of them checked yet."""

    storage: Storage
    dtype: torch.dtype
    offset: Any
    shape: Any
    stride: Any


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


def key_of(key: Any) -> Any:
    """A key that a dictionary may hold. Nothing nested is hashed: endlessly nested tuples would end the process."""
    if isinstance(key, str | int | float | bool | bytes | None):
        return key
    text = _in_words(key)
    return OddKey(text if text.isprintable() else ascii(text)[1:-1])


def _in_words(key: Any, depth: int = 2) -> str:
    if isinstance(key, tuple) and depth:
        inner = ", ".join(_in_words(part, depth - 1) for part in key[:4])
        return f"({inner}{', …' if len(key) > 4 else ',' if len(key) == 1 else ''})"
    if isinstance(key, str | int | float | bool | bytes | None):
        return repr(key)[:40] if isinstance(key, str | bytes | float | None) or abs(key) < 10**18 else "a large number"
    return kind_of(key)[:60]


@dataclass(frozen=True)
class Mark:
    """What a `name` in the pickle stands for here: `make` is the effect of calling it, `value` its meaning.

    Without either the name is unknown: it and its instances may occur in the pickle, but it is never called.
    """

    make: Callable[..., Any] | None = None
    value: Any = None
    name: str = ""


@dataclass(eq=False)
class Inert:
    """An object that was not created: the name of its class, and its attributes or entries by name."""

    kind: str
    entries: dict[str, Any] = field(default_factory=dict)

    def take(self, state: Any) -> None:
        """Add the attributes that BUILD would set: a dictionary, or a pair of dictionaries (the second for slots)."""
        parts = state if isinstance(state, tuple) and len(state) == 2 else (state,)
        for part in parts:
            if isinstance(part, dict):
                self.entries.update({k: v for k, v in part.items() if isinstance(k, str)})

    @property
    def is_module(self) -> bool:
        """Whether this was a torch module, by the dictionaries that each of them has."""
        return all(isinstance(self.entries.get(name), dict) for name in _OF_MODULES)


def state_dict(module: Inert) -> dict[str, Any]:
    """The parameters and buffers of a torch module that was saved whole, under the names of its `state_dict()`.

    Buffers that `state_dict()` would leave out are included: their names are stored in a set, which is not read.
    """
    tensors: dict[str, Any] = {}
    waiting, count = [("", module, 0)], 0
    while waiting and count < _MOST_MODULES and len(tensors) < _MOST_TENSORS:  # a shared one counts each time
        (at, module, depth), count = waiting.pop(), count + 1
        for part in ("_parameters", "_buffers"):
            tensors |= {f"{at}{name}": value for name, value in module.entries[part].items() if value is not None}
        inner = module.entries["_modules"].items() if depth < _DEEPEST else ()
        waiting += [(f"{at}{name}.", m, depth + 1) for name, m in inner if isinstance(m, Inert) and m.is_module]
    return tensors


def kind_of(value: Any) -> str:
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
        return f"{shape} with tensors" if any(isinstance(v, Strided | Other) for v in inner) else f"{shape} of objects"
    return type(value).__name__


def named_parts(value: Any) -> dict[Any, Any] | None:
    """The entries of a dictionary, or the attributes of an `Inert` object; None for anything else."""
    return value if isinstance(value, dict) else value.entries if isinstance(value, Inert) else None


def plain(value: Any, budget: int = 10_000, depth: int = 16) -> tuple[bool, int]:
    """Whether `value` is numbers, text and containers of them, within `budget` values and `depth` levels; and the values counted.

    A shared value counts each time.
    """
    level, count = [value], 0
    for _ in range(depth):
        count += len(level)
        if count > budget or not all(isinstance(v, _PLAIN) for v in level):
            return False, count
        if any(isinstance(k, OddKey) for v in level if isinstance(v, dict) for k in v):
            return False, count
        inner = [v.values() if isinstance(v, dict) else v for v in level if isinstance(v, list | tuple | dict)]
        if sum(map(len, inner)) > budget - count:
            return False, count
        level = [x for items in inner for x in items]
    return not level, count
