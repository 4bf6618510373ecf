"""Playing a series: the next point is shown once every panel shows the present one, and no faster than the chosen speed.

A slow panel is waited for once; after that the playback continues without it, and the panel is dimmed until it has its answer.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QElapsedTimer, QObject, QTimer, Signal, Slot
from PySide6.QtGui import QAction, QActionGroup
from PySide6.QtWidgets import QMenu, QToolButton, QWidget

from circuitlab.gui.widgets.buttons import flat

SPEEDS = (1, 2, 4, 8, 16)  # points a second, at most
POLL = 15  # ms between looks whether every panel has its answer
PATIENCE = 5000  # ms that playback waits for its panels, until one has taken longer
BRIEFLY = 400  # ms from then on: enough for quick panels


class Player(QObject):
    """`beat()`: the next point is due; `changed()`: playback has begun or ended; `passed()`: it first continues without a panel.

    `waiting()`: whether a panel is still to be drawn; `opening()`: whether this point's model is still being opened, for which
    playback always waits.
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
        """Start playback; the first beat comes when the panels are drawn."""
        if not self.playing:
            self.playing, self._passing = True, False
            self.changed.emit()
        self._since.invalidate()
        self._timer.start(0)

    def point_shown(self) -> None:
        """Start the time of a point that has just been shown."""
        self._since.invalidate()
        if self.playing:
            self._timer.start(round(1000 / self.speed))

    @Slot()
    def stop(self) -> None:
        """Stop playback."""
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
        """Whether playback still waits for panels; their time begins when the model is open."""
        if not self._since.isValid():
            self._since.start()
        return not self._since.hasExpired(BRIEFLY if self._passing else PATIENCE)


def pace_button(player: Player, parent: QWidget) -> QToolButton:
    """The button with the menu of a player's speeds."""
    button = flat(
        parent, "checkpoints.speed", "", "Playback speed: at most this many checkpoints a second. Slow panels are skipped"
    )
    button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
    menu = QMenu(button)
    group = QActionGroup(menu)
    for speed in SPEEDS:
        action = menu.addAction(f"{speed} a second")
        action.setCheckable(True)
        action.setChecked(speed == player.speed)
        action.setData(speed)
        group.addAction(action)

    def choose(action: QAction) -> None:
        player.speed = int(action.data())
        button.setText(f"{player.speed}/s ▾")

    group.triggered.connect(choose)
    button.setMenu(menu)
    button.setText(f"{player.speed}/s ▾")
    return button
