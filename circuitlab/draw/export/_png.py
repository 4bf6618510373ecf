# pyright: reportArgumentType=false, reportCallIssue=false
"""A large PNG in pieces, so that a picture never stands in memory whole, and Ctrl+C is heard between two of them.

Chunks and filters are those of the PNG specification (third edition, sections 9, 10 and 11). Qt writes a picture in one call: a
hundred million dots take it eleven seconds in which no interrupt arrives, and four bytes each.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from PySide6.QtGui import QImage

from circuitlab.interrupts import pass_on
from circuitlab.session_files.in_pictures.png import SIGNATURE

STRIP = 8_000_000  # dots that are drawn at a time: 32 MB
_PIECE = 2**22  # bytes that are packed at a time
_GREY, _COLOUR = 0, 2  # colour types
_UP = 2  # the filter that gives the difference to the row above

Draw = Callable[[int, int], QImage]


def png_of(draw: Draw, size: tuple[int, int], dots_per_metre: int, texts: Mapping[str, str], grey: bool) -> bytes:
    """The bytes of a PNG of `size` (width, height). `draw(top, rows)`: the picture of so many rows from `top` on, in RGB32."""
    width, height = size
    header = struct.pack(">IIBBBBB", width, height, 8, _GREY if grey else _COLOUR, 0, 0, 0)
    chunks = [_chunk(b"IHDR", header), _chunk(b"pHYs", struct.pack(">IIB", dots_per_metre, dots_per_metre, 1))]
    chunks += [_chunk(b"iTXt", name.encode("latin-1") + bytes(5) + text.encode("utf-8")) for name, text in texts.items()]
    chunks += [_chunk(b"IDAT", data) for data in _packed(_filtered(draw, width, height, grey))]
    return b"".join((SIGNATURE, *chunks, _chunk(b"IEND", b"")))


def _filtered(draw: Draw, width: int, height: int, grey: bool) -> Iterator[bytes]:
    """Strips of filtered rows, each row behind the number of its filter."""
    rows = max(1, STRIP // width)
    above = np.zeros((1, width * (1 if grey else 3)), dtype=np.uint8)
    for top in range(0, height, rows):
        strip = _samples(draw(top, min(rows, height - top)), grey)
        filtered = np.full((len(strip), 1 + strip.shape[1]), _UP, dtype=np.uint8)
        np.subtract(strip, np.concatenate((above, strip[:-1])), out=filtered[:, 1:])  # modulo 256, as a filter is
        above = strip[-1:]
        yield filtered.tobytes()


def _samples(image: QImage, grey: bool) -> np.ndarray:
    """[row, byte] of an image: a byte for each dot, or three."""
    image = image.convertToFormat(QImage.Format.Format_Grayscale8 if grey else QImage.Format.Format_RGB888)
    lines = np.frombuffer(image.constBits(), dtype=np.uint8).reshape(image.height(), image.bytesPerLine())
    return lines[:, : image.width() * (1 if grey else 3)].copy()  # each line of Qt ends at a multiple of four bytes


def _packed(strips: Iterator[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj()
    for strip in strips:
        for at in range(0, len(strip), _PIECE):
            pass_on()
            yield packer.compress(strip[at : at + _PIECE])
    yield packer.flush()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
