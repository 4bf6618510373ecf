"""A PDF says its view in its XMP: the property `view` of the namespace `urn:circuitlab:view#`.

XMP stands in a file as it is, between marks that are there to be scanned for (XMP specification, part 3, “scanning files for XMP
packets”), so that no PDF has to be parsed. A program that compresses it, or drops it, takes the view with it.
"""

from __future__ import annotations

from itertools import islice
from typing import IO

from circuitlab.session_files.in_pictures.limits import LARGEST, LONGEST_FILE, NAMESPACE, PIECE
from circuitlab.session_files.in_pictures.pieces import mentions, places
from circuitlab.session_files.in_pictures.xml_text import element_text

SIGNATURE = b"%PDF-"
MOST_PACKETS = 16  # each image in a document may have its own
_BEGIN, _END = b"<?xpacket begin=", b"<?xpacket end="


def text_in(file: IO[bytes]) -> bytes | None:
    """The text in a PDF, None if it has none. Raises `BadInput` where it is damaged, `OSError`."""
    if not mentions(file, NAMESPACE.encode(), LONGEST_FILE):
        return None
    for at in islice(places(file, _BEGIN, LONGEST_FILE), MOST_PACKETS):
        file.seek(at)
        packet, end, _ = file.read(LARGEST + PIECE).partition(_END)
        if end and NAMESPACE.encode() in packet and (text := element_text((packet,))) is not None:
            return text
    return None
