"""The session of a window: its file, whether anything is unsaved, and the way from one session to the next.

Files and models are read and written on the file thread. A session takes the place of another only once it has been read and its
models are open; a failure leaves everything as it was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from PySide6.QtCore import QMimeData, QObject, Signal, Slot
from PySide6.QtGui import QAction, QGuiApplication
from PySide6.QtWidgets import QFileDialog, QMainWindow, QMenu, QMessageBox, QWidget

from circuitlab.draw.look.plain_text import PlainBox, confirmed, tip_of
from circuitlab.errors import Cancelled, bounded
from circuitlab.figures.contracts.panel import panels
from circuitlab.gui.lessons.dock import LessonsDock
from circuitlab.gui.places.layout import Layout
from circuitlab.gui.places.saved_layout import layout_to_text
from circuitlab.gui.sessions.file_work import Capture, Searcher, Staged, save_session, step_text, unknown_words
from circuitlab.gui.sessions.first_state import fresh_work
from circuitlab.gui.sessions.models_dialog import ModelsDialog
from circuitlab.gui.sessions.recent import RecentSessions
from circuitlab.gui.sessions.window_layout import layout_words, restore
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.subject import ModelRef
from circuitlab.session_files.session import SUFFIX, Session
from circuitlab.session_files.work import Work
from circuitlab.story.setup import Setup

log = logging.getLogger("circuitlab.sessions")
FILTER = f"Sessions (*{SUFFIX})"
Act = Callable[[], object]


class Host(Protocol):
    """What a session needs of its window."""

    context: AppContext
    remember: bool
    layout_of_docks: Layout
    lessons: LessonsDock

    def commit_typing(self) -> None: ...


@dataclass(frozen=True)
class _Save:
    """A save on its way: what is written, where, and what to do once it is on disk."""

    path: Path
    work: Work
    then: Act | None = None


def is_session(path: Path) -> bool:
    """Whether a path is that of a session, by its suffix; a folder of that name is a model's."""
    return path.suffix.lower() == SUFFIX and not path.is_dir()


def unsaved_box(parent: QWidget, name: str) -> PlainBox:
    """The question what to do with unsaved changes to a session, "" for one without a file."""
    buttons = QMessageBox.StandardButton
    text = f"Save the changes to “{name}”?" if name else "Save this session?"
    which = buttons.Save | buttons.Discard | buttons.Cancel
    box = PlainBox(QMessageBox.Icon.Question, "Unsaved changes", text, which, parent)
    box.setInformativeText("Changes that are discarded cannot be brought back.")
    box.setDefaultButton(buttons.Save)
    return box


