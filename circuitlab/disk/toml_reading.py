"""TOML of a file that a stranger may have written: its keys are counted before the library reads them.

`tomllib` looks a dotted key up once more for each of its parts: at 4 kB a line, a file within every bound of size takes hours.
"""

from __future__ import annotations

import re
import tomllib

from circuitlab.disk.json_types import JsonDict

DEEPEST = 32  # parts of a dotted key
_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+"""
_TOO_DEEP = re.compile(rf"(?:^[ \t]*+\[{{0,2}}+|[{{,])[ \t]*+{_PART}(?:\.[ \t]*+{_PART}){{{DEEPEST}}}", re.MULTILINE)


def toml_of(text: str) -> JsonDict:
    """The values of a TOML text. Raises `ValueError`, also for a key of more than `DEEPEST` parts, and `RecursionError`."""
    if _TOO_DEEP.search(text):
        raise ValueError(f"a key of more than {DEEPEST} parts between dots")
    return tomllib.loads(text)
