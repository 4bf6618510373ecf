"""Strict JSON for model files: no name twice in one object, bounded nesting, bounded whole numbers.

Python's parser takes the last of two equal names, which could go unnoticed. A whole number beyond 64 bits is read as a float:
nearly every tokenizer's configuration has one that decides nothing (`"model_max_length": 1000000000000000019884624838656`), and
what needs a whole number refuses a float by its name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from circuitlab.counting import number_of
from circuitlab.errors import BadModel
from circuitlab.model.files.whole_file import WholeFile

LARGEST = 16 * 2**20  # bytes of the file: in memory they take up to 24 times as much
_DEEPEST = 64
_MOST_DIGITS = 4300  # as many as Python itself reads of a whole number


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises `BadModel`."""
    file = WholeFile(path)
    if file.size > LARGEST:
        raise BadModel(f"{file.name} is too large.", expected=f"at most {LARGEST >> 20} MiB", got=number_of(file.size, "byte"))
    data = parse(file.read(0, file.size), file.name)
    if _deeper_than(data, _DEEPEST):
        raise BadModel(f"{file.name} is nested too deep.", expected=f"at most {_DEEPEST} levels", got="more")
    return data


def parse(data: bytes, name: str) -> dict[str, Any]:
    """The JSON object in `data`, the contents of the file `name`. Raises `BadModel`."""
    try:
        value = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_once, parse_int=_whole_number)
    except (ValueError, RecursionError) as error:
        reason = "nesting without end" if isinstance(error, RecursionError) else str(error)[:200]
        raise BadModel(
            f"{name} is not JSON.", expected="a JSON object, each name once", got=reason, remedy="Copy or download it again."
        ) from error
    if not isinstance(value, dict):
        raise BadModel(f"{name} is not a JSON object.", expected="an object", got=type(value).__name__)
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    by_name = dict(pairs)
    if len(by_name) < len(pairs):
        names: set[str] = set()
        twice = next(name for name, _ in pairs if name in names or names.add(name))
        raise ValueError(f"{twice[:100]!r} occurs twice")
    return by_name


def _whole_number(text: str) -> int | float:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a number of {number_of(len(text), 'digit')}")
    value = int(text)
    return value if -(2**63) <= value < 2**63 else float(text)  # infinite beyond a float's range, as 1e999 is


def _deeper_than(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most):
        level = [inner for x in level if isinstance(x, dict | list) for inner in (x.values() if isinstance(x, dict) else x)]
        if not level:
            return False
    return any(isinstance(x, dict | list) for x in level)
