"""The tokenizer of a GGUF file, from its tokens, merges and scores, described as a `tokenizer.json` would."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from circuitlab.counting import number_of
from circuitlab.disk.json_types import JsonDict
from circuitlab.errors import BadModel, quoted
from circuitlab.model.files.gguf.header import Header
from circuitlab.model.loading.gguf.splitting import rules_of
from circuitlab.model.text.chat_template import LARGEST, ChatTemplate, too_large
from circuitlab.model.text.sentencepiece_bpe import CONTROL, NORMAL, UNKNOWN, USER, Piece, Unmergeable, bpe_description
from circuitlab.model.text.sentencepiece_encoder import normalising, unigram_description
from circuitlab.model.text.sentencepiece_normaliser import Rules
from circuitlab.model.text.tokenizer import Tokenizer

_REMEDY = "Convert the model again, or open it with --assume tokenizer=PATH of a tokenizer.json, or tokenizer=none."


class _Keys:
    """The keys under `tokenizer.`."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.tokens: list[str] = self.texts("tokens")
        self.types = self.array("token_type", np.full(len(self.tokens), NORMAL, dtype=np.int32))

    def get(self, name: str, default: object = None) -> Any:
        """A value as it was read."""
        return self.header.metadata.get(f"tokenizer.ggml.{name}", default)

    def texts(self, name: str) -> list[str]:
        """A list of texts. Raises `BadModel`."""
        value = self.get(name)
        if not isinstance(value, list):
            raise _bad(self.header, name, "a list of texts", quoted(value) if value is not None else "nothing")
        return value

    def array(self, name: str, default: object = None) -> np.ndarray:
        """Numbers, one for each token. Raises `BadModel`."""
        value = self.get(name)
        value = default if value is None else value
        if not isinstance(value, np.ndarray) or value.shape != (len(self.tokens),):
            raise _bad(self.header, name, f"{number_of(len(self.tokens), 'number')}, one for each token", quoted(value, 60))
        return value

    def id(self, name: str) -> int | None:
        """The id of a special token, None where it is not stated or outside the vocabulary."""
        value = self.get(f"{name}_token_id")
        return value if type(value) is int and 0 <= value < len(self.tokens) else None

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self.get(name, default)
        return value if isinstance(value, bool) else default


def _bad(header: Header, name: str, expected: str, got: str) -> BadModel:
    what = f"{header.name}: tokenizer.ggml.{name} cannot be read."
    return BadModel(what, expected=expected, got=got, remedy=_REMEDY)


def vocabulary(header: Header) -> Tokenizer | None:
    """The file's tokenizer, None where it has none. Raises `BadModel` for a damaged one."""
    model = header.metadata.get("tokenizer.ggml.model")
    if model in (None, "none", "no_vocab"):
        return None
    keys = _Keys(header)
    if model == "gpt2":
        spec, note = _byte_level(keys)
    elif model == "llama":
        spec, note = _sentencepiece(keys), "tokenizer of the file: SentencePiece BPE"
    elif model == "t5":
        spec, note = _unigram(keys), "tokenizer of the file: SentencePiece Unigram"
    else:
        raise BadModel(
            "The kind of tokenizer in this GGUF file is not supported.",
            expected="gpt2 (byte-level BPE), llama (SentencePiece BPE) or t5 (SentencePiece Unigram)",
            got=quoted(model),
            remedy="Open it with --assume tokenizer=PATH of a tokenizer.json, or tokenizer=none for ids.",
        )
    tokenizer = Tokenizer.from_bytes(json.dumps(spec).encode(), f"{header.name}: the tokenizer")
    sentencepiece = model == "llama"
    bos = keys.id("bos")
    tokenizer.bos = bos if bos is not None else 1 if sentencepiece and keys.get("bos_token_id") is None else None
    always = sentencepiece or keys.get("pre") in ("llama-bpe", "llama3", "llama-v3", "tekken")
    tokenizer.adds_bos = tokenizer.bos is not None and keys.flag("add_bos_token", always)
    tokenizer.notes = (note,)
    text = header.metadata.get("tokenizer.chat_template")
    if isinstance(text, str) and len(text) > LARGEST:
        tokenizer.notes += (f"its chat template is not read: {too_large(len(text))}",)
    elif isinstance(text, str) and text:
        tokenizer.chat = _chat_template(text, keys, tokenizer)
    return tokenizer


def _chat_template(text: str, keys: _Keys, tokenizer: Tokenizer) -> ChatTemplate:
    """How messages become a text, with the special tokens that a template calls by name."""
    named = {"bos_token": tokenizer.bos, "eos_token": keys.id("eos")}
    ids = {name: i for name, i in named.items() if i is not None and i < tokenizer.n_tokens}
    return ChatTemplate(text, tuple((name, tokenizer.raw(i)) for name, i in ids.items()))


