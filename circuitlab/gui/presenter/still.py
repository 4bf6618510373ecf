"""A still picture over a widget: what it showed when it was taken, at its own size or magnified about a point.

Nothing below is laid out again or hears of the pointer, so that the picture stays exactly what it was.
"""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSizeF, Qt
from PySide6.QtGui import QFontMetricsF, QMouseEvent, QPainter, QPixmap
from PySide6.QtWidgets import QWidget

from circuitlab.draw.look.guarded import guarded_widget
from circuitlab.draw.look.theme import LIGHT
from circuitlab.gui.presenter.overlays import Overlay
from circuitlab.gui.presenter.page import END

LARGEST = 8.0  # times
NOTCH = 1.25  # times larger by one notch of a wheel


class Still(Overlay):
    """See the module. `scale`: px of the screen to a px of the picture; `corner`: the point of the picture at the top left.

    `words`: written small at the foot, for who speaks with one screen only.
    """

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("stage.still")
        self.pixmap = QPixmap()
        self.scale, self.corner = 1.0, QPointF()
        self.words, self.theme = "", LIGHT
        self._grip: QPointF | None = None  # where a drag was last

    def take(self, pixmap: QPixmap) -> None:
        """Show this picture of the parent, at its own size."""
        self.pixmap, self.scale, self.corner = pixmap, 1.0, QPointF()
        self.show()
        self.raise_()
        self.update()

    def let_go(self) -> None:
        """Show the parent itself again."""
        self._grip = None
        self.hide()
        self.pixmap, self.scale, self.corner = QPixmap(), 1.0, QPointF()

    def magnify(self, factor: float, at: QPointF) -> None:
        """Magnify by a factor; the point of the picture that is under `at` stays there, except where an edge would come in."""
        under = self.corner + at * (1 / self.scale)
        self.scale = min(max(self.scale * factor, 1.0), LARGEST)
        if abs(self.scale - 1) < 1e-6:
            self.scale = 1.0
        self._put(under - at * (1 / self.scale))

    def say(self, words: str) -> None:
        """Write these words at the foot, "" for none."""
        if words != self.words:
            self.words = words
            self.update()

    def _put(self, corner: QPointF) -> None:
        """Place the picture so that it covers the whole of the widget."""
        room = QPointF(self.width(), self.height()) * (1 - 1 / self.scale)
        self.corner = QPointF(min(max(corner.x(), 0.0), room.x()), min(max(corner.y(), 0.0), room.y()))
        self.update()

    @property
    def seen(self) -> QRectF:
        """The part of the picture that is seen, in px of the parent."""
        return QRectF(self.corner, QSizeF(self.size()) * (1 / self.scale))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Take hold of the picture."""
        self._grip = event.position()
        event.accept()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Move the picture with the pointer."""
        if self._grip is not None:
            by, self._grip = event.position() - self._grip, event.position()
            self._put(self.corner - by * (1 / self.scale))
        event.accept()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Let go of it."""
        self._grip = None
        event.accept()

    @guarded_widget
    def paintEvent(self, painter: QPainter) -> None:
        """The part that is seen, over the whole widget; on a screen of other proportions with the ground beside it."""
        painter.fillRect(self.rect(), self.theme.colour("background"))
        size = self.pixmap.deviceIndependentSize()
        if self.scale == 1.0 and size.toSize() == self.size():
            painter.drawPixmap(0, 0, self.pixmap)
        else:
            painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
            whole = QRectF(QPointF(), size.scaled(QSizeF(self.size()), Qt.AspectRatioMode.KeepAspectRatio))
            whole.moveCenter(QRectF(self.rect()).center())
            painter.save()
            painter.scale(self.scale, self.scale)
            painter.translate(-self.corner)
            painter.drawPixmap(whole, self.pixmap, QRectF(self.pixmap.rect()))
            painter.restore()
        if self.words:
            self._write(painter)

    def _write(self, painter: QPainter) -> None:
        """The words at the end of the last line of a page, on the ground."""
        font = self.theme.font(self.theme.small)
        metrics = QFontMetricsF(font)
        plate = QRectF(0, 0, metrics.horizontalAdvance(self.words) + 2 * metrics.height(), metrics.height())
        plate.moveBottomRight(QPointF(self.width(), self.height() - END * self.height()))
        painter.fillRect(plate, self.theme.colour("background"))
        painter.setFont(font)
        painter.setPen(self.theme.colour("muted"))
        painter.drawText(plate, Qt.AlignmentFlag.AlignCenter, self.words)
