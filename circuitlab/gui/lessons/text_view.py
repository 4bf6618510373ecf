"""The text view of a lesson: Markdown with open line spacing, code and equations set apart, and links reported by a signal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from PySide6.QtCore import QUrl, Signal, Slot
from PySide6.QtGui import (
    QFont,
    QTextBlock,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
)
from PySide6.QtWidgets import QFrame, QTextBrowser, QWidget

from circuitlab.draw.look.closed_document import ClosedDocument
from circuitlab.draw.look.plain_text import tip_of
from circuitlab.draw.look.style_rules import set_sheet
from circuitlab.draw.look.theme import LIGHT, Theme
from circuitlab.story.text import PENDING

FEATURES = QTextDocument.MarkdownFeature.MarkdownDialectGitHub | QTextDocument.MarkdownFeature.MarkdownNoHTML
LINE = 132  # % of the font's height
PARAGRAPH, CODE_INDENT = 10, 10  # px
PROPORTIONAL = QTextBlockFormat.LineHeightTypes.ProportionalHeight.value


class LessonText(QTextBrowser):
    """The view. `followed(kind, where)`: a link such as `panel:attention` was clicked."""

    followed = Signal(str, str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setDocument(ClosedDocument(self))
        self.setOpenLinks(False)
        self.setUndoRedoEnabled(False)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setAccessibleName("The lesson's text")
        self.document().setDocumentMargin(0)
        self.document().setIndentWidth(18)
        self.setViewportMargins(16, 4, 12, 8)
        self.anchorClicked.connect(self._clicked)
        self._theme = LIGHT
        self._content: tuple[str, Mapping[str, str]] = ("", {})  # Markdown and tooltips

    def set_theme(self, theme: Theme) -> None:
        """Apply fonts and colours; the scroll position stays."""
        self._theme = theme
        set_sheet(self, f"QTextBrowser {{ background: {theme.background}; color: {theme.text}; }}")
        self._show()

    def show_markdown(self, markdown: str, tips: Mapping[str, str]) -> None:
        """Show a text; `tips`: the tooltip of each link `value:name`, by name. The scroll position stays."""
        if (markdown, tips) != self._content:
            self._content = (markdown, dict(tips))
            self._show()

    def _show(self) -> None:
        bar = self.verticalScrollBar()
        scrolled = bar.value()
        self.moveCursor(QTextCursor.MoveOperation.Start)  # the view follows its cursor
        self.document().setDefaultFont(self._theme.font(self._theme.normal + 1))
        self.document().setMarkdown(self._content[0], FEATURES)
        _set_formats(self.document(), self._theme, self._content[1])
        self.moveCursor(QTextCursor.MoveOperation.Start)
        _ = self.document().size()  # forces the layout: before it there is nothing to scroll
        bar.setValue(scrolled)

    def loadResource(self, type: int, name: QUrl | str) -> object:
        """Never what it names; Qt asks the view before the document."""
        return self.document().loadResource(type, name)

    @Slot(QUrl)
    def _clicked(self, url: QUrl) -> None:
        kind, _, where = url.toString().partition(":")
        self.followed.emit(kind, where)


def _blocks(document: QTextDocument) -> Iterator[QTextBlock]:
    block = document.begin()
    while block.isValid():
        yield block
        block = block.next()


def _fragments(block: QTextBlock) -> list[tuple[int, int, QTextCharFormat]]:
    """(position, length, format) of each run of one format."""
    runs, iterator = [], block.begin()
    while not iterator.atEnd():
        fragment = iterator.fragment()
        if fragment.isValid():
            runs.append((fragment.position(), fragment.length(), fragment.charFormat()))
        iterator += 1  # type: ignore[operator]
    return runs


def _set_formats(document: QTextDocument, theme: Theme, tips: Mapping[str, str]) -> None:
    cursor = QTextCursor(document)
    cursor.beginEditBlock()
    first = True
    for block in list(_blocks(document)):
        parts = _fragments(block)
        # Markdown gives code a fixed pitch; a paragraph of code alone is set as an equation
        equation = bool(parts) and all(p[2].fontFixedPitch() and not p[2].isAnchor() for p in parts)
        cursor.setPosition(block.position())
        cursor.mergeBlockFormat(_block_format(block, equation, first, theme))
        level = block.blockFormat().headingLevel()
        for position, length, old in parts:
            cursor.setPosition(position)
            cursor.setPosition(position + length, QTextCursor.MoveMode.KeepAnchor)
            cursor.mergeCharFormat(_char_format(old, level, equation, theme, tips))
        first = False
    cursor.endEditBlock()


def _block_format(block: QTextBlock, equation: bool, first: bool, theme: Theme) -> QTextBlockFormat:
    block_format = QTextBlockFormat()
    block_format.setLineHeight(LINE, PROPORTIONAL)
    listed = block.textList() is not None
    block_format.setTopMargin(0)
    block_format.setBottomMargin(PARAGRAPH / 2 if listed else PARAGRAPH)
    if block.blockFormat().headingLevel():
        block_format.setTopMargin(0 if first else PARAGRAPH)
        block_format.setBottomMargin(PARAGRAPH / 2)
    if equation:
        block_format.setLeftMargin(CODE_INDENT)
        block_format.setRightMargin(CODE_INDENT)
        # no gap between the lines of a fenced block
        fenced = block.next().isValid() and block.next().blockFormat().hasProperty(QTextFormat.Property.BlockCodeFence)
        inside = block.blockFormat().hasProperty(QTextFormat.Property.BlockCodeFence) and fenced
        block_format.setBottomMargin(0 if inside else PARAGRAPH)
    return block_format


def _char_format(old: QTextCharFormat, level: int, equation: bool, theme: Theme, tips: Mapping[str, str]) -> QTextCharFormat:
    char_format = QTextCharFormat()
    if old.fontFixedPitch():
        char_format.setFont(theme.font(theme.normal, mono=True))
        char_format.setForeground(theme.colour("text"))
        if not equation:
            char_format.setBackground(theme.colour("window"))
    if level:
        char_format.setFont(theme.font(theme.large, bold=True))
    if old.isAnchor():
        kind, _, name = old.anchorHref().partition(":")
        value = kind == "value"
        char_format.setForeground(theme.colour("text" if value else "accent"))
        char_format.setFontUnderline(False)
        if value:
            char_format.setFontWeight(QFont.Weight.DemiBold)
            char_format.setUnderlineStyle(QTextCharFormat.UnderlineStyle.DotLine)
            char_format.setUnderlineColor(theme.colour("faint"))
            char_format.setToolTip(tip_of(tips.get(name, PENDING)))
    return char_format
