"""SentencePiece's `tokenizer.model` (Kudo and Richardson 2018), described as a `tokenizer.json` would describe it.

The file is a protocol buffer: pieces with a score and a kind, how the model was trained, how a text is normalised. BPE models
become `tokenizers`' BPE: SentencePiece merges the two neighbours that make the piece of the best score, which is the order of the
merges here. Unigram models, and those that normalise a text further than that they write spaces as ▁, are encoded by
`sentencepiece_encoder`. What would still give other ids than SentencePiece is not read, and said.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from circuitlab.counting import number_of
from circuitlab.disk.json_types import JsonDict
from circuitlab.errors import BadModel, cause
from circuitlab.model.text.not_read import NotRead
from circuitlab.model.text.sentencepiece_bpe import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER,
    Unmergeable,
    bpe_description,
    too_long,
)
from circuitlab.model.text.sentencepiece_encoder import normalising, unigram_description
from circuitlab.model.text.sentencepiece_normaliser import Normaliser, Rules

LARGEST = 16 * 2**20  # bytes; the largest of public models has 5 million
_MOST_PIECES, _MOST_CHARACTERS = 2**20, 2**23  # of Gemma's, the largest: 2^18, 1.9 million
_UNIGRAM, _BPE = 1, 2
_REMEDY = "Fetch or write the file again, or remove it and use token ids."


@dataclass(frozen=True)
class _Spec:
    """Pieces by id (text, score, kind), and what the file says of training and normalisation."""

    pieces: tuple[tuple[str, float, int], ...]
    kind: int
    byte_fallback: bool
    unknown: str
    rules: Rules


def description(data: bytes, name: str, in_front: bool | None = None) -> JsonDict:
    """The contents of a `tokenizer.json` that gives SentencePiece's ids.

    `in_front`: whether a space is put in front of a text, where another file says so. Raises `BadModel` for a damaged file,
    `NotRead` for one of another kind.
    """
    try:
        spec = _spec(data)
        spec = spec if in_front is None else replace(spec, rules=replace(spec.rules, in_front=in_front and spec.rules.in_front))
        Normaliser(spec.rules)
    except (ValueError, IndexError, struct.error, UnicodeDecodeError) as error:
        raise BadModel(
            f"{name} cannot be read.",
            expected="a model of SentencePiece",
            got=cause(error, 120) or "a damaged file",
            remedy=_REMEDY,
        ) from error
    _refuse(spec)
    vocab = {text: i for i, (text, _, _) in enumerate(spec.pieces)}
    if len(vocab) != len(spec.pieces):
        twice = next(text for i, (text, _, _) in enumerate(spec.pieces) if vocab[text] != i)
        raise BadModel(
            f"{name} cannot be read.", expected="pieces spelled differently", got=f"{twice[:40]!r} twice", remedy=_REMEDY
        )
    added = [_added(i, text, kind) for i, (text, _, kind) in enumerate(spec.pieces) if kind in (UNKNOWN, CONTROL, USER)]
    try:
        if spec.kind == _UNIGRAM:
            return unigram_description(spec.pieces, spec.rules, [t for t in added if t["special"]], spec.byte_fallback)
        merged = bpe_description(spec.pieces, vocab, (NORMAL,), spec.unknown, spec.rules.in_front, added, spec.byte_fallback)
        return normalising(merged, spec.rules, spec.pieces)
    except Unmergeable as error:
        raise NotRead(f"it has {error}") from error


def spellings(data: bytes) -> Iterator[tuple[bytes, int]]:
    """(text in UTF-8, kind) of each piece by its id, of a file that is not checked further: in a third of the time.

    Raises `ValueError` or `IndexError` for a damaged one.
    """
    for number, piece in _fields(data):
        if number != 1 or not isinstance(piece, bytes):
            continue
        stop = 2 + piece[1]  # the text comes first, and after the five bytes of the score the kind, where it is stated
        if piece[0] == 10 and piece[1] < 128 and len(piece) in (stop + 5, stop + 7):
            yield piece[2:stop], piece[stop + 6] if len(piece) == stop + 7 else NORMAL
        else:
            fields = dict(_fields(piece))
            yield _bytes(fields, 1), _number(fields, 3, NORMAL)


def _refuse(spec: _Spec) -> None:
    reasons = (
        (spec.kind not in (_UNIGRAM, _BPE), "its model is of words or characters; BPE and Unigram are read"),
        (spec.kind == _BPE and _reaches_unused(spec), "it has pieces that are merged and not used"),
        (sum(len(text) for text, _, _ in spec.pieces) > _MOST_CHARACTERS, "its pieces are longer than those of any model"),
    )
    for applies, reason in reasons:
        if applies:
            raise NotRead(reason)


def _reaches_unused(spec: _Spec) -> bool:
    """Whether merging may make a piece that SentencePiece then takes apart again, as it is not to be used."""
    joined = {text for text, _, kind in spec.pieces if kind in (NORMAL, UNUSED)}
    unused = [piece for piece in spec.pieces if piece[2] == UNUSED]
    halves = lambda t: ((t[:k], t[k:]) for k in range(1, len(t)))
    return any(len(p[0]) == 1 or too_long(p) or any(a in joined and b in joined for a, b in halves(p[0])) for p in unused)


def _added(i: int, text: str, kind: int) -> JsonDict:
    """A piece that is not merged. The user's own are looked for in the text as it is normalised."""
    how = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": kind == USER}
    return {"id": i, "content": text, **how, "special": kind != USER}


