"""Playing a series: the next point is shown once every panel shows this one, and not before its time; how fast at most.

A panel that takes long is waited for once; then the film goes on without it, and it is dimmed until it has its answer.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QElapsedTimer, QObject, QTimer, Signal, Slot
from PySide6.QtGui import QAction, QActionGroup
from PySide6.QtWidgets import QMenu, QToolButton, QWidget

from circuitlab.gui.widgets.buttons import flat

SPEEDS = (1, 2, 4, 8, 16)  # points a second, at most
POLL = 15  # ms between looks whether every panel has its answer
PATIENCE = 5000  # ms that a film waits for its panels, until one has taken longer
BRIEFLY = 400  # ms from then on: enough for those that are quick


class Player(QObject):
    """`beat()` when the next point is due, `changed()` when it begins or ends, `passed()` when it first goes on without a panel.

    `waiting()`: something is still to be drawn; `opening()`: the model of this point is not there yet, which is always awaited.
    """

    beat = Signal()
    changed = Signal()
    passed = Signal()

    def __init__(self, waiting: Callable[[], bool], opening: Callable[[], bool], parent: QObject) -> None:
        super().__init__(parent)
        self._waiting, self._opening = waiting, opening
        self._since, self._passing = QElapsedTimer(), False
        self.playing, self.speed = False, 4  # speed: points a second, at most
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._due)

    def begin(self) -> None:
        """The first beat comes when the panels are drawn."""
        if not self.playing:
            self.playing, self._passing = True, False
            self.changed.emit()
        self._since.invalidate()
        self._timer.start(0)

    def shown(self) -> None:
        """A point has just been shown: its time begins."""
        self._since.invalidate()
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
        if self._opening() or (self._waiting() and self._patient()):
            self._timer.start(POLL)
            return
        if self._waiting() and not self._passing:
            self._passing = True
            self.passed.emit()
        self.beat.emit()

    def _patient(self) -> bool:
        """Whether panels are still waited for; their time begins when the model is there."""
        if not self._since.isValid():
            self._since.start()
        return not self._since.hasExpired(BRIEFLY if self._passing else PATIENCE)


def pace_button(player: Player, parent: QWidget) -> QToolButton:
    """The speed of a player, to choose from a menu."""
    made = flat(parent, "checkpoints.speed", "", "At most so many checkpoints a second; a slow panel is left behind")
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
