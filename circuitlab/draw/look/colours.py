"""Colour means one thing: the maps as 256-entry tables per theme, and numbers to colours. Numpy only.

- magnitude: from the background upward through one blue-violet family, so that zero disappears in either theme.
- signed: blue for negative, orange for positive, the background at zero; apart under every common colour vision deficiency.
- loss: from the background to a warm brown, so that a surprise is not mistaken for attention.

Steps are even in OKLab (Ottosson 2020): equal differences in value look like equal differences in colour.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from circuitlab.draw.look.theme import Theme
from circuitlab.figures.contracts.hues import hue_rgb
from circuitlab.figures.marks import Colour, ColourMap

STEPS = 256
NEUTRAL = (96, 125, 160)  # data that belong to no head
OUT, OUT_SOLID = 68, 92  # steps of the signed map from zero to the colour of a bar
BARELY = 0.06  # of the largest level: below it a sign would not be visible in colour either

# From the background outward; the background itself is put in front.
_LIGHT: dict[str, tuple[str, ...]] = {
    "magnitude": ("#c6d8f0", "#7fa8dd", "#4a6fc3", "#373f9b", "#231a5e"),
    "negative": ("#b3d3ec", "#5a9fd4", "#1a67a8", "#0a3a66"),
    "positive": ("#fbd3ac", "#ee9a4d", "#c4620c", "#733400"),
    "loss": ("#fbe3c6", "#f2b277", "#d9793b", "#a3461d", "#5c2210"),
}
_DARK: dict[str, tuple[str, ...]] = {
    "magnitude": ("#27305c", "#3a4fa5", "#4b84d8", "#7fc0ea", "#dff4fb"),
    "negative": ("#12395c", "#1f6cae", "#5fa8df", "#c4e3f8"),
    "positive": ("#54300f", "#a85a16", "#ec9a4f", "#fde0c2"),
    "loss": ("#43271b", "#8a4425", "#d0763c", "#f2b277", "#fdecd8"),
}

_TO_LMS = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


DARK_INK, LIGHT_INK = "#000000", "#ffffff"  # of text on colours


def _linear(srgb: np.ndarray) -> np.ndarray:
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def _srgb(linear: np.ndarray) -> np.ndarray:
    linear = np.clip(linear, 0, 1)
    return np.where(linear <= 0.0031308, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055)


def _hex(*colours: str) -> np.ndarray:
    """[colour, 3] in 0..1."""
    return np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in colours])


def _ramp(colours: tuple[str, ...], steps: int) -> np.ndarray:
    """[steps, 3] uint8 along a path of equal OKLab length per step."""
    lab = np.cbrt(_linear(_hex(*colours)) @ _TO_LMS.T) @ _TO_LAB.T
    walked = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(lab, axis=0), axis=1))])
    at = np.linspace(0, walked[-1], steps)
    path = np.stack([np.interp(at, walked, lab[:, i]) for i in range(3)], axis=1)
    linear = (path @ np.linalg.inv(_TO_LAB).T) ** 3 @ np.linalg.inv(_TO_LMS).T
    return np.round(_srgb(linear) * 255).astype(np.uint8)


@lru_cache(maxsize=32)
def table(name: ColourMap, theme: Theme) -> np.ndarray:
    """[256, 3] uint8 of a colour map: entry 0 is the background, for NaN; 1 to 255 run from low to high."""
    stops = _DARK if theme.dark else _LIGHT
    if name == "signed":
        half = STEPS // 2
        low = _ramp((theme.background, *stops["negative"]), half)[::-1]
        # Zero has an entry of its own, 128, and is the background exactly.
        ramp = np.concatenate([low[:-1], _ramp((theme.background, *stops["positive"]), half)])
    else:
        ramp = _ramp((theme.background, *stops[name]), STEPS - 1)
    ground = np.round(_hex(theme.background) * 255).astype(np.uint8)
    entries = np.concatenate([ground, ramp])
    entries.setflags(write=False)
    return entries


def steps(values: np.ndarray, levels: tuple[float, float]) -> np.ndarray:
    """The table entry of each value: 1 to 255, clipped; 0 for NaN."""
    low, high = levels
    scale = (STEPS - 1) / max(high - low, 1e-30)
    values = np.asarray(values, dtype=np.float32)
    scaled = values * np.float32(scale)
    scaled += np.float32(1 - low * scale)
    np.fmax(scaled, np.float32(1), out=scaled)  # NaN becomes 1 here and 0 below
    np.minimum(scaled, np.float32(STEPS - 1), out=scaled)
    out = scaled.astype(np.uint8)
    out[np.isnan(values)] = 0
    return out


def rgb(values: np.ndarray, levels: tuple[float, float], name: ColourMap, theme: Theme) -> np.ndarray:
    """[..., 3] uint8; NaN is the background."""
    return table(name, theme)[steps(values, levels)]


def rgba_table(name: ColourMap, theme: Theme) -> np.ndarray:
    """[256, 4] uint8 for images: as `table`, entry 0 transparent."""
    alpha = np.full((STEPS, 1), 255, dtype=np.uint8)
    alpha[0] = 0
    return np.concatenate([table(name, theme), alpha], axis=1)


def inks(on_white: np.ndarray) -> np.ndarray:
    """[..., 4] uint8: colours [..., 3] on white as transparent ink; on white they look the same, and white vanishes."""
    paper = on_white.min(axis=-1, keepdims=True).astype(np.float32)
    alpha = 255 - paper
    colour = (on_white - paper) * (255 / np.maximum(alpha, 1))
    return np.concatenate([np.round(colour), alpha], axis=-1).astype(np.uint8)


def inked(on_white: np.ndarray, theme: Theme) -> np.ndarray:
    """[..., 3] uint8: the same ink on the background of `theme`."""
    rgba = inks(on_white).astype(np.float32)
    part = rgba[..., 3:] / 255
    return np.round(rgba[..., :3] * part + _hex(theme.background)[0] * 255 * (1 - part)).astype(np.uint8)


def legend_rgb(colour: int | Colour, theme: Theme) -> Colour:
    """The colour of a legend's entry, a head's hue or an ink as on white, where its cells are drawn on the theme's background."""
    if isinstance(colour, int):
        return hue_rgb(colour, theme.dark)
    red, green, blue = inked(np.array(colour, dtype=np.uint8), theme).tolist()
    return red, green, blue


