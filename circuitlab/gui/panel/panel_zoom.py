"""What is seen of a panel's figure, as words, and the way back: words are shown once the figure that they are about is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from PySide6.QtCore import QObject, Slot

from circuitlab.draw.view.figure_view import FigureView
from circuitlab.gui.work.app_context import AppContext
from circuitlab.story.zoom import Part


class PanelZoom(QObject):
    """`ready()`: whether the figure on the screen is that of the present State, with every answer. `title`: of the panel.

    Words wait for their figure: a panel behind a tab may be drawn much later. Until then, and where a mark of theirs is not in
    the figure, `words` gives them as they were, so that saving loses nothing. A hand on the figure ends the waiting.
    """

    def __init__(self, title: str, view: FigureView, context: AppContext, ready: Callable[[], bool], parent: QObject) -> None:
        super().__init__(parent)
        self._title, self._view, self._context, self._ready = title, view, context, ready
        self._waiting: Mapping[str, Part] | None = None
        self._absent: dict[str, Part] = {}  # of marks that the figure does not have
        view.turned.connect(self._turned)

    def words(self) -> dict[str, Part]:
        """The parts of marks that are not shown whole, by mark."""
        return dict(self._waiting) if self._waiting is not None else {**self._absent, **self._view.visible_parts()}

    def show(self, words: Mapping[str, Part], at_once: bool = True) -> None:
        """Show these parts, and every other mark whole, when the figure of the present State is drawn.

        `at_once` False: with the next figure, even if that of the present State is there.
        """
        self._waiting, self._absent = words, {}
        if at_once:
            self.drawn()

    @Slot()
    def drawn(self) -> None:
        """A figure has been drawn."""
        if self._waiting is None or not self._view.figure.grid or not self._ready():
            return
        words, self._waiting = self._waiting, None
        marks = [mark.name for mark in self._view.figure.marks()]
        others = self._view.show_visible_parts(words)
        self._absent = {name: part for name, part in words.items() if name not in marks}
        if others:
            self._say(others, "is no longer there as it was: it is shown as far as it goes.")
        if self._absent:
            self._say(tuple(self._absent), f"is kept: the figure has {', '.join(marks)}.")

    def _say(self, names: tuple[str, ...], what: str) -> None:
        self._context.message.emit(f"{self._title}: what was seen of {', '.join(names)} {what}")

    @Slot()
    def _turned(self) -> None:
        self._waiting = None
