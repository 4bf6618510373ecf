"""What poppler says of a PDF that was written here, and what its page says where poppler does not: sizes of type, clipping."""

from __future__ import annotations

import re
import subprocess
import xml.etree.ElementTree as ET
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QImage, QTransform

HTML = "{http://www.w3.org/1999/xhtml}"
TOOLS = ("pdftotext", "pdffonts", "pdfimages", "pdftoppm")
ABOVE, BELOW = 0.27, 0.25  # of a word's height: from poppler's box, which is that of the whole font, to its capitals
_TOKEN = re.compile(rb"<[0-9A-Fa-f\s]*>|\[[^\]]*\]|\S+")


@dataclass(frozen=True)
class Word:
    """`box` in points from the top left, of its capitals alone. `size` in points; `turned`: it is read upwards. `run`: of the
    same text, as one that wraps.
    """

    said: str
    box: QRectF
    size: float
    turned: bool
    run: int


@dataclass(frozen=True)
class Run:
    """One text as it was drawn: where it begins, in points from the top left, its size and whether it is turned."""

    at: QPointF
    size: float
    turned: bool
    places: tuple[QPointF, ...] = ()


def _output(tool: str, *words: str) -> str:
    return subprocess.run([tool, *words], capture_output=True, check=True, encoding="utf-8").stdout


def page_stream(data: bytes) -> tuple[bytes, re.Match[bytes]]:
    """The page's content, and where it stands in the file."""
    for match in re.finditer(rb"stream\r?\n(.*?)endstream", data, re.S):
        try:
            content = zlib.decompressobj().decompress(match[1])  # which does not mind what stands behind it
        except zlib.error:
            continue
        if b" cm" in content:
            return content, match
    raise AssertionError("no page")


def page_size(data: bytes) -> tuple[float, float]:
    """Width and height in points."""
    box = re.search(rb"/MediaBox \[([^\]]*)\]", data)
    assert box is not None
    _, _, wide, high = (float(v) for v in box[1].split())
    return wide, high


def runs(data: bytes) -> list[Run]:
    """Every text that the page draws."""
    content, _ = page_stream(data)
    high = page_size(data)[1]
    result: list[Run] = []
    matrix, kept, operands = QTransform(), list[QTransform](), list[float]()
    size, line, places = 0.0, QTransform(), list[QPointF]()
    for token in _TOKEN.findall(content):
        try:
            operands.append(float(token))
            continue
        except ValueError:
            pass
        if token == b"q":
            kept.append(matrix)
        elif token == b"Q":
            matrix = kept.pop()
        elif token == b"cm":
            matrix = QTransform(*operands[-6:]) * matrix
        elif token == b"BT":
            places = []
        elif token == b"Tf":
            size = operands[-1]
        elif token == b"Tm":
            line = QTransform(*operands[-6:])
        elif token == b"Td":
            line = QTransform.fromTranslate(*operands[-2:]) * line
            at = (line * matrix).map(QPointF(0, 0))
            places.append(QPointF(at.x(), high - at.y()))
        elif token == b"ET" and places:
            whole = line * matrix
            across = np.hypot(whole.m11(), whole.m12())
            result.append(Run(places[0], size * float(across), abs(whole.m12()) > abs(whole.m11()), tuple(places)))
        if not token.startswith(b"/"):
            operands = []
    return result


def words(path: Path) -> list[Word]:
    """What `pdftotext -bbox` finds, with size and direction of the text that each begins in."""
    drawn = runs(path.read_bytes())
    places = np.array([(p.x(), p.y()) for run in drawn for p in run.places]).reshape(-1, 2)
    owner = np.array([i for i, run in enumerate(drawn) for _ in run.places], dtype=int)
    result: list[Word] = []
    for element in ET.fromstring(_output("pdftotext", "-bbox", str(path), "-")).iter(f"{HTML}word"):
        left, top, right, bottom = (float(element.get(k, "")) for k in ("xMin", "yMin", "xMax", "yMax"))
        # a letter begins on its base line: at the left of a word, about three quarters down; turned, at its foot
        across = np.hypot(places[:, 0] - left, places[:, 1] - (top + 0.78 * (bottom - top)))
        upwards = np.hypot(places[:, 0] - (left + 0.78 * (right - left)), places[:, 1] - bottom)
        turned = np.array([drawn[i].turned for i in owner])
        run = int(owner[np.where(turned, upwards, across).argmin()])
        box = QRectF(QPointF(left, top), QPointF(right, bottom))
        if drawn[run].turned:
            box.adjust(ABOVE * box.width(), 0, -BELOW * box.width(), 0)
        else:
            box.adjust(0, ABOVE * box.height(), 0, -BELOW * box.height())
        result.append(Word(element.text or "", box, drawn[run].size, drawn[run].turned, run))
    return result