def bar_rgb(signed: bool, value: float, theme: Theme) -> tuple[int, int, int]:
    """Of the bar of a value: a side of the signed map or the neutral colour; on a stage and on paper 3 : 1 at least, also on a
    chosen row.
    """
    if not signed:
        return NEUTRAL
    out = OUT_SOLID if theme.solid else OUT
    red, green, blue = table("signed", theme)[STEPS // 2 + (out if value >= 0 else -out)].tolist()
    return red, green, blue


def hues_rgb(hues: np.ndarray | tuple[int, ...], theme: Theme) -> np.ndarray:
    """[n, 3] uint8 of head hues; a negative hue is the neutral data colour."""
    colours = [NEUTRAL if h < 0 else hue_rgb(int(h), theme.dark) for h in hues]
    return np.array(colours, dtype=np.uint8).reshape(-1, 3)


def greyed(colours: np.ndarray) -> np.ndarray:
    """[...] uint8: the grey that Qt prints in place of colours [..., 3] uint8 (`qGray`)."""
    return (np.asarray(colours).astype(np.int64) @ (11, 16, 5) // 32).astype(np.uint8)


def dark_text(colours: np.ndarray, theme: Theme) -> np.ndarray:
    """[...] bool: whether `DARK_INK` reads better than `LIGHT_INK` on `colours` [..., 3] uint8, or on their greys (WCAG 2).

    The better of the two has a contrast of 4.58 : 1 at least.
    """
    seen = np.repeat(greyed(colours)[..., None], 3, axis=-1) if theme.grey else np.asarray(colours)
    luminance = _linear(seen / 255) @ np.array([0.2126, 0.7152, 0.0722])
    return (luminance + 0.05) ** 2 > 0.05 * 1.05
