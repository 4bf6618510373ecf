"""The sizes of a window's docks: set by shares, or restored."""

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
    """(width, height) in px of the docks in front of their tabs, by name, in a window of (width, height) px."""

    window: tuple[int, int]
    docks: Mapping[str, tuple[int, int]]


class DockSizes:
    """The dock sizes of one window. Qt honours them only in a window that is laid out: call these once it is on the screen."""

    def __init__(self, window: QMainWindow, docks: Mapping[str, QDockWidget]) -> None:
        self.window, self.docks = window, docks

    def in_front(self) -> dict[str, QDockWidget]:
        """The docks in front of their tabs, inside the window."""
        return {n: d for n, d in self.docks.items() if not d.isFloating() and d.isVisible() and not d.visibleRegion().isEmpty()}

    def read(self) -> Sizes:
        """The present sizes."""
        return Sizes(
            (self.window.width(), self.window.height()), {n: (d.width(), d.height()) for n, d in self.in_front().items()}
        )

    def restore(self, sizes: Sizes) -> None:
        """Restore earlier sizes, in proportion to the window."""
        part = lambda px, now, then: max(1, px * now // max(1, then))
        docks = {name: dock for name, dock in self.in_front().items() if name in sizes.docks}
        widths = [part(sizes.docks[n][0], self.window.width(), sizes.window[0]) for n in docks]
        heights = [part(sizes.docks[n][1], self.window.height(), sizes.window[1]) for n in docks]
        tabs = [self._with_tabs(dock) - dock.height() for dock in docks.values()]
        self.window.resizeDocks(list(docks.values()), widths, ACROSS)
        self.window.resizeDocks(list(docks.values()), [h + t for h, t in zip(heights, tabs, strict=True)], DOWN)

    def set_prompt_height(self, height: int, beside: Collection[str] = ()) -> None:
        """Set the prompt's height in px, if it is on top; the docks below get the rest. `beside`: docks that are not below it."""
        prompt, front = self.docks["prompt"], self.in_front()
        on_top = "prompt" in front and self.window.dockWidgetArea(prompt) == TOP
        below = max((d for n, d in front.items() if n not in ("prompt", *beside)), key=lambda d: d.height(), default=None)
        if on_top and below is not None and prompt.height() != height:
            metric = QStyle.PixelMetric.PM_DockWidgetSeparatorExtent
            room = below.geometry().bottom() + 1 - prompt.y() - self.window.style().pixelMetric(metric, None, self.window)
            self.window.resizeDocks([prompt, below], [height, max(1, room - height)], DOWN)

    def share_widths(self, columns: Sequence[tuple[int, QDockWidget]], aside: Mapping[QDockWidget, int]) -> None:
        """Share the width between `columns` (share, one of its docks); the docks of `aside` get the px given with them."""
        whole, room = sum(width for width, _ in columns), self.window.width() - sum(aside.values())
        docks, widths = [dock for _, dock in columns], [room * width // whole for width, _ in columns]
        self.window.resizeDocks([*docks, *aside], [*widths, *aside.values()], ACROSS)

    def share_heights(self, stacks: Sequence[Stack]) -> None:
        """Share a column's height between its stacks, in proportion to their shares."""
        front = self.in_front()
        docks = [next((front[n] for n in stack.tabs if n in front), self.docks[stack.tabs[0]]) for stack in stacks]
        room, whole = sum(map(self._with_tabs, docks)), sum(stack.share for stack in stacks)
        if len(docks) > 1:
            self.window.resizeDocks(docks, [room * stack.share // whole for stack in stacks], DOWN)

    def _with_tabs(self, dock: QDockWidget) -> int:
        """The height in px of a dock with its tabs, which is the height that `resizeDocks` sets."""
        tabs = [t.height() for t in self.window.findChildren(QTabBar) if t.isVisible()]
        return dock.height() + (max(tabs, default=0) if self.window.tabifiedDockWidgets(dock) else 0)
