"""A slider over the points of a training run: evenly spaced ticks, with the step below each as far as there is room."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Slot
from PySide6.QtGui import QHelpEvent, QMouseEvent, QPainter, QPen, QPolygonF, QWheelEvent
from PySide6.QtWidgets import QAbstractSlider, QSizePolicy, QToolTip, QWidget

from circuitlab.draw.look.guarded import guarded_widget
from circuitlab.draw.look.theme import LIGHT, Theme
from circuitlab.gui.checkpoints.series import Point

SIDE = 18  # px at either end: half of a label
GROOVE = 10  # px from the top to the middle of the groove
KNOB = 6.0
BAND = "shaded: phase change, where the in-context score on repeated random tokens falls fastest"
TICK = 2.5


class SeriesSlider(QAbstractSlider):
    """`value()` is the index of a point. A click moves the knob to the nearest point and starts a drag there."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme: Theme = LIGHT
        self.points: tuple[Point, ...] = ()
        self.band: tuple[float, float] | None = None  # positions between which the phase change lies
        self.pinned: int | None = None
        self.setOrientation(Qt.Orientation.Horizontal)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setPageStep(4)
        self.setAccessibleName("Checkpoint")
        self.setMouseTracking(True)

    @Slot(object)
    def set_theme(self, theme: Theme) -> None:
        """Apply the theme's colours and text size."""
        self.theme = theme
        self.updateGeometry()
        self.update()

    def show_points(self, points: tuple[Point, ...]) -> None:
        """Show other points, without a signal."""
        self.points = points
        self.blockSignals(True)
        self.setRange(0, max(len(points) - 1, 0))
        self.blockSignals(False)
        self.update()

    def show_value(self, index: int) -> None:
        """Show another value, without a signal."""
        self.blockSignals(True)
        self.setValue(index)
        self.blockSignals(False)
        if 0 <= index < len(self.points):
            self.setAccessibleDescription(self.points[index].words)
        self.update()

    def show_band(self, first: float, last: float) -> None:
        """Shade the groove between two token counts; NaN for no band."""
        tokens = np.array([p.tokens for p in self.points], dtype=float)
        measured = len(tokens) > 0 and (tokens >= 0).all() and np.isfinite([first, last]).all()
        place = lambda count: float(np.interp(count, tokens, np.arange(len(tokens))))
        self.band = (place(first), place(last)) if measured else None
        self.update()

    # -- geometry -----------------------------------------------------------------------------------------------------

    def sizeHint(self) -> QSize:
        """A knob and a line of text high; the width expands."""
        return QSize(self.theme.px(240), GROOVE + 8 + round(self.theme.small * 1.3))

    def minimumSizeHint(self) -> QSize:
        """The least width at which the points can still be hit."""
        return QSize(140, self.sizeHint().height())

    def x_of(self, position: float) -> float:
        """The x in px of a position."""
        last = max(len(self.points) - 1, 1)
        return SIDE + (self.width() - 2 * SIDE) * position / last

    def nearest(self, x: float) -> int:
        """The index of the point whose tick is nearest."""
        last = max(len(self.points) - 1, 1)
        return min(max(round((x - SIDE) * last / max(self.width() - 2 * SIDE, 1)), 0), len(self.points) - 1)

    # -- by hand ------------------------------------------------------------------------------------------------------

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Move the knob to the nearest point and start a drag."""
        if event.button() != Qt.MouseButton.LeftButton or not self.points:
            event.ignore()
            return
        self.setSliderDown(True)
        self.setSliderPosition(self.nearest(event.position().x()))

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Drag."""
        if self.isSliderDown():
            self.setSliderPosition(self.nearest(event.position().x()))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Let go."""
        if self.isSliderDown():
            self.setSliderDown(False)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Move one point per notch."""
        delta = event.angleDelta().y() or -event.angleDelta().x()
        if delta:
            self.setValue(self.value() + (1 if delta > 0 else -1))
        event.accept()

    def event(self, event: QEvent) -> bool:
        """Show a tooltip with the point under the pointer."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip and self.points:
            at = self.nearest(event.pos().x())
            inside = self.band is not None and self.band[0] <= at <= self.band[1]
            QToolTip.showText(event.globalPos(), self.points[at].words + (f"\n{BAND}" if inside else ""), self)
            return True
        return super().event(event)

    # -- painting -----------------------------------------------------------------------------------------------------

    @guarded_widget
    def paintEvent(self, painter: QPainter) -> None:
        """Draw the band, groove, ticks, labels, pin and knob."""
        if not self.points:
            return
        theme = self.theme
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self.band is not None:
            left, right = map(self.x_of, self.band)
            painter.fillRect(QRectF(left, GROOVE - 6, max(right - left, 2), 12), theme.colour("accent", 0.22))
        painter.setPen(QPen(theme.colour("faint"), 1.5))
        painter.drawLine(QPointF(self.x_of(0), GROOVE), QPointF(self.x_of(len(self.points) - 1), GROOVE))
        painter.setPen(QPen(theme.colour("muted"), 1))
        for i in range(len(self.points)):
            painter.drawLine(QPointF(self.x_of(i), GROOVE - TICK), QPointF(self.x_of(i), GROOVE + TICK))
        self._paint_labels(painter)
        if self.pinned is not None:
            x = self.x_of(self.pinned)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.colour("text"))
            painter.drawPolygon(QPolygonF([QPointF(x - 4, 0), QPointF(x + 4, 0), QPointF(x, 6)]))
        x = self.x_of(self.value())
        painter.setPen(QPen(theme.colour("accent" if self.hasFocus() else "muted"), 1.5))
        painter.setBrush(theme.colour("accent" if self.isSliderDown() else "background"))
        painter.drawEllipse(QPointF(x, GROOVE), KNOB, KNOB)

    def _paint_labels(self, painter: QPainter) -> None:
        """Draw the labels of the present point and of both ends, then of as many others as fit between."""
        painter.setFont(self.theme.font(self.theme.small))
        metrics, height = painter.fontMetrics(), self.height() - GROOVE - 8
        spans: list[tuple[float, float]] = []  # px, (left, right) of each label drawn
        last = len(self.points) - 1
        for i in dict.fromkeys((self.value(), 0, last, *range(len(self.points)))):
            text, x = self.points[i].tick, self.x_of(i)
            half = metrics.horizontalAdvance(text) / 2
            x = min(max(x, half), self.width() - half)
            if any(x - half < b + 6 and x + half > a - 6 for a, b in spans):
                continue
            spans.append((x - half, x + half))
            painter.setPen(self.theme.colour("text" if i == self.value() else "muted"))
            painter.drawText(QRectF(x - half - 1, GROOVE + 8, 2 * half + 2, height), Qt.AlignmentFlag.AlignCenter, text)
