"""Running prose: a formula, and paragraphs led by a bold word; scrolled where it does not fit."""

from __future__ import annotations

from html import escape
from math import ceil

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QWidget

from circuitlab.draw.look.closed_document import ClosedDocument
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.theme import Theme
from circuitlab.draw.painted.mark import PaintedMark
from circuitlab.draw.pointing.gestures import Id
from circuitlab.figures.marks import Prose

WIDEST = 760.0  # px of a line: longer ones are hard to read, but on a stage, whose type is large


class ProseMark(PaintedMark):
    """Realises `Prose`."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self.mark: Prose = Prose("", ())
        self._on_paper = False
        self._document = ClosedDocument(self)
        self._document.setDocumentMargin(0)

    def show_mark(self, mark: Prose) -> None:
        """Lay out again only for other words."""
        old, self.mark, self.mark_name = self.mark, mark, mark.name
        if (mark.paragraphs, mark.formula, mark.on_paper) != (old.paragraphs, old.formula, old.on_paper):
            self._write()
            self.relayout()
        self.viewport().update()

    def restyle(self) -> None:
        """The inks have changed."""
        self._write()

    def prepare_export(self, paper: Paper) -> None:
        """On paper nobody chooses what is shown."""
        super().prepare_export(paper)
        self._on_paper = True
        self._write()

    def _write(self) -> None:
        theme = self.theme
        shown = (self._on_paper and self.mark.on_paper) or self.mark.paragraphs
        formula = f"<p style='margin:0 0 4px 0; color:{theme.muted}'>{escape(self.mark.formula)}</p>" if self.mark.formula else ""
        leads = [f"<span style='font-weight:600'>{escape(lead)}</span>&nbsp; " if lead else "" for lead, _ in shown]
        paragraphs = "".join(
            f"<p style='margin:0 0 4px 0'>{lead}{escape(text)}</p>" for lead, (_, text) in zip(leads, shown, strict=True)
        )
        self._document.setDefaultFont(theme.font(theme.normal - 1))
        self._document.setHtml(f"<div style='color:{theme.text}'>{formula}{paragraphs}</div>")

    def content_height(self, width: int) -> int:
        """The height at this width."""
        widest = float(width) if self.theme.stage else WIDEST
        self._document.setTextWidth(max(min(float(width), widest), 60.0))
        return ceil(self._document.size().height())

    def draw(self, painter: QPainter, visible: QRectF) -> None:
        """The lines that can be seen whole."""
        self.content_height(self.viewport().width())
        self._document.drawContents(painter, self._whole_lines(visible))

    def _whole_lines(self, visible: QRectF) -> QRectF:
        """The part of what is visible that has whole lines; all of it where no line is whole."""
        layout, block, tops, bottoms = self._document.documentLayout(), self._document.begin(), list[float](), list[float]()
        while block.isValid():
            top, lines = layout.blockBoundingRect(block).top(), block.layout()
            rects = (lines.lineAt(i).rect().translated(0, top) for i in range(lines.lineCount()))
            whole = [rect for rect in rects if rect.top() >= visible.top() - 0.5 and rect.bottom() <= visible.bottom() + 0.5]
            tops += [rect.top() for rect in whole]
            bottoms += [rect.bottom() for rect in whole]
            block = block.next()
        if not tops:
            return visible
        return QRectF(visible.left(), min(tops), visible.width(), max(bottoms) - min(tops))

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
