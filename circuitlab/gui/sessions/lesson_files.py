"""The story of a session as a lesson's file, and a lesson's file as the story of a session."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, Slot
from PySide6.QtWidgets import QFileDialog, QWidget

from circuitlab.counting import number_of
from circuitlab.disk.files import write_whole
from circuitlab.errors import Cancelled, CircuitLabError, bounded, titled
from circuitlab.figures.contracts.panel import view_types
from circuitlab.gui.sessions.controller import SessionController
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.lessons.lesson import SUFFIX, Lesson, read
from circuitlab.lessons.writing import markdown_of
from circuitlab.session_files.lesson_story import LessonStory, for_lesson, with_lesson
from circuitlab.session_files.session import Session
from circuitlab.story.places import real_folder

FILTER = f"Lessons (*{SUFFIX})"
NO_IMPORT = "The lesson cannot be imported"


class LessonFiles(QObject):
    """`ask_export()` and `ask_import()` ask for a file. Importing is one step of undo; the bench stays as it is."""

    def __init__(self, context: AppContext, sessions: SessionController, window: QWidget) -> None:
        super().__init__(window)
        self.context, self.sessions, self._window = context, sessions, window
        self._views = view_types()
        self._exporting = WorkSlot(self, finished=self._exported, failed=self._failed)
        self._importing = WorkSlot(self, finished=self._read, failed=self._failed)

    def ask_export(self) -> None:
        """Ask for a file and write the story to it as a lesson."""
        suggested = self.sessions.folder() / f"{self.sessions.name or 'story'}{SUFFIX}"
        name, _ = QFileDialog.getSaveFileName(self._window, "Export story as a lesson", str(suggested), FILTER)
        if name:
            self.export_to(Path(name))

    def export_to(self, path: Path) -> None:
        """Write the story to a file as a lesson; the file is replaced whole."""
        path = (path if path.suffix.lower() == SUFFIX else path.with_name(path.name + SUFFIX)).absolute()
        work, views = self.context.document.work, self._views

        def write() -> tuple[Path, LessonStory]:
            with titled("The story cannot be exported"):
                lesson = for_lesson(Session(work.models, story=work.story, notes=work.notes), path, views)
                write_whole(path, markdown_of(lesson.story).encode("utf-8"), named=True)
            return path, lesson

        self.context.runner.do(self._exporting, f"export {path.name}", lambda job: write())

    @Slot(object)
    def _exported(self, outcome: tuple[Path, LessonStory]) -> None:
        path, lesson = outcome
        self.context.message.emit(" ".join((f"Exported: {path}.", *lesson.remarks)))

    def ask_import(self) -> None:
        """Ask for a lesson and make it the story of this session."""
        name, _ = QFileDialog.getOpenFileName(
            self._window, "Import a lesson as a story", str(self.sessions.folder()), f"{FILTER};;All files (*)"
        )
        if name:
            self.import_from(Path(name))

    def import_from(self, path: Path) -> None:
        """Make the lesson in a file the story of this session."""

        def read_it() -> Lesson:
            with titled(NO_IMPORT):
                return read(path.absolute())

        self.context.runner.do(self._importing, f"import {path.name}", lambda job: read_it())

    @Slot(object)
    def _read(self, lesson: Lesson) -> None:
        work = self.context.document.work
        try:
            with titled(NO_IMPORT):
                models, story = with_lesson(work.models, lesson.story, real_folder(lesson.path), self._views)
        except CircuitLabError as error:
            self.context.failed.emit(error)
            return
        self.context.document.edit(replace(work, models=models, story=story), f"import {lesson.path.name}")
        earlier = " Undo brings the story before it back." if work.story.steps else ""
        self.context.message.emit(
            f"Imported: {bounded(lesson.title or lesson.name, 80)}, {number_of(len(story.steps), 'step')}.{earlier}"
        )

    @Slot(object)
    def _failed(self, error: BaseException) -> None:
        if not isinstance(error, Cancelled):
            self.context.failed.emit(error)
