"""Choosing the dictionary of a checkpoint that holds the weights, and listing what is beside it.

Trainers save the weights under a key of their own, beside an optimiser, counters and arguments. The usual keys are accepted; else
the only dictionary of tensors is taken, and among several the person chooses one (`under`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from circuitlab.counting import number_of
from circuitlab.disk.json_types import JsonDict
from circuitlab.errors import BadModel
from circuitlab.model.files.described import (
    MOST_OF_MODULES,
    Inert,
    Mark,
    OddKey,
    Other,
    Strided,
    kind_of,
    named_parts,
    plain,
    state_dict,
)

_USUAL = ("model", "state_dict", "model_state_dict", "module")
_DEEPEST = 6
_MOST = 2_000  # dictionaries searched
_LISTED = 12
_MOST_BESIDE, _LARGEST = 2_000, 2**18  # values beside the weights that are examined, and the values within all of them
_MOST_NESTED = 10_000  # values within one of them that is nested


@dataclass(frozen=True)
class Chosen:
    """The dictionary of the weights; `around`: the dictionaries it lies in, outermost first, each with the key towards it."""

    weights: Mapping[Any, Any]
    under: str
    others: tuple[str, ...]
    usual: bool
    around: tuple[tuple[Any, Any], ...]


@dataclass(frozen=True)
class _Option:
    """One dictionary of tensors."""

    path: tuple[str, ...]
    weights: Mapping[Any, Any]
    around: tuple[tuple[Any, Any], ...]

    @property
    def key(self) -> str:
        return ".".join(self.path)


def choose(name: str, contents: object, under: str | None = None) -> Chosen:
    """The weights in what the file `name` holds. Raises `BadModel` where there are none, or several and `under` is None."""
    options = _options(contents)
    if not options:
        raise _no_tensors(name, contents)
    keys = [o.key for o in options]
    if under is not None:
        option = next((o for o in options if o.key == under), None)
        if option is None:
            shown = ", ".join(_shown(k) for k in keys[:_LISTED])
            raise BadModel(f"{name} has no tensors under that key.", expected=shown, got=_shown(under))
        return Chosen(option.weights, under, _without(keys, under), False, option.around)
    usual = next((o for key in _USUAL for o in options if o.path == (key,)), None)
    usual = usual or next((o for o in options if not o.path), None)
    option = usual or (options[0] if len(options) == 1 else None)
    if option is None:
        raise BadModel(
            f"{name} holds tensors under several keys.",
            expected="one dictionary of weights, or the key of the right one",
            got=", ".join(_shown(k) for k in keys[:_LISTED]) + (f" and {len(keys) - _LISTED} more" if keys[_LISTED:] else ""),
            remedy=f'State it: --assume under={_shown(keys[0])}; in a map of `circuitlab import`: under = "{_shown(keys[0])}".',
            asks={"under": tuple(keys[:_LISTED])},
        )
    return Chosen(option.weights, option.key, _without(keys, option.key), usual is not None, option.around)


def _without(keys: list[str], key: str) -> tuple[str, ...]:
    return tuple(k for k in keys if k != key)[:_LISTED]


def _options(contents: object) -> list[_Option]:
    """Every dictionary of tensors, outermost first; for a module that was saved whole, its state dict."""
    options: list[_Option] = []
    waiting, count, modules, room = [_Option((), {}, ())], 0, set[int](), MOST_OF_MODULES
    at: dict[tuple[str, ...], Any] = {(): contents}
    seen: dict[int, tuple[bool, list[tuple[Any, Any]]]] = {}  # what is in a dictionary that may stand under many keys
    while waiting and count < _MOST:
        option, count = waiting.pop(0), count + 1
        value = at[option.path]
        module_tensors, around = None, option.around
        if isinstance(value, Inert) and value.is_module:
            if id(value) in modules:
                continue
            modules.add(id(value))
            module_tensors, room = state_dict(value, room)
            around = (*around, ({k: v for k, v in value.entries.items() if not k.startswith("_")}, None))
        parts = module_tensors if module_tensors is not None else named_parts(value)
        if parts is None:
            continue
        if id(parts) not in seen or module_tensors is not None:
            seen[id(parts)] = _inside(parts)
        tensors, dictionaries = seen[id(parts)]
        if tensors:
            options.append(_Option(option.path, parts, around))
        if module_tensors is not None or _is_optimiser(parts) or len(option.path) == _DEEPEST:
            continue
        for key, inner in dictionaries[: _MOST - len(at)]:
            if (path := (*option.path, str(key))) not in at:
                at[path] = inner
                waiting.append(_Option(path, {}, (*option.around, (parts, key))))
    return options


def _inside(parts: Mapping[Any, Any]) -> tuple[bool, list[tuple[Any, Any]]]:
    """Whether there are tensors in a dictionary, and the dictionaries and objects in it by their keys."""
    tensors = any(isinstance(v, Strided | Other) for v in parts.values())
    return tensors, [(key, inner) for key, inner in parts.items() if named_parts(inner) is not None]


def _is_optimiser(parts: Mapping[Any, Any]) -> bool:
    """Whether this is the state dict of a torch optimiser, whose tensors are not weights."""
    return isinstance(parts.get("param_groups"), list) and isinstance(parts.get("state"), dict)


def _no_tensors(name: str, contents: object) -> BadModel:
    parts = named_parts(contents)
    if parts is None:
        return BadModel(f"{name} holds no state dict.", expected="tensors by name", got=kind_of(contents)[:100])
    if any(isinstance(v, Inert) and v.kind == "numpy.ndarray" for v in parts.values()):
        return BadModel(
            f"{name} holds NumPy arrays, not tensors.",
            expected="tensors by name",
            got=f"{number_of(len(parts), 'entry', 'entries')}: {', '.join(_shown(k) for k in list(parts)[:6])}",
            remedy="Save them as tensors: torch.save({name: torch.from_numpy(x) for name, x in arrays.items()}, FILE).",
        )
    got = ", ".join(_shown(k) for k in list(parts)[:6]) or "an empty dictionary"
    return BadModel(f"{name} holds no tensors.", expected="tensors by name", got=got)


def beside(chosen: Chosen) -> tuple[JsonDict, tuple[str, ...]]:
    """(plain values around and among the weights, lines that name everything else there)."""
    rest = _Beside()
    for parts, leads_on in chosen.around:
        rest.look((k, v) for k, v in parts.items() if k != leads_on)
    rest.look((k, v) for k, v in chosen.weights.items() if not isinstance(v, Strided | Other))
    more = (f"and {len(rest.skipped) - _LISTED} more",) if len(rest.skipped) > _LISTED else ()
    return rest.metadata, (*rest.skipped[:_LISTED], *more)


class _Beside:
    """Collects `metadata` and `skipped` from at most `_MOST_BESIDE` values, which hold at most `_LARGEST` values."""

    def __init__(self) -> None:
        self.metadata, self.skipped = dict[str, Any](), list[str]()
        self._left, self._room = _MOST_BESIDE, _LARGEST

    def look(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Collect from the entries of one dictionary; those that are not plain values are only named."""
        for key, value in entries:
            if self._left < 0:
                return
            if not isinstance(key, OddKey) and self._plain(value):
                self.metadata[str(key)] = value
                continue
            parts = named_parts(value) or {}
            few = len(parts) <= self._left  # a dictionary cut short would hide what it lacks; a long one is said in one line
            plain_attributes = (
                {k: v for k, v in parts.items() if not isinstance(k, OddKey) and self._plain(v)}
                if few and not _is_optimiser(parts)
                else {}
            )
            if plain_attributes:
                self.metadata[str(key)] = plain_attributes
            self.skipped += self._named(key, value, parts, plain_attributes) if few else [_line(key, value)]

    def _named(
        self, key: object, value: object, parts: Mapping[object, object], plain_attributes: Mapping[object, object]
    ) -> list[str]:
        """Lines on the parts of one entry that are not read."""
        if _is_optimiser(parts):
            return [f"{_shown(key)} (the state of an optimiser)"]
        lost = {k: v for k, v in parts.items() if k not in plain_attributes and not (isinstance(v, Mark) and v.value is not None)}
        if isinstance(value, Inert) or not parts or any(isinstance(v, Strided | Other) for v in lost.values()):
            only = ", but for its plain attributes" if plain_attributes and isinstance(value, Inert) else ""
            return [_line(key, value, only)]
        return [f"{_shown(key)}.{_shown(k)} ({kind_of(v)[:60]})" for k, v in lost.items()]

    def _plain(self, value: object) -> bool:
        self._left -= 1
        flat = isinstance(value, dict | list) and len(value) > _MOST_NESTED  # a vocabulary may be larger than anything nested
        is_plain, count = plain(value, min(self._room, 2**17), 2) if flat else plain(value, min(self._room, _MOST_NESTED))
        self._room -= count
        return is_plain and self._left >= 0


def _line(key: object, value: object, only: str = "") -> str:
    """That a value is not read, and of what kind it is."""
    return f"{_shown(key)} ({kind_of(value)[:60]}{only})"


def _shown(key: object) -> str:
    """A key as it may be printed."""
    text = str(key)
    return text[:60] if text.isprintable() else ascii(text)[1:-1][:60]
