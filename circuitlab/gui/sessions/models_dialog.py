"""The one question about a session's models: those that were not found, and those whose weights are others now.

A row is one model. “Choose…” says where it is; what is chosen is held against the session's hash. Nothing is taken unasked: the
session is opened by the button below, whose words say what it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QFileDialog, QGridLayout, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from circuitlab.draw.look.plain_text import PlainLabel
from circuitlab.engine.store import reference
from circuitlab.errors import Cancelled, CircuitLabError, reason
from circuitlab.gui.sessions.file_work import Searcher, Staged, with_choices
from circuitlab.gui.widgets.dialog import Dialog
from circuitlab.gui.widgets.labels import paragraph
from circuitlab.gui.work.runner import Runner
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.loading.checkpoint import WEIGHT_FILES
from circuitlab.model.subject import ModelRef

SHORT = 12  # digits of a hash


def place(ref: ModelRef) -> str:
    """Where a model is, for a sentence: its path, or its source as it is typed."""
    return ref.source.removeprefix("file:")


def about(staged: Staged, name: str) -> str:
    """What is the matter with a model of a session, or where it has been found."""
    entry = staged.session.models[name]
    if name in staged.missing:
        more = "" if name in staged.needed else " Only steps of the story or notes need it."
        if entry.ref.source.startswith("hub:"):
            return f"{place(entry.ref)} is not downloaded: File → Open from the hub… fetches it.{more}"
        return f"Not found. It was at {place(entry.ref)}.{more}"
    if name not in staged.changed:
        return f"Found: {place(entry.ref)}"
    ref, there = staged.changed[name], staged.hashes.get(name, "")
    if not entry.sha256:
        return f"{place(ref)} has its name. The session does not say which weights it was made with."
    return f"{place(ref)} has other weights: {there[:SHORT] or 'unknown'} in place of {entry.sha256[:SHORT]}."


class ModelsDialog(Dialog):
    """See the module. `resolved(Staged)`: the session with its models chosen, and open."""

    resolved = Signal(object)
    usual = (620, 0)

    def __init__(self, staged: Staged, runner: Runner, searcher: Searcher, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Models of the session")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._first = self.staged = staged
        self._choices: dict[str, ModelRef] = {}
        self._runner, self._searcher = runner, searcher
        self.rows: dict[str, tuple[QLabel, QPushButton]] = {}
        self._slot = WorkSlot(self, finished=self._finished, failed=self._failed)
        self._lay_out((*staged.missing, *staged.changed))
        self._show()

    def _lay_out(self, names: tuple[str, ...]) -> None:
        intro, self.message = paragraph(self, selectable=False), paragraph(self)
        which = "a model that is missing here or has" if len(names) == 1 else "models that are missing here or have"
        intro.setText(f"{self.staged.name} was made with {which} other weights.")
        grid = QGridLayout()
        grid.setHorizontalSpacing(16)
        grid.setVerticalSpacing(12)
        grid.setColumnStretch(1, 1)
        for i, name in enumerate(names):
            title, state, choose = PlainLabel(name, self), paragraph(self), QPushButton("Choose…", self)
            title.setProperty("role", "strong")
            choose.setAccessibleName(f"Choose {name}")
            choose.setProperty("model", name)
            choose.clicked.connect(self._choose)
            for column, widget in enumerate((title, state, choose)):
                grid.addWidget(widget, i, column, Qt.AlignmentFlag.AlignTop)
            self.rows[name] = state, choose
        self.use = QPushButton(self)
        self.use.clicked.connect(self.open_session)
        self.cancel = QPushButton("Cancel", self)
        self.cancel.clicked.connect(self.reject)
        self.primary = self.use
        buttons = QHBoxLayout()
        buttons.addStretch(1)
        buttons.addWidget(self.cancel)
        buttons.addWidget(self.use)
        box = QVBoxLayout(self)
        box.setContentsMargins(24, 16, 24, 16)
        box.setSpacing(16)
        box.addWidget(intro)
        box.addLayout(grid)
        box.addWidget(self.message)
        box.addLayout(buttons)

    def _show(self) -> None:
        """What has been found by now, and what the button takes."""
        staged = self.staged
        for name, (state, _) in self.rows.items():
            state.setText(about(staged, name))
        lacking = [name for name in staged.missing if name in staged.needed]
        others = "it" if len(staged.changed) == 1 else "them"
        self.use.setText(f"Use {others} all the same" if staged.changed else "Open without it" if staged.missing else "Open")
        self._busy(False)
        self.use.setEnabled(not lacking)
        if staged.changed:
            self.message.setText("The captions of all figures will say that it is not the model of this session.")
        else:
            self.message.setText("")

    def _busy(self, busy: bool) -> None:
        for _, choose in self.rows.values():
            choose.setEnabled(not busy)
        self.use.setEnabled(not busy)

    @Slot()
    def _choose(self) -> None:
        button = self.sender()
        assert isinstance(button, QPushButton)
        name = str(button.property("model"))
        was = Path(place(self.staged.session.models[name].ref))
        if was.suffix in WEIGHT_FILES:
            kinds = " ".join(f"*{suffix}" for suffix in WEIGHT_FILES)
            path, _ = QFileDialog.getOpenFileName(self, f"Where is {name}?", "", f"Weights ({kinds});;All files (*)")
        else:
            path = QFileDialog.getExistingDirectory(self, f"Where is {name}? The folder with config.json")
        if path:
            self.choose(name, path)

    def choose(self, name: str, path: str) -> None:
        """Look at a path for one of the models."""
        self._choices[name] = reference(path)
        staged, searcher = with_choices(self._first, self._choices), self._searcher
        self._do(f"look for {name}", lambda stopped: replace(searcher, stopped=stopped).find(staged))

    @Slot()
    def open_session(self) -> None:
        """Open the session with its models as they are."""
        staged, searcher = self.staged, self._searcher
        self._do(f"open {staged.name}", lambda stopped: replace(searcher, stopped=stopped).resolve(staged))

    def _do(self, title: str, work: Callable[[Callable[[], bool]], Staged]) -> None:
        self._busy(True)
        self.message.setText("Reading…")
        self._runner.do(self._slot, title, lambda job: work(job.cancelled.is_set))

    @Slot(object)
    def _finished(self, staged: Staged) -> None:
        self.staged = staged
        self._show()
        if staged.work is not None:
            self.resolved.emit(staged)
            self.accept()

    @Slot(object)
    def _failed(self, error: BaseException) -> None:
        self._show()
        anticipated = isinstance(error, CircuitLabError) and not isinstance(error, Cancelled)
        self.message.setText(str(error) if anticipated else reason(error))

    def done(self, result: int) -> None:
        """What is being read for it is no longer wanted."""
        self._runner.cancel_slot(self._slot)
        super().done(result)
