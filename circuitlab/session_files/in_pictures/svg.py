"""An SVG says its view in its metadata: `<metadata><view xmlns="urn:circuitlab:view#">…</view></metadata>`."""

from __future__ import annotations

from typing import IO

from circuitlab.session_files.in_pictures.limits import LONGEST_FILE, NAMESPACE
from circuitlab.session_files.in_pictures.pieces import mentions, pieces
from circuitlab.session_files.in_pictures.xml_text import element_text


def text_in(file: IO[bytes]) -> bytes | None:
    """The text in an SVG, None if it has none. Raises `BadInput` where it is damaged, `OSError`.

    XML that does not mention the namespace is not parsed.
    """
    if not mentions(file, NAMESPACE.encode(), LONGEST_FILE):
        return None
    return element_text(pieces(file, LONGEST_FILE))
