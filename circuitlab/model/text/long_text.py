"""The tokens of a text of any length, encoded in pieces of some milliseconds, so that its reader can stop between two.

A text is divided only where its tokenizer shows that no token and no rule reaches across. Candidates are the places between a
word and the space before the next one, and those behind a single newline or tab. There the characters on both sides are encoded
together, and those on the left alone: a border stands where the second ids are the beginning of the first. Each piece is encoded
behind the characters before it, whose ids are then dropped, so that what a tokenizer does at the beginning of a text is not done
to a piece. A text that is not longer than two pieces is encoded as a whole.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from itertools import islice

from circuitlab.counting import number_of
from circuitlab.errors import RAISE_BUDGET, BadInput, OverBudget
from circuitlab.model.text.tokenizer import Tokenizer

PIECE = 2**16  # characters: 30 ms by byte-level BPE
LONGEST = 2**19  # characters without a border that are encoded at once: 240 bytes each
_AROUND = 256  # characters on either side by which a border is judged
_MOST_TRIED = 32  # candidates for one border
_CANDIDATE = re.compile(r"(?<=\S)(?= \S)|(?<=\S[^\S ])(?=\S)")


def encode_in_pieces(tokenizer: Tokenizer, blocks: Iterable[str], most: int) -> array[int]:
    """Ids of the text that `blocks` make up, without BOS: 4 bytes each. Not more than two pieces are encoded between two blocks
    that are no longer than a piece, if the text has borders.

    Raises `BadInput` as `Tokenizer.encode` does, and for more than `LONGEST` characters without a border; `OverBudget` for a text
    of more than `most` ids, which is then not read further.
    """
    ids, text, start = array("i"), "", 0  # start: of what is not encoded; before it stands the end of what is
    for block in blocks:
        text += block
        while len(text) - start > 2 * PIECE:
            if (end := _border(tokenizer, text, start)) is None:
                if len(text) - start > LONGEST:
                    raise _undivided()
                break
            ids.extend(_ids(tokenizer, text[:start], text[start:end]))
            if len(ids) > most:
                raise _too_many(most)
            first = max(0, end - _AROUND)
            text, start = text[first:], end - first
    ids.extend(_ids(tokenizer, text[:start], text[start:]))
    return ids


def _border(tokenizer: Tokenizer, text: str, start: int) -> int | None:
    """Where a piece that begins at `start` may end: behind `PIECE` characters at least."""
    if tokenizer.single_characters:
        return start + PIECE
    for candidate in islice(_CANDIDATE.finditer(text, start + PIECE, len(text) - _AROUND), _MOST_TRIED):
        i = candidate.start()
        left = tokenizer.encode_uncached(text[i - _AROUND : i])
        if tokenizer.encode_uncached(text[i - _AROUND : i + _AROUND])[: len(left)] == left:
            return i
    return None


def _ids(tokenizer: Tokenizer, before: str, piece: str) -> tuple[int, ...]:
    """Ids of a piece as it stands behind `before`."""
    if not before:
        return tokenizer.encode_uncached(piece)
    left, both = tokenizer.encode_uncached(before), tokenizer.encode_uncached(before + piece)
    if both[: len(left)] != left:  # a rule that looks further than a border is judged by
        raise _undivided()
    return both[len(left) :]


def _undivided() -> BadInput:
    return BadInput(
        "The text is too long to be encoded at once, and cannot be divided.",
        expected=f"at most {number_of(LONGEST, 'character')}, or words and lines that the model's tokenizer keeps apart",
        got="neither",
        remedy="Choose a shorter text, or one with spaces or lines.",
    )


def _too_many(most: int) -> OverBudget:
    return OverBudget(
        "The tokens of the text do not fit in the memory budget.",
        expected=f"at most {number_of(most, 'token')}",
        got="more",
        remedy=f"Choose a shorter text, or {RAISE_BUDGET}.",
    )
