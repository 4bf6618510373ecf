"""Running text, one box a token, coloured by value. Token text is always plain text."""

from __future__ import annotations

import html
from typing import Any

import numpy as np
from PySide6.QtCore import QEvent, QPoint, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QKeyEvent, QMouseEvent, QPainter, QPen, QResizeEvent
from PySide6.QtWidgets import QAbstractScrollArea, QToolTip, QVBoxLayout, QWidget

from circuitlab.draw import colours
from circuitlab.draw.mark_view import MarkView, gesture_of
from circuitlab.draw.theme import LIGHT, Theme
from circuitlab.figures.marks import Hit, Tokens

PAD, SPACE, MARGIN = 3.0, 3.0, 8.0


def flow(widths: list[float], breaks: list[bool], width: float, line: float) -> list[QRectF]:
    """A box for each token, wrapped at `width`; a token that breaks ends its line."""
    boxes, x, y = [], MARGIN, MARGIN
    for size, last in zip(widths, breaks, strict=True):
        if x > MARGIN and x + size > width - MARGIN:
            x, y = MARGIN, y + line
        boxes.append(QRectF(x, y, size, line - 4))
        x += size + SPACE
        if last:
            x, y = MARGIN, y + line
    return boxes


class TokenArea(QAbstractScrollArea):
    """The scrolling surface that paints tokens and feels the mouse; laid out anew only when texts or the width change."""

    def __init__(self, owner: TokensView) -> None:
        super().__init__(owner)
        self.owner = owner
        self.mark: Tokens | None = None
        self.boxes: list[QRectF] = []
        self.hover: int | None = None
        self.setFrameShape(self.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setMouseTracking(True)
        self.setFocusProxy(owner)

    def line(self) -> float:
        """Height of a line."""
        return QFontMetricsF(self.owner.theme.font(mono=True)).height() + 8

    def lay_out(self) -> None:
        """Boxes for the present texts and width."""
        mark = self.mark
        if mark is None:
            return
        metrics = QFontMetricsF(self.owner.theme.font(mono=True))
        known: dict[str, float] = {}
        widths = [known.setdefault(t, metrics.horizontalAdvance(t) + 2 * PAD) for t in mark.texts]
        breaks = ["↵" in t for t in mark.texts]
        self.boxes = flow(widths, breaks, self.viewport().width(), self.line())
        bottom = self.boxes[-1].bottom() + MARGIN if self.boxes else 0.0
        bar = self.verticalScrollBar()
        bar.setRange(0, max(0, round(bottom) - self.viewport().height()))
        bar.setPageStep(self.viewport().height())
        bar.setSingleStep(round(self.line()))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Wrap again."""
        self.lay_out()

    def paintEvent(self, event: Any) -> None:
        """Only what is visible."""
        p = QPainter(self.viewport())
        p.fillRect(self.viewport().rect(), QColor(self.owner.theme.background))
        self.paint_tokens(p, self.verticalScrollBar().value(), self.viewport().height())
        p.end()

    def paint_tokens(self, p: QPainter, offset: float, height: float) -> None:
        """Paint the boxes between `offset` and `offset + height`."""
        mark, theme = self.mark, self.owner.theme
        if mark is None:
            return
        p.setFont(theme.font(mono=True))
        plain = QColor(theme.text)
        fills = mark.rgb if mark.rgb is not None else colours.rgb(mark.values, mark.levels, mark.map, theme)
        empty = np.isnan(mark.values)
        dark = colours.dark_text(fills)
        for i, box in enumerate(self.boxes):
            if box.bottom() < offset or box.top() > offset + height:
                continue
            box = box.translated(0, -offset)
            ink = plain
            if not empty[i]:
                colour = tuple(int(c) for c in fills[i])
                p.fillRect(box, QColor(*colour))
                ink = QColor("#14171c") if dark[i] else QColor("#ffffff")
            p.setPen(ink)
            p.drawText(box, Qt.AlignmentFlag.AlignCenter, mark.texts[i])
            if i == mark.row:
                self._ring(p, box, theme.accent, 2.0 if mark.locked else 1.0)
            elif empty[i]:
                self._ring(p, box, theme.line, 0.5)

    def _ring(self, p: QPainter, box: QRectF, colour: str, width: float) -> None:
        p.setPen(QPen(QColor(colour), width))
        p.drawRect(box.adjusted(-0.5, -0.5, 0.5, 0.5))

    def token_at(self, point: QPoint) -> int | None:
        """The index under a viewport position."""
        x, y = point.x(), point.y() + self.verticalScrollBar().value()
        return next((i for i, box in enumerate(self.boxes) if box.adjusted(-1, -2, 1, 2).contains(x, y)), None)

    def viewportEvent(self, event: QEvent) -> bool:
        """Hover, leave, tooltip."""
        if event.type() == QEvent.Type.Leave:
            self._hovered(None)
        if event.type() == QEvent.Type.ToolTip and self.mark is not None:
            at = self.token_at(event.pos())  # type: ignore[attr-defined]
            if at is not None and at < len(self.mark.tips):
                QToolTip.showText(event.globalPos(), f"<span>{html.escape(self.mark.tips[at])}</span>")  # type: ignore[attr-defined]
            return True
        return super().viewportEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Hover."""
        self._hovered(self.token_at(event.position().toPoint()))

    def _hovered(self, at: int | None) -> None:
        if at == self.hover or self.mark is None:
            return
        self.hover = at
        if at is None:
            self.owner.leave(self.mark.name)
        else:
            self.owner.hovered.emit(Hit(self.mark.name, (at,), "hover"), self.owner.readout(at))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Click."""
        at, mark = self.token_at(event.position().toPoint()), self.mark
        self.owner.setFocus()
        if mark is None:
            return
        hit = None if at is None else Hit(mark.name, (at,), gesture_of(event.modifiers()))  # type: ignore[arg-type]
        if event.button() == Qt.MouseButton.RightButton:
            self.owner.context.emit(hit, event.globalPosition().toPoint())
        elif hit is not None:
            self.owner.picked.emit(hit)


class TokensView(MarkView):
    """See the module."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.area = TokenArea(self)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.addWidget(self.area)
        self.setMinimumHeight(44)
        self.set_theme(LIGHT)

    @property
    def mark(self) -> Tokens | None:
        """What is shown."""
        return self.area.mark

    def show_mark(self, mark: Tokens) -> None:
        """Lay out again only where texts differ."""
        old, self.area.mark = self.area.mark, mark
        if old is None or old.texts is not mark.texts:
            self.area.hover = None
            self.area.lay_out()
        self.area.viewport().update()
        self.setAccessibleName(f"{mark.name}: {len(mark.texts)} tokens")

    def set_theme(self, theme: Theme) -> None:
        """Colours; sizes may differ, so lay out."""
        self.theme = theme
        self.area.lay_out()
        self.area.viewport().update()

    def readout(self, at: int) -> str:
        """What the token says, in one line."""
        mark = self.mark
        assert mark is not None
        value = mark.values[at]
        said = "" if np.isnan(value) else f" · {value:.4f} {mark.unit}"
        return f"position {at} ‘{mark.texts[at]}’{said}"

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Left and right walk, Enter locks or releases."""
        mark = self.mark
        moves = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}
        key = Qt.Key(event.key())
        if mark is None or not mark.texts:
            super().keyPressEvent(event)
        elif key in moves:
            start = len(mark.texts) - 1 if mark.row is None else mark.row
            at = min(max(start + moves[key], 0), len(mark.texts) - 1)
            if at != mark.row:
                self.picked.emit(Hit(mark.name, (at,), "click"))
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and mark.row is not None:
            self.picked.emit(Hit(mark.name, (mark.row,), "click"))
        else:
            super().keyPressEvent(event)
