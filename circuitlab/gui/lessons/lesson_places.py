"""How far each lesson has been read, in the settings of the person."""

from __future__ import annotations

from circuitlab.gui.work.settings import settings_file
from circuitlab.lessons.lesson import Lesson


class Places:
    """How far each lesson has been read, and which to the end. `remember` False: only until the window closes."""

    def __init__(self, remember: bool) -> None:
        self.remember = remember
        self._cache: dict[str, int] = {}

    def _get(self, key: str) -> int:
        if key not in self._cache:
            value = str(settings_file().value(f"lessons/{key}", 0)) if self.remember else ""
            self._cache[key] = int(value) if value.isdecimal() else 0
        return self._cache[key]

    def _set(self, key: str, value: int) -> None:
        self._cache[key] = value
        if self.remember:
            settings_file().setValue(f"lessons/{key}", value)

    def step(self, lesson: Lesson) -> int:
        """The step to continue at, 0 for the beginning."""
        return min(self._get(f"{lesson.name}/step"), len(lesson.steps) - 1)

    def done(self, lesson: Lesson) -> bool:
        """Whether the lesson has been read to the end."""
        return bool(self._get(f"{lesson.name}/done"))

    def at(self, lesson: Lesson, step: int) -> None:
        """Remember the step at which a lesson is open."""
        self._set(f"{lesson.name}/step", step)

    def finish(self, lesson: Lesson) -> None:
        """Mark a lesson as read to the end; next time it starts from the beginning."""
        self._set(f"{lesson.name}/done", 1)
        self._set(f"{lesson.name}/step", 0)
