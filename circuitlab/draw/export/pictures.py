# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false, reportRedeclaration=false
# pyqtgraph and PySide6 describe themselves wrongly here: pyqtgraph forwards methods at run time and names layouts as methods.
"""A figure on paper: PNG, SVG and PDF, in vectors where the mark is one. Always on white.

The figure is laid out in screen pixels by the same widgets as on the screen, then scaled so that its labels have the asked
size in points and the whole the asked width in millimetres (see `Paper`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from PySide6.QtCore import (
    QBuffer,
    QByteArray,
    QCoreApplication,
    QEvent,
    QIODevice,
    QMarginsF,
    QPoint,
    QRect,
    QSize,
    QSizeF,
    QUuid,
)
from PySide6.QtGui import QImage, QPageLayout, QPageSize, QPainter, QPdfWriter
from PySide6.QtSvg import QSvgGenerator, QSvgRenderer
from PySide6.QtWidgets import QWidget

from circuitlab.disk.files import write_whole
from circuitlab.draw.export import _pdf as pdf
from circuitlab.draw.export import _svg as svg
from circuitlab.draw.export._png import png_of
from circuitlab.draw.export._xmp import xmp_packet
from circuitlab.draw.look.app import application
from circuitlab.draw.look.guarded import faults
from circuitlab.draw.look.paper import INCH, POINTS, Paper, format_of
from circuitlab.draw.look.theme import LIGHT, Theme
from circuitlab.draw.look.unreadable import Unreadable, confirmed
from circuitlab.draw.plots.plot import Range
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.draw.view.settling import PARTS, settle
from circuitlab.draw.view.sheet_view import SheetView
from circuitlab.errors import CircuitLabError, UsageError
from circuitlab.figures.marks import Figure
from circuitlab.interrupts import uninterrupted
from circuitlab.session_files.in_pictures import png
from circuitlab.story.zoom import Part

DPI = 96
TURNS = 4  # until the caption has room for what it says of marks that have their room

Parts = Mapping[str, Range]
Page = FigureView | SheetView  # what a file is painted from


def export(figure: Figure, path: Path, paper: Paper | None = None, parts: Parts | None = None, view: str = "") -> float:
    """Write `figure` to `path` (.png, .svg or .pdf), and return its height in mm; makes an application without a display if there
    is none.

    `parts`: what is to be seen of marks, by name (`FigureView.parts`); those that it does not name are drawn whole. `view`: the
    text that says what it shows (`session_files/picture_view.py`), kept inside the file; "" none. The same figure on the same
    paper gives the same bytes.

    Raises `UsageError` for another format or where the figure does not fit a height, `BadMachine` where nothing can be written,
    `CircuitLabError` where a part of it cannot be drawn.
    """
    path, paper = Path(path), paper or Paper()
    suffix = format_of(path)
    file = written(lambda: laid_out(figure, paper, parts), suffix, paper, view)
    write_whole(path, file.data, named=True)
    return file.height_mm


def picture(figure: Figure, suffix: str, paper: Paper, parts: Parts | None = None, view: str = "") -> bytes:
    """The bytes of a file of this kind."""
    application(offscreen=True)
    return written(lambda: laid_out(figure, paper, parts), suffix, paper, view).data


@dataclass(frozen=True, eq=False)
class Written:
    """The bytes of a picture, and how high it is on paper."""

    data: bytes
    height_mm: float


@uninterrupted()
def written(lay_out: Callable[[], Page], suffix: str, paper: Paper, view: str) -> Written:
    """A file of this kind of what `lay_out` gives, which is discarded. Raises `CircuitLabError`."""
    with faults() as reasons:
        widget = lay_out()
        try:
            data, high = _WRITERS[suffix](widget, paper, view), height_on(paper, widget)
        finally:
            discard(widget)
    if reasons:
        raise undrawn(reasons)
    return Written(data, high)


def height_on(paper: Paper, view: Page) -> float:
    """mm of what is laid out, on this paper."""
    return paper.height_mm or paper.width_mm * view.height() / view.width()


@dataclass(frozen=True, eq=False)
class Preview:
    """A figure as it will be written: `image`, its size on paper, and in words what it has no room for."""

    image: QImage
    width_mm: float
    height_mm: float
    left_out: tuple[str, ...]


def preview(figure: Figure, paper: Paper, room: QSize, parts: Parts | None = None, ratio: float = 1.0) -> Preview:
    """The picture that `picture` writes, as large as fits into `room` px of `ratio` device pixels each.

    25 to 420 ms for the panels of a small model on a busy machine, most of it the layout, which is for the thread of the widgets.
    Raises the `UsageError` that exporting would raise.
    """
    application(offscreen=True)
    return previewed(lambda: laid_out(figure, paper, parts), paper, room, ratio)


@uninterrupted()
def previewed(lay_out: Callable[[], Page], paper: Paper, room: QSize, ratio: float) -> Preview:
    """`preview` of what `lay_out` gives, which is discarded."""
    view = lay_out()
    try:
        times = min(room.width() / view.width(), room.height() / view.height()) * ratio
        image = _image(view, QSize(max(1, round(view.width() * times)), max(1, round(view.height() * times))))
        left_out = view.left_out()
        high = height_on(paper, view)
    finally:
        discard(view)
    image = image.convertToFormat(QImage.Format.Format_Grayscale8) if paper.grey else image
    image.setDevicePixelRatio(ratio)
    return Preview(image, paper.width_mm, high, left_out)


@uninterrupted()
def as_seen(figure: Figure, seen: Mapping[str, Part]) -> tuple[Figure, Parts]:
    """A figure with its tables as they are seen, and of its plots what is, for `export`. `seen`: parts of marks, by name."""
    application(offscreen=True)
    view = FigureView()
    try:
        view.resize(640, 480)
        view.show_figure(figure)
        settle(view)
        view.show_visible_parts(seen)
        return view.as_shown(), view.parts()
    finally:
        discard(view)


@uninterrupted()
def render(figure: Figure, size: QSize, theme: Theme = LIGHT, ratio: float = 1.0) -> QImage:
    """The picture that a FigureView of this size shows, `ratio` device pixels to a pixel."""
    application(offscreen=True)
    view = FigureView(theme)
    try:
        view.resize(size)
        view.show_figure(figure)
        settle(view)
        return _image(view, QSize(round(size.width() * ratio), round(size.height() * ratio)))
    finally:
        discard(view)


@uninterrupted()
def laid_out(figure: Figure, paper: Paper, parts: Parts | None = None) -> FigureView:
    """A view laid out without ever becoming a window; `paper.height_mm` None: as high as its content. Raises `UsageError`."""
    try:
        view = _readable(figure, paper, parts)
    except Unreadable as refusal:
        raise confirmed(refusal, lambda other: discard(_readable(figure, other, parts))) from None
    width = view.width()
    height = _height(paper, width)
    for _ in range(TURNS):
        least = view.lay_out_for_paper(width, height)
        if height is not None and least > height:
            discard(view)
            raise UsageError(
                "The figure does not fit into this height.",
                expected=f"at least {least * paper.width_mm / width:.0f} mm",
                got=f"{paper.height_mm:g} mm",
                remedy="Give it more height, a shorter caption or smaller type.",
            )
        if view.height() == (height or least):
            break
        view.resize(width, height or least)
        settle(view)
    return view


def _readable(figure: Figure, paper: Paper, parts: Parts | None) -> FigureView:
    """A view as wide as the paper. Raises `Unreadable`."""
    theme, width = scale_of(paper)
    view = FigureView(theme, paper=paper)
    view.resize(width, _height(paper, width) or 400)
    view.show_figure(figure)
    settle(view)
    view.show_parts(parts or {})
    least = view.least_width()
    if least > width:
        discard(view)
        raise Unreadable("The figure cannot be read at this width in this type.", paper, least, width)
    return view


def _height(paper: Paper, width: int) -> int | None:
    """px of a layout of this width, where the paper has a height."""
    return None if paper.height_mm is None else round(paper.height_mm / paper.width_mm * width)


@uninterrupted()
def check(figure: Figure, paper: Paper) -> None:
    """Raises the `UsageError` that exporting to this paper would raise: too narrow, too low, type too large."""
    application(offscreen=True)
    discard(laid_out(figure, paper))


def scale_of(paper: Paper) -> tuple[Theme, int]:
    """The theme, and the width of the layout in px."""
    # tabular figures cannot be searched in a PDF, and all formats look alike
    point = LIGHT.small / paper.font_pt  # px of the layout
    theme = replace(LIGHT, least=paper.least_pt * point, stroke=paper.line_pt * point, tabular=False, grey=paper.grey)
    return theme, round(paper.width_mm / INCH * POINTS * point)


def discard(view: QWidget) -> None:
    """Delete a widget now, not when an event loop comes to it."""
    view.deleteLater()
    QCoreApplication.sendPostedEvents(view, QEvent.Type.DeferredDelete.value)


def _paint(view: Page, painter: QPainter, scale: float) -> None:
    """`scale`: device units per px of layout."""
    paint_into(view, painter, scale)
    painter.end()


def paint_into(view: Page, painter: QPainter, scale: float) -> None:
    """Paint at the painter's origin, with `scale` device units per px of layout, by which the painter is scaled."""
    view.set_ratio(scale)
    painter.scale(scale, scale)
    view.render(painter, QPoint(0, 0), QRect(QPoint(0, 0), view.size()), PARTS)


