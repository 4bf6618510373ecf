"""Where the pages of a text with figures end: never behind a heading, between a figure and the short text before it or its
caption, inside a caption, or behind the first line of a paragraph. A figure that nearly goes on a page is made a little smaller
rather than moved to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from PySide6.QtGui import QTextBlock, QTextBlockFormat, QTextCursor, QTextDocument, QTextFormat

FIT = 0.85  # a figure is made no smaller than this to go on a page
SHORT = 3  # lines of a paragraph that is not parted
LEAD = 8  # lines of the short paragraphs that stay with the figure after them
_BREAK = QTextFormat.PageBreakFlag.PageBreak_AlwaysBefore
_MOST_STEPS = 1000


def blocks_of(document: QTextDocument) -> Iterator[QTextBlock]:
    """All blocks, those in tables too."""
    block = document.begin()
    while block.isValid():
        yield block
        block = block.next()


def is_figure(block: QTextBlock) -> bool:
    """Whether a figure stands in it."""
    return "\ufffc" in block.text()


@dataclass
class PageBreaks:
    """Breaks a document with a page size into pages. `shrink(block, height)`: gives the figure in a block this height at most."""

    document: QTextDocument
    shrink: Callable[[QTextBlock, float], object]
    _shrunk: set[int] = field(default_factory=set[int])  # the numbers of blocks whose figure has been made smaller

    def settle(self) -> None:
        """Move and shrink what must be, from the first page on; again, until nothing is left to do."""
        blocks = [
            block for block in blocks_of(self.document) if QTextCursor(block).currentTable() is None
        ]  # a row stays in its table
        for _ in range(_MOST_STEPS):
            if not sum(self._settled(block) for block in blocks):
                return

    def _settled(self, block: QTextBlock) -> bool:
        """Do what must be done at a block; whether there was anything. What stands before it stays."""
        count = 0
        self.document.pageCount()  # lays all of it out
        while count < _MOST_STEPS and self._mended(block):
            self.document.pageCount()
            count += 1
        return count > 0

    def page_of(self, block: QTextBlock) -> int:
        """The page on which a block begins, counted from 0."""
        return self._page(block, 0)

    def _mended(self, block: QTextBlock) -> bool:
        """Whether something had to be done at a block, and has been."""
        if not block.layout().lineCount():
            return False
        return self._fitted(block) or (self._parted(block) and self._moved(block))

    # -- where lines are ------------------------------------------------------------------------------------------------

    def _line(self, block: QTextBlock, line: int) -> tuple[float, float]:
        """(top, bottom) of a line of a block in the document; counted from the end where `line` is negative."""
        layout, top = block.layout(), self.document.documentLayout().blockBoundingRect(block).top()
        at = layout.lineAt(line if line >= 0 else layout.lineCount() + line)
        return top + at.y(), top + at.y() + at.height()

    def _page(self, block: QTextBlock, line: int) -> int:
        if not block.layout().lineCount():
            return 0
        top, bottom = self._line(block, line)
        return int((top + bottom) / 2 // self.document.pageSize().height())

    # -- what must be done ----------------------------------------------------------------------------------------------

    def _fitted(self, block: QTextBlock) -> bool:
        """Make a figure, or that behind what leads to it, smaller if it then stands on the page of what is before it."""
        figure = block
        while figure.isValid() and _leads(figure):
            figure = figure.next()
        before = figure.previous() if figure.isValid() else figure
        if not before.isValid() or not is_figure(figure) or figure.blockNumber() in self._shrunk or _begins_page(figure):
            return False
        page, caption = self._page(before, -1), figure.next()
        if not before.layout().lineCount() or not caption.isValid():
            return False
        high = self.document.pageSize().height()
        words = self.document.documentLayout().blockBoundingRect(caption).height() + _margins(caption)
        room = (page + 1) * high - self._line(before, -1)[1] - before.blockFormat().bottomMargin() - _margins(figure) - words
        top, bottom = self._line(figure, 0)
        if self._page(caption, -1) == page or not FIT * (bottom - top) <= room < bottom - top:
            return False
        self._shrunk.add(figure.blockNumber())
        self.shrink(figure, room - 1)
        self.document.markContentsDirty(figure.position(), figure.length())
        return True

    def _parted(self, block: QTextBlock) -> bool:
        """Whether a page ends in a block that is not parted, or between it and what it goes with."""
        first, last = self._page(block, 0), self._page(block, -1)
        if first != last:
            of_figure = block.previous().isValid() and is_figure(block.previous())
            return of_figure or _is_short(block) or self._page(block, 1) != first
        following = block.next() if _goes_with_next(block) else QTextBlock()  # Qt keeps a first row with the head of its table
        return following.isValid() and following.layout().lineCount() > 0 and self._page(following, 0) != last

    def _moved(self, block: QTextBlock) -> bool:
        """Begin a page before a block and what goes with it; False where they stand at the top of one already."""
        starts = [block]
        while (before := starts[-1].previous()).isValid() and _goes_with_next(before) and not _begins_page(starts[-1]):
            starts.append(before)
        whole = (each for each in reversed(starts) if self._goes_on_a_page(each) and not _is_heading(each.previous()))
        block = next(whole, starts[-1])
        if _begins_page(block) or not block.previous().isValid() or QTextCursor(block).currentTable() is not None:
            return False
        style = QTextBlockFormat()
        style.setPageBreakPolicy(_BREAK)
        style.setTopMargin(0)
        QTextCursor(block).mergeBlockFormat(style)
        return True

    def _goes_on_a_page(self, block: QTextBlock) -> bool:
        """Whether one page can hold a block and what goes with it, a figure as small as it may be made, and its caption."""
        high, of_figure, goes_on = 0.0, False, True
        while block.isValid() and (goes_on or of_figure):
            smallest = FIT if is_figure(block) and block.blockNumber() not in self._shrunk else 1.0
            high += smallest * self.document.documentLayout().blockBoundingRect(block).height() + _margins(block)
            goes_on, of_figure, block = _goes_with_next(block), is_figure(block), block.next()
        return high <= self.document.pageSize().height()


def _is_heading(block: QTextBlock) -> bool:
    return block.blockFormat().headingLevel() > 0


def _goes_with_next(block: QTextBlock) -> bool:
    """Whether a block may not end a page: what leads to another, and a figure, whose caption follows."""
    return _leads(block) or is_figure(block)


def _leads(block: QTextBlock) -> bool:
    """Whether a block is about what follows it: a heading, and each short paragraph of a short text before a figure."""
    if _is_heading(block):
        return True
    lines = 0
    while block.isValid() and not (_is_heading(block) or is_figure(block) or is_figure(block.previous())) and _is_short(block):
        lines += block.layout().lineCount()
        block = block.next()
    return is_figure(block) and 0 < lines <= LEAD


def _is_short(block: QTextBlock) -> bool:
    return block.layout().lineCount() <= SHORT


def _begins_page(block: QTextBlock) -> bool:
    return bool(block.blockFormat().pageBreakPolicy() & _BREAK)


def _margins(block: QTextBlock) -> float:
    return block.blockFormat().topMargin() + block.blockFormat().bottomMargin()
