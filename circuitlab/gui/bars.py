"""The quiet bars: model, conventions, pin and compare on top; readout, progress and memory below."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import Qt, QTimer, Slot
from PySide6.QtWidgets import QComboBox, QLabel, QProgressBar, QSizePolicy, QStatusBar, QToolBar, QToolButton, QWidget

from circuitlab.gui.bench import Bench
from circuitlab.session.state import State


def _label(parent: QWidget, role: str = "") -> QLabel:
    made = QLabel(parent)
    made.setTextFormat(Qt.TextFormat.PlainText)
    made.setProperty("role", role)
    made.setContentsMargins(8, 0, 8, 0)
    return made


class TopBar(QToolBar):
    """What is looked at: model, head, conventions; pins and what is compared."""

    def __init__(self, bench: Bench, parent: QWidget) -> None:
        super().__init__("Subject", parent)
        self.setObjectName("bar.subject")
        self.setMovable(False)
        self.bench = bench
        self.model, self.conventions, self.pinned = (
            _label(self, "title"),
            _label(self, "caption"),
            _label(self, "caption"),
        )
        self.compare = QComboBox(self)
        self.compare.addItems(["now", "reference", "difference"])
        self.compare.setToolTip("What the panels show beside the pin (Ctrl+D)")
        self.compare.activated.connect(self._compare)
        self.pin = QToolButton(self)
        self.pin.setText("Pin")
        self.pin.setToolTip("Keep this subject as the reference of differences (Ctrl+P)")
        self.pin.clicked.connect(self._pin)
        self.palette_button = QToolButton(self)
        self.palette_button.setText("Commands")
        self.palette_button.setToolTip("Command palette (Ctrl+Shift+P)")
        self.palette_button.clicked.connect(self._palette)
        space = QWidget(self)
        space.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        for widget in (self.model, self.conventions, space, self.pinned, self.pin, self.compare, self.palette_button):
            action = self.addWidget(widget)
            if widget is self.compare:
                self.compare_action = action
        bench.document.changed.connect(self._changed)
        self.refresh()

    @Slot(object, object)
    def _changed(self, old: State, new: State) -> None:
        self.refresh()

    def refresh(self) -> None:
        """Show the state."""
        state = self.bench.document.state
        self.model.setText(state.model.name)
        heads = " ".join(map(str, state.selection.heads[:6])) + (" …" if len(state.selection.heads) > 6 else "")
        self.conventions.setText(" · ".join((heads, *state.conventions.words(), "BOS" if state.bos else "no BOS")))
        self.pinned.setText(f"reference: {state.pins[0].label}" if state.pins else "")
        self.compare.setCurrentText(state.compare)
        self.compare_action.setVisible(bool(state.pins))

    @Slot(int)
    def _compare(self, index: int) -> None:
        state = self.bench.document.recorded
        chosen = ("now", "reference", "difference")[index]
        self.bench.document.apply(replace(state, compare=chosen), f"compare: {chosen}")

    @Slot()
    def _pin(self) -> None:
        window = self.window()
        pin = getattr(window, "pin", None)
        if pin is not None:
            pin()

    @Slot()
    def _palette(self) -> None:
        window = self.window()
        show = getattr(window, "show_palette", None)
        if show is not None:
            show()


class Status(QStatusBar):
    """Readout on the left; what runs, Cancel, device and memory on the right."""

    def __init__(self, bench: Bench, parent: QWidget) -> None:
        super().__init__(parent)
        self.bench = bench
        self.readout = _label(self)
        self.running = _label(self, "caption")
        self.progress = QProgressBar(self)
        self.progress.setFixedWidth(120)
        self.progress.setTextVisible(False)
        self.cancel = QToolButton(self)
        self.cancel.setText("Cancel")
        self.cancel.clicked.connect(bench.runner.cancel_all)
        self.memory = _label(self, "caption")
        self.addWidget(self.readout, 1)
        for widget in (self.running, self.progress, self.cancel, self.memory):
            self.addPermanentWidget(widget)
        self.pace = QTimer(self)
        self.pace.setSingleShot(True)
        self.pace.setInterval(100)
        self.pace.timeout.connect(self.refresh)
        bench.readout.connect(self.readout.setText)
        bench.runner.jobs_changed.connect(self._changed)
        self.refresh()

    @Slot()
    def _changed(self) -> None:
        if not self.pace.isActive():
            self.pace.start()

    @Slot()
    def refresh(self) -> None:
        """What runs now."""
        jobs = self.bench.runner.jobs
        for widget in (self.running, self.progress, self.cancel):
            widget.setVisible(bool(jobs))
        if jobs:
            job = jobs[0]
            self.running.setText(f"{job.title} {job.done}/{job.total}" if job.total else job.title)
            self.progress.setRange(0, job.total)
            self.progress.setValue(job.done)
        self.memory.setText(f"CPU · {self.bench.engine.cache.nbytes / 2**20:,.0f} MiB held")
