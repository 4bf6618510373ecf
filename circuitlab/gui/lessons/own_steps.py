"""The commands on steps of one's own: what they do to the story, and to the walk through it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from PySide6.QtCore import QObject, Slot

from circuitlab.figures.contracts.panel import panels
from circuitlab.figures.marks import Figure, joined
from circuitlab.figures.marks.title import parts_of
from circuitlab.gui.checkpoints.film import Ends
from circuitlab.gui.lessons.host import Host
from circuitlab.gui.lessons.layout import arrangement_for
from circuitlab.gui.lessons.own_story import OwnStory
from circuitlab.gui.lessons.tour import Tour
from circuitlab.state.cuts import edit_words, short_words
from circuitlab.state.state import State
from circuitlab.story.setup import Play, Setup

TITLE_PARTS = 2  # of a figure's title that are proposed as a step's


def proposed_title(figure: Figure, state: State) -> str:
    """What a step is called that shows this figure: the first parts of its title, what is ablated in it, and which side of a
    comparison it is.
    """
    parts, cut = parts_of(figure.title), short_words(state.subject.edits)
    said = [*parts.own, *filter(None, (parts.cut, parts.beside, parts.note))]
    acts = any(words in figure.about for words in edit_words(state.subject.edits))  # not on numbers of the weights
    named = lambda parts: (*parts, *((cut,) if acts and not any(cut in part for part in parts) else ()))
    if state.compare == "now" or state.reference is None:
        return joined(*named(_first(said, cut)))
    first = said[:TITLE_PARTS] if state.compare == "reference" else named(_first(said, cut))
    return joined(*first, state.compare)


def _first(parts: Sequence[str], cut: str) -> list[str]:
    """The first parts of a figure's title, and the cut where it is one among them."""
    first = [i for i, part in enumerate(parts) if part != cut][:TITLE_PARTS]
    return [part for i, part in enumerate(parts) if i in first or part == cut]


class OwnSteps(QObject):
    """Add the present view, take it for a step, move and delete the present step. All but adding: only in one's own story."""

    def __init__(self, tour: Tour, own: OwnStory, host: Host, parent: QObject) -> None:
        super().__init__(parent)
        self.tour, self.own, self.main = tour, own, host
        own.added.connect(self._added)
        own.view_taken.connect(self._view_taken)

    @Slot()
    def keep_view(self) -> None:
        """Add what the window shows as a step: behind the present one of the own story, else at its end. While a training plays,
        that it does so too.
        """
        self._add(self.main.checkpoints.reel)

    @Slot()
    def keep_film(self) -> None:
        """Add the rest of the training as a step that plays it."""
        bar = self.main.checkpoints
        if bar.points:
            self._add(bar.reel or bar.rest)

    def _add(self, reel: Ends | None) -> None:
        self.main.commit_typing()
        panel = self.main.layout_of_docks.current_panel
        figure = panel.view.figure if panel.view.figure.title else Figure(title=panel.panel.title)
        title = proposed_title(figure, self.main.context.document.recorded)
        place = lambda: self.tour.number + 1 if self.tour.own else len(self.own.story.steps)
        self.own.add(title, self._with_film(reel), place, None if reel is None else reel[1])

    def _with_film(self, reel: Ends | None) -> Setup:
        """The words of the layout, and of a film."""
        checkpoint, words = self.main.checkpoints.checkpoint, self._layout_words()
        return words if reel is None else replace(words, play=(checkpoint(reel[0]), checkpoint(reel[1])))

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
            reel = self.main.checkpoints.reel
            self.own.take_view(self.tour.number, self._with_film(reel), None if reel is None else reel[1])

    @Slot(object)
    def set_film(self, play: Play | None) -> None:
        """Let the present step play a film, or none, and show it."""
        if self.tour.own:
            merge = self.own.set_film(self.tour.number, play)
            self.tour.go(self.tour.number, merge=merge)

    @Slot(int)
    def _view_taken(self, number: int) -> None:
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
        """The words of the layout: the arrangement that the present step has set, too; the panel used last comes last, and of
        several it is the one that an audience sees first.

        While what has the window is no panel, those of the layout behind it are not known: then the arrangement alone.
        """
        layout, words = self.main.layout_of_docks, self.main.layout_words()
        if words.alone and not any(name in panels() for name in words.show):
            words = replace(words, show=(), alone=False)
        setup = Setup() if self.tour.lesson is None else self.tour.lesson.setup(self.tour.number)
        if setup.arrange and layout.declared == arrangement_for(setup, self.main.docks):
            words = replace(words, arrange=setup.arrange)
        last = layout.current_panel.panel.name
        if last not in words.show:
            return words
        others = tuple(name for name in words.show if name != last)
        return replace(words, show=(*others, last), stage=(last,) if others and not words.alone else ())
