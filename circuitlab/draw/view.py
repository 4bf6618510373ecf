"""`FigureView`: a figure's title, marks and caption as one widget; why it is empty; that it is being computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QPoint, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QColor, QGuiApplication, QPainter
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSplitter, QVBoxLayout, QWidget

from circuitlab.draw.heatmap import HeatmapView
from circuitlab.draw.mark_view import MarkView
from circuitlab.draw.rows import RowsView
from circuitlab.draw.theme import GRID, LIGHT, Theme
from circuitlab.draw.tokens import TokensView
from circuitlab.figures import marks
from circuitlab.figures.marks import Figure, Mark

REALISED: dict[type, Callable[[QWidget], MarkView]] = {
    marks.Heatmap: HeatmapView,
    marks.Tokens: TokensView,
    marks.Rows: RowsView,
}
DIM_AFTER = 150  # ms: a repaint from the cache never dims


class Veil(QWidget):
    """Dims what lies beneath, with a thin line on top, while a new answer is computed. The mouse goes through."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.theme: Theme = LIGHT
        self.hide()

    def paintEvent(self, event: Any) -> None:
        """A light wash and the line."""
        p = QPainter(self)
        wash = QColor(self.theme.background)
        wash.setAlpha(90)
        p.fillRect(self.rect(), wash)
        p.fillRect(0, 0, self.width(), 2, QColor(self.theme.accent))
        p.end()


def _label(role: str, parent: QWidget) -> QLabel:
    made = QLabel(parent)
    made.setProperty("role", role)
    made.setTextFormat(Qt.TextFormat.PlainText)
    made.setWordWrap(True)
    return made


class FigureView(QWidget):
    """Shows figures. Marks of the same kinds and names reuse their widgets, so that zoom and scrolling stay.

    Signals: `picked(Hit)`, `hovered(Hit, readout)`, `context_requested(Hit | None, global position)`.
    """

    picked = Signal(object)
    hovered = Signal(object, str)
    context_requested = Signal(object, QPoint)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", "figure")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.figure = Figure()
        self.theme: Theme = LIGHT
        self.views: dict[str, MarkView] = {}
        self._shape: tuple[Any, ...] = ()
        self._title, self._caption, self._empty = (_label(r, self) for r in ("title", "caption", "empty"))
        self._title.setWordWrap(False)
        self._empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._body = QSplitter(Qt.Orientation.Vertical, self)
        self._body.setChildrenCollapsible(False)
        self._body.setHandleWidth(4)
        self._veil = Veil(self)
        self._dim = QTimer(self)
        self._dim.setSingleShot(True)
        self._dim.setInterval(DIM_AFTER)
        self._dim.timeout.connect(self._raise_veil)
        box = QVBoxLayout(self)
        box.setContentsMargins(GRID, GRID // 2, GRID, GRID // 2)
        box.setSpacing(GRID // 2)
        for widget, stretch in ((self._title, 0), (self._body, 1), (self._empty, 1), (self._caption, 0)):
            box.addWidget(widget, stretch)
        self._empty.hide()

    def show_figure(self, figure: Figure) -> None:
        """Draw; what is identical to the last figure is left alone."""
        self.figure = figure
        self._title.setText(figure.title)
        self._title.setToolTip("")
        self._title.setVisible(bool(figure.title))
        caption = figure.caption
        if figure.shown is not None:
            caption = f"showing {figure.shown[0]:,} of {figure.shown[1]:,} · {caption}"
        self._caption.setText(caption)
        self._caption.setVisible(bool(caption))
        self._empty.setText(figure.why_empty)
        self._empty.setVisible(not figure.grid)
        self._body.setVisible(bool(figure.grid))
        shape = tuple(tuple((type(m), m.name) for m in row) for row in figure.grid)
        if shape != self._shape:
            self._rebuild(figure, shape)
        for mark in figure.marks():
            self.views[mark.name].show_mark(mark)

    def _rebuild(self, figure: Figure, shape: tuple[Any, ...]) -> None:
        while self._body.count():
            old = self._body.widget(0)
            old.setParent(None)
            old.deleteLater()
        self.views = {}
        self._shape = shape
        for row in figure.grid:
            self._body.addWidget(self._row(row))
        weights = figure.weights or (1.0,) * len(figure.grid)
        self._body.setSizes([round(1000 * w) for w in weights])
        for i, weight in enumerate(weights):
            self._body.setStretchFactor(i, round(10 * weight))

    def _row(self, row: tuple[Mark, ...]) -> QWidget:
        made = [self._realised(mark) for mark in row]
        if len(made) == 1:
            return made[0]
        holder = QWidget(self)
        box = QHBoxLayout(holder)
        box.setContentsMargins(0, 0, 0, 0)
        for view in made:
            box.addWidget(view, 1)
        return holder

    def _realised(self, mark: Mark) -> MarkView:
        view = REALISED[type(mark)](self)
        view.set_theme(self.theme)
        view.picked.connect(self.picked)
        view.hovered.connect(self.hovered)
        view.context.connect(self.context_requested)
        self.views[mark.name] = view
        return view

    def set_theme(self, theme: Theme) -> None:
        """Colours of a theme for all marks."""
        self.theme = self._veil.theme = theme
        for view in self.views.values():
            view.set_theme(theme)
        self.update()

    def set_busy(self, busy: bool) -> None:
        """A new answer is (no longer) awaited: the old picture stays, dimmed after a moment."""
        if not busy:
            self._dim.stop()
            self._veil.hide()
        elif not self._veil.isVisible() and not self._dim.isActive():
            self._dim.start()

    @Slot()
    def _raise_veil(self) -> None:
        self._veil.setGeometry(self.rect())
        self._veil.raise_()
        self._veil.show()

    def resizeEvent(self, event: Any) -> None:
        """The veil covers all."""
        self._veil.setGeometry(self.rect())

    def reset_view(self) -> None:
        """Undo zooming in every mark."""
        for view in self.views.values():
            view.reset_view()

    def copy_image(self) -> None:
        """The picture as it stands, on the clipboard."""
        QGuiApplication.clipboard().setPixmap(self.grab())

    def copy_table(self) -> bool:
        """The first table as tab-separated text on the clipboard; False where there is none."""
        for view in self.views.values():
            if isinstance(view, RowsView):
                QGuiApplication.clipboard().setText(view.model.as_text())
                return True
        return False
