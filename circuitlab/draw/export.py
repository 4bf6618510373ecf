"""Figures into files: PNG at three times the screen's resolution, SVG and PDF with text and lines as vectors. Always on white."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QMarginsF, QPoint, QRect, QSize, QSizeF, Qt
from PySide6.QtGui import QImage, QPageSize, QPainter, QPdfWriter, QRegion
from PySide6.QtSvg import QSvgGenerator
from PySide6.QtWidgets import QWidget

from circuitlab.draw.app import application
from circuitlab.draw.theme import LIGHT, Theme
from circuitlab.draw.view import FigureView
from circuitlab.errors import BadMachine, UsageError
from circuitlab.figures.marks import Figure

SUFFIXES = (".png", ".svg", ".pdf")
_DPI = 96
_FLAGS = QWidget.RenderFlag.DrawWindowBackground | QWidget.RenderFlag.DrawChildren


def laid_out(figure: Figure, size: QSize, theme: Theme = LIGHT) -> FigureView:
    """A view of the figure at a size, laid out but never on the screen. The caller deletes it."""
    application()
    view = FigureView()
    view.setAttribute(Qt.WidgetAttribute.WA_DontShowOnScreen)
    view.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    view.set_theme(theme)
    view.show_figure(figure)
    view.resize(size)
    view.show()
    application().processEvents()
    view.reset_view()
    return view


def render(figure: Figure, size: QSize, theme: Theme = LIGHT, ratio: float = 1.0) -> QImage:
    """The figure as an image of `size · ratio` pixels."""
    view = laid_out(figure, size, theme)
    try:
        image = QImage(size * ratio, QImage.Format.Format_ARGB32)
        image.fill(Qt.GlobalColor.white)
        painter = QPainter(image)
        painter.scale(ratio, ratio)
        view.render(painter, QPoint(), QRegion(), _FLAGS)
        painter.end()
        return image
    finally:
        view.close()


def export(figure: Figure, path: Path, width_mm: float = 160.0, height_mm: float = 0.0) -> None:
    """Write the figure; the suffix says how. Height 0: three quarters of the width.

    Raises `UsageError` for another suffix, `BadMachine` where the file cannot be written.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError("That is no picture format.", expected=" ".join(SUFFIXES), got=path.suffix or "no suffix")
    if not path.parent.is_dir():
        raise BadMachine("The picture cannot be written.", expected="an existing folder", got=str(path.parent))
    height_mm = height_mm or 0.75 * width_mm
    size = QSize(round(width_mm / 25.4 * _DPI * 1.4), round(height_mm / 25.4 * _DPI * 1.4))
    suffix = path.suffix.lower()
    application(offscreen=False)
    written = {".png": _png, ".svg": _svg, ".pdf": _pdf}[suffix](figure, path, size, width_mm, height_mm)
    if not written or not path.is_file():
        raise BadMachine("The picture could not be written.", expected="a writable place", got=str(path))


def _png(figure: Figure, path: Path, size: QSize, width_mm: float, height_mm: float) -> bool:
    return render(figure, size, LIGHT, 3.0).save(str(path))


def _svg(figure: Figure, path: Path, size: QSize, width_mm: float, height_mm: float) -> bool:
    view = laid_out(figure, size)
    try:
        writer = QSvgGenerator()
        writer.setFileName(str(path))
        writer.setResolution(view.logicalDpiX())  # otherwise axes are scaled against the image
        writer.setSize(size)
        writer.setViewBox(QRect(QPoint(), size))
        writer.setTitle(figure.title)
        writer.setDescription(figure.caption)
        return _paint(view, writer)
    finally:
        view.close()


def _pdf(figure: Figure, path: Path, size: QSize, width_mm: float, height_mm: float) -> bool:
    view = laid_out(figure, size)
    try:
        writer = QPdfWriter(str(path))
        writer.setPageSize(QPageSize(QSizeF(width_mm, height_mm), QPageSize.Unit.Millimeter))
        writer.setPageMargins(QMarginsF(0, 0, 0, 0))
        writer.setResolution(view.logicalDpiX())
        writer.setTitle(figure.title)
        scale = width_mm / 25.4 * view.logicalDpiX() / size.width()
        return _paint(view, writer, scale)
    finally:
        view.close()


def _paint(view: FigureView, device: QSvgGenerator | QPdfWriter, scale: float = 1.0) -> bool:
    painter = QPainter()
    if not painter.begin(device):
        return False
    painter.scale(scale, scale)
    view.render(painter, QPoint(), QRegion(), _FLAGS)
    return painter.end()
