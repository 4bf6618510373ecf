"""How a figure is set on paper: size, type, lines, caption, ink. Values that no figure could have are refused."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, get_args, get_type_hints

from circuitlab.disk.formats import PICTURES, suffixes
from circuitlab.errors import UsageError

PRESETS = {"one column": 84.0, "one and a half": 120.0, "two columns": 174.0}  # mm
INCH, POINTS = 25.4, 72.0
MOST_PIXELS = 200_000_000
HIGHEST = 240.0  # mm that a page of a journal has for a figure

LIMITS = {
    "width_mm": (20.0, 1200.0, "mm"),
    "height_mm": (20.0, 1200.0, "mm"),
    "font_pt": (3.0, 72.0, "pt"),
    "least_pt": (2.0, 72.0, "pt"),
    "line_pt": (0.1, 5.0, "pt"),
    "dpi": (36, 2400, "dots an inch"),
}


@dataclass(frozen=True)
class Paper:
    """A figure on paper. Raises `UsageError` for what is no size, no type or no ink.

    `height_mm` None: as high as its content asks for. `font_pt` is the size of axes, legends and captions, titles are larger
    in proportion, and nothing is smaller than `least_pt`. `line_pt`: the thinnest line. `caption`: all that the figure says of
    itself, the first lines of it, or nothing; the file says all of it in its own description in any case. `text` of SVG and
    PDF: "fonts" can be searched and carries its fonts, "outlines" looks the same everywhere; "auto" is outlines in SVG and
    fonts in PDF. `ink` "grey": one ink, negative values marked. `dpi` is for PNG, and for what no vectors are drawn of.
    """

    width_mm: float = 84.0
    height_mm: float | None = None
    font_pt: float = 7.0
    least_pt: float = 6.0
    line_pt: float = 0.5
    caption: Literal["full", "short", "none"] = "short"
    text: Literal["auto", "fonts", "outlines"] = "auto"
    ink: Literal["colour", "grey"] = "colour"
    dpi: int = 300

    def __post_init__(self) -> None:
        kinds = get_type_hints(Paper)
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in LIMITS:
                if value is not None or field.default is not None:
                    _within(field.name, value)
                    if value is not None and field.name != "dpi":  # 84 is 84.0: equal paper gives equal files
                        object.__setattr__(self, field.name, float(value))
            elif value not in get_args(kinds[field.name]):
                raise UsageError(
                    f"A figure cannot have this {field.name}.",
                    expected=" ".join(get_args(kinds[field.name])),
                    got=str(value),
                    remedy="Change it to such a value.",
                )
        object.__setattr__(self, "least_pt", min(self.least_pt, self.font_pt))

    @property
    def grey(self) -> bool:
        """Whether there is one ink only."""
        return self.ink == "grey"

    def outlined(self, suffix: str) -> bool:
        """Whether text becomes outlines in a file of this kind."""
        return self.text == "outlines" or (self.text == "auto" and suffix == ".svg")

    def pixels(self, width: float, height: float) -> tuple[int, int]:
        """(Width, height) in dots, in the proportion `width` to `height`. Raises `UsageError` for too many dots."""
        across = round(self.width_mm / INCH * self.dpi)
        down = max(1, round(across * height / width))
        if across * down > MOST_PIXELS:
            raise UsageError(
                "The picture would have too many dots.",
                expected=f"at most {MOST_PIXELS // 10**6} million",
                got=f"{across:,} × {down:,} at {self.dpi} dpi",
                remedy="Take fewer dots an inch or a smaller width, or write SVG or PDF.",
            )
        return across, down


def format_of(path: Path) -> str:
    """The suffix of a file that a figure can be written to. Raises `UsageError` for another."""
    suffix = path.suffix.lower()
    formats = suffixes(PICTURES)
    if suffix not in formats:
        raise UsageError(
            "A figure cannot be written in this format.",
            expected=" ".join(formats),
            got=path.suffix or "no suffix",
            remedy="Give the file one of these endings.",
        )
    return suffix


def height_remark(height_mm: float) -> str:
    """What is to be said of a picture that is too high for a page, "" of one that is not."""
    return f"higher than the {HIGHEST:g} mm of a page" if height_mm > HIGHEST else ""


def _within(name: str, value: object) -> None:
    low, high, unit = LIMITS[name]
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not (number and low <= value <= high):
        what = name.rpartition("_")[0] or name
        raise UsageError(
            f"A figure cannot have this {what}.",
            expected=f"{low:g} to {high:g} {unit}",
            got=str(value),
            remedy="Change it to such a value.",
        )