def undrawn(reasons: Sequence[str]) -> CircuitLabError:
    """The error for what was reported while something was painted."""
    return CircuitLabError("A part of the figure could not be drawn.", got=reasons[0], remedy="The Log has the details.")


def _image(view: Page, size: QSize, top: int = 0) -> QImage:
    """`size.height()` rows of a picture that is `size.width()` wide, from the row `top` on."""
    image = QImage(size, QImage.Format.Format_RGB32)
    image.fill(view.theme.colour("background"))
    painter = QPainter(image)
    painter.translate(0, -top)
    _paint(view, painter, size.width() / view.width())
    return image


def _bytes(buffer: QBuffer) -> bytes:
    return bytes(buffer.data().data())


def _png(widget: Page, paper: Paper, view: str) -> bytes:
    width, height = paper.pixels(widget.width(), widget.height())
    texts = {"Title": widget.title, "Description": widget.whole_caption, "Software": "CircuitLab"}
    drawn = lambda top, rows: _image(widget, QSize(width, rows), top)
    data = png_of(drawn, (width, height), round(paper.dpi / INCH * 1000), texts, paper.grey)
    return png.with_text(data, view) if view else data


def png_bytes(image: QImage, view: str = "") -> bytes:
    """An image as the bytes of a PNG. `view`: see `export`."""
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")  # pyright: ignore[reportCallIssue, reportArgumentType]
    return png.with_text(_bytes(buffer), view) if view else _bytes(buffer)


