"""Opening a model: read and checked on the file thread; only then does it take the place of the present one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from PySide6.QtCore import QMimeData, QObject, Signal, Slot
from PySide6.QtGui import QAction, QActionGroup
from PySide6.QtWidgets import QMenu

from circuitlab.disk.paths import shipped, shipped_models
from circuitlab.draw.look.plain_text import tip_of
from circuitlab.engine.memory_report import opening_cost
from circuitlab.engine.store import OpenModel, reference
from circuitlab.errors import BadModel, Cancelled, CircuitLabError
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.settings import settings_file
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.constructed import SOURCES
from circuitlab.model.loading.assumptions import Assumption
from circuitlab.model.loading.checkpoint import WEIGHT_FILES, is_gguf
from circuitlab.model.origin import Builtin, Constructed, File, Hub, Origin, origin_of
from circuitlab.model.sources.hub import HubName, snapshot
from circuitlab.model.subject import ModelRef
from circuitlab.state.model_change import state_on, warm_tokenizer

log = logging.getLogger("circuitlab.opening")
RECENT = 8
KINDS: dict[type[Origin], str] = {Builtin: "Shipped", Constructed: "Constructed"}


def assumptions_asked(error: object) -> Mapping[str, tuple[str, ...]]:
    """The assumptions that an error asks for, with the values that each can have."""
    return error.asks if isinstance(error, BadModel) else {}


def _title(source: str) -> str:
    """What a menu calls a source: a name, or a path from home."""
    origin = origin_of(source)
    if isinstance(origin, Constructed):
        return origin.where.replace("?", " · ")
    try:
        return f"~/{Path(origin.where).relative_to(Path.home())}" if isinstance(origin, File) else origin.where
    except (ValueError, RuntimeError):
        return origin.where


def _identity(source: str) -> str:
    """The same for two sources that mean one model: a shipped one by its name or by its folder."""
    origin = origin_of(source)
    if not isinstance(origin, File):
        return source.partition("?")[0]  # a constructed model is one model, whatever its parameters
    path = Path(origin.where)
    inside = path.parent == shipped("models") and path.name in shipped_models()
    return str(Builtin(path.name) if inside else File(str(path)))


class Opening(QObject):
    """Opens models. `opened()`: another model has become the subject, or the present one has been read from disk again.

    `hub_download_needed(HubName)`: a requested hub model is not in the cache. `assumptions_needed(ModelRef, error)`: a model
    cannot be opened before the user supplies what its files leave open.
    """

    opened = Signal()
    hub_download_needed = Signal(object)
    assumptions_needed = Signal(object, object)

    def __init__(self, context: AppContext, remember: bool, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.context, self.remember = context, remember
        self._text: str | None = None
        self._ref: ModelRef | None = None
        self.slot = WorkSlot(self, finished=self._finished, failed=self._failed)
        self._others_slot = WorkSlot(self, finished=self._others_read, failed=self._report_failure)
        self._read_slot, self._hash_slot = WorkSlot(self, failed=self._report_failure), WorkSlot(self)
        context.reopened.connect(self.opened)

    def open(self, source: str, text: str | None = None) -> None:
        """Open by path, `builtin:NAME` or `file:PATH`."""
        try:
            ref = reference(source)
        except (CircuitLabError, OSError, RuntimeError) as error:  # for instance no valid path, or no home folder
            self.context.failed.emit(error)
            return
        if isinstance(ref.origin, Hub) and snapshot(name := HubName.parse(ref.origin.where)) is None:
            self.hub_download_needed.emit(name)
            return
        self._text, self._ref = text, ref
        self.context.runner.do(self.slot, f"open {ref.name}", self.reader(ref, text))

    def reader(self, ref: ModelRef, text: str | None = None) -> Callable[[Job], OpenModel]:
        """The job that reads a model on the file thread and tokenises the text it will be shown on (None: the present text)."""
        state = self.context.document.recorded
        prompt = (state.draft or state.text) if text is None else text
        return lambda job: self._read(ref, prompt, job)

    def _read(self, ref: ModelRef, prompt: str, job: Job) -> OpenModel:
        """Read a model on the file thread. Raises `Cancelled` if the job was cancelled meanwhile."""
        if cost := opening_cost(ref, self.context.engine.store.largest_copy):
            self.context.runner.report_progress(job, 0, 1, cost)
        model = self.context.engine.store.open_now(ref)
        warm_tokenizer(model, prompt)
        if job.cancelled.is_set():
            raise Cancelled
        return model

    def assumptions(self) -> tuple[Assumption, ...]:
        """The assumptions under which the open model was read."""
        model = self.context.engine.store.peek(self.context.document.state.model)
        return () if model is None else model.opened.assumptions

    def reload(self) -> None:
        """Read the model's files again."""
        self.reload_files((self.context.document.state.model,))

    def reload_files(self, refs: Collection[ModelRef]) -> None:
        """Read the files of these models again, which are in use."""
        store, shown = self.context.engine.store, self.context.document.state.model
        others = [ref for ref in refs if ref != shown]
        if others:
            names = ", ".join(ref.name for ref in others)
            self.context.runner.do(self._others_slot, f"reload {names}", lambda job: [store.reload(ref) for ref in others])
        if shown in refs:
            self._text = None
            self.context.runner.do(self.slot, f"reload {shown.name}", lambda job: store.reload(shown))

    @Slot()
    def _others_read(self) -> None:
        """Other models than the one that is shown have been read again: what is shown beside it may be of others now."""
        self.context.read_again.emit()

    @Slot()
    def reread(self) -> None:
        """Show the open model as the store has it now, after it was read again there."""
        model = self.context.engine.store.peek(self.context.document.recorded.model)
        if model is not None:
            self.adopt(model, None)

    def drop(self, data: QMimeData) -> None:
        """Open dropped data: a folder, a file in a model folder, or a weight file on its own."""
        path = Path(data.urls()[0].toLocalFile())
        alone = is_gguf(path) or (path.suffix in WEIGHT_FILES and not (path.parent / "config.json").is_file())
        self.open(str(path if path.is_dir() or alone else path.parent))

    @Slot(object)
    def _finished(self, model: OpenModel) -> None:
        self.adopt(model, self._text)

    @Slot(object)
    def _failed(self, error: BaseException) -> None:
        if self._ref is not None and assumptions_asked(error):
            self.assumptions_needed.emit(self._ref, error)
        else:
            self._report_failure(error)

    @Slot(object)
    def _report_failure(self, error: BaseException) -> None:
        if not isinstance(error, Cancelled):
            self.context.failed.emit(error)

    def adopt(self, model: OpenModel, text: str | None) -> None:
        """Make an open model the subject."""
        self.context.forget(model.ref)
        before = self.context.document.recorded
        self.context.apply(state_on(model, before, text), f"open {model.ref.name}")
        if before.model != model.ref:
            self.context.model_changed.emit(before, self.context.document.recorded)
        self.announce(model)
        self.opened.emit()

    def announce(self, model: OpenModel) -> None:
        """Note a model in the log and the recent list; start reading and hashing the rest of its weights, where it has any."""
        if model.absent:
            return
        self.remember_model(model.ref)
        store = self.context.engine.store
        for slot, title, work in ((self._read_slot, "read", store.read_whole), (self._hash_slot, "hash", store.sha256)):
            read = lambda job, work=work: work(model.ref, job.cancelled.is_set)
            self.context.runner.do(slot, f"{title} {model.ref.name}", read, "hash")
        log.info("opened %s: %s", model.path, "; ".join(model.opened.notes) or "nothing assumed")

    # -- the recent list ----------------------------------------------------------------------------------------------

    def recent(self) -> list[str]:
        """The sources of recent models, newest first."""
        value: Any = settings_file().value("recent", []) if self.remember else []
        return [value] if isinstance(value, str) else [str(v) for v in value or ()]

    def remember_model(self, ref: ModelRef) -> None:
        """Put a model at the top of the recent list."""
        if self.remember:
            rest = [s for s in self.recent() if s != ref.source]
            settings_file().setValue("recent", [ref.source, *rest][:RECENT])

    def sources(self) -> list[tuple[str, str]]:
        """(source, title) of the shipped, the constructed and the recent models: each model once, always in the same order."""
        shipped = [(str(Builtin(name)), name) for name in shipped_models()]
        constructed = [(source, _title(source)) for source in SOURCES]
        listed = {_identity(source) for source, _ in (*shipped, *constructed)}
        recent: dict[str, str] = {}
        for source in sorted(self.recent(), key=lambda s: (_title(s).rpartition("/")[2].lower(), s)):
            if _identity(source) not in listed:
                recent.setdefault(_identity(source), source)
        return [*shipped, *constructed, *((source, _title(source)) for source in recent.values())]

    def fill(self, menu: QMenu) -> None:
        """Fill a menu with the models by kind, the open one checked."""
        menu.clear()
        menu.setToolTipsVisible(True)
        group, now, before = QActionGroup(menu), _identity(self.context.document.state.model.source), ""
        for source, title in self.sources():
            origin = origin_of(source)
            if (section := KINDS.get(type(origin), "Recent")) != before:
                menu.addSection(section)
                before = section
            action = menu.addAction(title.replace("&", "&&"))
            action.setCheckable(True)
            action.setChecked(_identity(source) == now)
            action.setToolTip(tip_of(origin.where))
            action.setData(source)
            action.triggered.connect(self._chosen)
            group.addAction(action)

    @Slot()
    def _chosen(self) -> None:
        action = self.sender()
        if isinstance(action, QAction):
            self.open(str(action.data()))
