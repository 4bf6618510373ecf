"""How much of a screen a window with its frame can have."""

from __future__ import annotations

from PySide6.QtCore import QSize
from PySide6.QtWidgets import QWidget

FRAME = QSize(16, 48)  # px that desktops put round a window, at most


def room_for(window: QWidget) -> QSize:
    """px for what is inside the frame of a window, on the screen that it stands on."""
    return window.screen().availableGeometry().size() - FRAME
