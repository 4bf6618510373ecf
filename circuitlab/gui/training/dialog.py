"""“Train a model…”: first what to train on what, then the run as it goes; it outlives the dialog, and the window if wanted."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication, Signal, Slot
from PySide6.QtGui import QCloseEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QMessageBox, QPushButton, QStackedWidget, QVBoxLayout, QWidget

from circuitlab.draw.look.plain_text import PlainBox
from circuitlab.gui.training.form import TrainingForm
from circuitlab.gui.training.process import TrainingProcess
from circuitlab.gui.training.view import TrainingView
from circuitlab.gui.widgets.dialog import Dialog
from circuitlab.gui.work.app_context import AppContext


def closing_box(parent: QWidget) -> tuple[PlainBox, QPushButton, QPushButton]:
    """What becomes of a run when the window closes, asked; with the buttons that keep and stop it."""
    box = PlainBox(parent)
    box.setWindowTitle("Close CircuitLab")
    box.setText("A model is being trained.")
    box.setInformativeText("It can go on without the window. Stopped, it saves its state and can be taken up again later.")
    keep = box.addButton("Keep it running", QMessageBox.ButtonRole.AcceptRole)
    stop = box.addButton("Stop it", QMessageBox.ButtonRole.DestructiveRole)
    box.addButton(QMessageBox.StandardButton.Cancel)
    box.setDefaultButton(keep)
    return box, keep, stop


class TrainingDialog(Dialog):
    """See the module. `opens(path)`: a model folder that the window is to open.

    Enter starts nothing: a number that is confirmed in the form is no wish for hours of work.
    """

    opens = Signal(str)
    usual = (820, 640)

    def __init__(self, context: AppContext, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Train a model")
        self.context = context
        self.process = TrainingProcess(self)
        self.form = TrainingForm(context, self)
        self.view = TrainingView(context, self.process, self)
        self.start = QPushButton("Start training", self)
        self.start.setEnabled(False)
        self.shut = QPushButton("Close", self)
        self._lay_out()
        self.start.clicked.connect(self.begin)
        self.shut.clicked.connect(self.close)
        self.form.checked_changed.connect(self._checked)
        self.view.again.connect(self.choose)
        self.view.shut.clicked.connect(self.close)
        self.view.opens.connect(self.opens)

    def _lay_out(self) -> None:
        buttons = QHBoxLayout()
        buttons.addStretch(1)
        buttons.addWidget(self.shut)
        buttons.addWidget(self.start)
        first = QWidget(self)
        box = QVBoxLayout(first)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(12)
        box.addWidget(self.form, 1)
        box.addLayout(buttons)
        self.pages = QStackedWidget(self)
        self.pages.addWidget(first)
        self.pages.addWidget(self.view)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(24, 16, 24, 16)
        outer.addWidget(self.pages)

    @Slot()
    def begin(self) -> None:
        """Start what has been checked."""
        checked = self.form.checked
        if checked is None or self.process.running:
            return
        self.pages.setCurrentWidget(self.view)
        self.view.begin(checked)

    @Slot()
    def choose(self) -> None:
        """Back to the choices."""
        self.pages.setCurrentIndex(0)
        self.form.check()

    @Slot()
    def _checked(self) -> None:
        self.start.setEnabled(self.form.checked is not None)
        self.start.setText("Go on training" if self.form.checked is not None and self.form.checked.held else "Start training")

    def showEvent(self, event: QShowEvent) -> None:
        """What the fields say may have become possible meanwhile."""
        super().showEvent(event)
        if self.pages.currentIndex() == 0:
            self.form.check()

    def closeEvent(self, event: QCloseEvent) -> None:
        """A run goes on without its dialog: opening again shows it."""
        self.form.leave()
        if self.process.running:
            self.context.message.emit("The training goes on: File → Train a model… shows it.")
        super().closeEvent(event)

    # -- the end of the window ----------------------------------------------------------------------------------------

    def may_close(self) -> bool:
        """Before the window is gone: what becomes of a run. False: the window stays, a run that could not be kept running too."""
        if not self.process.running:
            return True
        pending = self.ask_close()
        if pending == "stay":
            return False
        self.context.message.emit("Waiting for the training to save its state…")
        QCoreApplication.processEvents()
        if pending == "keep":
            return self.process.hand_over() or self.process.outcome != "stopped"
        self.process.end()
        return True

    def ask_close(self) -> str:
        """The person's choice: "keep" it running without the window, "stop" it, or "stay"."""
        box, keep, stop = closing_box(self.parentWidget() or self)
        box.exec()
        chosen = box.clickedButton()
        box.deleteLater()
        return "keep" if chosen is keep else "stop" if chosen is stop else "stay"
