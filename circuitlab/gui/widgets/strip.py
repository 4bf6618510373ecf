"""A line of widgets across the window. They show less where there is less room; the middle one takes a second line last."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QEvent, QRect, QSize, QTimer, Signal, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from circuitlab.draw.look.theme import GRID
from circuitlab.gui.widgets.labels import ShortLabel

FULL, SHORTEST, SIGNS = 0, 5, 6  # stages of showing less; the last with icons in place of words


class Strip(QWidget):
    """`left` and `right` are at the ends; `middle` gets the width left between them, or a line of its own.

    `owners`: functions `compact(stage)` that make the widgets show less, from `FULL` to `SIGNS`. `lines_changed()`: the height
    of the strip has changed.
    """

    lines_changed = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.left: Sequence[QWidget] = ()
        self.right: Sequence[QWidget] = ()
        self.middle: QWidget | None = None
        self.owners: list[Callable[[int], None]] = []
        self._laid_out: object = None  # the `_state` that the present layout was made for
        self._held = False
        self._line = 0
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._layout_timer = QTimer(self)
        self._layout_timer.setSingleShot(True)
        self._layout_timer.timeout.connect(self.lay_out)

    def event(self, event: QEvent) -> bool:
        """Lay out again when a widget has changed, since the others may have to show less."""
        if event.type() == QEvent.Type.LayoutRequest and not self._held and self._state() != self._laid_out:
            self._layout_timer.start(0)
        return super().event(event)

    @Slot()
    def hold(self) -> None:
        """Freeze the layout until `release`: something is being dragged, and nothing may move under the pointer."""
        self._held = True
        self._layout_timer.stop()

    @Slot()
    def release(self) -> None:
        """End `hold`: lay out again if anything has changed meanwhile."""
        self._held = False
        if self._state() != self._laid_out:
            self._layout_timer.start(0)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Lay out again at another width."""
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self.lay_out()

    def sizeHint(self) -> QSize:
        """A modest width; the strip expands."""
        return QSize(320, self.minimumHeight())

    def minimumSizeHint(self) -> QSize:
        """A small width: the strip shows less rather than make the window wider."""
        return QSize(160, self.minimumHeight())

    def _shown(self, widgets: Sequence[QWidget]) -> list[QWidget]:
        return [widget for widget in widgets if not widget.isHidden()]

    def _state(self) -> object:
        every = [*self.left, *self.right, *([self.middle] if self.middle is not None else [])]
        return self.width(), tuple((w.isHidden(), w.sizeHint().toTuple()) for w in every)

    def _width(self, widgets: Sequence[QWidget], least: bool = False) -> int:
        """The width of widgets side by side in px; `least`: with labels elided and the middle at its minimum."""
        shown = self._shown(widgets)
        of = lambda w: w.minimumSizeHint() if least and (isinstance(w, ShortLabel) or w is self.middle) else w.sizeHint()
        return sum(of(w).width() for w in shown) + GRID // 2 * len(shown)

    def _compact(self, stage: int) -> None:
        for owner in self.owners:
            owner(stage)

    @Slot()
    def lay_out(self) -> None:
        """Show as much as fits in one line; the middle moves to a second line if even the shortest stage does not fit."""
        middle = [self.middle] if self.middle is not None and not self.middle.isHidden() else []
        ends = [*self.left, *self.right]
        alone = not self._fits([*ends, *middle])
        if alone:
            self._fits(ends)
        every = self._shown([*ends, *middle])
        self._line = max((w.sizeHint().height() for w in every), default=0)
        lines = 2 if alone and middle else 1
        if self.minimumHeight() != self._line * lines:
            self.setFixedHeight(self._line * lines)
            self.updateGeometry()
            self.lines_changed.emit()
        self._place(middle, alone)
        self._laid_out = self._state()

    def _fits(self, widgets: Sequence[QWidget]) -> bool:
        """Set the first stage at which the widgets fit, eliding labels only from the shortest on; False if none fits."""
        for stage in range(FULL, SHORTEST + 1):
            self._compact(stage)
            if self._width(widgets) <= self.width():
                return True
        for stage in (SHORTEST, SIGNS):
            self._compact(stage)
            if self._width(widgets, least=True) <= self.width():
                return True
        return False

    def _place(self, middle: Sequence[QWidget], alone: bool) -> None:
        left, right = self._shown(self.left), self._shown(self.right)
        least = sum(w.minimumSizeHint().width() + GRID // 2 for w in ([] if alone else middle))
        over = self._width([*left, *right]) + least - self.width()
        widths = {}
        for widget in (*right, *left):  # the reference's labels are elided before the subject's
            widths[widget] = widget.sizeHint().width()
            if over > 0 and isinstance(widget, ShortLabel):
                less = min(over, max(0, widths[widget] - widget.minimumSizeHint().width()))
                widths[widget], over = widths[widget] - less, over - less
        x, end = 0, self.width()
        for widget in left:
            self._put(widget, x, widths[widget], 0)
            x += widths[widget] + GRID // 2
        for widget in reversed(right):
            end -= widths[widget]
            self._put(widget, end, widths[widget], 0)
            end -= GRID // 2
        for widget in middle:
            if alone:
                self._put(widget, 0, self.width(), self._line)
            else:
                self._put(widget, x, max(0, end - x), 0)

    def _put(self, widget: QWidget, x: int, width: int, y: int) -> None:
        height = min(widget.sizeHint().height(), self._line)
        widget.setGeometry(QRect(x, y + (self._line - height) // 2, width, height))
