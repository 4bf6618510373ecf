"""Buttons: the flat ones of bars, and those of forms."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton, QToolButton, QWidget


def flat(parent: QWidget, name: str, text: str, tip: str) -> QToolButton:
    """A flat button with a name for tests and screen readers."""
    made = QToolButton(parent)
    made.setObjectName(name)
    made.setText(text)
    made.setToolTip(tip)
    made.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
    return made


def push(parent: QWidget, text: str, act: Callable[[], object]) -> QPushButton:
    """A button of a form."""
    made = QPushButton(text, parent)
    made.clicked.connect(act)
    return made
