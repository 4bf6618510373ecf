"""Playing a series: the next point is shown once every panel shows this one, and not before its time; how fast at most."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Signal, Slot
from PySide6.QtGui import QAction, QActionGroup
from PySide6.QtWidgets import QMenu, QToolButton, QWidget

from circuitlab.gui.buttons import flat

SPEEDS = (1, 2, 4, 8, 16)  # points a second, at most
POLL = 15  # ms between looks whether every panel has its answer


class Player(QObject):
    """`beat()` when the next point is due, `changed()` when it begins or ends. `waiting()`: something is still to be drawn."""

    beat = Signal()
    changed = Signal()

    def __init__(self, waiting: Callable[[], bool], parent: QObject) -> None:
        super().__init__(parent)
        self._waiting = waiting
        self.playing, self.speed = False, 4  # speed: points a second, at most
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._due)

    def begin(self) -> None:
        """The first beat comes when the panels are drawn."""
        if not self.playing:
            self.playing = True
            self.changed.emit()
        self._timer.start(0)

    def shown(self) -> None:
        """A point has just been shown: its time begins."""
        if self.playing:
            self._timer.start(round(1000 / self.speed))

    @Slot()
    def stop(self) -> None:
        """No more beats."""
        self._timer.stop()
        if self.playing:
            self.playing = False
            self.changed.emit()

    @Slot()
    def _due(self) -> None:
        if self._waiting():
            self._timer.start(POLL)
        else:
            self.beat.emit()


def pace_button(player: Player, parent: QWidget) -> QToolButton:
    """The speed of a player, to choose from a menu."""
    made = flat(parent, "checkpoints.speed", "", "At most so many checkpoints a second; no panel is left half drawn")
    made.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
    menu = QMenu(made)
    group = QActionGroup(menu)
    for speed in SPEEDS:
        action = menu.addAction(f"{speed} a second")
        action.setCheckable(True)
        action.setChecked(speed == player.speed)
        action.setData(speed)
        group.addAction(action)

    def choose(action: QAction) -> None:
        player.speed = int(action.data())
        made.setText(f"{player.speed}/s ▾")

    group.triggered.connect(choose)
    made.setMenu(menu)
    made.setText(f"{player.speed}/s ▾")
    return made
