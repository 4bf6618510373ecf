"""A report as PDF: A4 with page numbers, text with its fonts, figures as vectors. No figure is cut, no heading ends a page.

    data = b"".join(pages_parts(report))

Qt lays the text out and breaks it into pages; a figure stands in it like a letter. What may not be parted is moved to the next
page as a whole. The same report gives the same bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import floor

from PySide6.QtCore import QPointF, QRect, QRectF, QSizeF, Qt
from PySide6.QtGui import (
    QAbstractTextDocumentLayout,
    QFontMetricsF,
    QPainter,
    QPalette,
    QPdfWriter,
    QPyTextObject,
    QTextBlock,
    QTextBlockFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
    QTextOption,
)

from circuitlab.draw.export.documents import pdf_document
from circuitlab.draw.export.outline import Bookmark
from circuitlab.draw.export.plate import Plate
from circuitlab.draw.look.app import application
from circuitlab.draw.look.closed_document import ClosedDocument
from circuitlab.draw.look.paper import INCH, Paper
from circuitlab.draw.look.theme import LIGHT, MONO
from circuitlab.errors import CircuitLabError, reason
from circuitlab.report.content import Report, Section, compared_words
from circuitlab.report.markup import prose, text, visible
from circuitlab.report.page import ORIGIN, caption_html, origin_words, with_hashes
from circuitlab.report.page_breaks import PageBreaks, blocks_of, is_figure
from circuitlab.report.page_tables import DOTS, GAP, LETTERING, NUMBERS, TYPE, numbers_html
from circuitlab.report.plates import PAPER, PlateCaption, StepPlate, Unshown, plates_of

WIDTH, HEIGHT = 210.0, 297.0  # mm of a page
SIDE, TOP, BOTTOM = 18.0, 20.0, 22.0  # mm of its margins
HIGH, SMALLEST = 190.0, 0.8  # a figure that is higher, in mm, is made smaller, for what leads to it, but not smaller than this
MEASURE, CAPTION = 150.0, 60.0  # px left empty at the right of text, and of captions
POINTS = 72  # of a PDF, an inch
FEWEST = 4  # steps with which a report has contents
_STYLE = f"""
body {{ color: {LIGHT.text}; }}
h1 {{ font-size: 21pt; font-weight: 600; margin-top: 0; margin-bottom: 12px; }}
h2 {{ font-size: 14pt; font-weight: 600; margin-top: 34px; margin-bottom: 8px; }}
h3 {{ font-size: 11pt; font-weight: 600; margin-top: 18px; margin-bottom: 6px; }}
h4, h5, h6 {{ font-size: 9.5pt; font-weight: 600; margin-top: 12px; margin-bottom: 4px; }}
h6.aside {{ font-size: 8pt; color: {LIGHT.muted}; margin-top: 0; margin-bottom: 9px; }}
h6.failed {{ margin-top: 0; margin-bottom: 9px; margin-left: 14px; }}
h6.entry {{ font-size: 8pt; margin-top: 0; margin-bottom: 2px; white-space: pre-wrap; }}
p, li, h6 {{ line-height: 140%; }}
p, pre, ul, ol, blockquote {{ margin-top: 0; margin-bottom: 9px; }}
p.small, td {{ font-size: 8pt; }}
p.caption {{ font-size: 8pt; color: {LIGHT.muted}; margin-top: 4px; margin-bottom: 26px; }}
p.figure {{ margin-top: 14px; margin-bottom: 0; line-height: 100%; }}
p.muted, td.muted {{ color: {LIGHT.muted}; }}
p.entry {{ margin-bottom: 2px; white-space: pre-wrap; }}
p.failed {{ margin-left: 14px; }}
code, pre {{ font-family: '{MONO[0]}'; font-size: 8pt; }}
p.rest {{ font-size: 7pt; color: {LIGHT.muted}; margin-top: 3px; margin-bottom: 4px; }}
td.cell, th.cell {{ font-size: {TYPE}pt; padding-right: {GAP}px; }}
td.cell {{ white-space: pre; }}
th.cell {{ font-weight: 600; color: {LIGHT.muted}; }}
code.hash {{ font-size: 7pt; }}
b, strong, span.value {{ font-weight: 600; color: {LIGHT.text}; }}
span.title {{ color: {LIGHT.text}; }}
a {{ color: {LIGHT.accent}; }}
"""


def pages_parts(report: Report, asides: bool = False, paper: Paper = PAPER) -> Iterator[bytes]:
    """The file, after an empty part for each figure: a window lays the next one out where its events leave room."""
    application(offscreen=True)
    document = _Document(report, asides, replace(paper, width_mm=WIDTH - 2 * SIDE, caption="none"))
    try:
        for _ in document.lay_out_figures():
            yield b""
        yield document.data()
    finally:
        document.close()


class _Figures(QPyTextObject):
    """Figures in a text, each a paragraph of its own: a picture called `figure:3` is the fourth plate.

    `rooms`: the height that each may take, in device units.
    """

    def __init__(self, plates: list[Plate]) -> None:
        super().__init__()
        self.plates = plates
        self.rooms = [_dots(HIGH)] * len(plates)
        self.reasons: list[CircuitLabError] = []

    def intrinsicSize(self, doc: QTextDocument, posInDocument: int, format: QTextFormat) -> QSizeF:
        """The size of a figure, in device units: as wide as the page's text unless it is as high as the page."""
        number = _number_of(format)
        width, height = (_dots(mm) for mm in self.plates[number].size_mm)
        fitted = min(1.0, _dots(WIDTH - 2 * SIDE) / width)
        shrunk = min(fitted, max(_dots(HIGH) / height, SMALLEST * fitted), self.rooms[number] / height)
        return QSizeF(width * shrunk, height * shrunk)

    def shrink(self, block: QTextBlock, height: float) -> None:
        """Give the figure in a block this height at most."""
        iterator = block.begin()
        while not iterator.atEnd():
            if iterator.fragment().charFormat().isImageFormat():
                self.rooms[_number_of(iterator.fragment().charFormat())] = height
            iterator += 1  # type: ignore[operator]

    def drawObject(
        self, painter: QPainter, rect: QRectF | QRect, doc: QTextDocument, posInDocument: int, format: QTextFormat
    ) -> None:
        """Paint it."""
        painter.save()
        painter.translate(rect.topLeft())
        try:
            self.plates[_number_of(format)].paint(painter, rect.width())
        except CircuitLabError as error:  # Qt has called
            self.reasons.append(error)
        painter.restore()


