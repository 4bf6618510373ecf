"""A layout that wraps: controls go to the next line. For a panel whose controls are its subject; others have a `OneRow`."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtWidgets import QLayout, QLayoutItem, QWidget


class FlowLayout(QLayout):
    """Items from left to right, wrapped at the width available."""

    def __init__(self, parent: QWidget | None = None, spacing: int = 8) -> None:
        super().__init__(parent)
        self._items: list[QLayoutItem] = []
        self.setSpacing(spacing)
        self.setContentsMargins(0, 0, 0, 0)

    def addItem(self, item: QLayoutItem) -> None:
        """Called by addWidget."""
        self._items.append(item)

    def count(self) -> int:
        """Number of items."""
        return len(self._items)

    def itemAt(self, index: int) -> QLayoutItem | None:  # type: ignore[override]
        """One item, None past the end."""
        return self._items[index] if 0 <= index < len(self._items) else None

    def takeAt(self, index: int) -> QLayoutItem | None:  # type: ignore[override]
        """Remove one item."""
        return self._items.pop(index) if 0 <= index < len(self._items) else None

    def expandingDirections(self) -> Qt.Orientation:
        """None: it takes the height it needs."""
        return Qt.Orientation(0)

    def hasHeightForWidth(self) -> bool:
        """It does."""
        return True

    def heightForWidth(self, width: int) -> int:
        """The height after wrapping."""
        return self._place(QRect(0, 0, width, 0), False)

    def setGeometry(self, rect: QRect) -> None:
        """Place the items."""
        super().setGeometry(rect)
        self._place(rect, True)

    def sizeHint(self) -> QSize:
        """As small as the widest item."""
        return self.minimumSize()

    def minimumSize(self) -> QSize:
        """The widest item with the margins."""
        size = QSize()
        for item in self._items:
            if not item.isEmpty():
                size = size.expandedTo(item.minimumSize())
        m = self.contentsMargins()
        return size + QSize(m.left() + m.right(), m.top() + m.bottom())

    def _place(self, rect: QRect, really: bool) -> int:
        m = self.contentsMargins()
        area = rect.adjusted(m.left(), m.top(), -m.right(), -m.bottom())
        y = area.y()
        for n, line in enumerate(self._lines(area.width())):
            height = max(size.height() for _, size in line)
            y += 4 if n else 0
            x = area.x()
            for item, size in line if really else ():
                item.setGeometry(QRect(QPoint(x, y + (height - size.height()) // 2), size))
                x += size.width() + self.spacing()
            y += height
        return y - rect.y() + m.bottom()

    def _lines(self, width: int) -> list[list[tuple[QLayoutItem, QSize]]]:
        """Items with their sizes, broken into lines of at most `width`."""
        lines: list[list[tuple[QLayoutItem, QSize]]] = []
        left = 0
        for item in self._items:
            if item.isEmpty():
                continue
            size = item.sizeHint()
            size.setWidth(min(size.width(), max(width, item.minimumSize().width())))
            if not lines or size.width() > left:
                lines.append([])
                left = width
            lines[-1].append((item, size))
            left -= size.width() + self.spacing()
        return lines
