"""One hue per head, the same in every panel; and the three fixed colours of Q, K and V.

A hue index is made from layer and head; `head_rgb` turns it into a colour of even lightness in which neighbours stay apart.
"""

from __future__ import annotations

import colorsys

from circuitlab.model.subject import Head

_STEP = 0.61803398875  # golden ratio: successive hues are as far apart as they can be
_PER_LAYER = 4096

# Okabe and Ito (2008): distinguishable with every common colour vision deficiency.
COMPOSITION_RGB: tuple[tuple[int, int, int], ...] = ((0, 114, 178), (213, 94, 0), (0, 158, 115))


def head_hue(head: Head) -> int:
    """The hue index of a head."""
    return head.layer * _PER_LAYER + head.head


def hue_head(hue: int) -> Head:
    """The head of a hue index."""
    return Head(*divmod(hue, _PER_LAYER))


def hue_rgb(hue: int) -> tuple[int, int, int]:
    """The colour of a hue index, 0..255."""
    layer, head = divmod(hue, _PER_LAYER)
    turn = (0.58 + head * _STEP + layer * 0.137) % 1.0
    red, green, blue = colorsys.hls_to_rgb(turn, 0.46, 0.68)
    return round(red * 255), round(green * 255), round(blue * 255)
