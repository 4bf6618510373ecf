"""What stands in an SVG or PDF that was written here: filled shapes with their colours, texts with their places."""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from PySide6.QtCore import QRectF
from PySide6.QtGui import QFontMetricsF, QTransform

from circuitlab.draw.look.theme import LIGHT
from circuitlab.figures.marks import Figure

SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True)
class Text:
    """What is written, the rectangle of its capitals in px of the page, and its size in px of the page."""

    said: str
    box: QRectF
    size: float


def texts(root: ET.Element) -> list[Text]:
    """All texts of an SVG whose text is text."""
    result: list[Text] = []

    def walk(element: ET.Element, above: QTransform) -> None:
        at = re.fullmatch(r"matrix\(([^)]*)\)", element.get("transform", ""))
        here = QTransform(*(float(v) for v in at[1].split(","))) * above if at else above
        if element.tag == f"{SVG}text":
            said, size = "".join(element.itertext()), float(element.get("font-size", "0"))
            mono, bold = "Mono" in element.get("font-family", "").split(",")[0], int(element.get("font-weight", "400")) > 400
            metrics = QFontMetricsF(replace(LIGHT, tabular=False).font(size, mono=mono, bold=bold))
            x, y, high = float(element.get("x", "0")), float(element.get("y", "0")), metrics.capHeight()
            result.append(Text(said, here.mapRect(QRectF(x, y - high, metrics.horizontalAdvance(said), high)), size))
        for child in element:
            walk(child, here)

    walk(root, QTransform())
    return result


def cut_short(figure: Figure, written: Iterable[str]) -> list[str]:
    """The texts of a file that end in the middle of a word or of a sentence of the figure, which only its data may do; a short
    caption ends with a part that is an ellipsis."""
    own = {word for text in _strings(figure) for word in text.split() if "…" in word}
    whole = (text for text in written if text.strip() != "…" and not text.endswith("· …"))
    return [text for text in whole for word in text.split() if "…" in word and word not in own]


def _strings(value: Any) -> Iterator[str]:
    """All texts in a figure."""
    if isinstance(value, str):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _strings(getattr(value, field.name))
    elif isinstance(value, (tuple, list)) or (isinstance(value, np.ndarray) and value.dtype.kind in "OU"):
        for each in value:
            yield from _strings(each)


def svg_rectangles(root: ET.Element) -> list[tuple[str, tuple[float, float, float, float]]]:
    """(colour, (left, top, right, bottom)) of every closed part of every filled path, in px of the page."""
    result: list[tuple[str, tuple[float, float, float, float]]] = []

    def walk(element: ET.Element, above: QTransform, fill: str) -> None:
        at = re.fullmatch(r"matrix\(([^)]*)\)", element.get("transform", ""))
        here = QTransform(*(float(v) for v in at[1].split(","))) * above if at else above
        fill = element.get("fill", fill)
        if element.tag == f"{SVG}path":
            for part in re.findall(r"M[^M]*", element.get("d", "")):
                numbers = [float(v) for v in re.findall(r"-?[\d.]+(?:e-?\d+)?", part)]
                corners = [here.map(x, y) for x, y in zip(numbers[::2], numbers[1::2], strict=True)]
                xs, ys = [c[0] for c in corners], [c[1] for c in corners]
                result.append((fill, (min(xs), min(ys), max(xs), max(ys))))
        for child in element:
            walk(child, here, fill)

    walk(root, QTransform(), "none")
    return result


def pdf_rectangles(data: bytes) -> list[tuple[str, tuple[float, float, float, float]]]:
    """The same of the page of a PDF, in points from the top left."""
    result: list[tuple[str, tuple[float, float, float, float]]] = []
    for stream in re.findall(rb"stream\r?\n(.*?)endstream", data, re.S):
        try:
            words = zlib.decompress(stream).decode("latin1").split()
        except zlib.error:
            continue
        if "cm" in words and "re" in words:
            _read_page(words, result)
    box = re.search(rb"/MediaBox \[([^\]]*)\]", data)
    assert box is not None
    high = float(box[1].split()[3])
    return [(colour, (left, high - bottom, right, high - top)) for colour, (left, top, right, bottom) in result]


def _read_page(words: list[str], found: list[tuple[str, tuple[float, float, float, float]]]) -> None:
    matrix, colour, kept = QTransform(), "", []
    operands: list[float] = []
    corners: list[list[tuple[float, float]]] = []
    for word in words:
        try:
            operands.append(float(word))
            continue
        except ValueError:
            pass
        if word == "q":
            kept.append((matrix, colour))
        elif word == "Q":
            matrix, colour = kept.pop()
        elif word == "cm":
            matrix = QTransform(*operands[-6:]) * matrix
        elif word == "scn":
            parts = [round(v * 255) for v in operands]
            colour = "#{:02x}{:02x}{:02x}".format(*(parts if len(parts) == 3 else parts * 3))
        elif word == "m":
            corners.append([matrix.map(*operands[-2:])])
        elif word == "l":
            corners[-1].append(matrix.map(*operands[-2:]))
        elif word == "re":
            x, y, w, h = operands[-4:]
            corners.append([matrix.map(x, y), matrix.map(x + w, y + h)])
        elif word in ("f", "f*"):
            for part in corners:
                (left, top), (right, bottom) = np.min(part, axis=0).tolist(), np.max(part, axis=0).tolist()
                found.append((colour, (left, top, right, bottom)))
            corners = []
        elif word in ("n", "S", "B", "B*"):
            corners = []
        operands = []


def pdf_characters(data: bytes) -> str:
    """All characters that a PDF's fonts say their glyphs are: what a reader finds, copies and hears."""
    result: list[str] = []
    for stream in re.findall(rb"stream\r?\n(.*?)endstream", data, re.S):
        try:
            text = zlib.decompress(stream).decode("latin1")
        except zlib.error:
            text = stream.decode("latin1")
        for kind, body in re.findall(r"beginbf(char|range)(.*?)endbf", text, re.S):
            for line in re.findall(r"<.*", body):
                codes = re.findall(r"<([0-9A-Fa-f]+)>", line)
                if kind == "char" or "[" in line:
                    result += [bytes.fromhex(code).decode("utf-16-be") for code in codes[1 if kind == "char" else 2 :]]
                else:
                    first, last, to = (int(code, 16) for code in codes)
                    result += [chr(to + i) for i in range(last - first + 1)]
    return "".join(result)
