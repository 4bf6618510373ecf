"""A PNG says its view in a tEXt chunk in front of its pixels; compressed and Unicode ones, as other programs write, are read too.

Chunks are those of the PNG specification (third edition, sections 5.3 and 11.3.3): length, type, data, CRC of type and data.
"""

from __future__ import annotations

import os
import struct
import zlib
from typing import IO

from circuitlab.counting import number_of
from circuitlab.session_files.in_pictures.limits import LARGEST, damaged, too_large

SIGNATURE = b"\x89PNG\r\n\x1a\n"
KEYWORD = b"CircuitLab view"
MOST_CHUNKS = 2**17  # more than of any picture of 1 GiB in the usual pieces of 8 KiB
_HEAD = len(SIGNATURE) + 25  # signature and IHDR, which comes first
_TEXTS = (b"tEXt", b"zTXt", b"iTXt")


def with_text(data: bytes, text: str) -> bytes:
    """The PNG with a text of ASCII characters."""
    body = b"tEXt" + KEYWORD + b"\0" + text.encode("ascii")
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return data[:_HEAD] + chunk + data[_HEAD:]


def text_in(file: IO[bytes]) -> bytes | None:
    """The text in a PNG, None if it has none. Raises `BadInput` where the chunk is damaged or too large, `OSError`."""
    end = file.seek(0, os.SEEK_END)
    at = len(SIGNATURE)
    for _ in range(MOST_CHUNKS):
        file.seek(at)
        head = file.read(8)
        if len(head) < 8 or head[4:] == b"IEND":
            return None
        length, kind = struct.unpack(">I4s", head)
        if kind in _TEXTS and file.read(len(KEYWORD) + 1) == KEYWORD + b"\0":
            return _text(file, at, length, kind, end)
        at += length + 12
    return None


def _text(file: IO[bytes], at: int, length: int, kind: bytes, end: int) -> bytes:
    """The text of a chunk that begins at a byte of the file."""
    if length > LARGEST:
        too_large()
    if at + length + 12 > end:
        damaged(f"a chunk of {number_of(length, 'byte')}", f"the end of the file after {end - at - 8}")
    file.seek(at + 4)
    body, crc = file.read(length + 4), file.read(4)
    if struct.pack(">I", zlib.crc32(body)) != crc:
        damaged("a chunk with its checksum", "another checksum")
    value = body[4 + len(KEYWORD) + 1 :]
    if kind == b"iTXt":
        packed, _, rest = value[:1], value[1:2], value[2:].split(b"\0", 2)
        if len(rest) != 3:
            damaged("a language and a translated keyword before the text", "none")
        return _inflated(rest[2]) if packed == b"\1" else rest[2]
    return value if kind == b"tEXt" else _inflated(value[1:])


def _inflated(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(data, LARGEST + 1)
    except zlib.error as error:
        damaged("a text that was compressed by zlib", error)
    if len(text) > LARGEST:
        too_large()
    if not inflater.eof:
        damaged("a compressed text that is whole", "the beginning of one")
    return text
