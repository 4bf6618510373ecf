"""The button of an empty panel: below the words that say why nothing is there, it does what they advise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QObject, Slot
from PySide6.QtWidgets import QPushButton

from circuitlab.draw.look.theme import GRID
from circuitlab.gui.panel.exchange import Stopped
from circuitlab.gui.panel.feed import Feed
from circuitlab.gui.work.state_commands import StateCommands


@dataclass(frozen=True)
class _Advice:
    """`text`: on the button; `name`: what it is called where the panel is not seen."""

    text: str
    name: str
    act: Callable[[], object]


class WhyButton(QPushButton):
    """Over the view of a feed: computes again what was stopped, or does what the figure says (`Figure.does`); else hidden."""

    def __init__(self, feed: Feed, state_commands: StateCommands) -> None:
        super().__init__(feed.view)
        self._feed, self._state_commands = feed, state_commands
        self._advice: _Advice | None = None
        self.clicked.connect(self._do)
        feed.drawn.connect(self._follow)
        feed.view.installEventFilter(self)
        self.hide()

    def _advised(self) -> _Advice | None:
        feed, title = self._feed, self._feed.panel.title
        if isinstance(feed.exchange.failure, Stopped):
            return None if feed.waiting else _Advice("Compute again", f"Compute {title} again", feed.ask_again)
        match feed.view.figure.does:
            case "pin":
                return _Advice("Pin this prompt", f"{title}: pin this prompt", self._state_commands.pin)
            case "ablate":
                heads = " ".join(map(str, feed.context.target_state.selection.heads))
                return _Advice(f"Zero-ablate {heads}", f"{title}: zero-ablate {heads}", self._state_commands.ablate)
            case "":
                return None

    @Slot()
    def _follow(self) -> None:
        advice = self._advice = self._advised()
        if advice is not None:
            self.setText(advice.text)
            self.setAccessibleName(advice.name)
        self.setVisible(advice is not None)
        self._place()

    @Slot()
    def _do(self) -> None:
        if self._advice is not None:
            self._advice.act()

    def _place(self) -> None:
        if not self.isHidden():
            self.adjustSize()
            view = self._feed.view
            self.move((view.width() - self.width()) // 2, min(view.below_why() + 2 * GRID, view.height() - self.height()))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Stay below the words when the view has another size."""
        if event.type() in (QEvent.Type.Resize, QEvent.Type.LayoutRequest):
            self._place()
        return super().eventFilter(watched, event)