def _number_of(format: QTextFormat) -> int:
    return int(format.toImageFormat().name().removeprefix("figure:"))


def _dots(mm: float) -> float:
    return mm / INCH * DOTS


@dataclass
class _Document:
    report: Report
    asides: bool
    paper: Paper
    shown: list[list[StepPlate | Unshown]] = field(default_factory=list[list["StepPlate | Unshown"]])  # by step

    @property
    def plates(self) -> list[StepPlate]:
        """All figures, in their order."""
        return [one for each in self.shown for one in each if isinstance(one, StepPlate)]

    def close(self) -> None:
        """Delete the widgets of the figures."""
        for one in self.plates:
            one.plate.close()

    def lay_out_figures(self) -> Iterator[None]:
        """Make the plate of each figure."""
        for section in self.report.sections:
            self.shown.append([])
            for one in plates_of(section, self.paper):
                self.shown[-1].append(one)
                yield

    # -- the file -------------------------------------------------------------------------------------------------------

    def data(self) -> bytes:
        """The whole file. Raises `CircuitLabError` where a part of a figure cannot be drawn."""
        figures = _Figures([one.plate for one in self.plates])
        words = (*self._html({}), repr(self.paper))
        identity = "".join(words).encode("utf-8", "replace")
        data = pdf_document(
            visible(self.report.title), identity, DOTS, self.paper.grey, lambda writer: self._write(writer, figures)
        )
        if figures.reasons:
            raise figures.reasons[0]
        return data

    def _write(self, writer: QPdfWriter, figures: _Figures) -> list[Bookmark]:
        inside = HEIGHT - TOP - BOTTOM
        for i, one in enumerate(self.plates):
            figures.rooms[i] = _dots(inside) - self._height_of(_caption(i + 1, one.caption), writer)
        document, bookmarks = self._paged(writer, figures, {})
        if len(self.report.sections) >= FEWEST:  # once more, now that the pages of the steps are known
            pages = {i: bookmark.page + 1 for i, bookmark in enumerate(bookmarks, start=1)}
            document, bookmarks = self._paged(writer, figures, pages)
        self._print(document, writer)
        return bookmarks

    def _height_of(self, html: str, writer: QPdfWriter) -> float:
        """The height of a paragraph, with its margins."""
        document = self._document(writer)
        document.setHtml(f"<body>{html}</body>")
        return document.size().height() + _dots(10)

    def _document(self, writer: QPdfWriter) -> QTextDocument:
        document = ClosedDocument()
        document.setDocumentMargin(0)
        document.setUndoRedoEnabled(False)
        font = LETTERING.font()
        font.setPointSizeF(9.5)
        document.setDefaultFont(font)
        option = QTextOption()
        option.setUseDesignMetrics(True)  # advances are not rounded to dots
        option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)  # a word may be wider than the page
        document.setDefaultTextOption(option)
        document.setDefaultStyleSheet(_STYLE)
        document.setIndentWidth(22)
        document.documentLayout().setPaintDevice(writer)
        document.setTextWidth(_dots(WIDTH - 2 * SIDE))
        return document

    def _paged(self, writer: QPdfWriter, figures: _Figures, pages: dict[int, int]) -> tuple[QTextDocument, list[Bookmark]]:
        """The document broken into pages, and where each step and appendix begins. `pages`: what its contents say of that."""
        document = self._document(writer)
        document.documentLayout().registerHandler(QTextFormat.ObjectTypes.ImageObject.value, figures)
        document.setHtml(f"<body>{''.join(self._html(pages))}</body>")
        document.setPageSize(QSizeF(_dots(WIDTH - 2 * SIDE), floor(_dots(HEIGHT - TOP - BOTTOM))))  # whole dots, as Qt counts
        _set_measure(document)
        breaks = PageBreaks(document, figures.shrink)
        breaks.settle()
        steps = [block for block in blocks_of(document) if block.blockFormat().headingLevel() == 2]
        return document, [Bookmark(_plain(block), *_place(document, breaks, block)) for block in steps]

    def _print(self, document: QTextDocument, writer: QPdfWriter) -> None:
        painter, count = QPainter(writer), document.pageCount()
        for page in range(count):
            if page:
                writer.newPage()
            _paint_page(document, painter, page)
            self._paint_foot(painter, page + 1, count)
        painter.end()

    def _paint_foot(self, painter: QPainter, page: int, count: int) -> None:
        """The title at the left, the number of the page at the right."""
        font = LETTERING.font()
        font.setPointSizeF(7.5)
        painter.setFont(font)
        painter.setPen(LIGHT.colour("muted"))
        width, below = _dots(WIDTH - 2 * SIDE), _dots(HEIGHT - BOTTOM / 2)
        number = f"{page} / {count}"
        metrics = QFontMetricsF(font, painter.device())
        room = width - 2 * metrics.horizontalAdvance(number)
        title = metrics.elidedText(visible(self.report.title).replace("\n", " "), Qt.TextElideMode.ElideRight, room)
        painter.drawText(QPointF(_dots(SIDE), below), title)
        painter.drawText(QPointF(_dots(SIDE) + width - metrics.horizontalAdvance(number), below), number)

    # -- its text -------------------------------------------------------------------------------------------------------

    def _html(self, pages: dict[int, int]) -> Iterator[str]:
        report, several = self.report, len(self.report.sections) > 1
        source = f" of {report.source}" if report.source else ""
        yield f'<p class="small muted">Report{text(source)}</p><h1>{text(report.title)}</h1>'
        if len(report.sections) >= FEWEST:
            yield self._contents(pages)
        figures = itertools.count()
        for number, (section, shown) in enumerate(zip(report.sections, self.shown, strict=True), start=1):
            yield from self._section(section, f"{number}&nbsp;&nbsp;" if several else "")
            for one in shown:
                yield _failure(one.what, one.error, one.explain) if isinstance(one, Unshown) else _shown(next(figures), one)
        yield from _origin(report)
        yield from numbers_html(self.plates, _dots(WIDTH - 2 * SIDE))

    def _contents(self, pages: dict[int, int]) -> str:
        numbers = [NUMBERS] if any(numbers_html(self.plates, 1.0)) else []
        titles = [*(section.title for section in self.report.sections), ORIGIN, *numbers]
        number = lambda i: i if i <= len(self.report.sections) else ""
        rows = (
            f'<tr><td class="muted" align="right">{number(i)}</td><td width="70%">{text(title)}</td>'
            f'<td align="right">{pages.get(i, 0)}</td></tr>'
            for i, title in enumerate(titles, 1)
        )
        return f'<table cellspacing="0" cellpadding="1" style="margin-top: 14px">{"".join(rows)}</table>'

    def _section(self, section: Section, number: str) -> Iterator[str]:
        yield f"<h2>{number}{text(section.title)}</h2>"
        yield prose(section.text)
        if self.asides and section.aside.strip():
            yield f'<h6 class="aside">Aside</h6>{prose(section.aside)}'
        yield from (f'<p class="small muted">{text(line)}</p>' for line in section.remarks)
        if section.error is not None:
            yield _failure("This step could not be set up.", section.error)


