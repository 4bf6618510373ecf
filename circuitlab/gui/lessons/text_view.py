"""A lesson's text: Markdown with room between its lines, code and equations set apart, links that are handed to whoever asks."""

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

from circuitlab.draw.look.plain_text import tip_of
from circuitlab.draw.look.theme import LIGHT, Theme
from circuitlab.lessons.text import PENDING

FEATURES = QTextDocument.MarkdownFeature.MarkdownDialectGitHub | QTextDocument.MarkdownFeature.MarkdownNoHTML
LINE = 132  # % of the font's height
PARAGRAPH, CODE_INDENT = 10, 10  # px
PROPORTIONAL = QTextBlockFormat.LineHeightTypes.ProportionalHeight.value


class LessonText(QTextBrowser):
    """`followed(kind, where)`: a link such as `panel:attention` was clicked."""

    followed = Signal(str, str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setOpenLinks(False)
        self.setUndoRedoEnabled(False)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setAccessibleName("The lesson's text")
        self.document().setDocumentMargin(0)
        self.document().setIndentWidth(18)
        self.setViewportMargins(16, 4, 12, 8)
        self.anchorClicked.connect(self._clicked)
        self._theme = LIGHT
        self._said: tuple[str, Mapping[str, str]] = ("", {})

    def set_theme(self, theme: Theme) -> None:
        """Fonts and colours; the text is laid out again where it stands."""
        self._theme = theme
        self.setStyleSheet(f"QTextBrowser {{ background: {theme.background}; }}")
        self._show()

    def say(self, markdown: str, tips: Mapping[str, str]) -> None:
        """Show a text; `tips`: what a pointer over `value:name` is told, by name. The place that is read stays."""
        if (markdown, tips) != self._said:
            self._said = (markdown, dict(tips))
            self._show()

    def _show(self) -> None:
        bar = self.verticalScrollBar()
        at = bar.value()
        self.moveCursor(QTextCursor.MoveOperation.Start)  # the view follows its cursor
        self.document().setDefaultFont(self._theme.font(self._theme.normal + 1))
        self.document().setMarkdown(self._said[0], FEATURES)
        _dress(self.document(), self._theme, self._said[1])
        self.moveCursor(QTextCursor.MoveOperation.Start)
        _ = self.document().size()  # lays it out: before that there is nothing to scroll
        bar.setValue(at)

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
    found, at = [], block.begin()
    while not at.atEnd():
        fragment = at.fragment()
        if fragment.isValid():
            found.append((fragment.position(), fragment.length(), fragment.charFormat()))
        at += 1  # type: ignore[operator]
    return found


def _dress(document: QTextDocument, theme: Theme, tips: Mapping[str, str]) -> None:
    cursor = QTextCursor(document)
    cursor.beginEditBlock()
    first = True
    for block in list(_blocks(document)):
        parts = _fragments(block)
        # Markdown marks each letter of code as of fixed pitch; a paragraph of nothing else is an equation
        alone = bool(parts) and all(p[2].fontFixedPitch() and not p[2].isAnchor() for p in parts)
        cursor.setPosition(block.position())
        cursor.mergeBlockFormat(_block_format(block, alone, first, theme))
        level = block.blockFormat().headingLevel()
        for position, length, old in parts:
            cursor.setPosition(position)
            cursor.setPosition(position + length, QTextCursor.MoveMode.KeepAnchor)
            cursor.mergeCharFormat(_char_format(old, level, alone, theme, tips))
        first = False
    cursor.endEditBlock()


def _block_format(block: QTextBlock, equation: bool, first: bool, theme: Theme) -> QTextBlockFormat:
    made = QTextBlockFormat()
    made.setLineHeight(LINE, PROPORTIONAL)
    listed = block.textList() is not None
    made.setTopMargin(0)
    made.setBottomMargin(PARAGRAPH / 2 if listed else PARAGRAPH)
    if block.blockFormat().headingLevel():
        made.setTopMargin(0 if first else PARAGRAPH)
        made.setBottomMargin(PARAGRAPH / 2)
    if equation:
        made.setLeftMargin(CODE_INDENT)
        made.setRightMargin(CODE_INDENT)
        # the lines of a fenced block belong together
        fenced = block.next().isValid() and block.next().blockFormat().hasProperty(QTextFormat.Property.BlockCodeFence)
        inside = block.blockFormat().hasProperty(QTextFormat.Property.BlockCodeFence) and fenced
        made.setBottomMargin(0 if inside else PARAGRAPH)
    return made


def _char_format(old: QTextCharFormat, level: int, equation: bool, theme: Theme, tips: Mapping[str, str]) -> QTextCharFormat:
    made = QTextCharFormat()
    if old.fontFixedPitch():
        made.setFont(theme.font(theme.normal, mono=True))
        made.setForeground(theme.colour("text"))
        if not equation:
            made.setBackground(theme.colour("window"))
    if level:
        made.setFont(theme.font(theme.large, bold=True))
    if old.isAnchor():
        kind, _, name = old.anchorHref().partition(":")
        value = kind == "value"
        made.setForeground(theme.colour("text" if value else "accent"))
        made.setFontUnderline(False)
        if value:
            made.setFontWeight(QFont.Weight.DemiBold)
            made.setUnderlineStyle(QTextCharFormat.UnderlineStyle.DotLine)
            made.setUnderlineColor(theme.colour("faint"))
            made.setToolTip(tip_of(tips.get(name, PENDING)))
    return made
