"""The veil over a picture that is being recomputed: nothing for 150 ms, then a light dimming and a thin progress line."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from circuitlab.draw.look.theme import Theme

DELAY_MS = 150
FRAME_MS = 40
LINE = 2
RUNNER = 0.22  # share of the width of the running line, where progress is unknown


class Busy(QWidget):
    """Transparent to all events. `dimmed(on)`: the picture is pale from now on, or no longer."""

    dimmed = Signal(bool)

    def __init__(self, parent: QWidget, theme: Theme) -> None:
        super().__init__(parent)
        self._theme = theme
        self._fraction: float | None = None
        self._phase = 0.0
        self._delay = QTimer(self, singleShot=True, interval=DELAY_MS)
        self._delay.timeout.connect(self._begin)
        self._frames = QTimer(self, interval=FRAME_MS)
        self._frames.timeout.connect(self._step)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.hide()

    def set_theme(self, theme: Theme) -> None:
        """Dim towards another background."""
        self._theme = theme
        self.update()

    def set_busy(self, busy: bool, fraction: float | None) -> None:
        """Start waiting, set the progress, or end."""
        self._fraction = fraction
        if not busy:
            if self._delay.isActive() or not self.isHidden():
                self._delay.stop()
                self._frames.stop()
                self.hide()
                self.dimmed.emit(False)
        elif self.isVisible():
            self.update(0, 0, self.width(), LINE)
        elif not self._delay.isActive():
            self._delay.start()

    @Slot()
    def _begin(self) -> None:
        self._phase = 0.0
        self.raise_()
        self.show()
        self._frames.start()
        self.dimmed.emit(True)

    @Slot()
    def _step(self) -> None:
        self._phase = (self._phase + 0.02) % 1.0
        self.update(0, 0, self.width(), LINE)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Dim, then the line."""
        painter = QPainter(self)
        painter.fillRect(event.rect(), self._theme.colour("background", 0.35))
        width = float(self.width())
        if self._fraction is None:
            left = (self._phase * (1 + RUNNER) - RUNNER) * width
            line = QRectF(left, 0, RUNNER * width, LINE)
        else:
            line = QRectF(0, 0, self._fraction * width, LINE)
        painter.fillRect(line, self._theme.colour("accent"))
        painter.end()
