"""Which dictionary of a checkpoint holds the weights, and what lies beside it.

Trainers keep the weights under a key of their own beside an optimiser, counters and arguments. The usual keys are taken as they
are; else the one dictionary of tensors that there is; of several the person says which (`under`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from circuitlab.errors import BadModel
from circuitlab.model.files.described import Inert, Mark, Other, Strided, kind_of, named_parts, plain, state_dict

_USUAL = ("model", "state_dict", "model_state_dict", "module")
_DEEPEST = 6
_MOST = 2_000  # dictionaries that are looked into
_LISTED = 12


@dataclass(frozen=True)
class Chosen:
    """The dictionary of the weights; `around` are those that it lies in, the outermost first, each with the key that leads on."""

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


def choose(name: str, held: Any, under: str | None = None) -> Chosen:
    """The weights in what the file `name` holds. Raises `BadModel` where there are none, or several and nobody said which."""
    options = _options(held)
    if not options:
        raise _no_tensors(name, held)
    keys = [o.key for o in options]
    if under is not None:
        found = next((o for o in options if o.key == under), None)
        if found is None:
            shown = ", ".join(_shown(k) for k in keys[:_LISTED])
            raise BadModel(f"{name} has no tensors under that key.", expected=shown, got=_shown(under))
        return Chosen(found.weights, under, _but(keys, under), False, found.around)
    usual = next((o for key in _USUAL for o in options if o.path == (key,)), None)
    usual = usual or next((o for o in options if not o.path), None)
    found = usual or (options[0] if len(options) == 1 else None)
    if found is None:
        raise BadModel(
            f"{name} holds tensors under several keys.",
            expected="one dictionary of weights, or the word which it is",
            got=", ".join(_shown(k) for k in keys[:_LISTED]) + (f" and {len(keys) - _LISTED} more" if keys[_LISTED:] else ""),
            remedy=f'Say it: --assume under={_shown(keys[0])}; in a map of `circuitlab import`: under = "{_shown(keys[0])}".',
            asks={"under": tuple(keys[:_LISTED])},
        )
    return Chosen(found.weights, found.key, _but(keys, found.key), usual is not None, found.around)


def _but(keys: list[str], key: str) -> tuple[str, ...]:
    return tuple(k for k in keys if k != key)[:_LISTED]


def _options(held: Any) -> list[_Option]:
    """Every dictionary of tensors, the outermost first; of a module that was saved whole its state dict."""
    found: list[_Option] = []
    waiting, seen = [_Option((), {}, ())], 0
    at: dict[tuple[str, ...], Any] = {(): held}
    while waiting and seen < _MOST:
        here, seen = waiting.pop(0), seen + 1
        value = at[here.path]
        whole = state_dict(value) if isinstance(value, Inert) and value.is_module else None
        parts = whole if whole is not None else named_parts(value)
        if parts is None:
            continue
        if any(isinstance(v, Strided | Other) for v in parts.values()):
            found.append(_Option(here.path, parts, here.around))
        if whole is not None or _is_optimiser(parts) or len(here.path) == _DEEPEST:
            continue
        for key, inner in parts.items():
            if named_parts(inner) is not None and (path := (*here.path, str(key))) not in at:
                at[path] = inner
                waiting.append(_Option(path, {}, (*here.around, (parts, key))))
    return found


def _is_optimiser(parts: Mapping[Any, Any]) -> bool:
    """Whether this is the state dict of one of torch's optimisers: its tensors are no weights."""
    return isinstance(parts.get("param_groups"), list) and isinstance(parts.get("state"), dict)


def _no_tensors(name: str, held: Any) -> BadModel:
    parts = named_parts(held)
    if parts is None:
        return BadModel(f"{name} holds no state dict.", expected="tensors by name", got=kind_of(held)[:100])
    if any(isinstance(v, Inert) and v.kind == "numpy.ndarray" for v in parts.values()):
        return BadModel(
            f"{name} holds arrays of numpy, no tensors.",
            expected="tensors by name",
            got=f"{len(parts)} entries: {', '.join(_shown(k) for k in list(parts)[:6])}",
            remedy="Save them as tensors: torch.save({name: torch.from_numpy(x) for name, x in arrays.items()}, FILE).",
        )
    got = ", ".join(_shown(k) for k in list(parts)[:6]) or "an empty dictionary"
    return BadModel(f"{name} holds no tensors.", expected="tensors by name", got=got)


def beside(chosen: Chosen) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Plain values around and among the weights, and what else there is, in words."""
    said: dict[str, Any] = {}
    skipped: list[str] = []
    for parts, leads_on in chosen.around:
        _look(((k, v) for k, v in parts.items() if k != leads_on), said, skipped)
    _look(((k, v) for k, v in chosen.weights.items() if not isinstance(v, Strided | Other)), said, skipped)
    more = (f"and {len(skipped) - _LISTED} more",) if len(skipped) > _LISTED else ()
    return said, (*skipped[:_LISTED], *more)


def _look(entries: Any, said: dict[str, Any], skipped: list[str]) -> None:
    for key, value in entries:
        if plain(value):
            said[str(key)] = value
            continue
        parts = named_parts(value) or {}
        kept = {k: v for k, v in parts.items() if plain(v)}
        lost = {k: v for k, v in parts.items() if k not in kept and not (isinstance(v, Mark) and v.value is not None)}
        if _is_optimiser(parts):
            skipped.append(f"{_shown(key)} (the state of an optimiser)")
            continue
        if kept:
            said[str(key)] = kept
        tensors = any(isinstance(v, Strided | Other) for v in lost.values())
        if isinstance(value, Inert) or tensors or not parts:
            only = ", but for its plain attributes" if kept and isinstance(value, Inert) else ""
            skipped.append(f"{_shown(key)} ({kind_of(value)[:60]}{only})")
        else:
            skipped += [f"{_shown(key)}.{_shown(k)} ({kind_of(v)[:60]})" for k, v in lost.items()]


def _shown(key: Any) -> str:
    """A key as it may be printed."""
    text = str(key)
    return text[:60] if text.isprintable() else ascii(text)[1:-1][:60]
