"""A figure that can be seen: drawn inside a notebook, and saved for a paper.

    picture = model.figure("attention", text="one two one two", heads="L1H3")   # the last line of a cell: drawn under it
    picture.figure.find("pattern")                                              # its marks, as data
    picture.save("attention.pdf", width_mm=174)

Qt draws without a display and without an event loop, in the thread that asks.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from html import escape
from pathlib import Path

from circuitlab.counting import number_of
from circuitlab.draw.look.paper import Paper, format_of
from circuitlab.errors import UsageError
from circuitlab.figures.marks import Figure
from circuitlab.notebook_html import shortened
from circuitlab.report.render import NO_PARTS, drawn, readable, write
from circuitlab.report.working import Working, silent
from circuitlab.story.zoom import Part

SVG, PNG, PLAIN = "image/svg+xml", "image/png", "text/plain"
IN_NOTEBOOK = Paper(width_mm=174.0, font_pt=9.0)  # where no paper is asked for: the width of a cell
LARGEST_SVG = 2 * 2**20  # bytes; a larger one would be kept in the notebook's file, and is a PNG there
SHARP = 192  # dots an inch of such a PNG, for screens of two dots a pixel


def _nothing() -> str:
    return ""


@dataclass(frozen=True, eq=False, repr=False)
class Picture:
    """A figure with what is to be seen of it. `figure`: its marks, title and caption, as data.

    `paper`: how it is set, None as it is usual: `IN_NOTEBOOK` there, `Paper()` in files. `seen`: the parts of its marks that are
    drawn, by name. `view`: what it shows, in words for its file ("" without); called when a file is written. `working`: around
    the drawing, which an interrupt must not fall into.
    """

    figure: Figure
    paper: Paper | None = None
    seen: Mapping[str, Part] = field(default_factory=lambda: NO_PARTS)
    view: Callable[[], str] = _nothing
    working: Working = silent

    @property
    def title(self) -> str:
        """The title of the figure."""
        return self.figure.title

    @property
    def caption(self) -> str:
        """Its whole caption, in one line."""
        return self.figure.caption

    def save(self, path: str | Path, paper: Paper | None = None, with_view: bool = True, **changed: object) -> Path:
        """Write PNG, SVG or PDF, by suffix, and return the path: `picture.save("a.pdf", width_mm=84, ink="grey")`.

        `changed`: fields of `Paper` that are to be other than those of `paper`, by default the picture's. `with_view`: the file
        says what it shows, and can be opened for it. Raises `UsageError`, `BadMachine`.
        """
        format_of(Path(path))
        self.write(Path(path), _changed(paper or self.paper or Paper(), changed), with_view)
        return Path(path)

    def write(self, path: Path, paper: Paper, with_view: bool = True) -> float:
        """Write it on this paper, and return its height in mm. Raises as `save`."""
        with self.working("drawing"):
            return write(self.figure, path, paper, self.seen, self.view() if with_view else "")

    def svg(self, paper: Paper | None = None) -> str:
        """As an SVG element that can stand in a page with others: none of their names are the same. Its texts are outlines."""
        return in_page(self._drawn(".svg", paper, text="outlines"), self.title)

    def png(self, paper: Paper | None = None) -> bytes:
        """As the bytes of a PNG."""
        return self._drawn(".png", paper, **({} if paper or self.paper else {"dpi": SHARP}))

    def _drawn(self, suffix: str, paper: Paper | None, **changed: object) -> bytes:
        """On this paper, on the picture's own, or on one as wide as it takes to be read."""
        setting = replace(paper or self.paper or IN_NOTEBOOK, **changed)
        draw = lambda wide: drawn(self.figure, suffix, wide, self.seen)
        with self.working("drawing"):
            return draw(setting) if paper or self.paper else readable(setting, draw)

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> tuple[dict[str, object], dict[str, object]]:
        """One picture for the notebook, an SVG where it is not too large, and words for where no pictures are shown."""
        words = f"{self.title}\n{self.caption}".strip()
        return bundle(self.svg, self.png, words, self.paper or IN_NOTEBOOK, include, exclude)

    def __repr__(self) -> str:
        marks = ", ".join(f"{type(mark).__name__.lower()} “{mark.name}”" for mark in self.figure.marks()[:4])
        rest = len(self.figure.marks()) - 4
        more = f" and {number_of(rest, 'mark')} more" if rest > 0 else ""
        return f"<Picture “{shortened(self.title or self.figure.why_empty)}”{': ' if marks else ''}{marks}{more}>"


def bundle(
    svg: Callable[[], str],
    png: Callable[[], bytes],
    words: str,
    paper: Paper,
    include: Collection[str] | None = None,
    exclude: Collection[str] | None = None,
) -> tuple[dict[str, object], dict[str, object]]:
    """What `_repr_mimebundle_` returns: an SVG where it is not too large, else a PNG, and words where no pictures are shown."""
    wanted = {SVG, PNG, PLAIN} & set(include or {SVG, PNG, PLAIN}) - set(exclude or ())
    data: dict[str, object] = {PLAIN: words} if PLAIN in wanted else {}
    more: dict[str, object] = {}
    if SVG in wanted and (len(text := svg()) <= LARGEST_SVG or PNG not in wanted):
        data[SVG] = text
    elif PNG in wanted:
        data[PNG] = png()
        more[PNG] = _css_size(paper)
    return data, more


def _css_size(paper: Paper) -> dict[str, int]:
    """How wide the notebook shows it, in px of 96 an inch."""
    return {"width": round(paper.width_mm / 25.4 * 96)}


def _changed(paper: Paper, changes: Mapping[str, object]) -> Paper:
    """Raises `UsageError` for what is no field of `Paper`."""
    known = {one.name for one in fields(Paper)}
    if unknown := sorted(changes.keys() - known):
        raise UsageError(
            "Paper has no such field.", expected=" ".join(sorted(known)), got=" ".join(unknown), remedy="Name one of these."
        )
    return replace(paper, **changes)


def in_page(svg: bytes, title: str) -> str:
    """The picture as an element of a page, of the size that its paper has, described by its own caption."""
    from circuitlab.report.inline_svg import inline
    from circuitlab.report.markup import visible

    prefix = f"c{sha256(svg).hexdigest()[:12]}-"
    element = inline(svg, prefix, title)
    width, height = (ET.fromstring(svg).get(side, "") for side in ("width", "height"))
    described = f'</title><desc id="{prefix}caption">{escape(visible(element.caption))}</desc>'
    sized = f'<svg width="{width}" height="{height}" style="max-width:100%;height:auto" '
    return element.markup.replace("<svg ", sized, 1).replace("</title>", described, 1)
