"""“Train a model…”: first the form, then the view of the run. The run outlives the dialog and, if kept, the window."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication, Signal, Slot
from PySide6.QtGui import QCloseEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QMessageBox, QPushButton, QStackedWidget, QVBoxLayout, QWidget

from circuitlab.draw.look.plain_text import PlainBox
from circuitlab.gui.training.form import TrainingForm
from circuitlab.gui.training.process import TrainingProcess
from circuitlab.gui.training.remembered import remember, run_that_goes_on
from circuitlab.gui.training.view import TrainingView
from circuitlab.gui.widgets.dialog import Dialog
from circuitlab.gui.work.app_context import AppContext


def closing_box(parent: QWidget) -> tuple[PlainBox, QPushButton, QPushButton]:
    """The question what to do with a run when the window closes: the box, its "keep" button and its "stop" button."""
    box = PlainBox(parent)
    box.setWindowTitle("Close CircuitLab")
    box.setText("A model is being trained.")
    box.setInformativeText("It can continue without the window. If you stop it, it saves its state and can be resumed later.")
    keep = box.addButton("Keep it running", QMessageBox.ButtonRole.AcceptRole)
    stop = box.addButton("Stop it", QMessageBox.ButtonRole.DestructiveRole)
    box.addButton(QMessageBox.StandardButton.Cancel)
    box.setDefaultButton(keep)
    return box, keep, stop


class TrainingDialog(Dialog):
    """The dialog. `opens(path)`: the window should open this model folder.

    A run that an earlier window started and that goes on is shown at once.

    Enter does not start a run: confirming a number in the form must not begin hours of work.
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
        self._found = run_that_goes_on()
        if self._found is not None:
            self.form.show_job(self._found)

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
        """Start the checked job."""
        checked = self.form.checked
        if checked is None or self.process.running:
            return
        self._found = None
        remember(checked.job)
        self.pages.setCurrentWidget(self.view)
        self.view.begin(checked)

    @Slot()
    def choose(self) -> None:
        """Back to the form."""
        self.pages.setCurrentIndex(0)
        self.form.check()

    @Slot()
    def _checked(self) -> None:
        self.start.setEnabled(self.form.checked is not None)
        self.start.setText("Resume training" if self.form.checked is not None and self.form.checked.resumes else "Start training")
        if self._found is not None and self.form.checked is not None and self.form.checked.job == self._found:
            self.begin()  # which finds the process that trains there, and follows it

    def showEvent(self, event: QShowEvent) -> None:
        """Check the job again: files may have changed meanwhile."""
        super().showEvent(event)
        if self.pages.currentIndex() == 0:
            self.form.check()

    def closeEvent(self, event: QCloseEvent) -> None:
        """Close the dialog only: the run continues, and reopening the dialog shows it."""
        self.form.leave()
        if self.process.running:
            self.context.message.emit("Training continues: File → Train a model… shows it.")
        super().closeEvent(event)

    # -- the end of the window ----------------------------------------------------------------------------------------

    def may_close(self) -> bool:
        """Settle what becomes of a run before the window closes. False: the window stays open."""
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
        """The user's choice: "keep" the run going without the window, "stop" it, or "stay" in the window."""
        box, keep, stop = closing_box(self.parentWidget() or self)
        box.exec()
        chosen = box.clickedButton()
        box.deleteLater()
        return "keep" if chosen is keep else "stop" if chosen is stop else "stay"