def overlaps(found: list[Word], least: float = 0.3) -> list[tuple[str, str]]:
    """Words of different texts on the same place: by more than `least` points each way."""
    boxes = np.array([w.box.getCoords() for w in found]).reshape(-1, 4)
    common = np.minimum(boxes[:, None, 2:], boxes[None, :, 2:]) - np.maximum(boxes[:, None, :2], boxes[None, :, :2])
    pairs = np.argwhere(np.triu((common > least).all(axis=2), 1)).tolist()
    return [(found[i].said, found[j].said) for i, j in pairs if found[i].run != found[j].run]


def beyond(found: list[Word], data: bytes, least: float = 0.3) -> list[str]:
    """Words that reach over the edge of the page."""
    wide, high = page_size(data)
    page = QRectF(0, 0, wide, high).adjusted(-least, -least, least, least)
    return [w.said for w in found if not page.contains(w.box)]


def fonts(path: Path) -> dict[str, bool]:
    """Each font by name, and whether it is embedded and says which characters its glyphs are."""
    lines = _output("pdffonts", str(path)).splitlines()[2:]
    return {line.split()[0]: line.split()[-5:-2] == ["yes", "no", "yes"] or line.split()[-5] == "yes" for line in lines}


def images(path: Path) -> list[str]:
    """The encoding of each picture in it."""
    return [line.split()[8] for line in _output("pdfimages", "-list", str(path)).splitlines()[2:]]


_NO_INK = {
    b"f": b"n",
    b"f*": b"n",
    b"S": b"n",
    b"s": b"n",
    b"B": b"n",
    b"B*": b"n",
    b"b": b"n",
    b"b*": b"n",
    b"W": b"",
    b"W*": b"",
}


def _text_alone(content: bytes) -> bytes:
    """The page with nothing but its texts, which nothing cuts off or covers."""
    kept: list[bytes] = []
    for token in _TOKEN.findall(content):
        if token == b"Do":
            kept.pop()
        else:
            kept.append(_NO_INK.get(token, token))
    return b" ".join(kept)


def _drawn(data: bytes, where: re.Match[bytes], content: bytes, at: Path, dpi: int) -> np.ndarray:
    """[y, x] grey values of the page with other content."""
    at.with_suffix(".pdf").write_bytes(data[: where.start(1)] + zlib.compress(content) + data[where.end(1) :])
    command = ["pdftoppm", "-r", str(dpi), "-gray", "-png", "-singlefile", str(at.with_suffix(".pdf")), str(at)]
    subprocess.run(command, capture_output=True, check=True)
    image = QImage(f"{at}.png").convertToFormat(QImage.Format.Format_Grayscale8)
    lines = np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), image.bytesPerLine())
    return lines[:, : image.width()].astype(int)


def hidden(path: Path, found: list[Word], folder: Path, dpi: int = 150) -> list[str]:
    """Words that are cut off or covered, in part: they change where all texts are drawn once more on top of everything.

    What is drawn twice is darker at its edges, by a quarter of its contrast at most.
    """
    data = path.read_bytes()
    content, where = page_stream(data)
    once = b"q\n" + content + b"\nQ\n"
    before = _drawn(data, where, once, folder / f"{path.stem}-once", dpi)
    after = _drawn(data, where, once + b"q\n" + _text_alone(content) + b"\nQ\n", folder / f"{path.stem}-twice", dpi)
    changed = np.abs(before - after) > 80
    words: list[str] = []
    for word in found:
        left, top, right, bottom = (round(v * dpi / 72) for v in word.box.getCoords())
        if changed[max(top, 0) : bottom + 1, max(left, 0) : right + 1].sum() > 2:
            words.append(word.said)
    return words
