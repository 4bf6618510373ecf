"""The list of lessons: the title, one line about it, its length, and how far it has been read."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QListWidgetItem, QWidget

from circuitlab.counting import number_of
from circuitlab.draw.look.plain_text import tip_of
from circuitlab.gui.lessons.lesson_places import Places
from circuitlab.gui.lessons.rows import Paragraph, RowList
from circuitlab.gui.work.app_context import AppContext
from circuitlab.lessons.lesson import Lesson


class LessonList(RowList):
    """The list. `chosen(Lesson)`: a lesson was clicked, or Enter pressed on it."""

    chosen = Signal(object)

    def __init__(self, context: AppContext, places: Places, parent: QWidget) -> None:
        super().__init__(context, "Lessons", parent)
        self.places = places
        self.lessons: tuple[Lesson, ...] = ()
        self.itemActivated.connect(self._chosen)
        self.itemClicked.connect(self._chosen)

    def fill(self, lessons: Sequence[Lesson]) -> None:
        """List these lessons, in this order."""
        self.clear()
        self.lessons = tuple(lessons)
        for lesson in self.lessons:
            sentences = (lesson.title or lesson.name, lesson.about.rstrip("."), self.standing(lesson))
            item = QListWidgetItem(". ".join(filter(None, sentences)), self)
            item.setToolTip(tip_of(str(lesson.path)))
        if self.lessons:
            self.setCurrentRow(next((i for i, lesson in enumerate(self.lessons) if not self.places.done(lesson)), 0))

    def paragraphs(self, row: int) -> tuple[Paragraph, ...]:
        """Title, what it is about, and how far it has been read, in the accent where it has been begun."""
        lesson = self.lessons[row]
        standing = Paragraph(self.standing(lesson), "accent" if self.begun(lesson) else "muted", small=True)
        about = (Paragraph(lesson.about, "muted"),) if lesson.about else ()
        return Paragraph(lesson.title or lesson.name, bold=True), *about, standing

    def begun(self, lesson: Lesson) -> bool:
        """Whether the lesson was left at a step after the first."""
        return self.places.step(lesson) > 0

    def standing(self, lesson: Lesson) -> str:
        """The length of a lesson and how far it has been read."""
        parts = [f"{lesson.minutes} min"] if lesson.minutes else []
        parts += [number_of(len(lesson.steps), "step")]
        parts += [f"continue at step {self.places.step(lesson) + 1}"] if self.begun(lesson) else []
        return " · ".join([*parts, "✓ read"] if self.places.done(lesson) else parts)

    @Slot(QListWidgetItem)
    def _chosen(self, item: QListWidgetItem) -> None:
        self.chosen.emit(self.lessons[self.row(item)])
