"""Themes that are read from the back of a room: on white and on black, sized by the height of the picture.

A projector washes out: every text has a contrast of 7 : 1 on its ground, and no line that is data fades below `weakest`. The
yardstick for the last row is a capital of 1/50 of the picture's height (measured: captions of the window are 1/135).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import ceil

from circuitlab.draw.look.theme import Theme

LEAST_CAPITAL = 1 / 50  # of the picture's height
CAPITAL = 0.714  # height of a capital of Noto Sans Mono, the lower of the two faces, in sizes of its type
NORMAL, LARGE = 1.2, 1.6  # sizes of text beside small
STROKE, STROKE_AT = 2.5, 1080  # at this height

PROJECTOR = Theme(
    name="projector",
    dark=False,
    window="#ffffff",
    background="#ffffff",
    raised="#f4f4f6",
    line="#b9b9c1",
    faint="#4e4e56",
    muted="#3a3a40",
    text="#101014",
    accent="#9c1048",
    on_accent="#ffffff",
    weakest=1.0,
    words="brief",
    stage=True,
)

PROJECTOR_DARK = replace(
    PROJECTOR,
    name="projector dark",
    dark=True,
    window="#101013",
    background="#101013",
    raised="#1e1e22",
    line="#55555e",
    faint="#b4b4bd",
    muted="#cfcfd6",
    text="#f6f6f8",
    accent="#ff8ab4",
    on_accent="#101013",
)


@lru_cache(maxsize=16)
def stage_theme(height: int, dark: bool = False) -> Theme:
    """The theme of a picture so many px high: capitals of its smallest text are 1/50 of that, its strokes grow with it."""
    small = float(max(ceil(height * LEAST_CAPITAL / CAPITAL), 1))
    sizes = {"small": small, "least": small, "normal": float(round(small * NORMAL)), "large": float(round(small * LARGE))}
    return replace(PROJECTOR_DARK if dark else PROJECTOR, stroke=STROKE * height / STROKE_AT, **sizes)
