"""What reaches a terminal: words of files with their control characters, escape sequences and turns of direction made visible.

Whatever prints, in whatever room, goes through the stream that `guarded` puts in the place of the process' own: a title of a
session cannot clear the screen, move the cursor or turn a line around. Bytes that are written to `.buffer` are data, and pass.
"""

from __future__ import annotations

import io
import json
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_LAYOUT = "\n\t"  # what a line of ours may have


def visible(text: str) -> str:
    """The text with what no screen shows, but lines and tabs, as escapes in the form of JSON: \\u001b."""
    return text if text.isprintable() else "".join(map(_shown, text))


def on_one_line(text: str) -> str:
    """`visible`, and on one line: a line break of a file cannot begin a line of its own."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def _shown(char: str) -> str:
    harmless = char.isprintable() or char in _LAYOUT or unicodedata.category(char) in ("Zs", "Co")
    return char if harmless else json.dumps(char)[1:-1] if ord(char) >= 128 else f"\\u{ord(char):04x}"


class _Door:
    """A text stream that shows what is written to it; everything else is the stream's own."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        self.plain = stream

    def write(self, text: str) -> int:
        """Write it, visible. Returns the length of what was given."""
        self.plain.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Each as by `write`."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self.plain, name)


@contextmanager
def guarded() -> Iterator[None]:
    """Inside, standard output and standard error show what they are given."""
    streams = sys.stdout, sys.stderr
    try:
        for name in ("stdout", "stderr"):
            if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
                setattr(sys, name, _Door(stream))
        yield
    finally:
        sys.stdout, sys.stderr = streams


def overwrite(line: str = "") -> None:
    """Write a line of progress over the one before, on standard error."""
    stream = getattr(sys.stderr, "plain", sys.stderr)
    stream.write(f"\r\x1b[K{on_one_line(line)}")
    stream.flush()
