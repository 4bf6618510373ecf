"""Buttons: the flat ones of bars and those of forms; their icons, small SVG files painted in the colours of the theme."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from PySide6.QtCore import QByteArray, QRectF, QSize, Qt
from PySide6.QtGui import QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QPushButton, QToolButton, QWidget

from circuitlab.disk.paths import resource
from circuitlab.draw.look.plain_text import tip_of
from circuitlab.draw.look.theme import Theme

SIZE = 16  # px at text size 1


@lru_cache(maxsize=256)
def icon(name: str, theme: Theme, colour: str = "muted") -> QIcon:
    """The icon `name` in one of the theme's colours, sharp at one, two and three pixels a point; paler when disabled."""
    drawing = resource("icons", f"{name}.svg").read_text(encoding="utf-8")
    drawn, size = QIcon(), theme.px(SIZE)
    for mode, ink in ((QIcon.Mode.Normal, colour), (QIcon.Mode.Disabled, "faint")):
        renderer = QSvgRenderer(QByteArray(drawing.replace("currentColor", getattr(theme, ink)).encode()))
        for ratio in (1, 2, 3):
            pixels = QPixmap(size * ratio, size * ratio)
            pixels.fill(Qt.GlobalColor.transparent)
            painter = QPainter(pixels)
            renderer.render(painter, QRectF(0, 0, size * ratio, size * ratio))
            painter.end()
            pixels.setDevicePixelRatio(ratio)
            drawn.addPixmap(pixels, mode)
    return drawn


def flat(parent: QWidget, name: str, text: str, tip: str) -> QToolButton:
    """A flat button with a text, a tooltip, and an object name for tests."""
    button = QToolButton(parent)
    button.setObjectName(name)
    button.setText(text)
    button.setToolTip(tip_of(tip))
    button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
    return button


def tint(button: QToolButton, name: str, theme: Theme, colour: str = "muted") -> None:
    """An icon in one of the theme's colours, as large as its text asks for."""
    button.setIcon(icon(name, theme, colour))
    button.setIconSize(QSize(theme.px(SIZE), theme.px(SIZE)))


def push(parent: QWidget, text: str, act: Callable[[], object]) -> QPushButton:
    """A button of a form."""
    button = QPushButton(text, parent)
    button.clicked.connect(act)
    return button
