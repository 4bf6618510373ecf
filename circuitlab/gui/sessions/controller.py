"""The session of a window: its file, whether anything is unsaved, and the way from one session to the next.

Files and models are read and written on the file thread. A session takes the place of another only once it has been read and its
models are open; a failure leaves everything as it was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal, Protocol

from PySide6.QtCore import QMimeData, QObject, Signal, Slot
from PySide6.QtWidgets import QFileDialog, QMainWindow, QMessageBox, QWidget

from circuitlab.counting import number_of
from circuitlab.disk.formats import PICTURES, SESSION, is_picture, opens_as_session, suffixes
from circuitlab.draw.look.plain_text import PlainBox, confirmed
from circuitlab.errors import BadInput, Cancelled, bounded
from circuitlab.figures.contracts.panel import view_types
from circuitlab.gui.lessons.dock import LessonsDock
from circuitlab.gui.places.layout import Layout
from circuitlab.gui.places.saved_layout import layout_to_text
from circuitlab.gui.sessions.file_hold import COPY, ELSEWHERE, READ_ONLY, REPLACE, FileHold, changed_box, in_use, in_use_box
from circuitlab.gui.sessions.file_work import Capture, Searcher, Staged, Version, unknown_words
from circuitlab.gui.sessions.first_look import FirstLook
from circuitlab.gui.sessions.first_state import fresh_work
from circuitlab.gui.sessions.found_elsewhere import elsewhere_words
from circuitlab.gui.sessions.opening import SessionOpening
from circuitlab.gui.sessions.picture_views import PictureViews
from circuitlab.gui.sessions.recent import RecentSessions
from circuitlab.gui.sessions.results import SessionResults
from circuitlab.gui.sessions.saving import Act, Save, Saves
from circuitlab.gui.sessions.window_layout import restore, session_words
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.report.session_results import summary
from circuitlab.session_files.model_table import refs_of
from circuitlab.session_files.orphans import session_title
from circuitlab.session_files.results import Results, SessionFile
from circuitlab.session_files.session import Session
from circuitlab.session_files.work import Work
from circuitlab.story.setup import Setup

log = logging.getLogger("circuitlab.sessions")
FILTER = f"Sessions (*{SESSION})"
FILTER_WITH = f"Sessions with results (*{SESSION})"  # what the views show, for a machine without the models
OPENED = f"Sessions and pictures (*{SESSION} {' '.join(f'*{suffix}' for suffix in suffixes(PICTURES))})"


class Host(Protocol):
    """What a session needs of its window."""

    context: AppContext
    remember: bool
    layout_of_docks: Layout
    lessons: LessonsDock

    def commit_typing(self) -> None: ...


def unsaved_box(parent: QWidget, name: str, why: str = "") -> PlainBox:
    """The question what to do with unsaved changes to a session, "" for one without a file. `why` it cannot be kept unsaved."""
    buttons = QMessageBox.StandardButton
    text = f"Save the changes to “{name}”?" if name else "Save this session?"
    which = buttons.Save | buttons.Discard | buttons.Cancel
    box = PlainBox(QMessageBox.Icon.Question, "Unsaved changes", text, which, parent)
    kept = f"It cannot be kept for the next start: {why}\n\n" if why else ""
    box.setInformativeText(f"{kept}Changes that are discarded cannot be brought back.")
    box.setDefaultButton(buttons.Save)
    return box


class SessionController(QObject):
    """`changed()`: the session has another file, or begins or ceases to have unsaved changes or its mark. `opened()`: another
    session, or a new one, has taken the place of the last; its models are open.

    `saved` is the session as it was read or written last. What a lesson shows is no part of the work: a session that is saved
    during one is as it was before the lesson. A file with results keeps them: those that the views still need, and what has been
    computed of the rest.
    """

    changed = Signal()
    opened = Signal()

    def __init__(self, window: QMainWindow, host: Host, recent_models: Callable[[], list[str]]) -> None:
        super().__init__(window)
        self.window, self.host, self.context = window, host, host.context
        self.recent = RecentSessions(host.remember, self)
        self.recent.chosen.connect(self.open)
        self._recent_models = recent_models
        self._views = view_types()
        self.path: Path | None = None
        self.context.exports.beside = lambda: self.path
        self.saved = Session()
        self.hold, self.read_only, self._version = FileHold(), False, Version()
        self._saved_work: Work | None = self.context.document.work
        self._told, self._id = (False, False), object()  # `_id`: of the session, to tell it from those before it
        self._unrestored: Session | None = None  # its layout is not restored yet
        self.cannot_keep: Callable[[], str] = lambda: ""  # why a session without a file could not be kept at the end
        self._given_up: Work | None = None  # the work that may be left for what is being opened
        self.saves = Saves(self.context, self._views, self)
        self.saves.written.connect(self._written)
        self.results = SessionResults(self.context, self._views, self)
        self.opening = SessionOpening(self.context, self._searcher, window, self)
        self.pictures = PictureViews(host, self.opening, self)
        self._beginning = WorkSlot(self, finished=self._begun, failed=self._not_done)
        self.context.document.history_changed.connect(self._maybe_changed)
        self.first_look = FirstLook(self.context, self)
        self.first_look.looked.connect(self._looked)

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
    def marked(self) -> bool:
        """Whether the title has a mark: a file lacks changes, or there is a story or a note without a file."""
        return self.dirty and (self.path is not None or bool(self.work.story.steps or self.work.notes))

    @Slot()
    def _maybe_changed(self) -> None:
        if (self.dirty, self.marked) != self._told:
            self._tell()

    def _tell(self) -> None:
        self._told = self.dirty, self.marked
        self.changed.emit()

    def layout_words(self) -> tuple[Setup, str]:
        """The window's layout as words, and in its own form; during a lesson those from before it."""
        layout, in_lesson = self.host.layout_of_docks, self.host.lessons.layout_before
        lessons = self.host.lessons
        before = lambda saved: Setup(arrange=saved.declared.name, zoom=lessons.zoom_before)
        words = session_words(layout) if in_lesson is None else before(in_lesson)
        return words, layout_to_text(in_lesson or layout.current_layout())

    def capture(self) -> Capture:
        """What a session file of the present work is made of."""
        self.host.commit_typing()
        stand_ins = frozenset(self.context.stand_ins.values())
        return Capture(self.work, *self.layout_words(), self.saved, stand_ins, self.results.stored, self.results.of_file)

    def session_maker(self) -> Callable[[], Session]:
        """What makes the session of the present work, on a worker thread."""
        capture, store, views = self.capture(), self.context.engine.store, self._views
        return lambda: capture.session(store, views)

    # -- saving -----------------------------------------------------------------------------------------------------------

    def save(self, then: Act | None = None, otherwise: Act | None = None) -> None:
        """Save to the session's file, asking for one if it has none.

        `then`: what follows once it is on disk; `otherwise`: what follows where it is not to be, or cannot be.
        """
        if self.path is None or self.read_only:
            self.save_as(then, otherwise)
        else:
            self.save_to(self.path, then, otherwise)

    def save_as(self, then: Act | None = None, otherwise: Act | None = None, results: bool | None = None) -> None:
        """Ask for a file, and whether it has results, and save to it. `results`: what is proposed; None: as it is now."""
        path, with_results = self._chosen_path(self.results.of_file is not None if results is None else results)
        if path is None:
            if otherwise is not None:
                otherwise()
        elif with_results:
            self.save_results_to(path, then, otherwise)
        else:
            self.save_to(path, then, otherwise, results=None)

    def _chosen_path(self, results: bool) -> tuple[Path | None, bool]:
        """The file that the person chooses, and whether it is to have results."""
        suggested = self.path or self.folder() / f"session{SESSION}"
        suggested = suggested.with_stem(f"{suggested.stem} copy") if self.read_only else suggested
        filters = (FILTER_WITH, FILTER) if results else (FILTER, FILTER_WITH)
        name, kind = QFileDialog.getSaveFileName(self.window, "Save session as", str(suggested), ";;".join(filters))
        path, with_results = Path(name), (kind or filters[0]) == FILTER_WITH
        if name and path.suffix.lower() != SESSION:
            path = path.with_name(path.name + SESSION)
            if path.exists() and not confirmed(self.window, "Save session as", f"{path.name} exists. Replace it?"):
                return None, with_results
        return path if name else None, with_results

    def save_results_to(self, path: Path, then: Act | None = None, otherwise: Act | None = None) -> None:
        """Compute what the views show, then save to a file with these results. The file is not touched before."""
        of, given_up = self._id, otherwise or (lambda: None)
        if self._in_use(path, given_up):
            return

        def save(results: Results) -> None:
            if of is self._id:
                self.save_to(path, then, otherwise, results)
            else:  # another session has taken its place
                given_up()

        self.results.compute(self.capture(), path.name, save, given_up)

    def _in_use(self, path: Path, given_up: Act) -> bool:
        """Whether another window has a file open, which is then said."""
        holder = self.hold.other(path)
        if holder is not None:
            self.context.failed.emit(in_use(path, holder))
            given_up()
        return holder is not None

    def save_to(
        self,
        path: Path,
        then: Act | None = None,
        otherwise: Act | None = None,
        results: Results | Literal["as it is"] | None = "as it is",
    ) -> None:
        """Save the present work to a file, after every save that is under way; it is the session's file from then on.

        `results`: those that the file is to have as far as its views need them, None: none.
        """
        if self._in_use(path, otherwise or (lambda: None)):
            return
        self.context.before_export()
        capture = self.capture()
        if results != "as it is":
            capture = replace(capture, results=results)
        path = path.absolute()
        version = self._version if path == self.path else Version()
        save = Save(path, capture.work, self._id, then, otherwise, version)
        self.saves.add(save, capture, lambda error: self._ask_replace(save, capture, error))

    def _ask_replace(self, save: Save, capture: Capture, error: BadInput) -> None:
        """The file is not what this window read or wrote last: replace it, save elsewhere, or neither."""
        box = changed_box(self.window, save.path, error)
        box.exec()
        chosen = box.clickedButton().text() if box.clickedButton() is not None else ""
        box.deleteLater()
        if chosen == REPLACE:
            save.version.forget()
            self.saves.add(save, capture, lambda error: self._ask_replace(save, capture, error))
        elif chosen == ELSEWHERE and save.of is self._id:
            self.save_as(save.then, save.otherwise)
        elif save.otherwise is not None:
            save.otherwise()

    @Slot(object, object)
    def _written(self, save: Save, file: SessionFile) -> None:
        self.recent.add(save.path)
        stored = "" if file.results is None else f", with {summary(file.results)}"
        self.context.message.emit(f"Saved: {save.path}{stored}")
        if save.of is self._id:  # not of one that was left meanwhile
            self.path, self.saved, self._saved_work = save.path, file.session, save.work
            self.results.of_file = file.results
            self.read_only, self._version = self.hold.take(save.path) is not None, save.version
            self._tell()

    # -- opening ----------------------------------------------------------------------------------------------------------

    def ask_open(self) -> None:
        """Ask for a session file, or a picture, and open it."""
        filters = f"{OPENED};;{FILTER};;All files (*)"
        name, _ = QFileDialog.getOpenFileName(self.window, "Open session or picture", str(self.folder()), filters)
        if name:
            self.open(Path(name))

    @Slot(object)
    def open(self, path: Path) -> None:
        """Open a session in place of the present one, whose unsaved changes are asked about first.

        What a picture shows is shown in the present session, as a step of undo.
        """
        path, way = path.absolute(), READ_ONLY
        if is_picture(path):
            self.pictures.open(path)
            return
        if (holder := self.hold.other(path)) is not None:
            box = in_use_box(self.window, path, holder)
            box.exec()
            way = box.clickedButton().text() if box.clickedButton() is not None else ""
            box.deleteLater()
        if way == COPY:
            copied = lambda staged: self.take(replace(staged, path=None, unsaved=True))
            self._unless_dirty(lambda: self.opening.file(path, copied))
        elif way == READ_ONLY:  # it is not, if the other window has closed it by then
            self._unless_dirty(lambda: self.opening.file(path, self.take))

    def recover(self, read: Callable[[], Session], path: Path | None, folder: Path, in_place: Act, given_up: Act) -> None:
        """Put a session that `read` reads on a worker in place of the present one, as unsaved changes to `path`.

        `folder`: where models are looked for first. `in_place()` once it is, `given_up()` when it will not be.
        """
        stage = lambda searcher: searcher.find(Staged(path, read(), folder, unsaved=True))
        then = lambda staged: self.take(staged, in_place, given_up)
        failure = "This session cannot be recovered"
        self._unless_dirty(lambda: self.opening.begin("recover a session", stage, then, given_up, failure=failure), given_up)

    def drop(self, data: QMimeData) -> bool:
        """Open a session or a picture that was dropped on the window. False where it is something else."""
        path = Path(data.urls()[0].toLocalFile())
        if opens_as_session(path):
            self.open(path)
        return opens_as_session(path)

    def _searcher(self) -> Searcher:
        """Looks for models among those of the present session first, then among the recent ones."""
        work = self.context.document.work
        present = (*refs_of(work.state), *(entry.ref for entry in work.models.values()))
        sources = dict.fromkeys((*(ref.source for ref in present), *self._recent_models()))
        return Searcher(self.context.engine, self._views, tuple(sources))

    def take(self, staged: Staged, in_place: Act | None = None, given_up: Act | None = None) -> None:
        """Put a session whose models are open in place of the present one."""

        def act() -> None:
            self._take(staged)
            if in_place is not None:
                in_place()

        def leave_it() -> None:
            staged.stored.leave(self.context.engine)
            if given_up is not None:
                given_up()

        self._leave(act, leave_it)

    def _take(self, staged: Staged) -> None:
        self._begin(staged)
        self._unrestored = staged.session
        if self.window.isVisible():
            self.restore_layout()
        if staged.path is not None:
            self.recent.add(staged.path)
        unknown = ", ".join((*unknown_words(staged.session, staged.results), *self.host.layout_of_docks.zooms.unknown))
        remark = f" Not known to this version, and kept: {bounded(unknown, 80)}." if unknown else ""
        if staged.stored.entries:
            remark = f" Of {', '.join(staged.stored.entries)} only the results inside are here.{remark}"
        remark = "".join(f" {words}" for words in (elsewhere_words(staged),) if words) + remark
        if damaged := staged.stored.damaged:
            names = ", ".join(dict.fromkeys(one.entry.analysis for one in damaged))
            remark = f"{remark} {number_of(len(damaged), 'damaged answer')} left out: {names}."
        if self.read_only:
            remark = f" Read-only, as it was saved last: another window has it open.{remark}"
        verb = "Recovered" if staged.unsaved else "Opened"
        name = staged.name if staged.path is not None else f"“{session_title(staged.session, None)}”"
        self.context.message.emit(f"{verb}: {name}.{remark}")

    def restore_layout(self) -> bool:
        """Lay the window out as the session left it that was opened before the window was shown; False without one."""
        session, self._unrestored = self._unrestored, None
        if session is not None:
            restore(self.host.layout_of_docks, session)
        return session is not None

    @Slot(object)
    def _not_done(self, error: BaseException) -> None:
        if not isinstance(error, Cancelled):
            self.context.failed.emit(error)

    # -- beginning anew ---------------------------------------------------------------------------------------------------

    def new(self) -> None:
        """Begin a new session with the present model, without a story; unsaved changes are asked about first."""
        self._unless_dirty(self._new)

    def _new(self) -> None:
        store, ref = self.context.engine.store, replace(self.context.document.recorded.model, checkpoint=None)
        self.context.runner.do(self._beginning, "new session", lambda job: fresh_work(store, ref))

    @Slot(object)
    def _begun(self, work: Work) -> None:
        def begin() -> None:
            self._begin(Staged(None, Session(), self.folder(), work=work))
            self.first_look.begin()

        self._leave(begin)

    @Slot(object)
    def _looked(self, before: Work) -> None:
        """A head that the window selects by itself is no unsaved change."""
        if self._saved_work == before:
            self._saved_work = self.context.document.work
        self._maybe_changed()

    def _begin(self, staged: Staged) -> None:
        assert staged.work is not None
        self.host.lessons.tour.leave()
        self.results.take(staged)
        self.context.stand_ins = {replace(ref, checkpoint=None): name for name, ref in staged.changed.items()}
        self._id, self.path, self.saved = object(), staged.path, staged.session
        self.read_only, self._version = self.hold.take(staged.path) is not None, staged.version
        self.context.begin(staged.work)
        self._saved_work = None if staged.unsaved else self.context.document.work
        self.host.layout_of_docks.zooms.show(staged.session.now.zoom)
        self.opened.emit()
        self._tell()

    def resume(self, staged: Staged) -> None:
        """Begin with the session that the last window was left with; the window lays itself out when it is shown."""
        self._begin(staged)
        self._unrestored = staged.session

    # -- unsaved changes --------------------------------------------------------------------------------------------------

    def may_close(self) -> bool:
        """Whether the window may close now. If not, it closes by itself once what the person wants saved is on disk.

        A session without a file is not asked about, as the next start comes back to it, unless it cannot be kept.
        """
        if self.saves.busy:
            self.saves.after(self.window.close)
            return False
        self.host.commit_typing()
        why = self.cannot_keep() if self.path is None and self.dirty else ""
        if not self.dirty or (self.path is None and not why):
            return True
        answer = self._answer(why)
        if answer == QMessageBox.StandardButton.Save:
            self.save(self.window.close)
        return answer == QMessageBox.StandardButton.Discard

    def _unless_dirty(self, act: Act, given_up: Act | None = None) -> None:
        """Do what ends the present session, once its unsaved changes are saved or given up; `given_up()` if that is cancelled."""
        self.saves.after(lambda: self._ask_and(act, given_up))

    def _ask_and(self, act: Act, given_up: Act | None) -> None:
        self.host.commit_typing()
        answer = self._answer() if self.dirty else QMessageBox.StandardButton.Discard
        if answer == QMessageBox.StandardButton.Save:
            self.save(act, given_up)
        elif answer == QMessageBox.StandardButton.Discard:
            self._given_up = self.work
            act()
        elif given_up is not None:
            given_up()

    def _leave(self, act: Act, given_up: Act | None = None) -> None:
        """Put another session in place of this one; what was changed while it was read is asked about too."""
        self.host.commit_typing()
        act() if self.work == self._given_up else self._unless_dirty(act, given_up)

    def _answer(self, why: str = "") -> QMessageBox.StandardButton:
        """The person's answer: Save, Discard or Cancel."""
        buttons = QMessageBox.StandardButton
        box = unsaved_box(self.window, self.name, why)
        answer = box.exec()
        box.deleteLater()
        return QMessageBox.StandardButton(answer) if answer in (buttons.Save, buttons.Discard) else buttons.Cancel

    def folder(self) -> Path:
        """Where files are asked for: beside the session's file, or beside the one used last."""
        near = self.path or next(iter(self.recent.paths()), None)
        return near.parent if near is not None else Path.home()