# -- the protocol buffer -----------------------------------------------------------------------------------------------------


def _spec(data: bytes) -> _Spec:
    """What the file says. Raises `ValueError`, `IndexError`, `struct.error` or `UnicodeDecodeError`."""
    pieces: list[tuple[str, float, int]] = []
    parts: dict[int, list[bytes]] = {2: [], 3: []}  # of training, of normalisation
    for number, value in _fields(data):
        if number == 1 and isinstance(value, bytes):
            pieces.append(_piece(value))
        elif number in parts and isinstance(value, bytes):
            parts[number].append(value)
    trainer, rules = (dict(_fields(b"".join(parts[number]))) for number in (2, 3))
    unknown = next((text for text, _, kind in pieces if kind == UNKNOWN), None)
    if unknown is None:
        raise ValueError("no piece for what is unknown")
    return _Spec(
        pieces=tuple(pieces),
        kind=_number(trainer, 3, _UNIGRAM),
        byte_fallback=bool(_number(trainer, 35, 0)),
        unknown=unknown,
        rules=Rules(
            table=_bytes(rules, 2),
            symbols=tuple(text for text, _, kind in pieces if kind == USER),
            suffix=bool(_number(trainer, 24, 0)),
            in_front=bool(_number(rules, 3, 1)),
            collapses=bool(_number(rules, 4, 1)),
            escapes=bool(_number(rules, 5, 1)),
        ),
    )


def _piece(data: bytes) -> tuple[str, float, int]:
    fields = dict(_fields(data))
    raw = _bytes(fields, 2, b"\0\0\0\0")
    (score,) = struct.unpack("<f", raw)
    if score != score or score in (float("inf"), float("-inf")):
        raise ValueError("a score that is not a number")
    text, kind = _bytes(fields, 1).decode("utf-8"), _number(fields, 3, NORMAL)
    if not text or not NORMAL <= kind <= BYTE:
        raise ValueError(f"a piece of the kind {kind}" if text else "a piece without text")
    return text, score, kind


def _number(fields: Mapping[int, int | bytes], number: int, default: int) -> int:
    value = fields.get(number, default)
    if not isinstance(value, int):
        raise ValueError(f"field {number} is not a number")
    return value


def _bytes(fields: Mapping[int, int | bytes], number: int, default: bytes = b"") -> bytes:
    value = fields.get(number, default)
    if not isinstance(value, bytes):
        raise ValueError(f"field {number} is not a text")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field of a message: a number, or the bytes of what is longer. Raises `ValueError`, `IndexError`."""
    at, end, n = 0, len(data), 0
    while at < end:
        n += 1
        if n > _MOST_PIECES:
            raise ValueError(f"more than {number_of(_MOST_PIECES, 'field')}")
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        length = {1: 8, 5: 4}.get(wire)
        if length is None:
            if wire != 2:
                raise ValueError("no protocol buffer")
            length, at = _varint(data, at)
        if length > end - at:
            raise ValueError("it ends in the middle of a field")
        yield tag >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number without end")
