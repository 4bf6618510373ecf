"""SentencePiece's BPE as `tokenizers` has it: a description of a `tokenizer.json`, from pieces with their scores and kinds.

SentencePiece has no list of merges: of two neighbouring pieces whose texts join to a piece, those are joined first whose piece
has the best score. Every such pair, in that order, is the list. Spaces are written as ▁, one of which may stand in front.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from circuitlab.counting import number_of
from circuitlab.disk.json_types import JsonDict

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)  # kinds of pieces, as the format of SentencePiece numbers them
_LONGEST = 256  # characters of a piece, which is divided at each of them to find its merges; 16 unless a training says otherwise
_MOST_MERGES = 2**20  # of Gemma's, the largest: 0.6 million
_SPACE = "▁"

Piece = tuple[str, float, int]  # text, score, kind


class Unmergeable(ValueError):
    """Pieces that no model has: why, after "it has"."""


def too_long(piece: Piece) -> bool:
    """Whether a piece is longer than those that are divided or looked for here."""
    return len(piece[0]) > _LONGEST


def need_short(pieces: Iterable[Piece], *kinds: int) -> None:
    """Raise `Unmergeable` where a piece of one of these kinds is longer than those of models."""
    if any(too_long(piece) for piece in pieces if piece[2] in kinds):
        raise Unmergeable(f"pieces longer than {number_of(_LONGEST, 'character')}")


def bpe_description(
    pieces: Collection[Piece],
    vocab: Mapping[str, int],
    kinds: Collection[int],
    unknown: str | None,
    in_front: bool,
    added: list[JsonDict],
    byte_fallback: bool = True,
) -> JsonDict:
    """The contents of a `tokenizer.json`.

    `vocab`: id by text; `kinds`: the kinds of pieces that are merged; `unknown`: the piece for what no other stands for;
    `in_front`: whether a text begins with a space of its own; `added`: pieces that are looked for before all rules. Raises
    `Unmergeable`.
    """
    need_short(pieces, NORMAL)
    # a longer symbol of the user's own is found whole, before any merge
    merged = [(piece[0], piece[1]) for piece in pieces if piece[2] in kinds and not too_long(piece)]
    blank = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    back: list[JsonDict] = [{"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}]
    back += [{"type": "ByteFallback"}, {"type": "Fuse"}]
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [*([{"type": "Prepend", "prepend": _SPACE}] * in_front), blank]},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": back + [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] * in_front,
        },
        "model": {
            "type": "BPE",
            "vocab": vocab,
            "merges": _merges(merged, vocab),
            "unk_token": unknown,
            "fuse_unk": True,
            "byte_fallback": byte_fallback,
            "ignore_merges": False,
        },
    }


def _merges(pieces: Iterable[tuple[str, float]], vocab: Mapping[str, int]) -> list[list[str]]:
    """Every pair of pieces that joins to a piece, that of the best score first, among equals that of the longer left piece.

    SentencePiece goes from left to right among equals. So does a run of spaces, whose pieces have one score in all models of
    Llama's kind, if what has begun to grow grows on before another pair begins. A few megabytes of pieces can make sixty million.
    """
    scores = dict(pieces)
    merges: list[tuple[float, int, int, int, list[str]]] = []
    for text, score in scores.items():
        halves = ((text[:k], text[k:]) for k in range(1, len(text)))
        merges += [(-score, -len(a), vocab[a], vocab[b], [a, b]) for a, b in halves if a in scores and b in scores]
        if len(merges) > _MOST_MERGES:
            raise Unmergeable(f"more than {number_of(_MOST_MERGES, 'merge')}")
    return [pair for *_, pair in sorted(merges)]
