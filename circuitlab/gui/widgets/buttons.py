"""Buttons: the flat ones of bars, and those of forms."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QPushButton, QToolButton, QWidget

from circuitlab.draw.look.plain_text import tip_of
from circuitlab.draw.look.theme import Theme
from circuitlab.gui.widgets.icons import SIZE, icon


def flat(parent: QWidget, name: str, text: str, tip: str) -> QToolButton:
    """A flat button with a name for tests and screen readers."""
    made = QToolButton(parent)
    made.setObjectName(name)
    made.setText(text)
    made.setToolTip(tip_of(tip))
    made.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
    return made


def tint(button: QToolButton, name: str, theme: Theme, colour: str = "muted") -> None:
    """An icon in one of the theme's colours, as large as its text asks for."""
    button.setIcon(icon(name, theme, colour))
    button.setIconSize(QSize(theme.px(SIZE), theme.px(SIZE)))


def push(parent: QWidget, text: str, act: Callable[[], object]) -> QPushButton:
    """A button of a form."""
    made = QPushButton(text, parent)
    made.clicked.connect(act)
    return made
