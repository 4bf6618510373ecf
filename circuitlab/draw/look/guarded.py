"""Guards around what Qt calls to paint: an exception that leaves a paint method may end the process, so its reason is drawn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QFont, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from circuitlab.draw.look.theme import Theme
from circuitlab.errors import reason

W = TypeVar("W", bound=QWidget)
log = logging.getLogger("circuitlab.draw")
_LOGGED: set[str] = set()  # a picture is painted many times a second: each fault is logged once
MOST_LOGGED = 200
_COLLECTORS: list[list[str]] = []  # a list of reasons for each `faults()` that is open


@contextmanager
def faults() -> Iterator[list[str]]:
    """A list that collects why something could not be painted meanwhile: no file may be written with a hole in it."""
    _COLLECTORS.append([])
    try:
        yield _COLLECTORS[-1]
    finally:
        _COLLECTORS.pop()


def guarded(painter: QPainter, draw: Callable[[], None], room: QRectF, theme: Theme) -> None:
    """Call `draw()`; where it fails, write the reason into `room`."""
    painter.save()
    try:
        draw()
    except Exception as error:
        painter.restore()
        painter.save()
        _write_reason(painter, error, room, theme)
    painter.restore()


def guarded_item(paint: Callable[..., None]) -> Callable[..., None]:
    """Guard the `paint` of an item of a `PlotMark`; where it fails, the reason is written over the item."""

    @wraps(paint)
    def guarded_paint(item: Any, painter: QPainter, *rest: object) -> None:
        painter.save()
        try:
            paint(item, painter, *rest)
        except Exception as error:
            painter.restore()
            painter.save()
            plot = item.getViewWidget()
            painter.setTransform(item.sceneTransform().inverted()[0], True)
            _write_reason(painter, error, item.sceneBoundingRect() & QRectF(plot.viewport().rect()), plot.theme)
        painter.restore()

    return guarded_paint


def guarded_widget(paint: Callable[[W, QPainter], None]) -> Callable[[W, QPaintEvent], None]:
    """Make the `paintEvent` of a widget from what it paints; where that fails, the reason is written over the widget."""

    @wraps(paint)
    def paint_event(widget: W, event: QPaintEvent) -> None:
        painter = QPainter(widget)
        painter.save()
        try:
            paint(widget, painter)
        except Exception as error:
            painter.restore()
            painter.save()
            palette = widget.palette()
            ink, ground = palette.windowText().color(), palette.window().color()
            _write(painter, _report(error), QRectF(widget.rect()), widget.font(), ink, ground)
        painter.restore()
        painter.end()

    return paint_event


def _write_reason(painter: QPainter, error: Exception, room: QRectF, theme: Theme) -> None:
    """Report an error, and write its reason into `room`."""
    font, ink, ground = theme.font(theme.small), theme.colour("text"), theme.colour("background", 0.85)
    _write(painter, _report(error), room, font, ink, ground)


def _report(error: Exception) -> str:
    """Log the reason of an error, add it to the lists of `faults`, and return it."""
    why = reason(error)
    for reasons in _COLLECTORS:
        reasons.append(why)
    if why not in _LOGGED and len(_LOGGED) < MOST_LOGGED:
        _LOGGED.add(why)
        log.error("painting failed", exc_info=error)
    return why


def _write(painter: QPainter, why: str, room: QRectF, font: QFont, ink: QColor, ground: QColor) -> None:
    painter.setFont(font)
    painter.setPen(ink)
    painter.fillRect(room, ground)
    flags = int(Qt.AlignmentFlag.AlignCenter) | int(Qt.TextFlag.TextWordWrap)
    painter.drawText(room, flags, f"This could not be drawn. {why}")
