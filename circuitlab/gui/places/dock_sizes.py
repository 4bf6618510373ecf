"""How much room each dock of a window has: given in shares, or as it once was."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDockWidget, QMainWindow, QStyle, QTabBar

from circuitlab.gui.places.arrangements import Stack

TOP = Qt.DockWidgetArea.TopDockWidgetArea
ACROSS, DOWN = Qt.Orientation.Horizontal, Qt.Orientation.Vertical


@dataclass(frozen=True)
class Sizes:
    """(width, height) in px of the docks that were seen, by name, in a window of (width, height)."""

    window: tuple[int, int]
    docks: Mapping[str, tuple[int, int]]


class DockSizes:
    """Of one window. Qt keeps what it is told only in a window that is laid out: call these once it is on the screen."""

    def __init__(self, window: QMainWindow, docks: Mapping[str, QDockWidget]) -> None:
        self.window, self.docks = window, docks

    def seen(self) -> dict[str, QDockWidget]:
        """The docks in front of their tabs, inside the window."""
        return {n: d for n, d in self.docks.items() if not d.isFloating() and d.isVisible() and not d.visibleRegion().isEmpty()}

    def read(self) -> Sizes:
        """As they are."""
        return Sizes((self.window.width(), self.window.height()), {n: (d.width(), d.height()) for n, d in self.seen().items()})

    def put(self, sizes: Sizes) -> None:
        """As they were, in proportion to the window."""
        part = lambda px, now, then: max(1, px * now // max(1, then))
        seen = {name: dock for name, dock in self.seen().items() if name in sizes.docks}
        widths = [part(sizes.docks[n][0], self.window.width(), sizes.window[0]) for n in seen]
        heights = [part(sizes.docks[n][1], self.window.height(), sizes.window[1]) for n in seen]
        tabs = [self._with_tabs(dock) - dock.height() for dock in seen.values()]
        self.window.resizeDocks(list(seen.values()), widths, ACROSS)
        self.window.resizeDocks(list(seen.values()), [h + t for h, t in zip(heights, tabs, strict=True)], DOWN)

    def give_prompt(self, height: int, beside: Collection[str] = ()) -> None:
        """Make the prompt so high, where it stands on top; what is below gets the rest. `beside`: docks that are not below it."""
        prompt, seen = self.docks["prompt"], self.seen()
        on_top = "prompt" in seen and self.window.dockWidgetArea(prompt) == TOP
        below = max((d for n, d in seen.items() if n not in ("prompt", *beside)), key=lambda d: d.height(), default=None)
        if on_top and below is not None and prompt.height() != height:
            metric = QStyle.PixelMetric.PM_DockWidgetSeparatorExtent
            room = below.geometry().bottom() + 1 - prompt.y() - self.window.style().pixelMetric(metric, None, self.window)
            self.window.resizeDocks([prompt, below], [height, max(1, room - height)], DOWN)

    def share_widths(self, columns: Sequence[tuple[int, QDockWidget]], aside: Mapping[QDockWidget, int]) -> None:
        """Columns, each by a dock of it, in proportion to their numbers; those of `aside` get px."""
        whole, room = sum(width for width, _ in columns), self.window.width() - sum(aside.values())
        docks, widths = [dock for _, dock in columns], [room * width // whole for width, _ in columns]
        self.window.resizeDocks([*docks, *aside], [*widths, *aside.values()], ACROSS)

    def share_heights(self, stacks: Sequence[Stack]) -> None:
        """The stacks of a column, in proportion to their shares."""
        seen = self.seen()
        docks = [next((seen[n] for n in stack.tabs if n in seen), self.docks[stack.tabs[0]]) for stack in stacks]
        room, whole = sum(map(self._with_tabs, docks)), sum(stack.share for stack in stacks)
        if len(docks) > 1:
            self.window.resizeDocks(docks, [room * stack.share // whole for stack in stacks], DOWN)

    def _with_tabs(self, dock: QDockWidget) -> int:
        """px of height of a dock and its tabs: what Qt means when it is asked to make docks so high."""
        tabs = [t.height() for t in self.window.findChildren(QTabBar) if t.isVisible()]
        return dock.height() + (max(tabs, default=0) if self.window.tabifiedDockWidgets(dock) else 0)