def vectors(view: Page, paper: Paper, text: str = "", outlined: bool | None = None) -> bytes:
    """As the bytes of an SVG. `text`: as `view` of `export`; `outlined`: its letters, None: as the paper has it."""
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    # Curves that leave the visible part are clipped, which SVG Tiny cannot express.
    version = QSvgGenerator.SvgVersion
    generator = QSvgGenerator(version.Svg11 if view.parts() else version.SvgTiny12)
    generator.setOutputDevice(buffer)
    generator.setResolution(DPI)  # otherwise axes are scaled by 0.75 relative to the image
    generator.setSize(view.size())
    generator.setViewBox(QRect(QPoint(0, 0), view.size()))
    generator.setTitle(view.title)
    generator.setDescription(view.whole_caption)
    _paint(view, QPainter(generator), 1.0)
    height = height_on(paper, view)
    outlined = paper.outlined(".svg") if outlined is None else outlined
    return svg.finished(_bytes(buffer), paper.width_mm, height, outlined, paper.grey, text)


def _pdf(view: Page, paper: Paper, text: str) -> bytes:
    buffer, xmp = QBuffer(), xmp_packet(view.title, view.whole_caption, text)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    writer = QPdfWriter(buffer)
    writer.setResolution(DPI)
    writer.setTitle(view.title)
    writer.setCreator("CircuitLab")
    writer.setDocumentXmpMetadata(QByteArray(xmp))
    writer.setDocumentId(QUuid.createUuidV5(QUuid(), QByteArray(xmp + repr(paper).encode("utf-8"))))
    if paper.grey:
        writer.setColorModel(QPdfWriter.ColorModel.Grayscale)
    page = QSizeF(paper.width_mm, height_on(paper, view))
    size = QPageSize(page, QPageSize.Unit.Millimeter, "", QPageSize.SizeMatchPolicy.ExactMatch)
    writer.setPageLayout(QPageLayout(size, QPageLayout.Orientation.Portrait, QMarginsF(0, 0, 0, 0)))
    scale = paper.width_mm / INCH * DPI / view.width()
    if paper.outlined(".pdf") and not view.parts():  # Qt does not read clipping back: parts keep their fonts
        drawn = QSvgRenderer(vectors(view, paper, "", outlined=True))
        painter = QPainter(writer)
        painter.scale(scale, scale)
        drawn.render(painter, QRect(QPoint(0, 0), view.size()).toRectF())
        painter.end()
    else:
        _paint(view, QPainter(writer), scale)
    return pdf.settled(_bytes(buffer))


_WRITERS: dict[str, Callable[[Page, Paper, str], bytes]] = {".png": _png, ".svg": vectors, ".pdf": _pdf}
