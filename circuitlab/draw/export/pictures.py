# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false, reportRedeclaration=false
# pyqtgraph and PySide6 describe themselves wrongly here: pyqtgraph forwards methods at run time and names layouts as methods.
"""A figure on paper: PNG, SVG and PDF, in vectors where the mark is one. Always on white.

The figure is laid out in screen pixels by the same widgets as on the screen, then scaled so that its labels have the asked
size in points and the whole the asked width in millimetres (see `Paper`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from html import escape
from math import ceil, floor
from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QCoreApplication, QEvent, QIODevice, QMarginsF, QPoint, QRect, QSize, QSizeF
from PySide6.QtGui import QImage, QPageLayout, QPageSize, QPainter, QPdfWriter
from PySide6.QtSvg import QSvgGenerator, QSvgRenderer
from PySide6.QtWidgets import QWidget

from circuitlab.draw.export import _svg as svg
from circuitlab.draw.look.app import application
from circuitlab.draw.look.guarded import faults
from circuitlab.draw.look.paper import INCH, LIMITS, POINTS, Paper, format_of
from circuitlab.draw.look.theme import LIGHT, Theme
from circuitlab.draw.plots.plot import Range
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.errors import CircuitLabError, UsageError
from circuitlab.figures.marks import Figure
from circuitlab.files import write_whole

DPI = 96
# What a PDF says of itself where its page does not: readers show it among a document's properties.
_XMP = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:xmp="http://ns.adobe.com/xap/1.0/">
<dc:title><rdf:Alt><rdf:li xml:lang="x-default">{}</rdf:li></rdf:Alt></dc:title>
<dc:description><rdf:Alt><rdf:li xml:lang="x-default">{}</rdf:li></rdf:Alt></dc:description>
<xmp:CreatorTool>CircuitLab</xmp:CreatorTool>
</rdf:Description></rdf:RDF></x:xmpmeta>
<?xpacket end="w"?>"""
_PARTS = QWidget.RenderFlag.DrawChildren | QWidget.RenderFlag.DrawWindowBackground


Parts = Mapping[str, Range]


def export(figure: Figure, path: Path, paper: Paper | None = None, parts: Parts | None = None) -> None:
    """Write `figure` to `path` (.png, .svg or .pdf); makes an application without a display if there is none.

    `parts`: what is to be seen of marks, by name (`FigureView.parts`); those that it does not name are drawn whole.

    Raises `UsageError` for another format or where the figure does not fit a height, `BadMachine` where nothing can be written,
    `CircuitLabError` where a part of it cannot be drawn.
    """
    path, paper = Path(path), paper or Paper()
    suffix = format_of(path)
    write_whole(path, picture(figure, suffix, paper, parts))


def picture(figure: Figure, suffix: str, paper: Paper, parts: Parts | None = None) -> bytes:
    """The bytes of a file of this kind."""
    application(offscreen=True)
    theme, width = _scale(paper)
    with faults() as reasons:
        view = _laid_out(figure, theme, width, paper, parts or {})
        try:
            data = _WRITERS[suffix](view, paper)
        finally:
            _discard(view)
    if reasons:
        raise CircuitLabError("A part of the figure could not be drawn.", got=reasons[0], remedy="The Log has the details.")
    return data


def render(figure: Figure, size: QSize, theme: Theme = LIGHT, ratio: float = 1.0) -> QImage:
    """The picture that a FigureView of this size shows, `ratio` device pixels to a pixel."""
    application(offscreen=True)
    view = FigureView(theme)
    try:
        view.resize(size)
        view.show_figure(figure)
        _settle(view)
        return _image(view, QSize(round(size.width() * ratio), round(size.height() * ratio)), ratio)
    finally:
        _discard(view)


def _laid_out(figure: Figure, theme: Theme, width: int, paper: Paper, parts: Parts) -> FigureView:
    """A view laid out without ever becoming a window; `paper.height_mm` None: as high as its content."""
    view = FigureView(theme, paper=paper)
    height = None if paper.height_mm is None else round(paper.height_mm / paper.width_mm * width)
    view.resize(width, height or 400)
    view.show_figure(figure)
    _settle(view)
    view.show_parts(parts)
    try:
        _refuse_small(view, width, paper)
    except UsageError:
        _discard(view)
        raise
    least = view.lay_out_for_paper(width, height)
    if height is not None and least > height:
        _discard(view)
        raise UsageError(
            "The figure does not fit into this height.",
            expected=f"at least {least * paper.width_mm / width:.0f} mm",
            got=f"{paper.height_mm:g} mm",
            remedy="Give it more height, a shorter caption or smaller type.",
        )
    view.resize(width, height or least)
    _settle(view)
    return view


def _refuse_small(view: FigureView, width: int, paper: Paper) -> None:
    """Raises `UsageError`, naming the smallest width and the largest type, where part of the figure could not be read."""
    least = view.least_width()
    if least <= width:
        return
    narrowest, largest = ceil(least / width * paper.width_mm), floor(10 * paper.font_pt * width / least) / 10
    low = LIMITS["font_pt"][0]
    smaller = f", or type of at most {largest:g} pt at {paper.width_mm:g} mm" if largest >= low else ""
    raise UsageError(
        "The figure cannot be read at this width in this type.",
        expected=f"at least {narrowest} mm in type of {paper.font_pt:g} pt{smaller}",
        got=f"{paper.width_mm:g} mm, {paper.font_pt:g} pt",
        remedy="Make it wider or its type smaller.",
    )