class SessionController(QObject):
    """`changed()`: the session has another file, or begins or ceases to have unsaved changes. `opened()`: another session, or a
    new one, has taken the place of the last; its models are open.

    What a lesson shows is no part of the work: a session that is saved during one is as it was before the lesson.
    """

    changed = Signal()
    opened = Signal()

    def __init__(self, window: QMainWindow, host: Host, recent_models: Callable[[], list[str]]) -> None:
        super().__init__(window)
        self.window, self.host, self.context = window, host, host.context
        self.recent = RecentSessions(host.remember)
        self._recent_models = recent_models
        self._views = {name: panel.view for name, panel in panels().items()}
        self.path: Path | None = None
        self.saved = Session()  # as it was read or written last
        self._saved_work = self.context.document.work
        self._was_dirty = False
        self._saves: list[WorkSlot] = []  # in the order in which they are written
        self._given_up = self._saved_work  # the work that may be left behind by what is being opened
        self._opening = WorkSlot(self, finished=self._staged, failed=self._not_opened)
        self._beginning = WorkSlot(self, finished=self._begun, failed=self._not_opened)
        self._copying = WorkSlot(self, finished=self._copied, failed=self._not_opened)
        self.context.document.history_changed.connect(self._maybe_changed)

    # -- what it is -------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of its file without the suffix; "" while it has none."""
        return "" if self.path is None else self.path.stem

    @property
    def work(self) -> Work:
        """The person's work: what is recorded, during a lesson with the State from before it."""
        work, before = self.context.document.work, self.host.lessons.tour.before
        return work if before is None else replace(work, state=before)

    @property
    def dirty(self) -> bool:
        """Whether there are unsaved changes."""
        return self.work != self._saved_work

    @property
    def saving(self) -> bool:
        """Whether a save is under way."""
        return bool(self._saves)

    @Slot()
    def _maybe_changed(self) -> None:
        if self.dirty != self._was_dirty:
            self._was_dirty = not self._was_dirty
            self.changed.emit()

    def capture(self) -> Capture:
        """What a session file of the present work would be made of."""
        self.host.commit_typing()
        layout, in_lesson = self.host.layout_of_docks, self.host.lessons.layout_before
        words = Setup() if in_lesson is not None else layout_words(layout)
        docks = layout_to_text(in_lesson or layout.current_layout())
        return Capture(self.work, words, docks, self.saved, frozenset(self.context.stand_ins.values()))

    # -- saving -----------------------------------------------------------------------------------------------------------

    def save(self, then: Act | None = None) -> None:
        """Save to the session's file, asking for one if it has none. `then`: what follows once it is on disk."""
        if self.path is None:
            self.save_as(then)
        else:
            self.save_to(self.path, then)

    def save_as(self, then: Act | None = None) -> None:
        """Ask for a file and save to it."""
        suggested = self.path or self._folder() / f"session{SUFFIX}"
        name, _ = QFileDialog.getSaveFileName(self.window, "Save session as", str(suggested), FILTER)
        if not name:
            return
        path = Path(name)
        if path.suffix.lower() != SUFFIX:
            path = path.with_name(path.name + SUFFIX)
            if path.exists() and not confirmed(self.window, "Save session as", f"{path.name} exists. Replace it?"):
                return
        self.save_to(path, then)

    def save_to(self, path: Path, then: Act | None = None) -> None:
        """Save the present work to a file, after every save that is under way; it is the session's file from then on."""
        path, capture = path.absolute(), self.capture()
        store, views = self.context.engine.store, self._views

        def write(job: object) -> Session:
            session = capture.session(store, views)
            save_session(session, path)
            return session

        slot = WorkSlot(self, _Save(path, capture.work, then), finished=self._written, failed=self._not_written)
        self._saves.append(slot)
        self.context.runner.do(slot, f"save {path.name}", write)

    @Slot(object, object)
    def _written(self, session: Session, save: _Save) -> None:
        self._end_save(save)
        self.path, self.saved, self._saved_work = save.path, session, save.work
        self.recent.add(save.path)
        self._tell()
        self.context.message.emit(f"Saved: {save.path}")
        if save.then is not None and not self.saving:
            save.then()

    @Slot(object, object)
    def _not_written(self, error: BaseException, save: _Save) -> None:
        self._end_save(save)
        if isinstance(error, Cancelled):
            self.context.message.emit(f"Not saved: {save.path.name}. Saving was cancelled.")
        else:
            self.context.failed.emit(error)

    def _end_save(self, save: _Save) -> None:
        slot = next(slot for slot in self._saves if slot.role is save)
        self._saves.remove(slot)
        slot.deleteLater()

    def _tell(self) -> None:
        self._was_dirty = self.dirty
        self.changed.emit()

    # -- opening ----------------------------------------------------------------------------------------------------------

    def ask_open(self) -> None:
        """Ask for a session file and open it."""
        name, _ = QFileDialog.getOpenFileName(self.window, "Open session", str(self._folder()), f"{FILTER};;All files (*)")
        if name:
            self.open(Path(name))

    def open(self, path: Path) -> None:
        """Open a session in place of the present one, whose unsaved changes are asked about first."""
        path = path.absolute()
        self._unless_dirty(lambda: self._open(path))

    def drop(self, data: QMimeData) -> bool:
        """Open a session that was dropped on the window. False where it is something else."""
        path = Path(data.urls()[0].toLocalFile())
        if is_session(path):
            self.open(path)
        return is_session(path)

    def _searcher(self, stopped: Callable[[], bool] = lambda: False) -> Searcher:
        return Searcher(self.context.engine, self._views, tuple(self._recent_models()), stopped)

    def _open(self, path: Path) -> None:
        searcher = self._searcher()
        work = lambda job: replace(searcher, stopped=job.cancelled.is_set).stage(path)
        self.context.runner.do(self._opening, f"open {path.name}", work)

    @Slot(object)
    def _staged(self, staged: Staged) -> None:
        if staged.work is not None:
            self.take(staged)
            return
        dialog = ModelsDialog(staged, self.context.runner, self._searcher(), self.window)
        dialog.resolved.connect(self.take)
        dialog.open()

    @Slot(object)
    def _not_opened(self, error: BaseException) -> None:
        if not isinstance(error, Cancelled):
            self.context.failed.emit(error)

    @Slot(object)
    def take(self, staged: Staged) -> None:
        """Put a session that is read and resolved in place of the present one."""
        self._leave(lambda: self._take(staged))

    def _take(self, staged: Staged) -> None:
        assert staged.work is not None
        stand_ins = {replace(ref, checkpoint=None): name for name, ref in staged.changed.items()}
        self._begin(staged.work, staged.path.absolute(), staged.session, stand_ins)
        restore(self.host.layout_of_docks, staged.session)
        self.recent.add(staged.path.absolute())
        unknown = ", ".join(unknown_words(staged.session))
        kept = f" Not known to this version, and kept: {bounded(unknown, 80)}." if unknown else ""
        self.context.message.emit(f"Opened: {staged.path.name}.{kept}")

    # -- beginning anew ---------------------------------------------------------------------------------------------------

    def new(self) -> None:
        """Begin a new session with the present model, without a story; unsaved changes are asked about first."""
        self._unless_dirty(self._new)

    def _new(self) -> None:
        store, ref = self.context.engine.store, replace(self.context.document.recorded.model, checkpoint=None)
        self.context.runner.do(self._beginning, "new session", lambda job: fresh_work(store, ref))

    @Slot(object)
    def _begun(self, work: Work) -> None:
        self._leave(lambda: self._begin(work, None, Session(), {}))

    def _begin(self, work: Work, path: Path | None, session: Session, stand_ins: dict[ModelRef, str]) -> None:
        self.host.lessons.tour.leave()
        self.context.stand_ins = stand_ins
        self.path, self.saved = path, session
        self.context.begin(work)
        self._saved_work = self.context.document.work
        self.opened.emit()
        self._tell()

    # -- the recent list, and a step for the clipboard --------------------------------------------------------------------------

    def list_recent(self, menu: QMenu) -> None:
        """Put the recent sessions at the top of a menu."""
        paths, first = self.recent.paths(), next(iter(menu.actions()), None)
        if not paths:
            return
        title = QAction("Sessions", menu)
        title.setSeparator(True)
        entries = [title]
        for path in paths:
            entry = QAction(path.name.replace("&", "&&"), menu)
            entry.setToolTip(tip_of(str(path)))
            entry.setData(str(path))
            entry.triggered.connect(self._chosen)
            entries.append(entry)
        menu.insertActions(first, entries) if first is not None else menu.addActions(entries)

    @Slot()
    def _chosen(self) -> None:
        action = self.sender()
        if isinstance(action, QAction):
            self.open(Path(str(action.data())))

    def copy_step(self) -> None:
        """Copy what is shown to the clipboard as the words of a step, as JSON."""
        self.host.commit_typing()
        layout, state = layout_words(self.host.layout_of_docks), self.context.document.recorded
        store, views = self.context.engine.store, self._views

        def text(job: object) -> str:
            return step_text(state, layout, store, views)

        self.context.runner.do(self._copying, "copy this view", text)

    @Slot(object)
    def _copied(self, text: str) -> None:
        QGuiApplication.clipboard().setText(text)
        self.context.message.emit("This view is copied as the words of a step.")

    # -- unsaved changes --------------------------------------------------------------------------------------------------

    def may_close(self) -> bool:
        """Whether the window may close now. If not, it closes by itself once what the person wants saved is on disk.

        A session without a file is not asked about.
        """
        if self.saving:
            last = self._saves[-1]
            last.role = replace(last.role, then=self.window.close)  # type: ignore[type-var]
            return False
        if self.path is None or not self.dirty:
            return True
        answer = self._asked()
        if answer == QMessageBox.StandardButton.Save:
            self.save(self.window.close)
        return answer == QMessageBox.StandardButton.Discard

    def _unless_dirty(self, act: Act) -> None:
        """Do what ends the present session, once its unsaved changes are saved or given up."""
        self.host.commit_typing()
        answer = self._asked() if self.dirty else QMessageBox.StandardButton.Discard
        if answer == QMessageBox.StandardButton.Save:
            self.save(act)
        elif answer == QMessageBox.StandardButton.Discard:
            self._given_up = self.work
            act()

    def _leave(self, act: Act) -> None:
        """Put another session in place of this one; what was changed while it was read is asked about too."""
        self.host.commit_typing()
        act() if self.work == self._given_up else self._unless_dirty(act)

    def _asked(self) -> QMessageBox.StandardButton:
        """The person's answer: Save, Discard or Cancel."""
        buttons = QMessageBox.StandardButton
        box = unsaved_box(self.window, self.name)
        answer = box.exec()
        box.deleteLater()
        return QMessageBox.StandardButton(answer) if answer in (buttons.Save, buttons.Discard) else buttons.Cancel

    def _folder(self) -> Path:
        """Where files are asked for: beside the session's file, or beside the one used last."""
        near = self.path or next(iter(self.recent.paths()), None)
        return near.parent if near is not None else Path.home()
