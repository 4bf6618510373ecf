"""The text of a view inside PNG, SVG and PDF: read from what this and other programs write, and never trusted."""

from __future__ import annotations

import os
import struct
import time
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from circuitlab.errors import BadInput
from circuitlab.session_files.in_pictures import png
from circuitlab.session_files.in_pictures.limits import LARGEST, NAMESPACE
from circuitlab.session_files.in_pictures.reading import picture_text

TEXT = b'{"circuitlab": "session", "version": 1, "now": {"text": "a \\u2190 b & <c>"}}'
SECONDS, BYTES = 20.0, 256 * 2**20  # of processor time, of memory


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


SIGNATURE = b"\x89PNG\r\n\x1a\n"
HEADER = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
PIXELS, END = chunk(b"IDAT", zlib.compress(b"\0\xff")), chunk(b"IEND", b"")
PLAIN = SIGNATURE + HEADER + PIXELS + END
KEY = b"CircuitLab view\0"


def with_chunk(one: bytes, behind: bool = False) -> bytes:
    return SIGNATURE + HEADER + (PIXELS + one if behind else one + PIXELS) + END


def xmp(inside: bytes) -> bytes:
    packet = b'<?xpacket begin="\xef\xbb\xbf" id="W5M0MpCehiHzreSzNTczkc9d"?>\n<x:xmpmeta xmlns:x="adobe:ns:meta/">'
    return packet + inside + b'</x:xmpmeta>\n<?xpacket end="w"?>'


def escaped(text: bytes) -> bytes:
    return text.replace(b"&", b"&amp;").replace(b"<", b"&lt;").replace(b'"', b"&quot;")


NS = NAMESPACE.encode()
ELEMENT = b'<c:view xmlns:c="' + NS + b'">' + escaped(TEXT) + b"</c:view>"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><title>t</title>%s<g/></svg>'


def pdf(inside: bytes) -> bytes:
    return b"%PDF-1.4\n1 0 obj\n<</Type /Metadata>>\nstream\n" + inside + b"\nendstream\nendobj\n%%EOF\n"


READABLE = {
    "plain.png": with_chunk(chunk(b"tEXt", KEY + TEXT)),
    "behind.png": with_chunk(chunk(b"tEXt", KEY + TEXT), behind=True),
    "another first.png": with_chunk(chunk(b"tEXt", b"Title\0t") + chunk(b"tEXt", KEY + TEXT)),
    "compressed.png": with_chunk(chunk(b"zTXt", KEY + b"\0" + zlib.compress(TEXT))),
    "international.png": with_chunk(chunk(b"iTXt", KEY + b"\0\0en\0Ansicht\0" + TEXT)),
    "both.png": with_chunk(chunk(b"iTXt", KEY + b"\1\0\0\0" + zlib.compress(TEXT))),
    "written.png": png.with_text(PLAIN, TEXT.decode()),
    "a.svg": SVG % (b"<metadata>" + ELEMENT + b"</metadata>"),
    "declared.svg": b'\xef\xbb\xbf<?xml version="1.0"?>\n<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://nobody/x.dtd">'
    + SVG % ELEMENT,
    "rewritten.svg": SVG % (b'<metadata><view xmlns="' + NS + b'"><![CDATA[' + TEXT + b"]]></view></metadata>"),
    "a.pdf": pdf(xmp(ELEMENT)),
    "attribute.pdf": pdf(xmp(b'<r xmlns:c="' + NS + b'" c:view="' + escaped(TEXT) + b'"/>')),
    "second packet.pdf": pdf(xmp(b"<of-an-image/>") + b"\0" * 3000 + xmp(ELEMENT)),
}


def told(tmp_path: Path, name: str, data: bytes | Callable[[Path], None]) -> bytes | None:
    path = tmp_path / name
    path.write_bytes(data) if isinstance(data, bytes) else data(path)
    tracemalloc.start()
    began = time.process_time()
    try:
        return picture_text(path)
    finally:
        seconds, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert seconds < SECONDS and peak < BYTES, f"{seconds} s, {peak >> 20} MiB"


@pytest.mark.parametrize("name", READABLE)
def test_the_text_is_found_however_it_was_written(tmp_path: Path, name: str) -> None:
    assert told(tmp_path, name, READABLE[name]) == TEXT


def test_a_picture_is_told_by_its_content(tmp_path: Path) -> None:
    assert told(tmp_path, "really a.svg", READABLE["plain.png"]) == TEXT
    assert told(tmp_path, "talk.circuitlab", TEXT) is None
    assert told(tmp_path, "empty.circuitlab", b"") is None
    with pytest.raises(BadInput, match="not a picture"):
        told(tmp_path, "a.png", b"GIF89a")


@pytest.mark.parametrize(
    ("name", "data"),
    [("a.png", PLAIN), ("a.svg", SVG % b""), ("a.pdf", pdf(xmp(b"<r/>"))), ("b.pdf", pdf(b"")), ("a.svg", b"<")],
)
def test_a_picture_without_a_view_says_so(tmp_path: Path, name: str, data: bytes) -> None:
    with pytest.raises(BadInput, match=f"{name} does not say what it shows") as caught:
        told(tmp_path, name, data)
    assert caught.value.remedy


