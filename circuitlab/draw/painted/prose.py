"""Running prose: a formula, and paragraphs led by a bold word; scrolled where it does not fit."""

from __future__ import annotations

from html import escape
from math import ceil

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter, QTextDocument
from PySide6.QtWidgets import QWidget

from circuitlab.draw.look.theme import Theme
from circuitlab.draw.painted.mark import PaintedMark
from circuitlab.draw.pointing.gestures import Id
from circuitlab.figures.marks import Prose

WIDEST = 760.0  # px of a line: longer ones are hard to read


class ProseMark(PaintedMark):
    """Realises `Prose`."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self.mark: Prose = Prose("", ())
        self._document = QTextDocument(self)
        self._document.setDocumentMargin(0)

    def show_mark(self, mark: Prose) -> None:
        """Lay out again only for other words."""
        old, self.mark, self.mark_name = self.mark, mark, mark.name
        if (mark.paragraphs, mark.formula) != (old.paragraphs, old.formula):
            self._write()
            self.relayout()
        self.viewport().update()

    def restyle(self) -> None:
        """The inks have changed."""
        self._write()

    def _write(self) -> None:
        theme = self.theme
        formula = f"<p style='margin:0 0 4px 0; color:{theme.muted}'>{escape(self.mark.formula)}</p>" if self.mark.formula else ""
        leads = [
            f"<span style='font-weight:600'>{escape(lead)}</span>&nbsp; " if lead else "" for lead, _ in self.mark.paragraphs
        ]
        paragraphs = "".join(
            f"<p style='margin:0 0 4px 0'>{lead}{escape(text)}</p>"
            for lead, (_, text) in zip(leads, self.mark.paragraphs, strict=True)
        )
        self._document.setDefaultFont(theme.font(theme.normal - 1))
        self._document.setHtml(f"<div style='color:{theme.text}'>{formula}{paragraphs}</div>")

    def content_height(self, width: int) -> int:
        """The height at this width."""
        self._document.setTextWidth(min(max(float(width), 60.0), WIDEST))
        return ceil(self._document.size().height())

    def draw(self, painter: QPainter, visible: QRectF) -> None:
        """The visible lines."""
        self.content_height(self.viewport().width())
        self._document.drawContents(painter, visible)

    def item_rect(self, item: Id) -> QRectF:
        """Nothing is an item."""
        return QRectF()

    def id_at(self, at: QPointF) -> Id | None:
        """Nothing is an item."""
        return None

    def readout(self, item: Id) -> str:
        """Nothing."""
        return ""

    def walk(self, item: Id | None, dx: int, dy: int) -> Id | None:
        """The keys scroll."""
        bar = self.verticalScrollBar()
        bar.setValue(bar.value() + 24 * dy)
        return None
