"""What Qt calls to paint. A fault there is drawn as its reason: an exception that leaves a paint method may end the process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter

from circuitlab.draw.look.theme import Theme
from circuitlab.errors import reason

log = logging.getLogger("circuitlab.draw")
_LOGGED: set[str] = set()  # a picture is painted many times a second: each fault is told once
MOST_LOGGED = 200
_HEARD: list[list[str]] = []


@contextmanager
def faults() -> Iterator[list[str]]:
    """The reasons of what could not be painted meanwhile: a file must not go out with a hole in it."""
    _HEARD.append([])
    try:
        yield _HEARD[-1]
    finally:
        _HEARD.pop()


def guarded(painter: QPainter, draw: Callable[[], None], room: QRectF, theme: Theme) -> None:
    """`draw()`, and where it fails the reason in `room`."""
    painter.save()
    try:
        draw()
    except Exception as error:
        painter.restore()
        why = reason(error)
        for heard in _HEARD:
            heard.append(why)
        if why not in _LOGGED and len(_LOGGED) < MOST_LOGGED:
            _LOGGED.add(why)
            log.exception("painting failed")
        painter.save()
        painter.setFont(theme.font(theme.small))
        painter.setPen(theme.colour("text"))
        painter.fillRect(room, theme.colour("background", 0.85))
        flags = int(Qt.AlignmentFlag.AlignCenter) | int(Qt.TextFlag.TextWordWrap)
        painter.drawText(room, flags, f"This could not be drawn. {why}")
    painter.restore()