def flipped(data: bytes, sought: bytes) -> bytes:
    at = data.index(sought) + 3
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def sparse(head: bytes, size: int) -> Callable[[Path], None]:
    """A file of that size which begins with `head` and is zeros behind it."""

    def write(path: Path) -> None:
        with path.open("wb") as file:
            file.write(head)
            file.truncate(size)

    return write


_deflater = zlib.compressobj(1)
BOMB = b"".join(_deflater.compress(bytes(2**20)) for _ in range(300)) + _deflater.flush()
LAUGHS = b"<!DOCTYPE svg [<!ENTITY a 'ha'>" + b"".join(
    b"<!ENTITY %c '%s'>" % (c, b"&%c;" % (c - 1) * 10) for c in range(ord("b"), ord("k"))
)
DAMAGED = {
    "checksum.png": flipped(READABLE["plain.png"], b"session"),
    "cut.png": READABLE["plain.png"][: len(SIGNATURE + HEADER) + 60],
    "100 MB that are there.png": sparse(SIGNATURE + HEADER + struct.pack(">I", 100 * 2**20) + b"tEXt" + KEY, 101 * 2**20),
    "100 MB that are not.png": SIGNATURE + HEADER + struct.pack(">I", 100 * 2**20) + b"tEXt" + KEY + TEXT,
    "inflates to 300 MB.png": with_chunk(chunk(b"zTXt", KEY + b"\0" + BOMB)),
    "half a stream.png": with_chunk(chunk(b"zTXt", KEY + b"\0" + zlib.compress(TEXT)[:-9])),
    "no stream.png": with_chunk(chunk(b"zTXt", KEY + b"\0" + TEXT)),
    "no keywords.png": with_chunk(chunk(b"iTXt", KEY + b"\0\0" + TEXT)),
    "laughs.svg": LAUGHS + b"]>" + SVG % (b'<c:view xmlns:c="' + NS + b'">&j;</c:view>'),
    "laughs.pdf": pdf(xmp(b"").replace(b"<x:xmpmeta", LAUGHS + b"]><x:xmpmeta").replace(b"</x:", ELEMENT + b"</x:")),
    "a file of the machine.svg": b"<!DOCTYPE svg [<!ENTITY a SYSTEM 'file:///etc/passwd'>]>"
    + SVG % ELEMENT.replace(b"</c:", b"&a;</c:"),
    "deep.svg": b"<g>" * 2**20 + b"<!-- " + NS + b" -->",
    "never ends.svg": SVG[:40] + ELEMENT[:60],
    "mixed.svg": SVG % ELEMENT.replace(b"</c:", b"<b/></c:"),
    "no encoding.svg": b'<?xml version="1.0" encoding="klingon"?>' + SVG % ELEMENT,
    "too long.svg": SVG % ELEMENT.replace(TEXT[-2:], b"x" * (LARGEST + 1)),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_damaged_or_hostile_is_refused_in_time(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput) as caught:
        told(tmp_path, name, DAMAGED[name])
    assert caught.value.expected and caught.value.got and caught.value.remedy
    assert "root:" not in str(caught.value)


def test_what_looks_endless_ends(tmp_path: Path) -> None:
    """Chunks, packets and elements without number, and files larger than any picture: nothing is found, in time."""
    endless = {
        "chunks.png": SIGNATURE + HEADER + chunk(b"aaAa", b"") * 400_000,
        "texts.png": SIGNATURE + HEADER + chunk(b"tEXt", b"Title\0" + bytes(9)) * 200_000,
        "packets.pdf": b"%PDF-1.4\n" + NS + b'<?xpacket begin="" ?>' * 200_000,
        "large.pdf": sparse(b"%PDF-1.4\n", 2**30),
        "large.svg": sparse(b"<svg ", 2**30),
    }
    for name, data in endless.items():
        with pytest.raises(BadInput, match="does not say what it shows"):
            told(tmp_path, name, data)


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX system")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(OSError, match="pipe"):
        picture_text(tmp_path / "a.png")


@pytest.mark.parametrize(("begin", "end"), [(b'<g a="', b'"/>'), (b"<!--", b"-->"), (b"<?a ", b"?>")])
def test_a_long_tag_is_read_once_and_a_longer_one_is_not(tmp_path: Path, begin: bytes, end: bytes) -> None:
    long = lambda size: SVG % (begin + b"x" * size + end + ELEMENT)
    assert told(tmp_path, "long.svg", long(10 * 2**20)) == TEXT
    with pytest.raises(BadInput, match="view in the picture") as caught:
        told(tmp_path, "longer.svg", long(100 * 2**20))
    assert "tags" in caught.value.expected


def test_attributes_that_every_element_would_have_are_refused(tmp_path: Path) -> None:
    declared = b"<!DOCTYPE svg [<!ATTLIST g a CDATA '" + b"x" * 2**20 + b"'>]>"
    with pytest.raises(BadInput, match="view in the picture"):
        told(tmp_path, "a.svg", declared + SVG % (b"<g/>" * 100_000 + ELEMENT))