def _shown(number: int, one: StepPlate) -> str:
    return f'<p class="figure"><img src="figure:{number}"></p>{_caption(number + 1, one.caption)}'


def _caption(number: int, caption: PlateCaption) -> str:
    return f'<p class="caption">{caption_html(number, caption)}</p>'


def _failure(what: str, error: CircuitLabError | None, explain: bool = True) -> str:
    lines = [f'<h6 class="failed">{text(what)}</h6>']
    if error is not None and explain:
        lines.append(f'<p class="failed">{text(reason(error))}</p>')
    if error is not None and (compared := compared_words(error)):
        lines.append(f'<p class="failed small">{text(compared)}</p>')
    if error is not None and error.remedy:
        lines.append(f'<p class="failed small muted">{text(error.remedy)}</p>')
    return "".join(lines)


def _origin(report: Report) -> Iterator[str]:
    yield f"<h2>{ORIGIN}</h2>"
    for heading, entries in origin_words(report):
        yield f"<h3>{text(heading)}</h3>"
        for name, lines in entries:
            yield f'<h6 class="entry">{text(name)}</h6>' if name else ""
            yield from (f'<p class="small entry muted">{with_hashes(line, "code")}</p>' for line in lines)


# -- pages --------------------------------------------------------------------------------------------------------------------


