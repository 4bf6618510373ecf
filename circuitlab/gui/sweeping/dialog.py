"""“Do this over…”: what a panel asks, over training steps and prompts, declared as text and started as a process of its own."""

from __future__ import annotations

from PySide6.QtCore import QTimer, Signal, Slot
from PySide6.QtGui import QCloseEvent, QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from circuitlab.draw.look.style_rules import set_role
from circuitlab.draw.look.theme import Theme
from circuitlab.errors import Cancelled, CircuitLabError, reason
from circuitlab.gui.sweeping.form import SweepForm
from circuitlab.gui.sweeping.job import CheckedSweep, SweepJob, check
from circuitlab.gui.sweeping.sweeps import Sweeps
from circuitlab.gui.widgets.buttons import push
from circuitlab.gui.widgets.dialog import Dialog
from circuitlab.gui.widgets.labels import paragraph
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.own_process import in_words
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.sweep.declaring import Asked

PAUSE = 300  # ms after the last change before it is estimated
ESTIMATING = "Estimating: a question of each kind is answered to see how long it takes…"
GOES_ON = "The folder holds a sweep; what is answered there already, and asked here again, is kept."


class SweepDialog(Dialog):
    """The dialog about what is `asked`. `started()`: a sweep has been started, and the dialog closes.

    Enter starts nothing: confirming a number must not begin hours of work.
    """

    started = Signal()
    usual = (720, 620)

    def __init__(self, asked: Asked, context: AppContext, sweeps: Sweeps, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Do this over…")
        self.context, self.asked, self._sweeps = context, asked, sweeps
        self.checked: CheckedSweep | None = None
        self.form = SweepForm(asked, context.facts(asked.model).steps, context.settings, self)
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.setInterval(PAUSE)
        self._pause.timeout.connect(self.check)
        self._slot = WorkSlot(self, finished=self._finished, failed=self._failed)
        self._make()
        self._lay_out()
        self.form.changed.connect(self._declare)
        context.theme_changed.connect(self.set_theme)
        self.set_theme(context.theme)
        self._declare()

    def _make(self) -> None:
        names = ", ".join(dict.fromkeys(analysis.name for analysis, _ in self.asked.questions))
        self.what = paragraph(self)
        self.what.setText(f"{self.asked.title} asks of {self.context.name_of(self.asked.model)}: {names}.")
        self.declaration = QPlainTextEdit(self)
        self.declaration.setReadOnly(True)
        self.declaration.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.declaration.setAccessibleName("The declaration, as `circuitlab sweep` reads it")
        self.message = paragraph(self)
        self.message.setMinimumHeight(5 * self.fontMetrics().lineSpacing())
        self.copy = push(self, "Copy declaration", self._copy)
        self.shut = push(self, "Close", self.close)
        self.start = QPushButton("Start", self)
        self.start.setEnabled(False)
        self.start.clicked.connect(self.begin)

    def _lay_out(self) -> None:
        buttons = QHBoxLayout()
        buttons.addWidget(self.copy)
        buttons.addStretch(1)
        buttons.addWidget(self.shut)
        buttons.addWidget(self.start)
        box = QVBoxLayout(self)
        box.setContentsMargins(24, 16, 24, 16)
        box.setSpacing(12)
        box.addWidget(self.what)
        box.addWidget(self.form)
        box.addWidget(self.declaration, 1)
        box.addWidget(self.message)
        box.addLayout(buttons)

    @Slot(object)
    def set_theme(self, theme: Theme) -> None:
        """The declaration in the theme's letters of one width."""
        self.declaration.setFont(theme.font(theme.small, mono=True))

    # -- what is declared -------------------------------------------------------------------------------------------------

    @Slot()
    def _declare(self) -> None:
        """Show what the fields declare, and estimate it after a pause."""
        self.checked = None
        self.start.setEnabled(False)
        try:
            self.declaration.setPlainText(self.form.job().text())
        except CircuitLabError as error:
            self.declaration.setPlainText("")
            self._say(in_words(str(error)), wrong=True)
            self._pause.stop()
            return
        self._say(ESTIMATING)
        self._pause.start()

    @Slot()
    def check(self) -> None:
        """Plan the sweep and estimate what it takes, on the slow lane; only the newest counts."""
        job, runner = self.form.job(), self.context.runner

        def work(one: Job) -> CheckedSweep | CircuitLabError:
            try:
                return check(job, runner.ctx(one))
            except Cancelled:
                raise
            except CircuitLabError as error:  # incomplete input is expected here and is not logged
                return error

        runner.do(self._slot, "estimate a sweep", work, "slow")

    @Slot(object)
    def _finished(self, value: object) -> None:
        if isinstance(value, CircuitLabError):
            self._say(in_words(str(value)), wrong=True)
        elif isinstance(value, CheckedSweep) and value.job == self.form.job():
            self.checked = value
            self._say("\n".join((*value.lines, *((GOES_ON,) if value.goes_on else ()))))
            self.start.setText("Go on" if value.goes_on else "Start")
            self.start.setEnabled(True)

    @Slot(object)
    def _failed(self, error: BaseException) -> None:
        self._say("It was not estimated." if isinstance(error, Cancelled) else reason(error), wrong=True)

    def _say(self, text: str, wrong: bool = False) -> None:
        self.message.setText(text)
        set_role(self.message, "warning" if wrong else "")

    # -- buttons ------------------------------------------------------------------------------------------------------------

    @Slot()
    def begin(self) -> None:
        """Start what was estimated."""
        job: SweepJob | None = None if self.checked is None else self.checked.job
        if job is None:
            return
        try:
            self._sweeps.start(job)
        except CircuitLabError as error:
            self.checked = None
            self.start.setEnabled(False)
            self._say(in_words(str(error)), wrong=True)
            return
        self.context.message.emit("The sweep has been started: Jobs shows how far it is.")
        self.started.emit()
        self.close()

    @Slot()
    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.declaration.toPlainText())
        self.context.message.emit("Declaration copied.")

    def closeEvent(self, event: QCloseEvent) -> None:
        """Nobody waits for an estimate any more."""
        self._pause.stop()
        self.context.runner.cancel_slot(self._slot)
        super().closeEvent(event)
