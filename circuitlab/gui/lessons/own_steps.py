"""The commands on steps of one's own: what they do to the story, and to the walk through it."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QObject, Slot

from circuitlab.figures.contracts.panel import panels
from circuitlab.gui.lessons.host import Host
from circuitlab.gui.lessons.layout import arrangement_for
from circuitlab.gui.lessons.own_story import OwnStory
from circuitlab.gui.lessons.tour import Tour
from circuitlab.story.setup import Setup

TITLE_PARTS = 2  # of a figure's title that are proposed as a step's


class OwnSteps(QObject):
    """Add the present view, take it for a step, move and delete the present step. All but adding: only in one's own story."""

    def __init__(self, tour: Tour, own: OwnStory, host: Host, parent: QObject) -> None:
        super().__init__(parent)
        self.tour, self.own, self.main = tour, own, host
        own.added.connect(self._added)
        own.taken.connect(self._taken)

    @Slot()
    def keep_view(self) -> None:
        """Add what the window shows as a step: behind the present one of the own story, else at its end."""
        self.main.commit_typing()
        panel = self.main.layout_of_docks.current_panel
        title = " · ".join((panel.view.figure.title or panel.panel.title).split(" · ")[:TITLE_PARTS])
        place = lambda: self.tour.number + 1 if self.tour.own else len(self.own.story.steps)
        self.own.add(title, self._layout_words(), place)

    @Slot(int)
    def _added(self, number: int) -> None:
        if self.tour.own:
            self.tour.go(number)
        title = self.own.story.steps[number].title
        self.main.context.message.emit(f"Step {number + 1} of this session: “{title}”. F2 shows them all.")

    @Slot()
    def take_view(self) -> None:
        """Let the present step show what the window shows."""
        if self.tour.own:
            self.main.commit_typing()
            self.own.take_view(self.tour.number, self._layout_words())

    @Slot(int)
    def _taken(self, number: int) -> None:
        if self.tour.own and self.tour.number == number:
            self.tour.go(number)
        self.main.context.message.emit(f"Step {number + 1} shows this view now.")

    @Slot(int)
    def move(self, by: int) -> None:
        """Move the present step up or down."""
        if self.tour.own:
            self.tour.renumber(self.own.move(self.tour.number, by))

    @Slot()
    def delete(self) -> None:
        """Delete the present step, and show the one that takes its place."""
        if self.tour.own:
            merge = self.own.delete(self.tour.number)
            self.tour.go(self.tour.number, merge=merge)

    def _layout_words(self) -> Setup:
        """The words of the layout: the arrangement that the present step has set, too; the panel used last comes last.

        While what has the window is no panel, those of the layout behind it are not known: then the arrangement alone.
        """
        layout, words = self.main.layout_of_docks, self.main.layout_words()
        if words.alone and not any(name in panels() for name in words.show):
            words = replace(words, show=(), alone=False)
        setup = Setup() if self.tour.lesson is None else self.tour.lesson.setup(self.tour.number)
        if setup.arrange and layout.declared == arrangement_for(setup, self.main.docks):
            words = replace(words, arrange=setup.arrange)
        last = layout.current_panel.panel.name
        return replace(words, show=(*(n for n in words.show if n != last), last)) if last in words.show else words
