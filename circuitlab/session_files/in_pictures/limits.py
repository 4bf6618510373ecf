"""What is read of a picture at most, and how a damaged one is refused."""

from __future__ import annotations

from typing import NoReturn

from circuitlab.errors import BadInput, printable

NAMESPACE = "urn:circuitlab:view#"  # of the element that holds the text in SVG and in the XMP of a PDF
ELEMENT = "view"
LARGEST = 2**24  # bytes of the text
LONGEST_FILE = 2**28  # bytes of an SVG or PDF in which it is looked for
PIECE = 2**20  # bytes read at a time
REMEDY = "Take the picture as it was exported: other programs may damage or drop what it says of itself."


def damaged(expected: str, got: object) -> NoReturn:
    """Raise the `BadInput` of a picture whose view cannot be read."""
    raise BadInput("The view in the picture cannot be read.", expected=expected, got=printable(got) or "nothing", remedy=REMEDY)


def too_large() -> NoReturn:
    """Raise the `BadInput` of a text that is longer than any view."""
    damaged(f"a text of at most {LARGEST} bytes", "more")
