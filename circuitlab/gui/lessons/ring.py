"""A ring around the panel that a lesson points at. It fades after a moment and takes no clicks."""

from __future__ import annotations

from PySide6.QtCore import QEasingCurve, QPropertyAnimation, Qt, QTimer, Slot
from PySide6.QtGui import QGuiApplication, QPainter, QPen
from PySide6.QtWidgets import QDockWidget, QGraphicsOpacityEffect, QWidget

from circuitlab.draw.look.guarded import guarded_widget
from circuitlab.gui.work.app_context import AppContext

LASTS, AFTER = 1800, 250  # ms: how long the ring is visible; the wait until the docks are laid out


class Ring(QWidget):
    """The ring. `around(dock)` shows it, except on the offscreen platform."""

    def __init__(self, context: AppContext, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("lesson.ring")
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.context = context
        self._dock: QDockWidget | None = None
        self._effect = QGraphicsOpacityEffect(self)
        self.setGraphicsEffect(self._effect)
        self._fade = QPropertyAnimation(self._effect, b"opacity", self)
        self._fade.setDuration(LASTS)
        self._fade.setStartValue(1.0)
        self._fade.setEndValue(0.0)
        self._fade.setEasingCurve(QEasingCurve.Type.InCubic)
        self._fade.finished.connect(self.hide)
        self.hide()

    def around(self, dock: QDockWidget) -> None:
        """Point at a dock of this window."""
        self._dock = dock
        if QGuiApplication.platformName() != "offscreen":
            QTimer.singleShot(AFTER, self, self._show)

    @Slot()
    def _show(self) -> None:
        dock, parent = self._dock, self.parentWidget()
        if dock is None or parent is None or dock.isFloating() or not dock.isVisible():
            return
        corner = dock.mapTo(parent, dock.rect().topLeft())
        self.setGeometry(dock.rect().translated(corner))
        self.show()
        self.raise_()
        self._fade.stop()
        self._fade.start()

    @guarded_widget
    def paintEvent(self, painter: QPainter) -> None:
        """Draw the outline, 2 px wide, in the accent colour."""
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(self.context.theme.colour("accent"), 2))
        painter.drawRoundedRect(self.rect().adjusted(1, 1, -2, -2), 4, 4)
