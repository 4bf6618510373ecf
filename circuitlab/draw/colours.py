"""Colour maps as 256-entry tables, per theme: magnitude rises from the background, signed maps are symmetric about zero.

Anchors were chosen for even steps in lightness and for pairs (blue and orange) that every common colour vision keeps apart.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from circuitlab.draw.theme import Theme
from circuitlab.figures.marks import ColourMap

_LIGHT: dict[str, tuple[str, ...]] = {
    "magnitude": ("#ffffff", "#d3e3f2", "#93bddf", "#4a8dc5", "#1f5a9c", "#0a2a5c"),
    "signed": ("#0a3a73", "#3b82bd", "#a9cce6", "#ffffff", "#f6c595", "#d9802f", "#8a3f00"),
    "loss": ("#ffffff", "#fbe3c0", "#f5b87a", "#e37f3f", "#b9461c", "#6e1f0c"),
}
_DARK: dict[str, tuple[str, ...]] = {
    "magnitude": ("#15171b", "#1b3a5c", "#2b6ba6", "#5aa3d8", "#a8d4f0", "#f2faff"),
    "signed": ("#a8d4f0", "#4a97d1", "#1f4d78", "#15171b", "#7a4012", "#e08a3c", "#ffd7a8"),
    "loss": ("#15171b", "#4a2a12", "#8d4a17", "#d07a30", "#f3b475", "#fff1dd"),
}


def _rgb(text: str) -> tuple[int, int, int]:
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)


@lru_cache(maxsize=16)
def table(name: ColourMap, dark: bool) -> np.ndarray:
    """[256, 3] uint8."""
    anchors = np.array([_rgb(c) for c in (_DARK if dark else _LIGHT)[name]], dtype=float)
    at = np.linspace(0, 1, len(anchors))
    steps = np.linspace(0, 1, 256)
    made = np.stack([np.interp(steps, at, anchors[:, i]) for i in range(3)], axis=1).round().astype(np.uint8)
    made.setflags(write=False)
    return made


def index(values: np.ndarray, levels: tuple[float, float]) -> np.ndarray:
    """Entries 0..255 of `values` between `levels`; NaN becomes 0."""
    low, high = levels
    scaled = (np.nan_to_num(values, nan=low) - low) / max(high - low, 1e-30)
    return (np.clip(scaled, 0, 1) * 255).round().astype(np.uint8)


def rgb(values: np.ndarray, levels: tuple[float, float], name: ColourMap, theme: Theme) -> np.ndarray:
    """[..., 3] uint8 colours of values."""
    return table(name, theme.dark)[index(values, levels)]


def readable_on(colour: tuple[int, int, int]) -> str:
    """Near-black or white, whichever stands out more from `colour` (WCAG relative luminance)."""
    linear = [(c / 255) / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#14171c" if luminance > 0.22 else "#ffffff"
