"""Whether the own story can be presented, under its steps: a line, and a button that prepares it, cancels that, or releases."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QToolButton, QWidget

from circuitlab.draw.look.plain_text import PlainLabel, tip_of
from circuitlab.draw.look.style_rules import set_role
from circuitlab.gui.lessons.rows import SIDE

PREPARE, CANCEL, RELEASE = "Prepare", "Cancel", "Release"
TIPS = {
    PREPARE: "Compute and hold everything that the steps show: while presenting nothing is computed, and their files may be gone",
    CANCEL: "Stop preparing",
    RELEASE: "Let go of what is held, and of the models that are kept open for it",
}


class ReadinessRow(QWidget):
    """`pressed(word)`: the button was pressed while it said this word."""

    pressed = Signal(str)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.label = PlainLabel(self)
        self.label.setWordWrap(True)
        self.button = QToolButton(self)
        self.button.setProperty("role", "primary")
        self.button.clicked.connect(lambda: self.pressed.emit(self.button.text()))
        row = QHBoxLayout(self)
        row.setContentsMargins(SIDE, 4, SIDE, 6)
        row.setSpacing(8)
        row.addWidget(self.label, 1)
        row.addWidget(self.button)

    def show_line(self, line: str, word: str, tip: str = "", warns: bool = False) -> None:
        """Say this line, and this word on the button. `tip`: the rest of the line; `warns`: it is no good news."""
        self.label.setText(line)
        self.label.setToolTip(tip_of(tip) if tip else "")
        set_role(self.label, "warning" if warns else "caption")
        self.button.setText(word)
        self.button.setToolTip(tip_of(TIPS[word]))
        self.button.setAccessibleName(f"{word}: {line}")
