"""Small pieces of HTML for what shows itself in a notebook: escaped, without a style sheet, in the notebook's own colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from circuitlab.terminal import on_one_line

LONGEST = 200  # characters of a text in one place
_LEFT, _RIGHT = ' style="text-align:left"', ' style="text-align:right"'
_QUIET = ' style="opacity:0.65"'


def shortened(text: str, most: int = LONGEST) -> str:
    """A text on one line, its control characters visible, and with an ellipsis where it is longer."""
    text = on_one_line(text[: most + 1])
    return text if len(text) <= most else text[: most - 1] + "…"


def text_html(text: str) -> str:
    """`shortened`, as HTML."""
    return escape(shortened(text))


def line(*parts: str, quiet: bool = False) -> str:
    """Parts that are HTML in one line, "" is none; "" without any."""
    words = " · ".join(filter(None, parts))
    return f"<div{_QUIET if quiet else ''}>{words}</div>" if words else ""


def bold(text: str) -> str:
    """`said`, in bold."""
    return f"<strong>{text_html(text)}</strong>"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], left: int | None = None) -> str:
    """A table of texts. `left`: how many columns from the left are words, the others are numbers; None: all are words."""
    align = lambda i: _LEFT if left is None or i < left else _RIGHT
    cells = lambda tag, row: "".join(f"<{tag}{align(i)}>{text_html(text)}</{tag}>" for i, text in enumerate(row))
    head = f"<thead><tr>{cells('th', heads)}</tr></thead>" if heads else ""
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table>{head}<tbody>{body}</tbody></table>"


def box(*parts: str) -> str:
    """All of it together."""
    return f"<div>{''.join(parts)}</div>"
