"""Tables in source code: long runs of lines of one shape, such as lists of Unicode names or of character codes.

A model trained on them learns the tables: names of characters are a tenth of the unfiltered standard library. The shape of a line
is the line with every run of words and numbers taken as one word: `'\\x41' #  LATIN CAPITAL LETTER A` and the line after it have
one shape. A run of at least `LONGEST` lines of a shape is a table, of which only the first lines (`FIRST`) are kept.
"""

from __future__ import annotations

import re
from itertools import groupby

LONGEST, FIRST = 24, 3
_WORDS = re.compile(r"[\w\\.+-]+(?: +[\w\\.+-]+)*")


def shape(line: str) -> str:
    """The line with every run of words and numbers replaced by one letter."""
    return _WORDS.sub("w", " ".join(line.split()))


def without_tables(code: str) -> tuple[str, int]:
    """(the code without its tables, the number of lines left out)."""
    lines: list[str] = []
    n_dropped = 0
    for _, group in groupby(code.split("\n"), key=shape):
        run = list(group)
        is_table = len(run) >= LONGEST and any(map(str.strip, run))
        lines += run[:FIRST] if is_table else run
        n_dropped += len(run) - FIRST if is_table else 0
    return "\n".join(lines), n_dropped
