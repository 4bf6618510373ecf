"""The view of a training run: progress, curves and output; buttons to stop it, resume it and open its model."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, QTimer, QUrl, Signal, Slot
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QHBoxLayout, QPlainTextEdit, QProgressBar, QPushButton, QVBoxLayout, QWidget

from circuitlab.counting import number
from circuitlab.disk.regular_file import NO_FILE, Stamp, stamp_at
from circuitlab.draw.look.plain_text import PlainLabel, tip_of
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.errors import CircuitLabError, reason
from circuitlab.figures.marks import empty
from circuitlab.gui.training.curves import curves_of, longer
from circuitlab.gui.training.job import (
    METRICS,
    PROGRESS,
    CheckedJob,
    Curves,
    Progress,
    read_curves,
    read_progress,
)
from circuitlab.gui.training.process import TrainingProcess
from circuitlab.gui.widgets.labels import ShortLabel, label
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.own_process import in_words
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.training.part_way import part_way
from circuitlab.training.progress import StepLine

EVERY = 500  # ms between looks at the run's files
LINES = 500  # lines of output that are kept
SOON = "The text is being tokenised; the first curves follow shortly."
NOTHING = "This run ended before its first curve. Its output is below."
GOES_ON = "This run continues in a separate process, independent of this window. Its progress is read from its files."
STOPPED = "Stopped"  # how the trainer's message begins when it was asked to stop


class TrainingView(QWidget):
    """The view. `opens(path)`: the window should open this model folder; `again()`: back to the form for another run."""

    opens = Signal(str)
    again = Signal()

    def __init__(self, context: AppContext, process: TrainingProcess, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.context, self.process = context, process
        self.checked: CheckedJob | None = None
        self.progress = Progress()
        self.curves: Curves | None = None
        self.losses: dict[int, float] = {}
        self._resuming = False
        self._stamps: dict[str, Stamp] = {}
        self._timer = QTimer(self)
        self._timer.setInterval(EVERY)
        self._timer.timeout.connect(self.look)
        self._make()
        self._lay_out()
        process.line_read.connect(self._line_read)
        process.changed.connect(self._changed)
        self._curves_slot = WorkSlot(self, finished=self._read)
        self._checkpoint_slot = WorkSlot(self, finished=self._gathered, failed=self._failed)
        context.theme_changed.connect(self.view.set_theme)
        self.view.set_theme(context.theme)

    # -- widgets and layout -------------------------------------------------------------------------------------------

    def _make(self) -> None:
        self.title = ShortLabel(self, "title", fills=True)
        self.folder_label = ShortLabel(self, "caption", fills=True)
        self.progress_label = label(self)
        self.progress_label.setContentsMargins(0, 0, 0, 0)
        self.time_left = label(self)
        self.time_left.setContentsMargins(0, 0, 0, 0)
        self.bar = QProgressBar(self)
        self.bar.setRange(0, 1000)
        self.bar.setTextVisible(False)
        self.view = FigureView(parent=self)
        self.view.setMinimumHeight(180)
        self.error = PlainLabel(self)
        self.error.setTextFormat(Qt.TextFormat.PlainText)
        self.error.setWordWrap(True)
        self.error.setProperty("role", "warning")
        self.error.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.log = QPlainTextEdit(self)
        self.log.setReadOnly(True)
        self.log.setMaximumBlockCount(LINES)
        self.log.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.log.setAccessibleName("Output of the run")
        self.log.setFixedHeight(5 * self.fontMetrics().lineSpacing() + 12)
        self.stop = self._button("Stop", "Save the state of the run and end it; Resume continues from there")
        self.resume = self._button("Resume", "Continue from the last saved state")
        self.open = self._button("Open the model", "Open it in this window, replacing the present model")
        self.folder = self._button("Show folder", "Show the folder of the run in the file manager")
        self.new_run = self._button("Another run…", "Back to the form, to start another run")
        self.shut = self._button("Close", "Training continues; File → Train a model… shows this again")
        self.stop.clicked.connect(self._stop)
        self.resume.clicked.connect(self.process.resume)
        self.open.clicked.connect(self.open_model)
        self.folder.clicked.connect(self.show_folder)
        self.new_run.clicked.connect(self.again)

    def _button(self, text: str, tip: str) -> QPushButton:
        button = QPushButton(text, self)
        button.setToolTip(tip_of(tip))
        return button

    def _lay_out(self) -> None:
        line = QHBoxLayout()
        line.addWidget(self.progress_label)
        line.addStretch(1)
        line.addWidget(self.time_left)
        buttons = QHBoxLayout()
        buttons.addWidget(self.new_run)
        buttons.addWidget(self.folder)
        buttons.addStretch(1)
        for button in (self.open, self.resume, self.stop, self.shut):
            buttons.addWidget(button)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(6)
        box.addWidget(self.title)
        box.addWidget(self.folder_label)
        box.addLayout(line)
        box.addWidget(self.bar)
        box.addWidget(self.view, 1)
        box.addWidget(self.error)
        box.addWidget(self.log)
        box.addLayout(buttons)

    # -- following the run --------------------------------------------------------------------------------------------

    @property
    def out(self) -> Path:
        """The run's folder."""
        assert self.checked is not None
        return Path(self.checked.job.out).expanduser()

    def begin(self, checked: CheckedJob) -> None:
        """Start or resume a run and follow it."""
        self.checked, self.progress, self.curves = checked, Progress(steps=checked.recipe.optimiser.steps), None
        self.losses, self._stamps = {}, {}
        self.log.clear()
        self.title.setText(f"{checked.recipe.name}: {checked.recipe.title}")
        self.folder_label.setText(str(self.out))
        self.view.show_figure(empty(SOON))
        # a progress file from an earlier run in this folder is not the progress of this one
        self._stamps[PROGRESS] = stamp_at(self.out / PROGRESS)
        self.process.start(checked.job)

    @Slot()
    def look(self) -> None:
        """Read the files that have changed: the progress here (a few hundred bytes), the metrics on the file thread."""
        if self.checked is None:
            return
        if self._has_changed(PROGRESS) and (progress := read_progress(self.out)) is not None:
            self.progress = progress
            if self._resuming and progress.state in ("training", "measuring"):  # the steps after this one are repeated
                self._resuming = False
                self.losses = {s: v for s, v in self.losses.items() if s <= progress.step}
            if progress.loss is not None and progress.state != "failed":
                self._add(progress.step, progress.loss)
            self._show_progress()
            if self.process.elsewhere and progress.state in ("done", "failed"):
                outcome = "done" if progress.state == "done" else "stopped" if STOPPED in progress.error else "failed"
                self.process.set_outcome(outcome, progress.error if outcome == "failed" else "")
        if self._has_changed(METRICS):
            of, out = self.checked, self.out
            work = lambda job: (of, read_curves(out))
            self.context.runner.do(self._curves_slot, "read the curves of a training run", work)

    def _has_changed(self, name: str) -> bool:
        """Whether a file of the run is new or has changed since the last call."""
        latest = stamp_at(self.out / name)
        if latest == self._stamps.get(name) or latest == NO_FILE:
            return False
        self._stamps[name] = latest
        return True

    def _add(self, step: int, loss: float) -> None:
        self.losses[step] = loss
        self._draw()

    def _draw(self) -> None:
        assert self.checked is not None
        figure = curves_of(self.losses, self.curves, longer(self.checked.recipe))
        if figure.grid:
            self.view.show_figure(figure)

    def _show_progress(self) -> None:
        p, checked = self.progress, self.checked
        assert checked is not None
        self.bar.setValue(1000 * p.step // max(1, p.steps))
        loss = "" if p.loss is None else f" · loss {number(p.loss)} nats"
        doing = {"tokenising": "Tokenising", "measuring": "Measuring"}.get(p.state, "Step")
        if self.process.stopping:
            doing = "Stopping after this step: step"
        elif self.process.outcome and not self.process.elsewhere:
            doing = {"done": "Done: step", "stopped": "Stopped at step", "failed": "Ended at step"}[self.process.outcome]
        at = f" {p.step:,} of {p.steps:,}" if "tep" in doing else f" · step {p.step:,} of {p.steps:,}"
        self.progress_label.setText(f"{doing}{at}{loss}")
        self.open.setEnabled(self.process.outcome == "done" or p.step > 0 or self.curves is not None)
        minutes = p.minutes_left(checked.total) if self._timer.isActive() else None
        speed = f"{p.tokens_per_second:,.0f} tokens/s" if p.tokens_per_second else ""
        self.time_left.setText(" · ".join(w for w in (speed, "" if minutes is None else f"{left_in_words(minutes)} left") if w))

    @Slot(str)
    def _line_read(self, line: str) -> None:
        self.log.appendPlainText(line)
        if (said := StepLine.parse(line)) is not None:
            self._add(said.step, said.loss)

    @Slot()
    def _changed(self) -> None:
        outcome, elsewhere = self.process.outcome, self.process.elsewhere
        running = self.process.running or elsewhere
        if running and not self._timer.isActive():
            self._resuming = True
            self._timer.start()
        if not running:
            self._timer.stop()
            self.look()  # the final progress
        if self.view.figure.why_empty in (SOON, NOTHING):
            self.view.show_figure(empty(SOON if running else NOTHING))
        self.error.setText(GOES_ON if elsewhere else in_words(self.process.error))
        self.error.setVisible(bool(self.process.error))
        self.stop.setEnabled(running)
        self.stop.setText("Kill" if self.process.stopping else "Stop")
        self.resume.setEnabled(not self.process.running and outcome != "done" and self.checked is not None)
        self.new_run.setEnabled(not running)
        self.open.setText("Open the model" if outcome == "done" else "Open the newest checkpoint")
        if self.checked is not None:
            self._show_progress()
        if outcome == "done":
            self.context.message.emit(f"{self.title.text()}: trained. “Open the model” shows it.")

    @Slot()
    def _stop(self) -> None:
        if self.process.elsewhere:
            self.process.stop_elsewhere()
        else:
            self.process.stop()

    @Slot()
    def open_model(self) -> None:
        """Open the finished model, or the newest checkpoint of an unfinished one."""
        if self.checked is None:
            return
        if self.process.outcome == "done":
            self.opens.emit(str(self.out / "model"))
            return
        out, recipe = self.out, self.checked.recipe
        self.context.runner.do(self._checkpoint_slot, "gather the newest checkpoint", lambda job: part_way(out, recipe))

    @Slot()
    def show_folder(self) -> None:
        """Show the run's folder in the desktop's file manager."""
        if self.checked is not None:
            QDesktopServices.openUrl(QUrl.fromLocalFile(str(self.out)))

    @Slot(object)
    def _read(self, read: tuple[CheckedJob, Curves | None]) -> None:
        of, curves = read
        if of is self.checked and curves is not None:  # None while the run is writing the file
            self.curves = curves
            self._draw()

    @Slot(object)
    def _gathered(self, folder: Path) -> None:
        self.opens.emit(str(folder))

    @Slot(object)
    def _failed(self, error: object) -> None:
        self.error.setText(in_words(str(error)) if isinstance(error, CircuitLabError) else reason(error))
        self.error.setVisible(True)


def left_in_words(minutes: float) -> str:
    """A duration as a short text: less than a minute, minutes, or hours."""
    if minutes < 1:
        return "less than a minute"
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
