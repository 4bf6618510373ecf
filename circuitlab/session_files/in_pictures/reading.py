"""The text of the view in a picture, whatever its format: files are told by their first bytes, not by their names."""

from __future__ import annotations

from pathlib import Path

from circuitlab.disk.files import opened
from circuitlab.disk.formats import PICTURES, is_picture, listed
from circuitlab.errors import BadInput
from circuitlab.session_files.in_pictures import pdf, png, svg
from circuitlab.session_files.in_pictures.limits import REMEDY

_BOM = b"\xef\xbb\xbf"


def picture_text(path: Path) -> bytes | None:
    """The text of the view in a picture; None for what is no picture by its content nor by its name.

    Raises `BadInput` for a picture without a view and for a damaged one, `OSError` where it cannot be read.
    """
    with opened(path) as file:
        head = file.read(64)
        if head.startswith(png.SIGNATURE):
            text = png.text_in(file)
        elif head.startswith(pdf.SIGNATURE):
            text = pdf.text_in(file)
        elif head.removeprefix(_BOM).lstrip().startswith(b"<"):
            text = svg.text_in(file)
        elif is_picture(path):
            raise BadInput(
                f"{path.name} is not a picture.",
                expected=listed(PICTURES, " or "),
                got=f"a file that begins with {head[:8]!r}",
                remedy=REMEDY,
            )
        else:
            return None
    if text is None:
        raise BadInput(
            f"{path.name} does not say what it shows.",
            expected="a picture that CircuitLab has exported with its view",
            got="one without",
            remedy="Export it again, with “Exported pictures” in the settings at “with their view”.",
        )
    return text
