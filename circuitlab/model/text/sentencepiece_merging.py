"""SentencePiece's BPE where `tokenizers` would merge otherwise.

Pieces of equal scores compete: `tokenizers` ranks every merge, SentencePiece goes by the place. Vocabularies to which pieces were
added later have many of one score, as those for Chinese that were added to Llama's. And `tokenizers` merges pieces alone,
SentencePiece texts: of a vocabulary that was cut down, "▁was" may be a piece and "w" none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from math import copysign

from circuitlab.model.text.sentencepiece_bpe import NORMAL, USER, Piece
from circuitlab.model.text.sentencepiece_normaliser import SPACE, LongestKeys
from circuitlab.model.text.sentencepiece_unigram import Spelling


def otherwise(pieces: Iterable[Piece]) -> bool:
    """Whether pieces of one score, other than runs of spaces, could both be merged, or one from a character that is no piece."""
    normal = {text: score for text, score, kind in pieces if kind == NORMAL}
    counts = Counter(score for text, score in normal.items() if len(text) > 1 and text.strip(SPACE))
    return any(n > 1 for n in counts.values()) or any(c not in normal for text in normal if len(text) > 1 for c in text)


class Merging:
    """Divides normalised texts into ids: neighbours that make the piece of the best score are joined, the first of equals."""

    def __init__(self, pieces: Sequence[Piece], byte_fallback: bool) -> None:
        self._spelled = Spelling(pieces, byte_fallback)
        # behind one of the score 0.0 comes one of −0.0, which the first piece of every training has
        self._found = {
            text: (i, (-score, -copysign(1.0, score))) for i, (text, score, kind) in enumerate(pieces) if kind in (NORMAL, USER)
        }
        self._symbols = LongestKeys(text for text, _, kind in pieces if kind == USER)

    def __call__(self, text: str) -> list[int]:
        """The ids of a normalised text; unknown characters side by side are one id, where they are not bytes."""
        n = len(text)
        parts, whole, after, before = [""] * n, [False] * n, [n] * n, [-1] * n  # by the place at which they begin
        at, last = 0, -1
        while at < n:
            length = self._symbols.at(text, at)
            parts[at], whole[at], before[at] = text[at : at + (length or 1)], length > 0, last
            at, last = at + (length or 1), at
            after[last] = at
        waiting: list[tuple[tuple[float, float], int, int, int]] = []  # rank, where both begin, length of the two

        def pair(left: int, right: int) -> None:
            if left >= 0 and right < n and not whole[left] and not whole[right]:
                joined = parts[left] + parts[right]
                if (result := self._found.get(joined)) is not None:
                    heappush(waiting, (result[1], left, right, len(joined)))

        at = 0
        while at < n:
            pair(at, after[at])
            at = after[at]
        while waiting:
            _, left, right, length = heappop(waiting)
            if parts[left] and parts[right] and len(parts[left]) + len(parts[right]) == length:
                parts[left] += parts[right]
                parts[right] = ""
                after[left] = after[right]
                if after[left] < n:
                    before[after[left]] = left
                pair(before[left], left)
                pair(left, after[left])
        unknown = self._spelled.unknown
        return self._spelled(text, [(i, self._found.get(part, (unknown,))[0]) for i, part in enumerate(parts) if part])
