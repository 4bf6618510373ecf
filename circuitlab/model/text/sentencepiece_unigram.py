"""SentencePiece's Unigram model (Kudo 2018): a text becomes the pieces whose scores, log probabilities, have the greatest sum.

The sums are rounded to float32 as SentencePiece rounds them, so that the same path wins among those that differ by rounding
alone, as do those of "aaaaa": of equals the one whose last piece is the longest. `tokenizers` sums in float64.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence

from circuitlab.model.text.sentencepiece_bpe import BYTE, NORMAL, UNKNOWN, USER, Piece

_UNKNOWN_PENALTY = 10.0  # an unknown character scores as much less than the worst piece
_FAR = 100_000.0  # a sum beyond it is counted from 0 again


class Spelling:
    """Ids of pieces, and of the characters that no piece stands for. `byte_fallback`: these become the pieces of their bytes."""

    def __init__(self, pieces: Sequence[Piece], byte_fallback: bool) -> None:
        self.unknown = next(i for i, (_, _, kind) in enumerate(pieces) if kind == UNKNOWN)
        ids = {text: i for i, (text, _, kind) in enumerate(pieces) if kind == BYTE}
        self._bytes = [ids.get(f"<0x{b:02X}>", self.unknown) for b in range(256)] if byte_fallback else None

    def __call__(self, text: str, path: Sequence[tuple[int, int]]) -> list[int]:
        """The ids of pieces, of which the place in the text and the id are given; unknown ones side by side are one id."""
        ids: list[int] = []
        after_unknown = False
        for start, piece in path:
            unknown = piece == self.unknown
            if unknown and self._bytes is not None:
                ids += [self._bytes[b] for b in text[start].encode()]
            elif not (unknown and after_unknown):
                ids.append(piece)
            after_unknown = unknown
        return ids


class Unigram:
    """Divides normalised texts into ids. `byte_fallback`: an unknown character becomes the pieces of its bytes."""

    def __init__(self, pieces: Sequence[Piece], byte_fallback: bool) -> None:
        normal = [score for _, score, kind in pieces if kind == NORMAL]
        self._spelled = Spelling(pieces, byte_fallback)
        self._unknown_score = _rounded(min(normal, default=0.0) - _UNKNOWN_PENALTY)
        self._found: dict[str, tuple[int, float]] = {}
        lengths: dict[str, set[int]] = {}
        for i, (text, score, kind) in enumerate(pieces):
            if kind in (NORMAL, USER):
                self._found[text] = i, score if kind == NORMAL else _rounded(0.1 * (len(text.encode()) - 1))
                if len(text) > 1:
                    lengths.setdefault(text[:2], set()).add(len(text))
        self._lengths = {begins: tuple(sorted(result)) for begins, result in lengths.items()}
        self.most_looks = 1 + max(map(len, lengths.values()), default=0)  # pieces that are looked for at one character

    def __call__(self, text: str) -> list[int]:
        """The ids of a normalised text; unknown characters side by side are one id, where they are not bytes."""
        n, result, lengths = len(text), self._found, self._lengths
        scores, starts, ids = array("f", bytes(4 * (n + 2))), [-1] * (n + 1), [0] * (n + 1)
        new = n + 1  # where a sum is rounded
        unknown, last = (self._spelled.unknown, self._unknown_score), 0  # last: the furthest end of a piece
        for start in range(n):
            here = scores[start]
            if not -_FAR <= here <= _FAR:
                for end in range(start, last + 1):
                    if end == start or starts[end] >= 0:
                        scores[end] -= here
                here = 0.0
            end = start + 1
            last = max(last, end)
            piece, score = result.get(text[start], unknown)
            scores[new] = score + here
            if starts[end] < 0 or scores[new] > scores[end]:
                scores[end], starts[end], ids[end] = scores[new], start, piece
            for length in lengths.get(text[start : start + 2], ()):
                end = start + length
                if end > n:
                    break
                if (one := result.get(text[start:end])) is not None:
                    last = max(last, end)
                    scores[new] = one[1] + here
                    if starts[end] < 0 or scores[new] > scores[end]:
                        scores[end], starts[end], ids[end] = scores[new], start, one[0]
        path, end = [], n
        while end > 0:
            path.append((starts[end], ids[end]))
            end = starts[end]
        return self._spelled(text, path[::-1])


def _rounded(value: float) -> float:
    """A number as float32."""
    return struct.unpack("<f", struct.pack("<f", value))[0]
