"""Laying out a widget that is never shown."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRect
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QWidget

PARTS = QWidget.RenderFlag.DrawChildren | QWidget.RenderFlag.DrawWindowBackground


def settle(view: QWidget) -> None:
    """Deliver pending layouts and resizes: painting one pixel of a hidden widget does so without creating a window."""
    speck = QImage(1, 1, QImage.Format.Format_RGB32)
    view.render(speck, QPoint(0, 0), QRect(0, 0, 1, 1), PARTS)
