"""One hue per head, the same in every panel; and the three fixed colours of Q, K and V.

A hue index is made from layer and head; `hue_rgb` turns it into a colour of OKLab (Ottosson 2020), darker on light paper than on
dark. Heads of a layer differ in hue. A second layer's hues lie between the first one's and are lighter; the third and fourth
have these hues with the lightness swapped. The closest two of 2 × 4 heads are 0.11 apart in OKLab, those of 4 × 4 0.08.
"""

from __future__ import annotations

import math
from functools import lru_cache

from circuitlab.model.subject import Head

_STEP = 0.61803398875  # golden ratio: successive hues are as far apart as they can be
_BETWEEN = 0.5  # of a turn: with that step the hues of four heads and of four more are nearly evenly spaced
_FOUR_ON = 0.06  # of a turn: so that the fifth layer is not the first again
_PER_LAYER = 4096
_CHROMA = 0.14
_LIGHTNESS = ((0.54, 0.64), (0.71, 0.81))  # darker and lighter layers, on light paper and on a dark ground

# Okabe and Ito (2008): distinguishable with every common colour vision deficiency.
COMPOSITION_RGB: tuple[tuple[int, int, int], ...] = ((0, 114, 178), (213, 94, 0), (0, 158, 115))
_COMPOSITION_ON_DARK: tuple[tuple[int, int, int], ...] = ((86, 180, 233), (230, 159, 0), (60, 200, 150))


def head_hue(head: Head) -> int:
    """The hue index of a head."""
    return head.layer * _PER_LAYER + head.head


def hue_head(hue: int) -> Head:
    """The head of a hue index."""
    return Head(*divmod(hue, _PER_LAYER))


def composition_rgb(kind: int, dark: bool = False) -> tuple[int, int, int]:
    """The colour of 0 Q, 1 K, 2 V."""
    return (_COMPOSITION_ON_DARK if dark else COMPOSITION_RGB)[kind]


@lru_cache(maxsize=8192)
def hue_rgb(hue: int, dark: bool = False) -> tuple[int, int, int]:
    """The colour of a hue index, 0..255, for light paper or a dark ground."""
    layer, head = divmod(hue, _PER_LAYER)
    turn = 2 * math.pi * ((0.70 + head * _STEP + layer % 2 * _BETWEEN + layer // 4 * _FOUR_ON) % 1.0)
    return _from_oklab(_LIGHTNESS[dark][(layer + 1) // 2 % 2], _CHROMA * math.cos(turn), _CHROMA * math.sin(turn))


def _from_oklab(lightness: float, a: float, b: float) -> tuple[int, int, int]:
    """sRGB 0..255 of an OKLab colour, clipped to what a screen can show."""
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    red = 4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short
    green = -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short
    blue = -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short
    return _byte(red), _byte(green), _byte(blue)


def _byte(linear: float) -> int:
    linear = min(max(linear, 0.0), 1.0)
    coded = 12.92 * linear if linear <= 0.0031308 else 1.055 * linear ** (1 / 2.4) - 0.055
    return round(coded * 255)
