"""The button of a panel whose work was stopped: below the words that say so, it computes the panel again."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Slot
from PySide6.QtWidgets import QPushButton

from circuitlab.draw.look.theme import GRID
from circuitlab.gui.panel.exchange import Stopped
from circuitlab.gui.panel.feed import Feed


class AgainButton(QPushButton):
    """Over the view of a feed; there only where trying again may help."""

    def __init__(self, feed: Feed) -> None:
        super().__init__("Compute again", feed.view)
        self._feed = feed
        self.setAccessibleName(f"Compute {feed.panel.title} again")
        self.clicked.connect(feed.ask_again)
        feed.drawn.connect(self._follow)
        feed.view.installEventFilter(self)
        self.hide()

    @Slot()
    def _follow(self) -> None:
        self.setVisible(isinstance(self._feed.exchange.failure, Stopped) and not self._feed.waiting)
        self._place()

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
