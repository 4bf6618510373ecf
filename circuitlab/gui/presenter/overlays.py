"""What lies over a widget while somebody speaks: a curtain, a ring round the pointer, the number that is being typed."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPainter, QPen
from PySide6.QtWidgets import QWidget

from circuitlab.draw.look.guarded import guarded_widget
from circuitlab.draw.look.theme import LIGHT

ROUND, STROKE = 1 / 7, 1 / 160  # diameter of the ring and width of its line, of the height of what is pointed at
LINE, HALO = 0.8, 0.5  # opacities: what is written below is read through both, and on ground and cells one of them is seen
NUMBER, APART = 1 / 14, 1 / 40  # size of the typed number and its distance from the edge, of the same height


class Overlay(QWidget):
    """Covers the whole of its parent, whatever size that has. Hidden until it is shown; never has the keyboard."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.under = parent
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.hide()
        self.setGeometry(parent.rect())
        parent.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Take the size of the parent."""
        if watched is self.under and event.type() == QEvent.Type.Resize:
            self.setGeometry(self.under.rect())
        return False


class Curtain(Overlay):
    """One colour over everything; the pointer is hidden and reaches nothing below. `colour`: "" while it is up."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("stage.curtain")
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.setCursor(Qt.CursorShape.BlankCursor)
        self.colour = ""

    def let_down(self, colour: str) -> None:
        """Cover everything in a colour by name; "" to lift it."""
        self.colour = colour
        self.setVisible(bool(colour))
        self.raise_()
        self.update()

    @guarded_widget
    def paintEvent(self, painter: QPainter) -> None:
        """One colour from edge to edge."""
        painter.fillRect(self.rect(), QColor(self.colour or "black"))


class PointerRing(QWidget):
    """A ring round the pointer, which takes no clicks: a line in the accent colour between two in the colour of the ground."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.under = parent
        self.setObjectName("stage.ring")
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.theme = LIGHT
        self.hide()

    @property
    def stroke(self) -> float:
        """Width of its line in px."""
        return max(2.0, self.under.height() * STROKE)

    @property
    def _side(self) -> int:
        return round(self.under.height() * ROUND) | 1  # odd, so that one pixel is the centre

    @property
    def radius(self) -> float:
        """How far in px it reaches from the pointer."""
        return self._side / 2

    def move_to(self, at: QPoint) -> None:
        """Centre it at a point of the parent."""
        side = self._side
        self.setGeometry(QRect(at - QPoint(side // 2, side // 2), QSize(side, side)))

    @guarded_widget
    def paintEvent(self, painter: QPainter) -> None:
        """The ring; its inside is left as it is."""
        line = self.stroke
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        mode = QPainter.CompositionMode
        inks = mode.CompositionMode_Screen if self.theme.dark else mode.CompositionMode_Multiply  # letters stay as they are
        for inset, width, colour, how in (
            (line / 4, line / 2, self.theme.colour("background", HALO), mode.CompositionMode_SourceOver),
            (line, line, self.theme.colour("accent", LINE), inks),
            (1.75 * line, line / 2, self.theme.colour("background", HALO), mode.CompositionMode_SourceOver),
        ):
            painter.setCompositionMode(how)
            painter.setPen(QPen(colour, width))
            painter.drawEllipse(QRectF(self.rect()).adjusted(inset, inset, -inset, -inset))


class TypedNumber(QWidget):
    """The step that is being typed, large, at the foot of the parent; `text` "" hides it."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.under = parent
        self.setObjectName("stage.number")
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.theme, self.text = LIGHT, ""
        self.hide()

    def show_text(self, text: str) -> None:
        """Show these words."""
        self.text = text
        height, width = self.under.height(), self.under.width()
        metrics = QFontMetricsF(self._font())
        box = QSize(round(metrics.horizontalAdvance(text) + metrics.height()), round(metrics.height() * 1.4))
        box = box.boundedTo(QSize(width, height))
        self.setGeometry(QRect(QPoint((width - box.width()) // 2, round(height * (1 - APART)) - box.height()), box))
        self.setVisible(bool(text))
        self.raise_()
        self.update()

    def _font(self) -> QFont:
        return self.theme.font(self.under.height() * NUMBER, bold=True)

    @guarded_widget
    def paintEvent(self, painter: QPainter) -> None:
        """Light words on the accent colour."""
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self.theme.colour("accent"))
        corner = self.height() / 6
        painter.drawRoundedRect(QRectF(self.rect()), corner, corner)
        painter.setFont(self._font())
        painter.setPen(self.theme.colour("on_accent"))
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter, self.text)