def _added(keys: _Keys, types: tuple[int, ...]) -> list[JsonDict]:
    """Tokens that are matched before all rules, those of `USER` as text of their own, all others as special ones."""
    return [
        {
            "id": i,
            "content": keys.tokens[i],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": bool(keys.types[i] != USER),
        }
        for i in np.flatnonzero(np.isin(keys.types, types)).tolist()
        if keys.tokens[i]
    ]


def _vocab(keys: _Keys) -> dict[str, int]:
    """Token -> id. Raises `BadModel` where two tokens are spelled alike."""
    vocab = {token: i for i, token in enumerate(keys.tokens)}
    if len(vocab) != len(keys.tokens):
        twice = next(token for i, token in enumerate(keys.tokens) if vocab[token] != i)
        raise _bad(keys.header, "tokens", "tokens spelled differently", f"{quoted(twice)} twice")
    return vocab


def _byte_level(keys: _Keys) -> tuple[JsonDict, str]:
    """GPT-2's BPE over bytes; `tokenizer.ggml.pre` names how a text is split before it."""
    pairs = [text.partition(" ") for text in keys.texts("merges")]
    rules = rules_of(keys.get("pre"), keys.header.metadata.get("general.architecture"))
    model = {
        "type": "BPE",
        "vocab": _vocab(keys),
        "merges": [[left, right] for left, _, right in pairs],
        "ignore_merges": rules.whole_words,
        "byte_fallback": False,
        "fuse_unk": False,
    }
    splits = [{"type": "Split", "pattern": {"Regex": e}, "behavior": "Isolated", "invert": False} for e in rules.expressions]
    in_front = keys.flag("add_space_prefix", False)
    to_bytes = {"type": "ByteLevel", "add_prefix_space": in_front, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "added_tokens": _added(keys, (CONTROL, USER)),
        "normalizer": {"type": "NFC"} if rules.composed else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, to_bytes]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": model,
    }, f"tokenizer of the file: byte-level BPE, {rules.words}"


def _pieces(keys: _Keys) -> list[Piece]:
    """Text, score and kind of each token. Raises `BadModel`."""
    scores = keys.array("scores")
    if not np.isfinite(scores).all():
        raise _bad(keys.header, "scores", "finite scores", "NaN or infinite ones")
    scores = scores + 0.0  # for llama.cpp −0.0 is 0.0, and for SentencePiece it is less
    return list(zip(keys.tokens, scores.tolist(), keys.types.tolist(), strict=True))


def _unlike(keys: _Keys, error: Unmergeable) -> BadModel:
    return _bad(keys.header, "tokens", "pieces as a model has them", str(error))


def _unigram(keys: _Keys) -> JsonDict:
    """SentencePiece's Unigram model, with its rules of normalising."""
    pieces, table = _pieces(keys), keys.get("precompiled_charsmap", np.zeros(0, dtype=np.uint8))
    _vocab(keys)
    if not isinstance(table, np.ndarray) or table.dtype.itemsize != 1:
        raise _bad(keys.header, "precompiled_charsmap", "bytes", quoted(table, 60))
    rules = Rules(
        table=table.tobytes(),
        symbols=tuple(text for text, _, kind in pieces if kind == USER),
        in_front=keys.flag("add_space_prefix", False),
        collapses=keys.flag("remove_extra_whitespaces", False),
    )
    try:
        return unigram_description(pieces, rules, _added(keys, (UNKNOWN, CONTROL)), byte_fallback=False)
    except Unmergeable as error:
        raise _unlike(keys, error) from error
    except ValueError as error:
        raise _bad(keys.header, "token_type", "a token of the kind 2, for what is unknown", str(error)) from error


def _sentencepiece(keys: _Keys) -> JsonDict:
    """SentencePiece's BPE: pieces are merged in the order of the score of what they make."""
    pieces, vocab = _pieces(keys), _vocab(keys)
    unknown = keys.id("unknown")
    unknown = 0 if unknown is None and keys.tokens else unknown
    in_front, text = keys.flag("add_space_prefix", True), None if unknown is None else keys.tokens[unknown]
    try:
        spec = bpe_description(pieces, vocab, (NORMAL, USER), text, in_front, _added(keys, (UNKNOWN, CONTROL, USER)))
    except Unmergeable as error:
        raise _unlike(keys, error) from error
    kinds = set(keys.types.tolist())  # a user's symbol divides the text before a space is put in front of each part
    return spec if USER in kinds or UNKNOWN not in kinds else normalising(spec, Rules(in_front=in_front, collapses=False), pieces)
