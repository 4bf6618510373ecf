"""A process of its own as the Jobs panel lists it: how far it is, Stop, and what it has done to look at."""

from __future__ import annotations

from PySide6.QtCore import Slot
from PySide6.QtWidgets import QHBoxLayout, QToolButton, QWidget

from circuitlab.draw.look.plain_text import tip_of
from circuitlab.gui.widgets.labels import ShortLabel
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.processes import OwnProcess

STOP_TIP = "What is done is kept, and the same sweep goes on from there"


class ProcessRow(QWidget):
    """See the module. One that has ended can be put away; its files stay."""

    def __init__(self, process: OwnProcess, context: AppContext, parent: QWidget) -> None:
        super().__init__(parent)
        self.process, self.context = process, context
        self.label = ShortLabel(self, fills=True)
        self.open = self._button("Open", "What it has answered so far", self._open)
        self.stop = self._button("Stop", STOP_TIP, process.stop)
        self.away = self._button("Put away", "Leave it out of this list; its files stay", self._put_away)
        box = QHBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.addWidget(self.label, 1)
        for button in (self.open, self.stop, self.away):
            box.addWidget(button)
        self.refresh()

    def _button(self, text: str, tip: str, act: object) -> QToolButton:
        button = QToolButton(self)
        button.setText(text)
        button.setToolTip(tip_of(tip))
        button.setProperty("role", "primary")
        button.clicked.connect(act)
        return button

    def refresh(self) -> None:
        """Show how far it is."""
        process = self.process
        self.label.setText(f"{process.title} · {process.words()}")
        self.open.setVisible(process.shows)
        self.stop.setVisible(process.running)
        self.stop.setText("Kill" if process.stopping else "Stop")
        self.away.setVisible(not process.running)
        for button in (self.open, self.stop, self.away):
            button.setAccessibleName(f"{button.text()}: {process.title}")

    @Slot()
    def _open(self) -> None:
        self.context.processes.opened.emit(self.process)

    @Slot()
    def _put_away(self) -> None:
        self.context.processes.remove(self.process)
