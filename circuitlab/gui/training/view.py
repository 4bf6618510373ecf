"""A run while it trains: how far, its curves, its last words; stopped, taken up again, opened."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, QTimer, QUrl, Signal, Slot
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QHBoxLayout, QPlainTextEdit, QProgressBar, QPushButton, QVBoxLayout, QWidget

from circuitlab.draw.look.plain_text import PlainLabel, tip_of
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.errors import CircuitLabError, reason
from circuitlab.figures.contracts.common import number
from circuitlab.figures.marks import empty
from circuitlab.gui.training.curves import curves_of, longer
from circuitlab.gui.training.job import (
    METRICS,
    PROGRESS,
    Checked,
    Curves,
    Progress,
    in_words,
    loss_in,
    read_curves,
    read_progress,
    stamp,
)
from circuitlab.gui.training.process import TrainingProcess
from circuitlab.gui.widgets.labels import ShortLabel, label
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.training.part_way import part_way

EVERY = 500  # ms between looks at the run's files
LINES = 500  # of the log that are kept
SOON = "The text is made into tokens; the first curves come soon."
NOTHING = "This run ended before there was a curve. What it said stands below."
GOES_ON = "This run goes on in a process of its own, which nothing here waits for. Its files are followed."
STOPPED = "Stopped"  # how the trainer begins to say that it was asked to end


class TrainingView(QWidget):
    """See the module. `opens(path)`: a model folder to open; `again()`: another run is wanted."""

    opens = Signal(str)
    again = Signal()

    def __init__(self, context: AppContext, process: TrainingProcess, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.context, self.process = context, process
        self.checked: Checked | None = None
        self.progress = Progress()
        self.curves: Curves | None = None
        self.losses: dict[int, float] = {}
        self._taken_up = False
        self._seen: dict[str, tuple[int, int]] = {}
        self._timer = QTimer(self)
        self._timer.setInterval(EVERY)
        self._timer.timeout.connect(self.look)
        self._make()
        self._lay_out()
        process.said.connect(self._said)
        process.changed.connect(self._changed)
        self._reading = WorkSlot(self, finished=self._read)
        self._gathering = WorkSlot(self, finished=self._gathered, failed=self._failed)
        context.theme_changed.connect(self.view.set_theme)
        self.view.set_theme(context.theme)

    # -- what it is made of -------------------------------------------------------------------------------------------

    def _make(self) -> None:
        self.title = ShortLabel(self, "title", fills=True)
        self.where = ShortLabel(self, "caption", fills=True)
        self.how_far = label(self)
        self.how_far.setContentsMargins(0, 0, 0, 0)
        self.left = label(self)
        self.left.setContentsMargins(0, 0, 0, 0)
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
        self.stop = self._button("Stop", "It saves its state and ends; Resume goes on from there")
        self.resume = self._button("Resume", "Go on from what was saved last")
        self.open = self._button("Open the model", "In this window, in place of the present one")
        self.folder = self._button("Show folder", "Where the run lives")
        self.other = self._button("Another run…", "Back to the choices")
        self.shut = self._button("Close", "The training goes on; the File menu brings this back")
        self.stop.clicked.connect(self._stop)
        self.resume.clicked.connect(self.process.resume)
        self.open.clicked.connect(self.open_model)
        self.folder.clicked.connect(self.show_folder)
        self.other.clicked.connect(self.again)

    def _button(self, text: str, tip: str) -> QPushButton:
        made = QPushButton(text, self)
        made.setToolTip(tip_of(tip))
        return made

    def _lay_out(self) -> None:
        line = QHBoxLayout()
        line.addWidget(self.how_far)
        line.addStretch(1)
        line.addWidget(self.left)
        buttons = QHBoxLayout()
        buttons.addWidget(self.other)
        buttons.addWidget(self.folder)
        buttons.addStretch(1)
        for button in (self.open, self.resume, self.stop, self.shut):
            buttons.addWidget(button)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(6)
        box.addWidget(self.title)
        box.addWidget(self.where)
        box.addLayout(line)
        box.addWidget(self.bar)
        box.addWidget(self.view, 1)
        box.addWidget(self.error)
        box.addWidget(self.log)
        box.addLayout(buttons)

    # -- what it does -------------------------------------------------------------------------------------------------

    @property
    def out(self) -> Path:
        """The run's folder."""
        assert self.checked is not None
        return Path(self.checked.job.out).expanduser()

    def begin(self, checked: Checked) -> None:
        """Start a run, or go on with one, and follow it."""
        self.checked, self.progress, self.curves = checked, Progress(steps=checked.recipe.optimiser.steps), None
        self.losses, self._seen = {}, {}
        self.log.clear()
        self.title.setText(f"{checked.recipe.name}: {checked.recipe.title}")
        self.where.setText(str(self.out))
        self.view.show_figure(empty(SOON))
        # what a run before this one left in the folder is not how far this one is
        self._seen[PROGRESS] = stamp(self.out / PROGRESS)
        self.process.start(checked.job)

    @Slot()
    def look(self) -> None:
        """Read what has changed: a few hundred bytes here, the measurements on the file thread."""
        if self.checked is None:
            return
        if self._new(PROGRESS) and (found := read_progress(self.out)) is not None:
            self.progress = found
            if self._taken_up and found.state in ("training", "measuring"):  # what followed this step is done again
                self._taken_up = False
                self.losses = {s: v for s, v in self.losses.items() if s <= found.step}
            if found.loss is not None and found.state != "failed":
                self._add(found.step, found.loss)
            self._say_progress()
            if self.process.elsewhere and found.state in ("done", "failed"):
                outcome = "done" if found.state == "done" else "stopped" if STOPPED in found.error else "failed"
                self.process.heard(outcome, found.error if outcome == "failed" else "")
        if self._new(METRICS):
            out = self.out
            self.context.runner.do(self._reading, "read the curves of a training run", lambda job: read_curves(out))

    def _new(self, name: str) -> bool:
        found = stamp(self.out / name)
        if found == self._seen.get(name) or found == (0, 0):
            return False
        self._seen[name] = found
        return True

    def _add(self, step: int, loss: float) -> None:
        self.losses[step] = loss
        self._draw()

    def _draw(self) -> None:
        assert self.checked is not None
        figure = curves_of(self.losses, self.curves, longer(self.checked.recipe))
        if figure.grid:
            self.view.show_figure(figure)

    def _say_progress(self) -> None:
        p, checked = self.progress, self.checked
        assert checked is not None
        self.bar.setValue(1000 * p.step // max(1, p.steps))
        loss = "" if p.loss is None else f" · loss {number(p.loss)} nats"
        doing = {"tokenising": "Making tokens", "measuring": "Measuring"}.get(p.state, "Step")
        if self.process.stopping:
            doing = "Stopping after this step: step"
        elif self.process.outcome and not self.process.elsewhere:
            doing = {"done": "Done: step", "stopped": "Stopped at step", "failed": "Ended at step"}[self.process.outcome]
        at = f" {p.step:,} of {p.steps:,}" if "tep" in doing else f" · step {p.step:,} of {p.steps:,}"
        self.how_far.setText(f"{doing}{at}{loss}")
        self.open.setEnabled(self.process.outcome == "done" or p.step > 0 or self.curves is not None)
        minutes = p.minutes_left(checked.total) if self._timer.isActive() else None
        speed = f"{p.tokens_per_second:,.0f} tokens/s" if p.tokens_per_second else ""
        self.left.setText(" · ".join(w for w in (speed, "" if minutes is None else f"{left_in_words(minutes)} left") if w))

    @Slot(str)
    def _said(self, line: str) -> None:
        self.log.appendPlainText(line)
        if (found := loss_in(line)) is not None:
            self._add(*found)

    @Slot()
    def _changed(self) -> None:
        outcome, elsewhere = self.process.outcome, self.process.elsewhere
        running = self.process.running or elsewhere
        if running and not self._timer.isActive():
            self._taken_up = True
            self._timer.start()
        if not running:
            self._timer.stop()
            self.look()  # its last word
        if self.view.figure.why_empty in (SOON, NOTHING):
            self.view.show_figure(empty(SOON if running else NOTHING))
        self.error.setText(GOES_ON if elsewhere else in_words(self.process.error))
        self.error.setVisible(bool(self.process.error))
        self.stop.setEnabled(running)
        self.stop.setText("Kill" if self.process.stopping else "Stop")
        self.resume.setEnabled(not self.process.running and outcome != "done" and self.checked is not None)
        self.other.setEnabled(not running)
        self.open.setText("Open the model" if outcome == "done" else "Open the newest checkpoint")
        if self.checked is not None:
            self._say_progress()
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
        """The finished model, or what there is of it by now."""
        if self.checked is None:
            return
        if self.process.outcome == "done":
            self.opens.emit(str(self.out / "model"))
            return
        out, recipe = self.out, self.checked.recipe
        self.context.runner.do(self._gathering, "gather the newest checkpoint", lambda job: part_way(out, recipe))

    @Slot()
    def show_folder(self) -> None:
        """In the desktop's file manager."""
        if self.checked is not None:
            QDesktopServices.openUrl(QUrl.fromLocalFile(str(self.out)))

    @Slot(object)
    def _read(self, curves: Curves | None) -> None:
        if curves is not None:  # the run is writing its file
            self.curves = curves
            self._draw()

    @Slot(object)
    def _gathered(self, folder: Path) -> None:
        self.opens.emit(str(folder))

    @Slot(object)
    def _failed(self, error: object) -> None:
        known = isinstance(error, CircuitLabError)
        self.error.setText(in_words(str(error)) if known else reason(error))
        self.error.setVisible(True)


def left_in_words(minutes: float) -> str:
    """A time as a person says it."""
    if minutes < 1:
        return "less than a minute"
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