def _set_measure(document: QTextDocument) -> None:
    """Keep the lines of the text short; those of captions may be longer, and those of the origin, with its hashes, longest."""
    cursor, style, margin = QTextCursor(document), QTextBlockFormat(), MEASURE
    cursor.beginEditBlock()  # laid out once, after the last
    for block in blocks_of(document):
        if block.blockFormat().headingLevel() == 2 and block.text() == ORIGIN:
            margin = 0.0
        of_figure = block.previous().isValid() and is_figure(block.previous())
        style.setRightMargin(0.0 if is_figure(block) else min(margin, CAPTION) if of_figure else margin)
        cursor.setPosition(block.position())
        if cursor.currentTable() is None:
            cursor.mergeBlockFormat(style)
    cursor.endEditBlock()


def _plain(block: QTextBlock) -> str:
    """A heading as text: its number apart from its words by a space."""
    return " ".join(block.text().split())


def _place(document: QTextDocument, breaks: PageBreaks, block: QTextBlock) -> tuple[int, float]:
    """The page on which a block begins, from 0, and where on the paper, in points from its upper edge."""
    page = breaks.page_of(block)
    inside = document.documentLayout().blockBoundingRect(block).top() - page * document.pageSize().height()
    return page, (max(inside, 0.0) + _dots(TOP)) * POINTS / DOTS


def _paint_page(document: QTextDocument, painter: QPainter, page: int) -> None:
    size = document.pageSize()
    context = QAbstractTextDocumentLayout.PaintContext()
    whole = QRectF(0, page * size.height(), size.width(), size.height())
    context.clip = whole.adjusted(0, 0.5, 0, -0.5)  # a line that begins with the next page touches this one
    context.palette.setColor(QPalette.ColorRole.Text, LIGHT.colour("text"))
    painter.save()
    painter.translate(_dots(SIDE), _dots(TOP) - page * size.height())
    painter.setClipRect(whole)
    document.documentLayout().draw(painter, context)
    painter.restore()
