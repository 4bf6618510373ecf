"""Text as HTML: everything that comes from a person, a tokenizer or a file passes here on its way into a page.

Markdown is read by Qt, without its raw HTML, and written by a walk over what was read: no element or attribute is taken over, so
that none can come in. Links stay where they lead to a page or an address of mail, and pictures are their words: a page loads
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from PySide6.QtGui import QTextBlock, QTextCharFormat, QTextDocument, QTextFormat, QTextFrame, QTextListFormat, QTextTable

from circuitlab.draw.look.app import application
from circuitlab.draw.look.closed_document import ClosedDocument

FEATURES = QTextDocument.MarkdownFeature.MarkdownDialectGitHub | QTextDocument.MarkdownFeature.MarkdownNoHTML
TOP = 3  # the level of a heading that Markdown calls the first: a report and its steps stand above
BOLD = 600  # the least weight that is bold
_LINK = re.compile(r"(?:https?://|mailto:)[^\s\"'<>\\^`{|}\x00-\x20\x7f-\x9f]+", re.IGNORECASE)
_TURNS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # marks that turn the direction of what follows
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff\ud800-\udfff]")
_Property, _Style = QTextFormat.Property, QTextListFormat.Style
_BULLETS = (_Style.ListDisc, _Style.ListCircle, _Style.ListSquare)


def visible(words: str) -> str:
    """The text with what no page shows as escapes, \\u202e: control characters, and marks that turn what stands beside them."""
    return _CONTROLS.sub(_escape, _TURNS.sub(_escape, words))


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def text(words: str) -> str:
    """Text between tags, or inside a quoted attribute."""
    return escape(visible(words), quote=True)


def link(where: str) -> str:
    """An address that a page may lead to, "" for any other."""
    return where if _LINK.fullmatch(where) else ""


def prose(markdown: str) -> str:
    """Markdown as HTML."""
    application(offscreen=True)
    document = ClosedDocument()
    document.setMarkdown(visible(markdown), FEATURES)
    return "".join(_elements(_parts(document.rootFrame())))


# -- blocks -------------------------------------------------------------------------------------------------------------------

Part = QTextBlock | QTextFrame


def _parts(frame: QTextFrame) -> list[Part]:
    """The blocks and the tables of a frame."""
    parts: list[Part] = []
    iterator = frame.begin()
    while not iterator.atEnd():
        inside = iterator.currentFrame()
        parts.append(iterator.currentBlock() if inside is None else inside)
        iterator += 1  # type: ignore[operator]
    return parts


def _within(iterator: QTextFrame.iterator) -> Iterator[QTextBlock]:
    """The blocks of a cell."""
    while not iterator.atEnd():
        if iterator.currentBlock().isValid():
            yield iterator.currentBlock()
        iterator += 1  # type: ignore[operator]


def _elements(parts: Sequence[Part], quoted: int = 0) -> Iterator[str]:
    """Blocks as elements. `quoted`: the depth of the quotation that they stand in."""
    for kind, run in groupby(parts, lambda part: _kind(part, quoted)):
        blocks = list(run)
        if kind == "quote":
            yield f"<blockquote>{''.join(_elements(blocks, quoted + 1))}</blockquote>\n"
        elif kind == "list":
            yield _list([block for block in blocks if isinstance(block, QTextBlock)])
        elif kind == "code":
            lines = (text(block.text()) for block in blocks if isinstance(block, QTextBlock))
            yield f"<pre><code>{chr(10).join(lines)}</code></pre>\n"
        else:
            yield from (_block(block) if isinstance(block, QTextBlock) else _framed(block) for block in blocks)


def _framed(frame: QTextFrame) -> str:
    return _table(frame) if isinstance(frame, QTextTable) else "".join(_elements(_parts(frame)))


def _kind(part: Part, quoted: int) -> str:
    """Which blocks stand in one element."""
    if not isinstance(part, QTextBlock):
        return ""
    style = part.blockFormat()
    if style.intProperty(_Property.BlockQuoteLevel) > quoted:
        return "quote"
    if part.textList() is not None:
        return "list"
    code = style.hasProperty(_Property.BlockCodeFence) or style.hasProperty(_Property.BlockCodeLanguage)
    return "code" if code or style.nonBreakableLines() else ""


def _block(block: QTextBlock) -> str:
    style = block.blockFormat()
    if style.hasProperty(_Property.BlockTrailingHorizontalRulerWidth):
        return "<hr>\n"
    level = style.headingLevel()
    words = _runs(block, plain=level > 0)
    if level:
        tag = f"h{min(level + TOP - 1, 6)}"
        return f'<{tag} dir="auto">{words}</{tag}>\n'
    if not words:
        return ""
    equation = ' class="equation"' if _all_code(block) else ""
    return f'<p{equation} dir="auto">{words}</p>\n'


def _list(blocks: Sequence[QTextBlock]) -> str:
    """Items with the lists inside them, by their indents."""
    out: list[str] = []
    open_: list[tuple[int, str]] = []  # (indent, tag) of the lists that are open
    for block in blocks:
        style = block.textList().format()
        indent, tag = style.indent(), "ul" if style.style() in _BULLETS else "ol"
        while open_ and open_[-1][0] > indent:
            out.append(f"</li></{open_.pop()[1]}>")
        if open_ and open_[-1] == (indent, tag):
            out.append("</li>")
        else:
            if open_ and open_[-1][0] == indent:
                out.append(f"</li></{open_.pop()[1]}>")
            first = block.textList().itemNumber(block) + style.start()
            out.append(f'<ol start="{first}">' if tag == "ol" and first > 1 else f"<{tag}>")
            open_.append((indent, tag))
        out.append(f'<li dir="auto">{_box(block)}{_runs(block)}')
    out += [f"</li></{tag}>" for _, tag in reversed(open_)]
    return "".join(out) + "\n"


def _box(block: QTextBlock) -> str:
    """The box of an item that can be ticked."""
    marker = type(block.blockFormat().marker())
    return {marker.Checked: "☑ ", marker.Unchecked: "☐ "}.get(block.blockFormat().marker(), "")


def _table(table: QTextTable) -> str:
    heads = max(1, table.format().headerRowCount())
    row = lambda r, tag: "".join(f'<{tag} dir="auto">{_cell(table, r, c)}</{tag}>' for c in range(table.columns()))
    top = "".join(f"<tr>{row(r, 'th')}</tr>" for r in range(min(heads, table.rows())))
    body = "".join(f"<tr>{row(r, 'td')}</tr>\n" for r in range(heads, table.rows()))
    return f"<table><thead>{top}</thead><tbody>{body}</tbody></table>\n"


def _cell(table: QTextTable, row: int, column: int) -> str:
    return " ".join(filter(None, (_runs(block, plain=row == 0) for block in _within(table.cellAt(row, column).begin()))))


# -- runs of one format -------------------------------------------------------------------------------------------------------


def _fragments(block: QTextBlock) -> Iterator[tuple[str, QTextCharFormat]]:
    iterator = block.begin()
    while not iterator.atEnd():
        fragment = iterator.fragment()
        if fragment.isValid():
            yield fragment.text(), fragment.charFormat()
        iterator += 1  # type: ignore[operator]


def _all_code(block: QTextBlock) -> bool:
    """Whether it is a paragraph of code alone, which is set as an equation."""
    formats = [style for _, style in _fragments(block)]
    return bool(formats) and all(style.fontFixedPitch() and not style.isAnchor() for style in formats)


def _runs(block: QTextBlock, plain: bool = False) -> str:
    """`plain`: bold anyhow, in a heading."""
    return "".join(_run(words, style, plain) for words, style in _fragments(block))


def _run(words: str, style: QTextCharFormat, plain: bool) -> str:
    if style.isImageFormat():
        return text(style.stringProperty(_Property.ImageAltText))
    out = text(words).replace("\u2028", "<br>")
    if style.fontFixedPitch():
        out = f"<code>{out}</code>"
    if style.fontWeight() >= BOLD and not plain and not style.isAnchor():
        out = f"<strong>{out}</strong>"
    if style.fontItalic():
        out = f"<em>{out}</em>"
    if style.fontStrikeOut():
        out = f"<del>{out}</del>"
    if style.isAnchor():
        if style.anchorHref().startswith("value:"):
            out = f'<span class="value">{out}</span>'
        elif where := link(style.anchorHref()):
            out = f'<a href="{text(where)}" rel="noopener noreferrer">{out}</a>'
    return out
