"""Qt's SVG made fit for other programs: exact size, text as outlines or with its fonts, lines that scale, grey ink."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace

from PySide6.QtCore import QBuffer, QByteArray, QIODevice
from PySide6.QtGui import QFont, QImage, QPainterPath, QRawFont, QTextLayout

from circuitlab.disk.paths import resource
from circuitlab.draw.look.theme import LIGHT, MONO, SANS
from circuitlab.session_files.in_pictures.limits import ELEMENT, NAMESPACE

_LETTERING = replace(LIGHT, tabular=False)  # as on all paper
SVG, XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
_FACES = {
    ("Inter", False): "Inter-Regular.otf",
    ("Inter", True): "Inter-SemiBold.otf",
    ("Noto Sans Mono", False): "NotoSansMono-Regular.ttf",
    ("Noto Sans Mono", True): "NotoSansMono-Bold.ttf",
}
# characters that XML 1.0 has no place for; Qt writes those of a token as they are
_FORBIDDEN = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|\xef\xbf[\xbe\xbf]")
_REPLACEMENT = "\ufffd".encode()
_FONT = ("font-family", "font-size", "font-weight", "font-style")
_DATA_IMAGE = "data:image/png;base64,"
Matrix = tuple[float, float, float, float, float, float]

ET.register_namespace("", SVG[1:-1])
ET.register_namespace("xlink", XLINK[1:-1])
ET.register_namespace("circuitlab", NAMESPACE)


def finished(data: bytes, width_mm: float, height_mm: float, outlined: bool, grey: bool, view: str = "") -> bytes:
    """`data` from QSvgGenerator, as a finished file of `width_mm` × `height_mm`. `view`: the text for its metadata."""
    root = ET.fromstring(_FORBIDDEN.sub(_REPLACEMENT, data))
    root.set("width", f"{width_mm:.4g}mm")
    root.set("height", f"{height_mm:.6g}mm")
    for group in root.iter(f"{SVG}g"):
        for name in _FONT:  # that of the application; each text has its own
            group.attrib.pop(name, None)
        _scaling_lines(group)
    _without_empty(root)
    for image in root.iter(f"{SVG}image"):
        image.set("image-rendering", "optimizeSpeed")  # sharp edges of cells; the older keyword is more widely supported
        image.set("style", "image-rendering:pixelated")
    if outlined:
        _outlined(root)
    else:
        _with_fonts(root)
    if grey:
        _grey(root)
    if view:
        metadata = ET.Element(f"{SVG}metadata")
        ET.SubElement(metadata, f"{{{NAMESPACE}}}{ELEMENT}").text = view
        root.insert(sum(child.tag in (f"{SVG}title", f"{SVG}desc") for child in root), metadata)
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="utf-8")


def _without_empty(root: ET.Element) -> None:
    for parent in list(root.iter(f"{SVG}g")):
        for child in list(parent):
            if child.tag == f"{SVG}g" and not len(child):
                parent.remove(child)


# lines that scale ----------------------------------------------------------------------------------------------------


def _matrix(group: ET.Element) -> Matrix:
    match = re.fullmatch(r"matrix\(([^)]*)\)", group.get("transform", ""))
    parts = [float(v) for v in match[1].split(",")] if match else [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    return (parts[0], parts[1], parts[2], parts[3], parts[4], parts[5])


def _moved(m: Matrix, x: float, y: float) -> str:
    return f"{m[0] * x + m[2] * y + m[4]:.6g},{m[1] * x + m[3] * y + m[5]:.6g}"


def _pairs(numbers: str) -> Iterator[tuple[float, float]]:
    values = [float(v) for v in re.findall(r"-?[\d.]+(?:e[-+]?\d+)?", numbers)]
    return zip(values[::2], values[1::2], strict=True)


def _scaling_lines(group: ET.Element) -> None:
    """Strokes whose width ignores the zoom get page coordinates and a width on the page, which every program understands."""
    unscaled = [e for e in group if e.attrib.pop("vector-effect", "none") == "non-scaling-stroke"]
    if not unscaled:
        return
    matrix, wrapped = _matrix(group), list(group)
    if len(unscaled) < len(wrapped):
        for i, element in enumerate(wrapped):  # what is left in the group keeps its matrix
            if element not in unscaled:
                holder = ET.Element(f"{SVG}g", {"transform": group.get("transform", "")})
                holder.append(element)
                group[i] = holder
    group.attrib.pop("transform", None)
    for element in unscaled:
        _bake(element, matrix)


def _bake(element: ET.Element, m: Matrix) -> None:
    kind = element.tag.removeprefix(SVG)
    if kind in ("polyline", "polygon"):
        element.set("points", " ".join(_moved(m, x, y) for x, y in _pairs(element.get("points", ""))))
    elif kind == "path":
        parts = re.findall(r"([MLCZz])([^MLCZz]*)", element.get("d", ""))
        element.set("d", "".join(c + " ".join(_moved(m, x, y) for x, y in _pairs(numbers)) for c, numbers in parts))
    elif kind == "line":
        for x, y in (("x1", "y1"), ("x2", "y2")):
            at = _moved(m, float(element.get(x, "0")), float(element.get(y, "0"))).split(",")
            element.set(x, at[0])
            element.set(y, at[1])
    else:
        element.set("transform", f"matrix({','.join(f'{v:.6g}' for v in m)})")


# text ----------------------------------------------------------------------------------------------------------------


def _font_of(text: ET.Element) -> QFont:
    mono = text.get("font-family", "").startswith(MONO[0])
    return _LETTERING.font(float(text.get("font-size", "11")), mono=mono, bold=int(text.get("font-weight", "400")) >= 600)


def _outlined(root: ET.Element) -> None:
    """Turn every text into the outlines of its glyphs, each glyph written once; the text itself stands in `aria-label`."""
    names: dict[tuple[str, float, int], str] = {}
    shapes = root.find(f"{SVG}defs")
    assert shapes is not None
    for group in list(root.iter(f"{SVG}g")):
        for i, element in enumerate(list(group)):
            if element.tag == f"{SVG}text":
                group[i] = _glyphs(element, names, shapes)


def _glyphs(text: ET.Element, names: dict[tuple[str, float, int], str], shapes: ET.Element) -> ET.Element:
    words = "".join(text.itertext())
    style = {k: v for k, v in text.attrib.items() if k in ("fill", "fill-opacity", "stroke", "transform")}
    holder = ET.Element(f"{SVG}g", {**style, "aria-label": words})
    layout = QTextLayout(words, _font_of(text))
    layout.beginLayout()
    line = layout.createLine()
    layout.endLayout()
    x, y = float(text.get("x", "0")), float(text.get("y", "0")) - line.ascent()
    for run in layout.glyphRuns():
        raw = run.rawFont()
        for glyph, at in zip(run.glyphIndexes(), run.positions(), strict=True):
            key = (f"{raw.familyName()} {raw.weight()}", raw.pixelSize(), glyph)
            if key not in names:
                outline = _written(*_outline(raw, glyph))
                names[key] = f"g{len(names)}" if outline else ""
                if outline:
                    shapes.append(ET.Element(f"{SVG}path", {"id": names[key], "d": outline, "fill-rule": "nonzero"}))
            if names[key]:
                place = {"x": f"{x + at.x():.5g}", "y": f"{y + at.y():.5g}", f"{XLINK}href": f"#{names[key]}"}
                holder.append(ET.Element(f"{SVG}use", place))
    return holder


def _outline(font: QRawFont, glyph: int) -> tuple[QPainterPath, float]:
    """(a glyph's outline in units of its font, px a unit).

    At the size of the text Qt rounds it to 1/64 px, up or down by what the process has drawn before.
    """
    whole = QRawFont(font)
    whole.setPixelSize(font.unitsPerEm())
    return whole.pathForGlyph(glyph), font.pixelSize() / font.unitsPerEm()


def _written(path: QPainterPath, scale: float) -> str:
    """A path as SVG path data. `scale`: px a unit of the path."""
    parts: list[str] = []
    for i in range(path.elementCount()):
        element = path.elementAt(i)
        letter = {QPainterPath.ElementType.MoveToElement: "M", QPainterPath.ElementType.LineToElement: "L"}
        curve = "C" if element.type == QPainterPath.ElementType.CurveToElement else ""
        parts.append(f"{letter.get(element.type, curve)}{element.x * scale:.4g},{element.y * scale:.4g}")  # type: ignore[attr-defined]
    return " ".join(parts)


def _with_fonts(root: ET.Element) -> None:
    """Embed the faces in which the texts are set."""
    faces: set[tuple[str, bool]] = set()
    for text in root.iter(f"{SVG}text"):
        mono = text.get("font-family", "").startswith(MONO[0])
        bold = int(text.get("font-weight", "400")) >= 600
        faces |= {(name, bold) for name in (MONO if mono else SANS) if (name, bold) in _FACES} if mono else {("Inter", bold)}
        text.set("font-family", ", ".join(f"'{n}'" if " " in n else n for n in (MONO if mono else SANS)))
    rules = [_face(name, bold) for name, bold in sorted(faces)]
    style = ET.Element(f"{SVG}style", {"type": "text/css"})
    style.text = "text{font-feature-settings:'calt' 0,'liga' 0}" + "".join(rules)
    root.insert(0, style)


def _face(name: str, bold: bool) -> str:
    data = base64.b64encode((resource("fonts") / _FACES[name, bold]).read_bytes()).decode("ascii")
    kind = "otf" if _FACES[name, bold].endswith("otf") else "ttf"
    weight = 600 if bold else 400
    return f"@font-face{{font-family:'{name}';font-weight:{weight};src:url(data:font/{kind};base64,{data})}}"


# grey ----------------------------------------------------------------------------------------------------------------


def _grey(root: ET.Element) -> None:
    for element in root.iter():
        for name in ("fill", "stroke"):
            if re.fullmatch("#[0-9a-f]{6}", colour := element.get(name, "")):
                element.set(name, _as_grey(colour))
        if element.tag == f"{SVG}image" and (held := element.get(f"{XLINK}href", "")).startswith(_DATA_IMAGE):
            element.set(f"{XLINK}href", _grey_image(held))


def _as_grey(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    level = (red * 11 + green * 16 + blue * 5) // 32  # as qGray: the same in PNG and SVG
    return f"#{level:02x}{level:02x}{level:02x}"


def _grey_image(href: str) -> str:
    image = QImage.fromData(base64.b64decode(href.removeprefix(_DATA_IMAGE)))
    alpha = image.convertToFormat(QImage.Format.Format_Alpha8) if image.hasAlphaChannel() else None
    grey = image.convertToFormat(QImage.Format.Format_Grayscale8).convertToFormat(QImage.Format.Format_ARGB32)
    if alpha is not None:
        grey.setAlphaChannel(alpha)
    data = QByteArray()
    buffer = QBuffer(data)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    grey.save(buffer, "PNG")  # pyright: ignore[reportCallIssue, reportArgumentType]
    return _DATA_IMAGE + base64.b64encode(bytes(data.data())).decode("ascii")
