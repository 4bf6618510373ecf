"""From a `Setup` to the words of a step as a table of plain values; `words` lists the keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Literal

from circuitlab.disk.json_types import JsonDict
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.plain import to_json
from circuitlab.model.subject import Conventions
from circuitlab.story.setup import (
    LAYOUT,
    Direction,
    Edits,
    Encoded,
    Occurrence,
    Other,
    Play,
    Prompt,
    Random,
    Setup,
    Sweep,
    Where,
)
from circuitlab.story.zoom import zoom_table

_EMPTY = (*LAYOUT, "zoom", "view")  # words that are not set where they are empty


def table_of(setup: Setup) -> JsonDict:
    """The words of a setup as a table of plain values, in the order in which they are read; without those that are not set."""
    table: JsonDict = {}
    for name in (f.name for f in fields(Setup)):
        value = getattr(setup, name)
        if value is None or (name in _EMPTY and not value):
            continue
        table |= _WRITERS[name](value) if name in _WRITERS else {name: to_json(value)}
    return table


def _prompt_table(prompt: Prompt) -> JsonDict:
    if isinstance(prompt, Random):
        return {"random": to_json(prompt)}
    if isinstance(prompt, Encoded):
        return {"text": prompt.text, "tokens": list(prompt.ids)}
    return {"text": prompt} if isinstance(prompt, str) else {"tokens": list(prompt)}


def _edits_table(edits: Edits) -> JsonDict:
    return {"edits": [_edit_table(edit) | ({} if on else {"on": False}) for edit, on in edits]}


def _edit_table(edit: Intervention) -> JsonDict:
    lists = {n: list(getattr(edit, n)) for n in ("value", "source", "align") if getattr(edit, n)}
    sender = {} if edit.path_from is None else {"from": _site_table(edit.path_from)}
    return {"op": edit.op, **_site_table(edit.site), **lists, **sender}


def _site_table(site: Site) -> JsonDict:
    lists = {n: list(getattr(site, n)) for n in ("heads", "positions", "sources") if getattr(site, n)}
    return {"site": site.name, "layer": site.layer, **lists}


def _conventions_table(conventions: Conventions) -> JsonDict:
    default = Conventions()
    return {f.name: v for f in fields(Conventions) if (v := getattr(conventions, f.name)) != getattr(default, f.name)}


def _where_value(where: Where) -> object:
    if not isinstance(where, Occurrence):
        return list(where) if isinstance(where, tuple) else where
    return where.text if where.occurrence == -1 else to_json(where)


def _pin_value(pin: Other | Setup) -> JsonDict:
    if isinstance(pin, Setup):
        return {**table_of(pin), "whole": True}
    words = table_of(pin.words)
    return words | ({"label": pin.label} if pin.label or not words else {})


def _pin_table(pin: tuple[Other | Setup, ...] | Literal["before"]) -> JsonDict:
    if pin == "before" or not pin:
        return {"pin": pin or "none"}
    values = [_pin_value(one) for one in pin]
    return {"pin": values[0] if len(values) == 1 else values}


def _play_value(play: Play) -> object:
    if not isinstance(play, Sweep):
        return to_json(play)
    return {play.name: [play.first, play.last, *([] if play.count is None else [play.count])]}


_WRITERS: Mapping[str, Callable[[Any], JsonDict]] = {
    "prompt": _prompt_table,
    "edits": _edits_table,
    "conventions": lambda value: {"conventions": _conventions_table(value)},
    "destination": lambda value: {"destination": _where_value(value)},
    "source": lambda value: {"source": _where_value(value)},
    "target": lambda value: {"target": {"direction": list(value.values)} if isinstance(value, Direction) else list(value)},
    "pin": _pin_table,
    "play": lambda value: {"play": _play_value(value)},
    "zoom": lambda value: {"zoom": zoom_table(value)},
    "unknown": dict,
}
