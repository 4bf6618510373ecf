"""Tables in source code: long runs of lines of one shape, such as lists of Unicode names or of character codes.

A model that reads them learns the table: a tenth of the standard library without this filter is names of characters. The shape
of a line is the line with every run of words and numbers taken as one word: `'\\x41' #  LATIN CAPITAL LETTER A` and the line
after it have one shape. A run of at least `LONGEST` lines of a shape is a table, and is left out but for its first lines.
"""

from __future__ import annotations

import re
from itertools import groupby

LONGEST, KEPT = 24, 3
_WORDS = re.compile(r"[\w\\.+-]+(?: +[\w\\.+-]+)*")


def shape(line: str) -> str:
    """The line with every run of words and numbers replaced by one letter."""
    return _WORDS.sub("w", " ".join(line.split()))


def without_tables(code: str) -> tuple[str, int]:
    """(the code without its tables, the number of lines left out)."""
    kept: list[str] = []
    dropped = 0
    for _, run in groupby(code.split("\n"), key=shape):
        lines = list(run)
        short = len(lines) < LONGEST or not any(map(str.strip, lines))
        kept += lines if short else lines[:KEPT]
        dropped += 0 if short else len(lines) - KEPT
    return "\n".join(kept), dropped
