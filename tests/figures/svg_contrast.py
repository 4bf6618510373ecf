"""Colours as they lie on one another in an SVG that was written here: the contrast of texts, the strokes of legends."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from itertools import pairwise

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QTransform

from tests.figures.paper_files import texts

Painted = tuple[ET.Element, QTransform, str, float]


def _luminance(colour: str) -> float:
    """WCAG 2 relative luminance of "#rrggbb"."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _on(ground: str, colour: str, alpha: float) -> str:
    pairs = ((int(ground[i : i + 2], 16), int(colour[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a * (1 - alpha) + b * alpha):02x}" for a, b in pairs)


def _painted(root: ET.Element) -> Iterator[Painted]:
    """Every element in the order of painting, with its place, its fill and how opaque that is."""

    def walk(
        element: ET.Element, above: QTransform, fill: str, alpha: float
    ) -> Iterator[tuple[ET.Element, QTransform, str, float]]:
        at = re.fullmatch(r"matrix\(([^)]*)\)", element.get("transform", ""))
        here = QTransform(*(float(v) for v in at[1].split(","))) * above if at else above
        fill, alpha = element.get("fill", fill), float(element.get("fill-opacity", alpha))
        yield element, here, fill, alpha
        for child in element:
            yield from walk(child, here, fill, alpha)

    return walk(root, QTransform(), "#000000", 1.0)


def _rectangles(element: ET.Element, here: QTransform) -> Iterator[QRectF]:
    """What a filled element covers, of paths of straight lines."""
    kind = element.tag.rpartition("}")[2]
    if kind == "rect":
        yield here.mapRect(QRectF(*(float(element.get(k, "0")) for k in ("x", "y", "width", "height"))))
    for part in re.findall(r"M[^M]*", element.get("d", "")) if kind == "path" else ():
        numbers = [float(v) for v in re.findall(r"-?[\d.]+(?:e-?\d+)?", part)]
        corners = [here.map(x, y) for x, y in zip(numbers[::2], numbers[1::2], strict=True)]
        if len(corners) <= 6:
            xs, ys = [c[0] for c in corners], [c[1] for c in corners]
            yield QRectF(QPointF(min(xs), min(ys)), QPointF(max(xs), max(ys)))


def contrasts(root: ET.Element) -> list[tuple[str, float]]:
    """Each text with its contrast to what lies under its middle."""
    result: list[tuple[str, float]] = []
    written = iter(texts(root))
    grounds: list[tuple[QRectF, str, float]] = []
    for element, here, fill, alpha in _painted(root):
        if element.tag.endswith("}text"):
            text, ground = next(written), "#ffffff"
            for box, colour, share in grounds:
                if box.adjusted(-0.5, -0.5, 0.5, 0.5).contains(text.box.center()):
                    ground = _on(ground, colour, share)
            ink = _on(ground, fill, alpha) if fill.startswith("#") else "#000000"
            result += [(text.said, contrast(ink, ground))] if text.said.strip() else []
        elif fill.startswith("#"):
            grounds += [(box, fill, alpha) for box in _rectangles(element, here)]
    return result


def bars(root: ET.Element) -> list[tuple[QRectF, float]]:
    """Each filled rectangle that lies in none of its colour, with its contrast to what lies under its middle."""
    result: list[tuple[QRectF, float]] = []
    grounds: list[tuple[QRectF, str, float]] = []
    for element, here, fill, alpha in _painted(root):
        for box in _rectangles(element, here) if fill.startswith("#") and not element.tag.endswith("}text") else ():
            ground = "#ffffff"
            for other, colour, share in grounds:
                ground = _on(ground, colour, share) if other.contains(box.center()) else ground
            result.append((box, contrast(_on(ground, fill, alpha), ground)))
            grounds.append((box, fill, alpha))
    return result


def legend_strokes(root: ET.Element) -> list[list[tuple[int, str]]]:
    """(grey, dashes) of the strokes in each legend: a level line, behind it the name of a series."""
    groups: dict[str, list[tuple[int, str]]] = {}
    parts = [element for element in root.iter() if element.tag.endswith("}g") and len(element)]
    for part, after in pairwise(parts):
        lines = [e for e in part if e.tag.endswith("}polyline")]
        numbers = [float(v) for v in re.findall(r"-?[\d.]+", lines[0].get("points", ""))] if len(lines) == 1 else []
        level = len(part) == 1 and len(numbers) == 4 and numbers[1] == numbers[3]
        if level and after[0].tag.endswith("}text") and part.get("transform", "") == after.get("transform", ""):
            stroke = int(part.get("stroke", "#000000")[1:3], 16), part.get("stroke-dasharray", "none")
            groups.setdefault(part.get("transform", ""), []).append(stroke)
    return list(groups.values())
