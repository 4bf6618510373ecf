"""A file in pieces, so that a large one is never in memory whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from circuitlab.session_files.in_pictures.limits import PIECE


def pieces(file: IO[bytes], most: int) -> Iterator[bytes]:
    """The first `most` bytes."""
    file.seek(0)
    while most > 0 and (piece := file.read(min(PIECE, most))):
        most -= len(piece)
        yield piece


def places(file: IO[bytes], words: bytes, most: int) -> Iterator[int]:
    """Where words stand among the first `most` bytes. The file may be moved in between."""
    at, tail = 0, b""
    while at < most:
        file.seek(at)
        piece = file.read(min(PIECE, most - at))
        if not piece:
            return
        searched, begin = tail + piece, at - len(tail)
        offset = searched.find(words)
        while offset >= 0:
            yield begin + offset
            offset = searched.find(words, offset + 1)
        at, tail = at + len(piece), searched[max(0, len(searched) - len(words) + 1) :]


def mentions(file: IO[bytes], words: bytes, most: int) -> bool:
    """Whether words stand among the first `most` bytes."""
    return next(places(file, words, most), None) is not None
