"""Running text: one box a token, flowed to the width, coloured by value, text in black or white by contrast."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import ceil, floor

import numpy as np
from PySide6.QtCore import QPointF, QRectF, QSizeF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPainterPath, QPixmap
from PySide6.QtWidgets import QWidget

from circuitlab.caption_parts import Essential
from circuitlab.draw.look.colours import BARELY, DARK_INK, LIGHT_INK, dark_text, inked, rgb
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.theme import Theme
from circuitlab.draw.painted._flowed_text import ARC, LINE_GAP, PAD, FlowedText
from circuitlab.draw.pointing.gestures import Id, number
from circuitlab.figures.marks import Tokens

TALLEST = 4096.0  # px: a longer text is written token by token


class TokensMark(FlowedText):
    """Realises `Tokens`."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self._colours: np.ndarray | None = None
        self._inks: np.ndarray = np.zeros(0, dtype=bool)
        self._layers: dict[tuple[str, float], QPixmap] = {}
        self._on_paper = self._grey = False
        self._paints: dict[int, QColor] = {}
        self._told: tuple[str, ...] = ()
        self._edited: int | None = None  # where the text differs from the one before, of which it is an edit
        self._like_others = False  # the same lines are in sight as of the texts above and below

    # the mark --------------------------------------------------------------------------------------------------------

    def show_mark(self, mark: Tokens) -> None:
        """Flow again only for other texts, colour again only for other values."""
        old, self.mark, self.mark_name = self.mark, mark, mark.name
        spaced = bool(mark.named or mark.arrows) != bool(old.named or old.arrows)
        spaced |= mark.heading != old.heading and self._heading_lines(max(self._flowed_at, 20), self._line()) != self._above
        if (mark.texts is not old.texts and mark.texts != old.texts) or spaced:
            self._measure()
            self.forget_hover()
        keys = ("values", "rgb", "texts")
        if any(getattr(mark, k) is not getattr(old, k) for k in keys) or (mark.levels, mark.map) != (
            old.levels,
            old.map,
        ):
            self._colours = None
        if mark.texts != old.texts:
            self._edited = edited_at(old.texts, mark.texts)
        if mark.row != old.row or mark.texts is not old.texts or (self.theme.stage and mark.values is not old.values):
            self._show_row()
        self.viewport().update()

    def _show_row(self) -> None:
        """Keep the selected token in view, or without one that which is being typed; on a stage, where nobody scrolls, those that
        it attends to most, or the whole text.
        """
        if self.theme.stage:
            self.verticalScrollBar().setValue(self._strongest_line() * self.line_height() if self._cut else 0)
        elif self.mark.row is not None and 0 <= self.mark.row < len(self.mark.texts):
            self.reveal((self.mark.row,))
        elif self.mark.row is None and self._edited is not None and self._edited < len(self.mark.texts):
            self.reveal((self._edited,))

    def _strongest_line(self) -> int:
        """The line to begin with, so that the token of the largest value is in sight, with as much of the others as there is
        room for, and of the selected token, which counts half of all.
        """
        self._flow(max(self.viewport().width(), 20))
        values = np.nan_to_num(np.abs(self.mark.values.astype(np.float64))) * (not self._like_others)
        kept = self._kept
        lines, room = self._boxes[:, 1].astype(int), max(self.viewport().height() // self.line_height(), kept + 1)
        worth = np.bincount(lines, values / (values.sum() or 1.0))
        if self.mark.row is not None and 0 <= self.mark.row < len(lines):
            worth[lines[self.mark.row]] += 0.5
        first = range(max(len(worth) - room, 0) + 1)
        top = int(lines[values.argmax()]) if values.any() else None
        sees = [at for at in first if top is None or at + kept <= top < at + room]
        # the latter of two alike; of texts with a selected token that with the most before it
        in_order = sees if self._like_others else reversed(sees)
        return max(in_order, key=lambda at: round(worth[at + kept : at + room].sum(), 3))

    def show_like_others(self, like: bool) -> None:
        """Whether on a stage, where not all lines have room, the same ones are shown as of the same text above and below it."""
        if like != self._like_others:
            self._like_others = like
            self._show_row()

    @property
    def _kept(self) -> int:
        """Lines at the upper edge that are always the heading's: on a stage texts over each other are told apart by it."""
        return self._above if self.theme.stage else 0

    def relayout(self) -> None:
        """Lines have moved."""
        super().relayout()
        self._show_row()
        self._tell_cut()

    def _tell_cut(self) -> None:
        """Let the caption say which tokens are left out on a stage, where others are than before."""
        if (left_out := self.without_room()) != self._told:
            self._told = left_out
            self.noted.emit()

    def without_room(self) -> tuple[str, ...]:
        """Which tokens are not in sight on a stage."""
        if not self._cut or not self.mark.texts:
            return ()
        self._flow(max(self.viewport().width(), 20))
        first, room = self.offset // self.line_height(), max(self.viewport().height() // self.line_height(), 1)
        start, stop = np.searchsorted(self._boxes[:, 1], [first + self._kept, first + max(room, self._kept)]).tolist()
        n = len(self.mark.texts)
        ranges = [_range(a, b) for a, b in ((0, start), (stop, n)) if b > a]
        words = "token" if start + n - stop == 1 else "tokens"
        return (Essential(f"{words} {' and '.join(ranges)} not shown"),) if ranges else ()

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        """On a stage the caption says which tokens are left out."""
        super().scrollContentsBy(dx, dy)
        self._tell_cut()

    def show_indices(self, every: int) -> None:
        """Write the index below each `every`-th token, where the axes of a map show indices instead of tokens; 0: none."""
        self.set_type(self._small, every)

    def restyle(self) -> None:
        """Zero takes the colour of the background."""
        self._colours = None
        self._measure()

    def prepare_export(self, paper: Paper) -> None:
        """On paper texts are written as text, not stamped."""
        super().prepare_export(paper)
        self._on_paper, self._grey = True, paper.grey

    def _flow(self, width: int) -> None:
        """In other places the texts have to be written again."""
        if width != self._flowed_at:
            self._layers = {}
        super()._flow(width)

    def _fill(self) -> np.ndarray:
        """[token, 3] background colours, computed once per values."""
        if self._colours is None:
            mark = self.mark
            if mark.rgb is not None:
                self._colours = inked(mark.rgb, self.theme)
            else:
                self._colours = rgb(mark.values, mark.levels, mark.map, self.theme)
            self._inks = dark_text(self._colours, self.theme)
        return self._colours

    # painting --------------------------------------------------------------------------------------------------------

    def draw(self, painter: QPainter, visible: QRectF) -> None:
        """The boxes of the visible lines."""
        if not self.mark.texts:
            return
        self._flow(max(self.viewport().width(), 20))
        fill, height = self._fill(), self._line()
        covered = self.offset // height + self._kept  # no line above this one is seen
        first = int(np.searchsorted(self._boxes[:, 1], max(visible.top() // height, covered)))
        last = int(np.searchsorted(self._boxes[:, 1], visible.bottom() // height, side="right"))
        coloured = ~np.isnan(self.mark.values) if self.mark.rgb is None else np.ones(len(fill), dtype=bool)
        inks = np.where(coloured, np.where(self._inks, DARK_INK, LIGHT_INK), self.theme.text).tolist()
        packed = (fill.astype(np.int64) @ (65536, 256, 1)).tolist()
        ground = int(self.theme.colour("background").rgb() & 0xFFFFFF)  # boxes of the background's colour are not painted
        for i in (np.flatnonzero(coloured[first:last]) + first).tolist():
            if packed[i] != ground:
                painter.fillRect(self._rects[i], self._paint(packed[i]))
        ratio = painter.deviceTransform().m11()
        if self._on_paper or self._boxes[-1, 1] * height * ratio > TALLEST:
            self._write(painter, range(first, last), inks)
        else:
            self._stamp(painter, range(first, last), inks, ratio)
        if self._marks_signs():
            self._underline(painter, inks)
        self._frame_special(painter, range(first, last), inks)
        self._outlines(painter)
        self._draw_indices(painter, range(first, last))
        self._draw_arrows(painter)
        self._draw_names(painter)
        top = self.offset if self._kept else 0
        if self.mark.heading and visible.top() < top + self._above * height:
            self._title(painter, QRectF(PAD, top, self.viewport().width() - 2 * PAD, self._above * height))

    def _draw_indices(self, painter: QPainter, positions: range) -> None:
        """Under the middle of their tokens."""
        if not self._every:
            return
        metrics = QFontMetricsF(self._index_font())
        painter.setFont(self._index_font())
        painter.setPen(self.theme.colour("muted"))
        for i in range(positions.start + -positions.start % self._every, positions.stop, self._every):
            box, wide = self.item_rect((i,)), metrics.horizontalAdvance(str(i))
            x = max(0.0, min(box.center().x() - wide / 2, self.viewport().width() - wide))
            painter.drawText(QPointF(x, box.bottom() + metrics.ascent()), str(i))

    def _draw_arrows(self, painter: QPainter) -> None:
        """Arcs from the top of one token to the top of another, a head at their end."""
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        ink, high = self.theme.colour("accent", 0.75), 1.6 * self.theme.px(ARC)
        for start, end in self.mark.arrows:
            a, b = self.item_rect((start,)), self.item_rect((end,))
            first, last = QPointF(a.center().x(), a.top()), QPointF(b.center().x(), b.top() - 1)
            path = QPainterPath(first)
            path.cubicTo(QPointF(first.x(), first.y() - high), QPointF(last.x(), last.y() - high), last)
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(self.theme.pen(ink, 1.5))
            painter.drawPath(path)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(ink)
            aside, back = 3.5 * self.theme.stroke, 6 * self.theme.stroke
            painter.drawPolygon([last, QPointF(last.x() - aside, last.y() - back), QPointF(last.x() + aside, last.y() - back)])
        painter.restore()

    def _draw_names(self, painter: QPainter) -> None:
        """Words above tokens, moved aside where they crowd, on a ground that keeps arcs from crossing them."""
        font = self.theme.font(self.theme.small)
        metrics, taken = QFontMetricsF(font), list[QRectF]()
        for at, word in self.mark.named:
            box = self.item_rect((at,))
            size = metrics.horizontalAdvance(word)
            room = QRectF(box.center().x() - size / 2, box.top() - self._lead(), size, metrics.height())
            room.moveLeft(min(max(room.left(), 0.0), max(self.viewport().width() - size, 0.0)))
            for other in taken:
                if room.intersects(other):
                    room.moveLeft(other.right() + 6)
            taken.append(room)
            painter.fillRect(room, self.theme.colour("background", 0.8))
            painter.setFont(font)
            painter.setPen(self.theme.colour("accent"))
            painter.drawText(room, int(Qt.AlignmentFlag.AlignCenter), word)

    def _marks_signs(self) -> bool:
        return self._grey and self.mark.map == "signed" and self.mark.rgb is None

    def _underline(self, painter: QPainter, inks: list[str]) -> None:
        """Underline visibly negative tokens: in grey the two sides of the signed map look alike."""
        top = max(abs(level) for level in self.mark.levels)
        with np.errstate(invalid="ignore"):
            negative = np.flatnonzero(self.mark.values < -BARELY * top).tolist()
        for i in negative:
            box = self._rects[i]
            painter.setPen(self.theme.pen(QColor(inks[i]), 1.2))
            painter.drawLine(QPointF(box.left() + 1, box.bottom() - 1), QPointF(box.right() - 1, box.bottom() - 1))

    def _frame_special(self, painter: QPainter, positions: range, inks: list[str]) -> None:
        """A dashed frame in the ink of its text around each special token, which letters of the same spelling do not have."""
        painter.setBrush(Qt.BrushStyle.NoBrush)
        for i in self.mark.special:
            if i in positions:
                pen = self.theme.pen(QColor(inks[i]), 1.0)
                pen.setStyle(Qt.PenStyle.DotLine)
                painter.setPen(pen)
                painter.drawRect(self._rects[i].adjusted(1, 1, -2, -2))

    def notes(self) -> tuple[str, ...]:
        """How negative values are shown in grey."""
        return (Essential("underlined tokens are negative"),) if self._marks_signs() else ()

    def _title(self, painter: QPainter, room: QRectF) -> None:
        """The heading, above the text, of whose outlines none stands under it."""
        if self._kept:
            painter.fillRect(room.adjusted(-PAD, 0, PAD, 0), self.theme.colour("background"))
        painter.setFont(self._heading_font())
        painter.setPen(self.theme.colour("text"))
        painter.drawText(room, int(Qt.AlignmentFlag.AlignVCenter) | int(Qt.TextFlag.TextWordWrap), self.mark.heading)

    def _paint(self, packed: int) -> QColor:
        """The QColor of 0xRRGGBB, cached."""
        if packed not in self._paints:
            if len(self._paints) > 4096:
                self._paints.clear()
            self._paints[packed] = QColor(packed)
        return self._paints[packed]

    def _stamp(self, painter: QPainter, positions: range, inks: list[str], ratio: float) -> None:
        """Copy texts from the layers, neighbours of one ink together: laying out a hundred texts costs more than all the rest."""
        height = self._line()
        lines = self._boxes[:, 1].tolist()
        runs = groupby(positions, lambda i: (inks[i], lines[i]))
        for (ink, line), members in runs:
            run = list(members)
            x, (last, _, width) = self._boxes[run[0], 0], self._boxes[run[-1]].tolist()
            # whole pixels: a layer shifted by a fraction would blur
            left, right = floor(x * ratio), floor((last + width) * ratio)
            top, bottom = floor(line * height * ratio), floor((line + 1) * height * ratio)
            source = QRectF(left, top, right - left, bottom - top)
            target = QRectF(left / ratio, top / ratio, (right - left) / ratio, (bottom - top) / ratio)
            painter.drawPixmap(target, self._layer(ink, ratio), source)

    def _layer(self, ink: str, ratio: float) -> QPixmap:
        """All texts in one ink on a transparent ground, written once until texts, width or theme change."""
        layer = self._layers.get((ink, ratio))
        if layer is not None:
            return layer
        n = len(self.mark.texts)
        size = QSizeF(self._flowed_at, (self._boxes[-1, 1] + 1) * self._line()) * ratio
        layer = QPixmap(ceil(size.width()), ceil(size.height()))
        layer.fill(Qt.GlobalColor.transparent)
        painter = QPainter(layer)
        painter.setRenderHint(QPainter.RenderHint.TextAntialiasing)
        painter.scale(ratio, ratio)
        self._write(painter, range(n), [ink] * n)
        painter.end()
        self._layers[ink, ratio] = layer
        return layer

    def _write(self, painter: QPainter, positions: range, inks: list[str]) -> None:
        """Write texts as text."""
        painter.setFont(self._font())
        metrics, height = QFontMetricsF(self._font()), self._line()
        base, space = metrics.ascent() + LINE_GAP / 2 + self._lead(), metrics.horizontalAdvance("·")
        for i in positions:
            x, line, width = self._boxes[i].tolist()
            text = self.mark.texts[i]
            if self._widths[i] > width:
                text = metrics.elidedText(text, Qt.TextElideMode.ElideRight, width - 2 * PAD)
            self._text(painter, text, QPointF(x + PAD, line * height + base), space, QColor(inks[i]))

    def _text(self, painter: QPainter, text: str, at: QPointF, space: float, ink: QColor) -> None:
        """A token's text, its leading visible spaces (each `space` wide) lighter than the rest."""
        body = text.lstrip("·")
        spaces = text[: len(text) - len(body)]
        if spaces and body:
            soft = QColor(ink)
            soft.setAlphaF(0.5)
            painter.setPen(soft)
            painter.drawText(at, spaces)
            at = QPointF(at.x() + space * len(spaces), at.y())
            text = body
        painter.setPen(ink)
        painter.drawText(at, text)

    def _outlines(self, painter: QPainter) -> None:
        n, row = len(self.mark.texts), self.mark.row
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if self._hovered is not None and self._hovered[0] < n:
            painter.setPen(self.theme.pen("text"))
            painter.drawRect(self.item_rect(self._hovered).adjusted(0, 0, -1, 0))
        if row is not None and 0 <= row < n:
            painter.setPen(self.theme.pen("accent", 2.0 if self.mark.locked else 1.0))
            painter.drawRect(self.item_rect((row,)).adjusted(0, 0, -1, 0))

    # gestures --------------------------------------------------------------------------------------------------------

    def id_at(self, at: QPointF) -> Id | None:
        """The token under a point."""
        if not self.mark.texts or at.y() < self._kept * self._line():
            return None
        point = self.to_content(at)
        line = point.y() // self._line()
        self._flow(max(self.viewport().width(), 20))
        first, last = np.searchsorted(self._boxes[:, 1], [line, line + 1])
        i = int(np.searchsorted(self._boxes[first:last, 0], point.x(), side="right")) - 1 + int(first)
        if i < first or i >= last or point.x() > self._boxes[i, 0] + self._boxes[i, 2]:
            return None
        return (i,)

    def readout(self, item: Id) -> str:
        """Index, token, value."""
        i = item[0]
        value = float(self.mark.values[i])
        text = f"{i} ‘{self.mark.texts[i]}’"
        return text if np.isnan(value) else f"{text} · {number(value, self.mark.unit)}"

    def tip(self, item: Id) -> str:
        """The tip that the figure gives, or the readout."""
        return self.mark.tips[item[0]] if item[0] < len(self.mark.tips) else self.readout(item)

    def walk(self, item: Id | None, dx: int, dy: int) -> Id | None:
        """Along the text; up and down to the nearest token of the next line."""
        n = len(self.mark.texts)
        if not n:
            return None
        if item is None:
            return (self.mark.row if self.mark.row is not None and self.mark.row < n else 0,)
        if dx:
            return (min(max(item[0] + dx, 0), n - 1),)
        x, line, width = self._boxes[item[0]]
        next_line = np.flatnonzero(self._boxes[:, 1] == line + dy)
        if not next_line.size:
            return item
        centres = self._boxes[next_line, 0] + self._boxes[next_line, 2] / 2
        return (int(next_line[np.abs(centres - (x + width / 2)).argmin()]),)


def edited_at(old: Sequence[str], new: Sequence[str]) -> int | None:
    """The last token of `new` that `old` does not have at its place, or the one before what is gone; None for another text."""
    most = min(len(old), len(new))
    same = lambda a, b: next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), most)
    first = same(old, new)
    last = min(same(old[::-1], new[::-1]), most - first)
    return max(len(new) - last - 1, 0) if new and 2 * (first + last) >= len(old) > 0 else None


def _range(start: int, stop: int) -> str:
    """Positions from `start` up to `stop`."""
    return str(start) if stop == start + 1 else f"{start}–{stop - 1}"
