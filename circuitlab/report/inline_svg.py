"""A figure as SVG inside a page: of its own proportions, named for screen readers, with ids that no other figure has.

Only elements and attributes that a figure is made of are taken over, and references that stay inside the page.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass

from circuitlab.report.markup import visible

SVG, XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
_SHAPES = ("path", "rect", "line", "polyline", "polygon", "circle", "ellipse", "use", "image")
_GROUPS = ("g", "defs", "clipPath", "linearGradient", "radialGradient", "stop")
_ELEMENTS = frozenset(f"{SVG}{name}" for name in (*_SHAPES, *_GROUPS))
_WITHIN = re.compile(r"url\(#([^)]*)\)")
_IMAGE = "data:image/png;base64,"
_SHARP = "image-rendering:pixelated"  # the only style of an element

ET.register_namespace("", SVG[1:-1])
ET.register_namespace("xlink", XLINK[1:-1])


@dataclass(frozen=True)
class InlineSvg:
    """`markup`: the element; `caption`: what the figure says of itself, by its description."""

    markup: str
    caption: str


def inline(data: bytes, prefix: str, title: str) -> InlineSvg:
    """A figure's SVG as an element of a page. `prefix`: begins all its ids; `title`: what it is called aloud.

    It is described by the element of the page that is called `prefix` and "caption".
    """
    root = ET.fromstring(data)
    caption = root.findtext(f"{SVG}desc") or ""
    _, _, width, height = (float(v) for v in root.get("viewBox", "0 0 1 1").split())
    _clean(root, prefix)
    root.attrib.clear()
    root.attrib |= {
        "viewBox": f"0 0 {width:g} {height:g}",
        "preserveAspectRatio": "xMinYMin meet",
        "role": "img",
        "aria-labelledby": f"{prefix}title",
        "aria-describedby": f"{prefix}caption",
    }
    name = ET.Element(f"{SVG}title", {"id": f"{prefix}title"})
    name.text = visible(title)
    root.insert(0, name)
    root.tail = None
    return InlineSvg(ET.tostring(root, encoding="unicode"), caption)


def _clean(element: ET.Element, prefix: str) -> None:
    for child in list(element):
        if child.tag not in _ELEMENTS:
            element.remove(child)
            continue
        child.attrib = dict(_attributes(child, prefix))
        child.text = child.tail = None
        _clean(child, prefix)


def _attributes(element: ET.Element, prefix: str) -> list[tuple[str, str]]:
    attributes: list[tuple[str, str]] = []
    for name, value in element.attrib.items():
        if name == "id":
            attributes.append((name, prefix + value))
        elif name in (f"{XLINK}href", "href"):
            if value.startswith("#"):
                attributes.append((name, f"#{prefix}{value[1:]}"))
            elif value.startswith(_IMAGE):
                attributes.append((name, value))
        elif name == "style":
            attributes += [(name, value)] if value == _SHARP else []
        elif not name.startswith(("on", "{", "aria-")):  # the outlines of a text say it: a screen reader takes the whole for one
            attributes.append((name, _WITHIN.sub(rf"url(#{prefix}\1)", value) if "url(" in value else value))
    return attributes
