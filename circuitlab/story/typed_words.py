"""Words of one type in a table: None where the key is absent, and the error that `refuse` returns where it is another type."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from circuitlab.disk.json_types import JsonObject
from circuitlab.errors import BadInput

Refuse = Callable[[str, str, str, object], BadInput]  # (key, what, expected, got)


def is_whole(value: object) -> bool:
    """Whether a value is a whole number; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether a value is a finite number; True and False are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def text_of(table: Mapping[str, object], name: str, refuse: Refuse) -> str | None:
    """A text."""
    value = table.get(name)
    if value is not None and not isinstance(value, str):
        raise refuse(name, f"{name} cannot be read.", "a text", value)
    return value


def truth_of(table: Mapping[str, object], name: str, refuse: Refuse) -> bool | None:
    """True or False."""
    value = table.get(name)
    if value is not None and not isinstance(value, bool):
        raise refuse(name, f"{name} cannot be read.", "true or false", value)
    return value


def texts_of(table: JsonObject, name: str, refuse: Refuse) -> tuple[str, ...] | None:
    """Texts, none of them empty; one alone is a list of one."""
    if name not in table:
        return None
    value = [table[name]] if isinstance(table[name], str) else table[name]
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) and v for v in value):
        raise refuse(name, f"{name} cannot be read.", "a list of texts", table[name])
    return tuple(value)


def choice_of(table: Mapping[str, object], name: str, choices: tuple[str, ...], refuse: Refuse) -> Any:
    """One of these texts."""
    value = table.get(name)
    if value is not None and value not in choices:
        raise refuse(name, f"{name} cannot be read.", " ".join(choices), value)
    return value
