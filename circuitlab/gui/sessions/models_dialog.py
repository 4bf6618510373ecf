"""The one question about a session's models and files: those that were not found, and those that are others now.

A row is one model, or one file that a panel's setting names. “Choose…” says where it is; what is chosen is held against the
session's hash. Nothing is taken unasked: the session is opened by the button below, whose words say what it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QFileDialog, QGridLayout, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from circuitlab.draw.look.plain_text import PlainLabel, tip_of
from circuitlab.engine.store import reference
from circuitlab.errors import Cancelled, CircuitLabError, reason
from circuitlab.gui.sessions.file_work import Searcher, Staged, with_choices
from circuitlab.gui.widgets.dialog import Dialog
from circuitlab.gui.widgets.labels import paragraph
from circuitlab.gui.work.runner import Runner
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.catalogue.places import name_of
from circuitlab.model.loading.checkpoint import WEIGHT_FILES
from circuitlab.model.origin import File, Hub
from circuitlab.model.subject import ModelRef

SHORT = 12  # digits of a hash


def place(ref: ModelRef) -> str:
    """Where a model is, for a sentence: its path, or its source as it is typed."""
    return ref.origin.where if isinstance(ref.origin, File) else ref.source


def about(staged: Staged, name: str) -> str:
    """What is the matter with a model of a session, or where it has been found."""
    if name in staged.with_results:
        return f"{_whereabouts(staged, name)} The session has results of it."
    others = {} if staged.results is None else staged.results.of_other_weights(staged.session)
    if name in others and name in (*staged.missing, *staged.changed):
        return f"{_whereabouts(staged, name)} The results in the session are of other weights: {others[name][:SHORT]}."
    return _whereabouts(staged, name)


def _whereabouts(staged: Staged, name: str) -> str:
    entry = staged.session.models[name]
    if name in staged.missing:
        more = "" if name in staged.needed else " Only steps of the story or notes need it."
        if listed := name_of(entry.ref):
            return f"{listed} of the catalogue is not on this machine: Get… fetches it.{more}"
        if isinstance(entry.ref.origin, Hub):
            return f"{place(entry.ref)} is not downloaded: File → Open from the hub… fetches it.{more}"
        where = f"{staged.name} does not say where it was." if staged.of_picture else f"It was at {place(entry.ref)}."
        return f"Not found. {where}{more}"
    if name not in staged.changed:
        return f"Found: {place(entry.ref)}"
    ref, sha256 = staged.changed[name], staged.hashes.get(name, "")
    if not entry.sha256:
        return f"{place(ref)} has its name. The session does not say which weights it was made with."
    if sha256 == entry.sha256:
        return f"{place(ref)} has the same weights under another configuration or tokenizer: its numbers are other ones."
    return f"{place(ref)} has other weights: {sha256[:SHORT] or 'unknown'} in place of {entry.sha256[:SHORT]}."


def about_file(staged: Staged, name: str) -> str:
    """What is the matter with a file of a session, or where it has been found."""
    path = staged.session.files[name].path
    if name in staged.missing_files:
        return f"Not found. It was at {path}. Panels that read it stay empty."
    return f"{path} has changed: panels read what it holds now." if name in staged.changed_files else f"Found: {path}"


def made_with(models: int, files: int) -> str:
    """What is in question, for a sentence."""
    of_models = "a model that is missing here or has" if models == 1 else "models that are missing here or have"
    of_files = "a file that is missing here or has" if files == 1 else "files that are missing here or have"
    parts = (f"{of_models} other weights" if models else "", f"{of_files} changed" if files else "")
    return ", and with ".join(filter(None, parts))


class ModelsDialog(Dialog):
    """See the module. `resolved(Staged)`: the session with its models chosen, and open. `rows` are of models, by name.

    `wanted(name, dialog)`: a missing model of the catalogue is to be got, `look_again` called when it is there. `getters`: the
    buttons for that, by name.
    """

    resolved = Signal(object)
    wanted = Signal(str, object)
    usual = (620, 0)

    def __init__(self, staged: Staged, runner: Runner, searcher: Searcher, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        files = (*staged.missing_files, *staged.changed_files)
        models = (*staged.missing, *staged.changed)
        what = " and ".join(filter(None, ("Models" if models else "", "files" if files else "")))
        self.setWindowTitle(f"{what.capitalize()} of the session")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._first = self.staged = staged
        self._choices: dict[str, ModelRef] = {}
        self._paths: dict[str, str] = {}  # of files
        self._runner, self._searcher = runner, searcher
        self.rows: dict[str, tuple[QLabel, QPushButton]] = {}
        self.file_rows: dict[str, tuple[QLabel, QPushButton]] = {}
        self.getters: dict[str, QPushButton] = {}
        self._slot = WorkSlot(self, finished=self._finished, failed=self._failed)
        self._lay_out(models, files)
        self._show()

    def _lay_out(self, models: tuple[str, ...], files: tuple[str, ...]) -> None:
        intro, self.message = paragraph(self, selectable=False), paragraph(self)
        intro.setText(f"{self.staged.name} was made with {made_with(len(models), len(files))}.")
        grid = QGridLayout()
        grid.setHorizontalSpacing(16)
        grid.setVerticalSpacing(12)
        grid.setColumnStretch(1, 1)
        for name in models:
            self.rows[name] = self._row(grid, name, partial(self._choose, name))
            if name in self.staged.missing and (listed := name_of(self.staged.session.models[name].ref)):
                self._offer(grid, name, listed)
        for name in files:
            shown = Path(self.staged.session.files[name].path).name
            self.file_rows[name] = self._row(grid, shown, partial(self._choose_file, name, shown))
        self.use = QPushButton(self)
        self.use.clicked.connect(self.open_session)
        self.results = QPushButton("Open with its results only", self)
        self.results.setToolTip(tip_of("Panels show what the session has stored, and say so; the rest needs the model"))
        self.results.clicked.connect(self.open_results)
        self.cancel = QPushButton("Cancel", self)
        self.cancel.clicked.connect(self.reject)
        self.primary = self.use
        buttons = QHBoxLayout()
        buttons.addStretch(1)
        buttons.addWidget(self.cancel)
        buttons.addWidget(self.results)
        buttons.addWidget(self.use)
        box = QVBoxLayout(self)
        box.setContentsMargins(24, 16, 24, 16)
        box.setSpacing(16)
        box.addWidget(intro)
        box.addLayout(grid)
        box.addWidget(self.message)
        box.addLayout(buttons)

    def _row(self, grid: QGridLayout, name: str, choose: Callable[[], None]) -> tuple[QLabel, QPushButton]:
        """A line of the grid: a name, what is the matter with it, and the button that says where it is."""
        title, state, button = PlainLabel(name, self), paragraph(self), QPushButton("Choose…", self)
        title.setProperty("role", "strong")
        button.setAccessibleName(f"Choose {name}")
        button.clicked.connect(lambda: choose())
        for column, widget in enumerate((title, state, button)):
            grid.addWidget(widget, grid.rowCount() if column == 0 else grid.rowCount() - 1, column, Qt.AlignmentFlag.AlignTop)
        return state, button

    def _offer(self, grid: QGridLayout, name: str, listed: str) -> None:
        """Beside the button that says where a model is, one that gets it."""
        button = self.getters[name] = QPushButton("Get…", self)
        button.setAccessibleName(f"Get {listed}")
        button.clicked.connect(lambda: self.wanted.emit(listed, self))
        grid.addWidget(button, grid.rowCount() - 1, 3, Qt.AlignmentFlag.AlignTop)

    def _show(self) -> None:
        """What has been found by now, and what the button takes."""
        staged = self.staged
        for name, (state, _) in self.rows.items():
            state.setText(about(staged, name))
        for name, (state, _) in self.file_rows.items():
            state.setText(about_file(staged, name))
        lacking = [name for name in staged.missing if name in staged.needed]
        changed, missing = (*staged.changed, *staged.changed_files), (*staged.missing, *staged.missing_files)
        others = "it" if len(changed or missing) == 1 else "them"
        self.use.setText(f"Use {others} all the same" if changed else f"Open without {others}" if missing else "Open")
        self._busy(False)
        self.use.setEnabled(not lacking)
        self.results.setVisible(bool(staged.with_results))
        self.use.setVisible(not lacking or not staged.with_results)
        self.results.setEnabled(staged.can_be_shown)
        self.primary = self.results if staged.with_results and not staged.changed else self.use
        if staged.changed and staged.of_picture:
            self.message.setText("The figures will be of the weights that are here, not those of the picture.")
        elif staged.changed:
            self.message.setText("The captions of all figures will say that it is not the model of this session.")
        else:
            self.message.setText("")

    def _busy(self, busy: bool) -> None:
        for button in (*(choose for _, choose in (*self.rows.values(), *self.file_rows.values())), *self.getters.values()):
            button.setEnabled(not busy)
        for name, button in self.getters.items():
            button.setVisible(name in self.staged.missing)
        self.use.setEnabled(not busy)
        self.results.setEnabled(not busy)

    def _choose(self, name: str) -> None:
        was = Path(place(self.staged.session.models[name].ref))
        if was.suffix in WEIGHT_FILES:
            kinds = " ".join(f"*{suffix}" for suffix in WEIGHT_FILES)
            path, _ = QFileDialog.getOpenFileName(self, f"Where is {name}?", "", f"Weights ({kinds});;All files (*)")
        else:
            path = QFileDialog.getExistingDirectory(self, f"Where is {name}? The folder with config.json")
        if path:
            self.choose(name, path)

    def _choose_file(self, name: str, shown: str) -> None:
        path, _ = QFileDialog.getOpenFileName(self, f"Where is {shown}?", "", "All files (*)")
        if path:
            self.choose_file(name, path)

    def choose(self, name: str, path: str) -> None:
        """Look at a path for one of the models."""
        self._choices[name] = reference(path)
        self._look_for(name)

    def choose_file(self, name: str, path: str) -> None:
        """Look at a path for one of the files."""
        self._paths[name] = path
        self._look_for(name)

    @Slot()
    def look_again(self) -> None:
        """Look for what is missing once more: it may have been got."""
        self._look_for("models")

    def _look_for(self, name: str) -> None:
        staged, searcher = with_choices(self._first, self._choices, self._paths), self._searcher
        self._do(f"look for {name}", lambda stopped: replace(searcher, stopped=stopped).find(staged))

    @Slot()
    def open_session(self) -> None:
        """Open the session with its models as they are."""
        staged, searcher = self.staged, self._searcher
        self._do(f"open {staged.name}", lambda stopped: replace(searcher, stopped=stopped).resolve(staged))

    @Slot()
    def open_results(self) -> None:
        """Open the session with what its file has of the models that are not here."""
        staged, searcher = self.staged, self._searcher
        self._do(f"open {staged.name}", lambda stopped: replace(searcher, stopped=stopped).resolve_stored(staged))

    def _do(self, title: str, work: Callable[[Callable[[], bool]], Staged]) -> None:
        self._busy(True)
        self.message.setText("Reading…")
        self._runner.do(self._slot, title, lambda job: work(job.cancelled.is_set), "search")

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
