"""Qt's PDF made the same for the same picture: without the time, its objects in the order in which they refer to one another.

Qt writes fonts in the order of a hash table, which is another one in each process and wherever the fonts lie. Objects, the table
of their places and the trailer are those of the PDF specification (ISO 32000-1, 7.3 and 7.5).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from circuitlab.draw.export.outline import Bookmark, Objects, add_outline

_STREAM = re.compile(rb">>\s*stream\r?\n")
_REFERENCE = re.compile(rb"\((?:\\.|[^\\()])*\)|\b(\d+) 0 R\b", re.DOTALL)  # texts are passed over
_TAG = re.compile(rb"/FontName /[A-Z]{6}\+")  # six letters before the name of a part of a font, from its object's number
_DATE = re.compile(rb"/(?:CreationDate|ModDate) \(D:[^()]*\)\s*")


def settled(data: bytes, bookmarks: Sequence[Bookmark] = ()) -> bytes:
    """`data` from QPdfWriter with an outline, where there are bookmarks, and its objects put in order."""
    table_at = int(data[data.rindex(b"startxref") :].split()[1])
    table, _, trailer = data[table_at:].partition(b"trailer")
    trailer = trailer[: trailer.rindex(b"startxref")]
    objects = _objects(data[:table_at], table)
    catalog = re.search(rb"/Root (\d+) 0 R", trailer)
    assert catalog is not None
    add_outline(objects, int(catalog[1]), bookmarks)
    numbers = {old: new for new, old in enumerate(_order(trailer, objects), 1)}
    info = re.search(rb"/Info (\d+) 0 R", trailer)
    if info is not None:
        head, stream = objects[int(info[1])]
        objects[int(info[1])] = _DATE.sub(b"", head), stream
    out = bytearray(data[: data.index(b" 0 obj")].rsplit(b"\n", 1)[0] + b"\n")
    places = []
    for old, new in numbers.items():
        places.append(len(out))
        head, stream = objects[old]
        head = _TAG.sub(b"/FontName /%s+" % _tag(new), head)
        out += b"%d 0 obj\n" % new + _renumbered(head, numbers) + stream
    at = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(places) + 1) + b"".join(b"%010d 00000 n \n" % place for place in places)
    trailer = re.sub(rb"/Size \d+", b"/Size %d" % (len(places) + 1), trailer, count=1)
    return bytes(out + b"trailer" + _renumbered(trailer, numbers) + b"startxref\n%d\n%%%%EOF\n" % at)


def _objects(body: bytes, table: bytes) -> Objects:
    """The objects by number, each as what may refer to others and the stream behind it, with their ends."""
    entries = [line.split() for line in table.splitlines()[2:]]
    places = {number: int(entry[0]) for number, entry in enumerate(entries) if entry[2:] == [b"n"]}
    ends = dict(zip(sorted(places.values()), [*sorted(places.values())[1:], len(body)], strict=True))
    objects = {}
    for number, place in places.items():
        content = body[place : ends[place]].partition(b" 0 obj\n")[2]
        stream = _STREAM.search(content)
        split = len(content) if stream is None else stream.end()
        objects[number] = content[:split], content[split:]
    return objects


def _order(trailer: bytes, objects: Objects) -> list[int]:
    """The numbers of all objects in the order in which they are first referred to; what nothing refers to comes last."""
    order: dict[int, None] = {}
    waiting = _references(trailer)
    while waiting:
        number = waiting.pop(0)
        if number in objects and number not in order:
            order[number] = None
            waiting += _references(objects[number][0])
    return [*order, *(number for number in sorted(objects) if number not in order)]


def _tag(number: int) -> bytes:
    """Six letters that tell the parts of fonts apart (ISO 32000-1, 9.6.4)."""
    return bytes(65 + number // 26**place % 26 for place in reversed(range(6)))


def _references(text: bytes) -> list[int]:
    return [int(match[1]) for match in _REFERENCE.finditer(text) if match[1]]


def _renumbered(text: bytes, numbers: dict[int, int]) -> bytes:
    new = lambda match: b"%d 0 R" % numbers[int(match[1])] if match[1] and int(match[1]) in numbers else match[0]
    return _REFERENCE.sub(new, text)
