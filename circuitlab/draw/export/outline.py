"""The outline of a PDF, which a reader shows beside its pages: Qt has no call for it.

Its objects and what leads to them are those of the PDF specification (ISO 32000-1, 12.3.2 and 12.3.3).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_KIDS = re.compile(rb"/Kids\s*\[([^\]]*)\]")
_REFERENCE = re.compile(rb"(\d+) 0 R")
_BOX = re.compile(rb"/MediaBox\s*\[\s*[-\d.]+\s+[-\d.]+\s+[-\d.]+\s+([-\d.]+)\s*\]")

Objects = dict[int, tuple[bytes, bytes]]  # by number: what may refer to others, and the stream behind it


@dataclass(frozen=True)
class Bookmark:
    """An entry of an outline. `page`: from 0; `top`: points below the upper edge of that page."""

    title: str
    page: int
    top: float


def add_outline(objects: Objects, catalog: int, bookmarks: Sequence[Bookmark]) -> None:
    """Give the document whose catalog has this number an outline of one level."""
    if not bookmarks:
        return
    pages, root = _pages_of(objects, catalog), max(objects) + 1
    last = root + len(bookmarks)
    objects[root] = (
        b"<<\n/Type /Outlines\n/First %d 0 R\n/Last %d 0 R\n/Count %d\n>>\nendobj\n" % (root + 1, last, last - root),
        b"",
    )
    for number, bookmark in enumerate(bookmarks, start=root + 1):
        around = b"/Prev %d 0 R\n" % (number - 1) if number > root + 1 else b""
        around += b"/Next %d 0 R\n" % (number + 1) if number < last else b""
        page = pages[bookmark.page]
        place = b"/Dest [%d 0 R /XYZ null %.2f null]" % (page, _height_of(objects[page][0]) - bookmark.top)
        entry = b"<<\n/Title %s\n/Parent %d 0 R\n%s%s\n>>\nendobj\n" % (_string(bookmark.title), root, around, place)
        objects[number] = entry, b""
    head, stream = objects[catalog]
    objects[catalog] = head.replace(b"/Type /Catalog", b"/Type /Catalog\n/Outlines %d 0 R" % root, 1), stream


def _pages_of(objects: Objects, catalog: int) -> list[int]:
    """The numbers of the pages, in their order: Qt's tree of them has one level."""
    tree = re.search(rb"/Pages (\d+) 0 R", objects[catalog][0])
    kids = _KIDS.search(objects[int(tree[1])][0]) if tree else None
    assert kids is not None
    return [int(number) for number in _REFERENCE.findall(kids[1])]


def _height_of(page: bytes) -> float:
    box = _BOX.search(page)
    assert box is not None
    return float(box[1])


def _string(words: str) -> bytes:
    """A text of any alphabet (7.9.2.2), in hexadecimal digits: nothing in it is taken for a reference."""
    return b"<FEFF%s>" % words.encode("utf-16-be", "replace").hex().upper().encode("ascii")
