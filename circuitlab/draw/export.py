# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false, reportRedeclaration=false
# pyqtgraph and PySide6 describe themselves wrongly here: pyqtgraph forwards methods at run time and names layouts as methods.
"""A figure on paper: PNG at three times the size, SVG and PDF in vectors where the mark is one. Always on white.

The figure is laid out in screen pixels by the same widgets as on the screen, then scaled so that its labels have the asked
size in points and the whole the asked width in millimetres.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QBuffer, QCoreApplication, QEvent, QIODevice, QMarginsF, QPoint, QRect, QSize, QSizeF
from PySide6.QtGui import QImage, QPageLayout, QPageSize, QPainter, QPdfWriter
from PySide6.QtSvg import QSvgGenerator
from PySide6.QtWidgets import QWidget

from circuitlab.draw.app import application
from circuitlab.draw.theme import LIGHT, Theme
from circuitlab.draw.view import FigureView
from circuitlab.errors import UsageError
from circuitlab.figures.marks import Figure
from circuitlab.files import write_whole

DPI = 96
PNG_SCALE = 3
_PARTS = QWidget.RenderFlag.DrawChildren | QWidget.RenderFlag.DrawWindowBackground


def export(figure: Figure, path: Path, width_mm: float = 160.0, font_pt: float = 8.0, theme: Theme = LIGHT) -> None:
    """Write `figure` to `path` (.png, .svg or .pdf); makes an application without a display if there is none."""
    path = Path(path)
    write = _WRITERS.get(path.suffix.lower())
    if write is None:
        raise UsageError(
            "A figure cannot be written in this format.", expected=" ".join(_WRITERS), got=path.suffix or "no suffix"
        )
    application(offscreen=True)
    theme = LIGHT if theme.dark else theme
    zoom = font_pt / 72 * DPI / theme.small
    width = max(160, round(width_mm / 25.4 * DPI / zoom))
    view = _laid_out(figure, theme, width, None)
    try:
        data = write(view, zoom, width_mm)
    finally:
        _discard(view)
    write_whole(path, data)


def render(figure: Figure, size: QSize, theme: Theme = LIGHT, ratio: float = 1.0) -> QImage:
    """The picture that a FigureView of this size shows, `ratio` device pixels to a pixel."""
    application(offscreen=True)
    view = _laid_out(figure, theme, size.width(), size.height(), on_paper=False)
    try:
        return _image(view, ratio)
    finally:
        _discard(view)


def _laid_out(figure: Figure, theme: Theme, width: int, height: int | None, on_paper: bool = True) -> FigureView:
    """A view that is laid out and never becomes a window; `height` None: as high as its content."""
    view = FigureView(theme, on_paper=on_paper)
    view.resize(width, height or 400)
    view.show_figure(figure)
    _settle(view)
    if height is None:
        view.resize(width, view.lay_out_for_paper(width))
        _settle(view)
    return view


def _settle(view: FigureView) -> None:
    """Let layouts and resizes arrive now: painting one pixel of a hidden widget does that, and makes no window."""
    speck = QImage(1, 1, QImage.Format.Format_RGB32)
    view.render(speck, QPoint(0, 0), QRect(0, 0, 1, 1), _PARTS)


def _discard(view: FigureView) -> None:
    view.deleteLater()
    QCoreApplication.sendPostedEvents(view, QEvent.Type.DeferredDelete.value)


def _paint(view: FigureView, painter: QPainter, zoom: float) -> None:
    view.set_stroke(zoom)
    painter.scale(zoom, zoom)
    view.render(painter, QPoint(0, 0), QRect(QPoint(0, 0), view.size()), _PARTS)
    painter.end()


def _size(view: FigureView, zoom: float) -> QSize:
    return QSize(round(view.width() * zoom), round(view.height() * zoom))


def _image(view: FigureView, zoom: float) -> QImage:
    image = QImage(_size(view, zoom), QImage.Format.Format_RGB32)
    image.fill(view.theme.colour("background"))
    _paint(view, QPainter(image), zoom)
    return image


def _bytes(buffer: QBuffer) -> bytes:
    return bytes(buffer.data().data())


def _png(view: FigureView, zoom: float, width_mm: float) -> bytes:
    image = _image(view, zoom * PNG_SCALE)
    image.setDotsPerMeterX(round(image.width() / width_mm * 1000))
    image.setDotsPerMeterY(image.dotsPerMeterX())
    return png_bytes(image)


def png_bytes(image: QImage) -> bytes:
    """An image as the bytes of a PNG."""
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")  # pyright: ignore[reportCallIssue, reportArgumentType]
    return _bytes(buffer)


def _svg(view: FigureView, zoom: float, width_mm: float) -> bytes:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    generator = QSvgGenerator()
    generator.setOutputDevice(buffer)
    generator.setResolution(DPI)  # otherwise axes are scaled 0.75 against the image
    generator.setSize(_size(view, zoom))
    generator.setViewBox(QRect(QPoint(0, 0), _size(view, zoom)))
    generator.setTitle(view.figure.title)
    generator.setDescription(view.figure.caption)
    _paint(view, QPainter(generator), zoom)
    return _bytes(buffer)


def _pdf(view: FigureView, zoom: float, width_mm: float) -> bytes:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    writer = QPdfWriter(buffer)
    writer.setResolution(DPI)
    writer.setTitle(view.figure.title)
    writer.setCreator("CircuitLab")
    page = QSizeF(width_mm, width_mm * view.height() / view.width())
    size = QPageSize(page, QPageSize.Unit.Millimeter, "", QPageSize.SizeMatchPolicy.ExactMatch)
    writer.setPageLayout(QPageLayout(size, QPageLayout.Orientation.Portrait, QMarginsF(0, 0, 0, 0)))
    _paint(view, QPainter(writer), zoom)
    return _bytes(buffer)


_WRITERS: dict[str, Callable[[FigureView, float, float], bytes]] = {".png": _png, ".svg": _svg, ".pdf": _pdf}
