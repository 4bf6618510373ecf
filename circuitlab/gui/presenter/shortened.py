"""A line of text without room for its end: where it may be cut, so that no number and no word reads as another one."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator

from PySide6.QtCore import QTextBoundaryFinder

Boundary = QTextBoundaryFinder.BoundaryType
DOTS = "…"
LOOSE = " ,;:–—·("  # at the end of what stands before the dots
NUMBER = re.compile(r"^\W*\d[\d.,–−×/^⁻⁰¹²³⁴-⁹-]*(e[+-]?\d+)?$(?<=[\d⁰¹²³⁴-⁹])")  # a word that is a number, its unit to follow
SIGN = re.compile(r"^[=±×÷<>≈≤≥~+−/→-]+$")  # a word that holds those on both sides of it together
OF_A_NUMBER = "%‰°±×/"
LEAST_CLAUSE = 0.5  # of the room: clauses that fill less give way to words


def shortened(text: str, width: float, wide: Callable[[str], float]) -> str:
    """The beginning of a text, and dots: whole sentences, else whole clauses, else whole words, a number with its unit.

    `width`: px at most of what is returned, `wide(text)`: px of a text. Where not one word has room it is the dots alone.
    """
    words = [end for end in _ends(text, Boundary.Line) if _may_end(text, end)]
    clauses = [end for end in words if _ends_clause(text, end)]
    for ends, least in ((_ends(text, Boundary.Sentence), 0.0), (clauses, LEAST_CLAUSE * width), (words, 0.0)):
        begun = [f"{start} {DOTS}" for end in ends if (start := text[:end].rstrip(LOOSE))]
        fit = bisect_right(begun, width, key=wide)
        if fit and wide(begun[fit - 1]) >= least:
            return begun[fit - 1]
    return DOTS


def _ends(text: str, kind: Boundary) -> Iterator[int]:
    """Where a sentence ends, or a line may, in characters; without the end of the text."""
    finder = QTextBoundaryFinder(kind, text)
    units = text.encode("utf-16-le")  # Qt counts in units of two bytes
    while 0 < (end := finder.toNextBoundary()) < len(units) // 2:
        yield len(units[: 2 * end].decode("utf-16-le"))


def _may_end(text: str, end: int) -> bool:
    """Whether a word ends here, and neither a number nor what is written with signs is cut."""
    if not text[end - 1].isspace():  # scripts without spaces; a hyphen or a dash ends nothing
        return not (text[end - 1].isascii() or text[end].isascii() or text[end - 1] in LOOSE)
    last, first = text[:end].split()[-1], text[end:].split()[0]
    number = NUMBER.match(last) is not None and (first[0].isalnum() or first[0] in OF_A_NUMBER)
    return not (number or SIGN.match(last) or SIGN.match(first))


def _ends_clause(text: str, end: int) -> bool:
    """Whether a clause ends here, or what stands between dots in the middle; not inside brackets."""
    before, after = text[:end].rstrip(), text[end:].lstrip()
    return before.count("(") == before.count(")") and (before[-1] in ",;:)–—·" or after[0] in "(–—·")
