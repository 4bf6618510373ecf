"""A model of SentencePiece that normalises texts, or is Unigram, in place of `tokenizers`, which would give other ids for some.

Its tokenizer is described as a `tokenizer.json` that other programs read, with what they would pass over: `sentencepiece` in its
model has the table of characters, the rules for spaces and the kinds of the pieces. Who opens it here has SentencePiece's ids.
Cost is linear in the text: 3 µs a character.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence

from tokenizers import Tokenizer as Inner

from circuitlab.disk.json_types import JsonDict, JsonObject
from circuitlab.model.text.sentencepiece_bpe import NORMAL, UNKNOWN, USER, Piece, need_short
from circuitlab.model.text.sentencepiece_merging import Merging, otherwise
from circuitlab.model.text.sentencepiece_normaliser import SPACE, LongestKeys, Normaliser, Rules
from circuitlab.model.text.sentencepiece_unigram import Unigram

KEY = "sentencepiece"
_FLAGS = ("in_front", "suffix", "collapses", "escapes")
_QUICK, _USUAL_LOOKS = 1500, 16  # characters that take few ms, where as many pieces at most may begin at one: of 1 to 16 letters
_ALL = 2**20  # spaces that are taken from the beginning of a decoded text


def stated(rules: Rules, pieces: Sequence[Piece]) -> JsonDict:
    """What a description says beyond what other programs read."""
    kinds: dict[str, list[int]] = {}
    for i, (_, _, kind) in enumerate(pieces):
        if kind != NORMAL:
            kinds.setdefault(str(kind), []).append(i)
    return {"table": base64.b64encode(rules.table).decode(), "kinds": kinds} | {flag: getattr(rules, flag) for flag in _FLAGS}


def unigram_description(pieces: Sequence[Piece], rules: Rules, added: list[JsonDict], byte_fallback: bool) -> JsonDict:
    """The contents of a `tokenizer.json` of a Unigram model, the steps for other programs as `transformers` has them.

    Raises `ValueError` where no piece stands for the unknown, `Unmergeable`.
    """
    need_short(pieces, NORMAL, USER)
    unknown = next((i for i, (_, _, kind) in enumerate(pieces) if kind == UNKNOWN), None)
    if unknown is None:
        raise ValueError("no piece for what is unknown")
    return {
        "version": "1.0",
        "added_tokens": added,
        **_steps(rules),
        "post_processor": None,
        "model": {
            "type": "Unigram",
            "unk_id": unknown,
            "vocab": [[text, score] for text, score, _ in pieces],
            "byte_fallback": byte_fallback,
            KEY: stated(rules, pieces),
        },
    }


def normalising(spec: JsonDict, rules: Rules, pieces: Sequence[Piece]) -> JsonDict:
    """The description of a BPE model with what `tokenizers` would do otherwise; as it is where that is nothing."""
    differs = otherwise(pieces)
    if rules.plain and not differs:
        return spec
    said = stated(rules, pieces) | ({"scores": [score for _, score, _ in pieces]} if differs else {})
    return {**spec, **_steps(rules), "model": {**spec["model"], KEY: said}}


def _steps(rules: Rules) -> JsonDict:
    table = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(rules.table).decode()}
    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    several = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    normalisers = [*([table] if rules.table else []), *([strip, several] if rules.collapses else [])]
    scheme = "always" if rules.in_front and not rules.suffix else "never"
    start = _ALL if rules.collapses else int(rules.in_front)
    back: list[JsonDict] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    back += [{"type": "Strip", "content": " ", "start": start, "stop": 0}] * (start > 0)
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalisers},
        "pre_tokenizer": {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": False},
        "decoder": {"type": "Sequence", "decoders": back},
    }


class SentencePieceEncoder:
    """Encodes as SentencePiece does. `data`: the bytes of its `tokenizer.json`; `quick`: characters that take few ms."""

    def __init__(self, inner: Inner, spec: JsonObject, data: bytes) -> None:
        """`inner`: the vocabulary, its decoder, and for BPE its merges. Raises `ValueError` for what no description says."""
        model = spec["model"]
        said = model[KEY]
        if not isinstance(said, Mapping) or not all(isinstance(said.get(flag), bool) for flag in _FLAGS):
            raise ValueError("rules of SentencePiece that cannot be read")
        self.data, self._inner = data, inner
        unigram = model.get("type") == "Unigram"
        pieces = _pieces(model["vocab"], said.get("kinds"), said.get("scores"), unigram)
        symbols = tuple(text for text, _, kind in pieces if kind == USER)
        self._normalised = Normaliser(Rules(_table(said.get("table")), symbols, **{flag: said[flag] for flag in _FLAGS}))
        divided = Unigram if unigram else Merging if said.get("scores") is not None else None
        self._divided = divided(pieces, model.get("byte_fallback") is True) if divided is not None else None
        looks = self._divided.most_looks if isinstance(self._divided, Unigram) else _USUAL_LOOKS
        self.quick = _QUICK * _USUAL_LOOKS // max(_USUAL_LOOKS, looks)
        texts = {text for text, _, _ in pieces}
        listed = spec.get("added_tokens") or ()
        plain = {t["content"]: t for t in listed if not t["special"] and t["content"] not in texts}
        self._added = plain | {t["content"]: t for t in listed if t["special"]}
        self._look = {True: LongestKeys(self._added), False: LongestKeys(plain)}

    def encode(self, text: str, special: bool = False, added: bool = False) -> list[int]:
        """Ids of a text. `special`: spellings of special tokens are read as these; `added`: the file adds none.

        Raises `ValueError` for half a character.
        """
        text.encode()
        ids: list[int] = []
        at, lstrip = 0, False
        for start, end in self._look[special].found(text):
            token = self._added[text[start:end]]
            if token["single_word"] and (
                re.match(r"\w", text[end : end + 1]) or re.match(r"\w", text[max(start - 1, 0) : start])
            ):
                continue
            ids += self._part(text[at:start], lstrip, token["lstrip"])
            ids.append(token["id"])
            at, lstrip = end, token["rstrip"]
        return ids + self._part(text[at:], lstrip, False)

    def decode(self, ids: list[int], special: bool = False) -> str:
        """Text of ids, with special tokens spelled (`special`) or left out."""
        return self._inner.decode(ids, skip_special_tokens=not special)

    def _part(self, text: str, lstrip: bool, rstrip: bool) -> list[int]:
        text = text.lstrip() if lstrip else text
        text = self._normalised(text.rstrip() if rstrip else text)
        if self._divided is not None:
            return self._divided(text)
        return self._inner.encode_batch_fast([text], add_special_tokens=False)[0].ids if text else []


def _table(value: object) -> bytes:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except binascii.Error as error:
        raise ValueError("a table of characters that is not written in base64") from error


def _pieces(vocab: object, kinds: object, scores: object, unigram: bool) -> list[Piece]:
    """Text, score and kind by id. Raises `ValueError`."""
    if isinstance(vocab, Mapping):
        if sorted(vocab.values()) != list(range(len(vocab))):
            raise ValueError("pieces that are not numbered from 0")
        stated_scores = [float(score) for score in scores] if isinstance(scores, list) else [0.0] * len(vocab)
        listed = list(zip(sorted(vocab, key=vocab.__getitem__), stated_scores, strict=True))
    else:
        listed = [(str(text), float(score)) for text, score in vocab] if isinstance(vocab, list) else []
    kind_of = [NORMAL] * len(listed)
    for kind, ids in kinds.items() if isinstance(kinds, Mapping) else ():
        for i in ids:
            kind_of[i] = int(kind)
    pieces = [(text, score, kind) for (text, score), kind in zip(listed, kind_of, strict=True)]
    if unigram:
        need_short(pieces, NORMAL, USER)
    if any(not text for text, _, kind in pieces if kind in (NORMAL, USER)):
        raise ValueError("pieces without text")
    if (unigram or scores is not None) and UNKNOWN not in kind_of:
        raise ValueError("no piece for what is unknown")
    return pieces
