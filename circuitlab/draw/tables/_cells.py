"""The parts of a table's view: how a cell is painted, and the keys that a QTableView does not have by itself."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from PySide6.QtCore import QEvent, QPoint, QPointF, QRect, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QContextMenuEvent, QFontMetricsF, QKeyEvent, QKeySequence, QMouseEvent, QPainter
from PySide6.QtWidgets import (
    QHeaderView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionHeader,
    QStyleOptionViewItem,
    QTableView,
    QWidget,
)

from circuitlab.draw.look.colours import DARK_INK, LIGHT_INK, bar_rgb, dark_text, rgb
from circuitlab.draw.look.guarded import guarded
from circuitlab.draw.look.theme import LIGHT, Theme
from circuitlab.draw.tables.model import Index, RowsModel, cell_text, is_number
from circuitlab.figures.marks import RowColumn

MOST_TINTS = 64
GAP = 5.0  # px above a row before which others are left out
BELOW = 18  # px from the top of a row to what lies below its digits
ROW, HIGHEST_ROW = 22, 33  # px, of a row like the others at text size 1, and of one that has the room of rows that are not there
PAD, TIGHT_PAD = 8, 4  # px beside a text, and where columns have to give way


class RowsDelegate(QStyledItemDelegate):
    """Paints a cell: tint or bar, the chosen row's band, the text. Fonts and tints are made once for a theme and a column."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.theme = LIGHT
        self.pad = PAD

    @property
    def theme(self) -> Theme:
        """Of everything that is painted."""
        return self._theme

    @theme.setter
    def theme(self, theme: Theme) -> None:
        self._theme = theme
        faces = ((mono, bold) for mono in (False, True) for bold in (False, True))
        fonts = {(m, b): theme.font(theme.normal if m else theme.normal - 1, mono=m, bold=b) for m, b in faces}
        self._faces = {face: (font, QFontMetricsF(font)) for face, font in fonts.items()}
        self._tints: dict[tuple[int, object, object], tuple[np.ndarray, list[QColor], list[bool]]] = {}

    def _tint(self, column: RowColumn) -> tuple[np.ndarray, list[QColor], list[bool]]:
        """(the values, which stay alive so that their id stays theirs; a colour for each; whether its text is dark)."""
        key = id(column.values), column.levels, column.map
        if key not in self._tints:
            if len(self._tints) > MOST_TINTS:
                self._tints.clear()
            assert column.map is not None
            shades = rgb(np.asarray(column.values, dtype=np.float32), column.levels, column.map, self.theme)
            self._tints[key] = (column.values, [_colour(c) for c in shades.tolist()], dark_text(shades, self.theme).tolist())
        return self._tints[key]

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        rect = option.rect
        guarded(painter, lambda: self._paint_cell(painter, option, index), QRectF(rect), self.theme)

    def _paint_cell(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        model = index.model()
        assert isinstance(model, RowsModel)
        row = int(model.order[index.row()])
        column = model.mark.columns[index.column()]
        rect = option.rect
        state = option.state
        ink = self.theme.colour("text")
        if state & QStyle.StateFlag.State_Selected:
            leads = row in model.mark.chosen[:1] or row not in model.mark.chosen
            painter.fillRect(rect, self.theme.colour("accent", 0.14 if leads else 0.07))
            if leads and rect.x() <= 0:
                painter.fillRect(QRectF(rect.x(), rect.y(), 3 * self.theme.stroke, rect.height()), self.theme.colour("accent"))
        if column.map is not None and is_number(column):
            values, tints, dark = self._tint(column)
            if not np.isnan(values[row]):
                painter.fillRect(rect.adjusted(0, 0, -1, -1), tints[row])
                ink = QColor(DARK_INK if dark[row] else LIGHT_INK)
        elif column.bar and is_number(column):
            self._bar(painter, QRectF(rect), column, float(column.values[row]))
        pad = self.theme.px(self.pad)
        font, metrics = self._faces[column.tokens, row in model.mark.strong]
        painter.setFont(font)
        painter.setPen(ink)
        dots = Qt.TextElideMode.ElideLeft if column.from_end else Qt.TextElideMode.ElideRight
        text = metrics.elidedText(cell_text(column, row), dots, rect.width() - 2 * pad)
        side = Qt.AlignmentFlag.AlignRight if is_number(column) else Qt.AlignmentFlag.AlignLeft
        painter.drawText(QRectF(rect).adjusted(pad, 0, -pad, 0), side | Qt.AlignmentFlag.AlignVCenter, text)
        if model.gap_before(index.row()):
            paint_gap(painter, QRectF(rect.x(), rect.y(), rect.width(), GAP), self.theme)

    def _bar(self, painter: QPainter, rect: QRectF, column: RowColumn, value: float) -> None:
        """From zero to the value between the column's levels; signed columns start in the middle.

        Beside the number, or behind it in a narrow cell. On a stage bars are not faint, and lie below the number there.
        """
        low, high = column.levels
        if value != value or high <= low:
            return
        ends = [f"{end:,.{column.digits}f}" for end in column.levels]
        metrics = self._faces[False, False][1]
        inset = self.theme.px(4)
        thick = min(rect.height(), self.theme.px(ROW))  # the bar of a higher row is no thicker
        rect = QRectF(rect.x(), rect.y() + (rect.height() - thick) // 2, rect.width(), thick)
        beside = self.theme.px(18) + max(metrics.horizontalAdvance(t) for t in ends)  # keeps clear of the number
        room = rect.adjusted(inset, inset, -beside, -inset)
        if room.width() < 2 * self.theme.px(8):
            above, below = (self.theme.px(BELOW), self.theme.px(1)) if self.theme.stage else (inset, inset)
            room = rect.adjusted(inset, above, -inset, -below)
        zero = min(max(-low / (high - low), 0.0), 1.0)
        end = min(max((value - low) / (high - low), 0.0), 1.0)
        left, right = sorted((zero, end))
        bar = QRectF(room.left() + left * room.width(), room.top(), (right - left) * room.width(), room.height())
        colour = QColor(*bar_rgb(low < 0, value, self.theme))
        if not self.theme.stage:  # where a number may stand on it
            colour.setAlphaF(0.32 if not self.theme.dark else 0.5)
        painter.fillRect(bar, colour)


def paint_gap(painter: QPainter, room: QRectF, theme: Theme) -> None:
    """A dotted line: rows are left out here."""
    painter.fillRect(room, theme.colour("background"))
    painter.setPen(theme.pen("muted", 1.0, Qt.PenStyle.DotLine))
    painter.drawLine(QPointF(room.left(), room.center().y()), QPointF(room.right(), room.center().y()))


def _colour(parts: Iterable[float]) -> QColor:
    return QColor(*(int(c) for c in parts))


class RowsHeader(QHeaderView):
    """Says in its text which way a column is sorted: where columns are narrow the style's arrow lies on the name.

    `tight`: names reach as near to their ends as the texts of cells do where columns have to give way.
    """

    def __init__(self, parent: QWidget) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        self.theme, self.tight, self._nameless = LIGHT, False, False

    def paintSection(self, painter: QPainter, rect: QRect, section: int) -> None:
        """As the style does, which knows one padding only: where it is tight the name is painted here."""
        self._nameless = self.tight
        super().paintSection(painter, rect, section)
        self._nameless = False
        if self.tight:
            guarded(painter, lambda: self._paint_name(painter, rect, section), QRectF(rect), self.theme)

    def _paint_name(self, painter: QPainter, rect: QRect, section: int) -> None:
        option = QStyleOptionHeader()
        self.initStyleOptionForIndex(option, section)
        font, pad = self.theme.font(self.theme.small), self.theme.px(TIGHT_PAD)
        name = QFontMetricsF(font).elidedText(option.text, Qt.TextElideMode.ElideRight, rect.width() - 2 * pad)
        painter.setFont(font)
        painter.setPen(self.theme.colour("muted"))
        painter.drawText(QRectF(rect).adjusted(pad, 0, -pad, 0), option.textAlignment | Qt.AlignmentFlag.AlignVCenter, name)

    def initStyleOptionForIndex(self, option: QStyleOptionHeader, section: int) -> None:
        """The sign in front of the name, which stays in sight where the name is shortened."""
        super().initStyleOptionForIndex(option, section)
        if self.isSortIndicatorShown() and self.sortIndicatorSection() == section:
            option.text = f"{'▾' if self.sortIndicatorOrder() == Qt.SortOrder.DescendingOrder else '▴'} {option.text}"
        if self._nameless:
            option.text = ""
        option.sortIndicator = QStyleOptionHeader.SortIndicator.None_


class RowsTable(QTableView):
    """Whole rows only, and keys that a table does not have by itself. `row_heights`: px of the lowest row and of the highest,
    which rows grow to where all of them have room.
    """

    left_by_escape = Signal()
    entered_key = Signal()
    copied = Signal()
    walked = Signal()
    asked_menu = Signal(QPoint, QPoint)
    went = Signal()
    fitted = Signal()  # the height has been shared out among rows: `whole_rows` may be another number
    button_down = Signal(QPoint)
    button_up = Signal(QPoint)
    button_twice = Signal(QPoint)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._fitting = False
        self.row_heights: tuple[int, int] = ROW, ROW
        self.verticalHeader().setDefaultSectionSize(ROW)

    @property
    def whole_rows(self) -> int:
        """How many rows there is height for, whether there are so many or not."""
        return self.viewport().height() // self.verticalHeader().defaultSectionSize()

    def updateGeometries(self) -> None:
        """A row is seen whole or not at all: what is left of the height below the last one stays empty."""
        if self._fitting:
            return
        self._fitting = True
        super().updateGeometries()
        row = self._grown()
        if row != self.verticalHeader().defaultSectionSize():
            self.verticalHeader().setDefaultSectionSize(row)
            super().updateGeometries()
        for _ in range(3):  # the scroll bar below may disappear meanwhile
            high = self.viewport().height()
            if not high % row or high < row or self.verticalHeader().length() <= high:
                break
            margins = self.viewportMargins()
            margins.setBottom(margins.bottom() + high % row)
            self.setViewportMargins(margins)
        self._align()
        self._fitting = False
        self.fitted.emit()

    def _grown(self) -> int:
        """px of height of a row."""
        (least, most), model = self.row_heights, self.model()
        rows = 0 if model is None else model.rowCount()
        return min(max(self.viewport().height() // max(rows, 1), least), most)

    def _align(self) -> None:
        """The first row seen begins at the top, also at the end, where Qt would put the last one to the bottom."""
        header, at = self.verticalHeader(), self.verticalScrollBar().value()
        if header.offset() != header.sectionPosition(header.logicalIndex(at)):
            header.setOffsetToSectionPosition(at)
            self.viewport().update()

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        """By whole rows."""
        super().scrollContentsBy(dx, dy)
        if dy:
            self._align()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copied.emit()
            return
        if event.key() == Qt.Key.Key_Escape:
            self.left_by_escape.emit()
            event.ignore()
            return
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            if event.modifiers() & Qt.KeyboardModifier.AltModifier and self.currentIndex().isValid():
                self.doubleClicked.emit(self.currentIndex())
            else:
                self.entered_key.emit()
            return
        if event.key() == Qt.Key.Key_S and not event.modifiers():
            self.sort_by_key()
            return
        if event.key() == Qt.Key.Key_R and not event.modifiers():
            event.ignore()
            return
        before = self.currentIndex().row()
        super().keyPressEvent(event)
        if self.currentIndex().row() != before:
            self.walked.emit()

    def sort_by_key(self) -> None:
        """By the column that the keys are in; again: the other way round."""
        header, column = self.horizontalHeader(), max(self.currentIndex().column(), 0)
        again = header.sortIndicatorSection() == column and header.sortIndicatorOrder() == Qt.SortOrder.DescendingOrder
        header.setSortIndicator(column, Qt.SortOrder.AscendingOrder if again else Qt.SortOrder.DescendingOrder)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        at, where = event.pos(), event.globalPos()
        if event.reason() == QContextMenuEvent.Reason.Keyboard:  # for the current row
            at = self.visualRect(self.currentIndex()).center()
            where = self.viewport().mapToGlobal(at)
        self.asked_menu.emit(at, where)
        event.accept()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        super().mousePressEvent(event)
        if event.button() == Qt.MouseButton.LeftButton:
            self.button_down.emit(event.position().toPoint())

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        if event.button() == Qt.MouseButton.LeftButton:
            self.button_up.emit(event.position().toPoint())

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """Not Qt's own: it forgets the first click once the rows are written anew, which a click may bring about."""
        if event.button() == Qt.MouseButton.LeftButton:
            self.button_twice.emit(event.position().toPoint())

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        # Dragging must not select.
        if not event.buttons():
            super().mouseMoveEvent(event)

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self.went.emit()