def check(figure: Figure, paper: Paper) -> None:
    """Raises the `UsageError` that exporting to this paper would raise: too narrow, too low, type too large."""
    application(offscreen=True)
    _discard(_laid_out(figure, *_scale(paper), paper, {}))


def _scale(paper: Paper) -> tuple[Theme, int]:
    """The theme, and the width of the layout in px."""
    # tabular figures cannot be searched in a PDF, and all formats look alike
    theme = replace(LIGHT, least=LIGHT.small * paper.least_pt / paper.font_pt, tabular=False)
    return theme, round(paper.width_mm / INCH * POINTS * theme.small / paper.font_pt)


def _settle(view: FigureView) -> None:
    """Deliver pending layouts and resizes: painting one pixel of a hidden widget does so without creating a window."""
    speck = QImage(1, 1, QImage.Format.Format_RGB32)
    view.render(speck, QPoint(0, 0), QRect(0, 0, 1, 1), _PARTS)


def _discard(view: FigureView) -> None:
    view.deleteLater()
    QCoreApplication.sendPostedEvents(view, QEvent.Type.DeferredDelete.value)


def _paint(view: FigureView, painter: QPainter, scale: float, line: float) -> None:
    """`scale`: device units per px of layout; `line`: device units per px of line width."""
    view.set_stroke(line)
    painter.scale(scale, scale)
    view.render(painter, QPoint(0, 0), QRect(QPoint(0, 0), view.size()), _PARTS)
    painter.end()


def _image(view: FigureView, size: QSize, line: float) -> QImage:
    image = QImage(size, QImage.Format.Format_RGB32)
    image.fill(view.theme.colour("background"))
    _paint(view, QPainter(image), size.width() / view.width(), line)
    return image


def _bytes(buffer: QBuffer) -> bytes:
    return bytes(buffer.data().data())


def _png(view: FigureView, paper: Paper) -> bytes:
    image = _image(view, QSize(*paper.pixels(view.width(), view.height())), paper.line_pt / POINTS * paper.dpi)
    if paper.grey:
        image = image.convertToFormat(QImage.Format.Format_Grayscale8)
    image.setDotsPerMeterX(round(paper.dpi / INCH * 1000))
    image.setDotsPerMeterY(image.dotsPerMeterX())
    for name, text in (("Title", view.figure.title), ("Description", view.whole_caption), ("Software", "CircuitLab")):
        image.setText(name, text)
    return png_bytes(image)


def png_bytes(image: QImage) -> bytes:
    """An image as the bytes of a PNG."""
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")  # pyright: ignore[reportCallIssue, reportArgumentType]
    return _bytes(buffer)


def _svg(view: FigureView, paper: Paper, outlined: bool | None = None) -> bytes:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    # Curves that leave the visible part are clipped, which SVG Tiny cannot express.
    version = QSvgGenerator.SvgVersion
    generator = QSvgGenerator(version.Svg11 if view.parts() else version.SvgTiny12)
    generator.setOutputDevice(buffer)
    generator.setResolution(DPI)  # otherwise axes are scaled by 0.75 relative to the image
    generator.setSize(view.size())
    generator.setViewBox(QRect(QPoint(0, 0), view.size()))
    generator.setTitle(view.figure.title)
    generator.setDescription(view.whole_caption)
    _paint(view, QPainter(generator), 1.0, paper.line_pt / paper.font_pt * view.theme.small)
    height = paper.height_mm or paper.width_mm * view.height() / view.width()
    return svg.finished(
        _bytes(buffer), paper.width_mm, height, paper.outlined(".svg") if outlined is None else outlined, paper.grey
    )


def _pdf(view: FigureView, paper: Paper) -> bytes:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    writer = QPdfWriter(buffer)
    writer.setResolution(DPI)
    writer.setTitle(view.figure.title)
    writer.setCreator("CircuitLab")
    writer.setDocumentXmpMetadata(QByteArray(_XMP.format(escape(view.figure.title), escape(view.whole_caption)).encode("utf-8")))
    if paper.grey:
        writer.setColorModel(QPdfWriter.ColorModel.Grayscale)
    page = QSizeF(paper.width_mm, paper.height_mm or paper.width_mm * view.height() / view.width())
    size = QPageSize(page, QPageSize.Unit.Millimeter, "", QPageSize.SizeMatchPolicy.ExactMatch)
    writer.setPageLayout(QPageLayout(size, QPageLayout.Orientation.Portrait, QMarginsF(0, 0, 0, 0)))
    scale = paper.width_mm / INCH * DPI / view.width()
    if paper.outlined(".pdf") and not view.parts():  # Qt does not read clipping back: parts keep their fonts
        drawn = QSvgRenderer(_svg(view, paper, outlined=True))
        painter = QPainter(writer)
        painter.scale(scale, scale)
        drawn.render(painter, QRect(QPoint(0, 0), view.size()).toRectF())
        painter.end()
    else:
        _paint(view, QPainter(writer), scale, paper.line_pt / POINTS * DPI)
    return _bytes(buffer)


_WRITERS: dict[str, Callable[[FigureView, Paper], bytes]] = {".png": _png, ".svg": _svg, ".pdf": _pdf}
