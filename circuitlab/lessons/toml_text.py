"""TOML text of plain tables, as a person would write the block of a lesson: a value on a line, larger tables under headings.

`tomllib` reads it back as the same values. TOML has no null, and no text that is not Unicode: both are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping

from circuitlab.disk.json_types import JsonObject
from circuitlab.errors import BadInput

_BARE = re.compile(r"[A-Za-z0-9_-]+")
Refuse = Callable[[str, str, object], BadInput]  # (where, expected, got)


def toml_lines(table: JsonObject, headed: tuple[str, ...], refuse: Refuse, within: str = "") -> Iterator[str]:
    """The lines of a table. `headed`: keys whose tables get a heading each, `[key.name]`, after all other keys.

    Raises the error that `refuse(where, expected, got)` returns for a value that TOML does not have.
    `within`: where the table is.
    """
    for key, value in table.items():
        if key not in headed:
            yield f"{_key(key, refuse)} = {_value(value, within + key, refuse, wide=True)}"
    for key in headed:
        for name, inner in table.get(key, {}).items():
            yield f"[{_key(key, refuse)}.{_key(name, refuse)}]"
            yield from toml_lines(inner, (), refuse, f"{key}.{name}.")


def _key(key: str, refuse: Refuse) -> str:
    return key if _BARE.fullmatch(key) else _string(key, key, refuse)


def _value(value: object, where: str, refuse: Refuse, wide: bool = False) -> str:
    """The text of a value. `wide`: a list of tables takes a line for each."""
    if isinstance(value, str):
        return _string(value, where, refuse)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        inside = (f"{_key(k, refuse)} = {_value(v, f'{where}.{k}', refuse)}" for k, v in value.items())
        return f"{{ {', '.join(inside)} }}" if value else "{}"
    if not isinstance(value, (list, tuple)):
        raise refuse(where, "a text, a number, true, false, a list or a table", value)
    items = [_value(v, where, refuse) for v in value]
    if wide and len(items) > 1 and all(isinstance(v, Mapping) for v in value):
        return "[\n" + "".join(f"  {item},\n" for item in items) + "]"
    return f"[{', '.join(items)}]"


def _string(text: str, where: str, refuse: Refuse) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise refuse(where, "Unicode text", ascii(text)[:80]) from error
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def long_string(text: str, where: str, refuse: Refuse) -> str:
    """A text of several lines as several lines, none of which ends a fenced block."""
    lines = (_string(line, where, refuse)[1:-1].replace("```", "\\u0060``") for line in text.split("\n"))
    return '"""\n' + "\n".join(lines) + '"""'
