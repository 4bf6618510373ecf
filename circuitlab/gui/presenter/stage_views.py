"""The figures of the stage: which panels a step shows there, how they are laid out, and a view with its feed for each."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from circuitlab.draw.view.figure_view import FigureView
from circuitlab.figures.contracts.panel import panels
from circuitlab.gui.panel.feed import Feed
from circuitlab.gui.places.arrangements import FRONTS
from circuitlab.gui.work.app_context import AppContext
from circuitlab.report.requests import MOST_PANELS, first_panels, shown_panels
from circuitlab.story.setup import Setup
from circuitlab.story.zoom import of_panel


def pictures_of(setup: Setup) -> tuple[tuple[str, ...], ...]:
    """The pictures of a step, each some of its panels: what is shown first, then each other panel, then the first four at once.

    Its panels are `shown_panels`; what is shown first are the first four of `first_panels`.
    """
    known = tuple(panel.name for panel in shown_panels(setup, FRONTS))
    own = tuple(panel.name for panel in first_panels(setup, FRONTS))[:MOST_PANELS]
    return tuple(dict.fromkeys((own, *((name,) for name in known), known[:MOST_PANELS])))


def rows_of(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """One figure fills the page, two stand side by side, more in rows of two."""
    return [names[i : i + 2] for i in range(0, len(names), 2)]


class StageViews(QObject):
    """A view and its feed for every panel that a step has shown, parts of a page. Only those `in_front` ask for anything.

    `drawn()`: one of them has been drawn.
    """

    drawn = Signal()

    def __init__(self, context: AppContext, page: QWidget) -> None:
        super().__init__(page)
        self.context, self.page = context, page
        self.in_front: tuple[str, ...] = ()
        self._feeds: dict[str, Feed] = {}
        self._apart = 0.0

    def feed(self, name: str) -> Feed:
        """The feed of a panel, with its view, which is made at the first call."""
        if name not in self._feeds:
            view = FigureView(self.context.theme, self.page)
            view.hide()
            view.setObjectName(f"stage.{name}")
            view.hold_ranges(self.context.holds_scales)
            view.note.keep_apart(self._apart)
            self._feeds[name] = Feed(panels()[name], self.context, view, lambda: name in self.in_front, view)
            self._feeds[name].drawn.connect(self.drawn)
        return self._feeds[name]

    def keep_readouts_apart(self, radius: float) -> None:
        """Let what is read beside the pointer stand outside a ring of so many px."""
        self._apart = radius
        for feed in self._feeds.values():
            feed.view.note.keep_apart(radius)

    @property
    def feeds(self) -> list[Feed]:
        """Those in front."""
        return [self.feed(name) for name in self.in_front]

    def hush(self) -> None:
        """From now on nothing is asked for, and what was done by hand is forgotten: another step is about to be shown."""
        for feed in self.feeds:
            feed.view.forget_hand()
        self.in_front = ()

    def release(self) -> bool:
        """Select what the figures in front have chosen and nothing else. Whether anything else was selected by hand."""
        released = [feed.view.release() for feed in self.feeds]  # all of them
        return any(released)

    def rows(self, names: tuple[str, ...]) -> list[list[FigureView]]:
        """The views of these panels, for a page."""
        return [[self.feed(name).view for name in row] for row in rows_of(names)]

    def show(self, names: tuple[str, ...]) -> None:
        """Let the views of these panels ask and draw."""
        self.in_front = names
        for feed in self.feeds:
            feed.refresh()

    def zoom(self, setup: Setup) -> None:
        """Show the parts of the figures in front that a step shows of them, once they are drawn."""
        for feed in self.feeds:
            feed.zoom.show(of_panel(setup.zoom, feed.panel.name))

    @property
    def waiting(self) -> bool:
        """Whether an answer to what is in front is outstanding."""
        return any(feed.waiting for feed in self.feeds)
