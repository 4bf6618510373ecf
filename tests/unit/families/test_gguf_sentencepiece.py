"""GGUF vocabularies of SentencePiece's BPE (`tokenizer.ggml.model` llama) and lone models: what the libraries do at the edges."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from circuitlab.model.text.tokenizer import Tokenizer
from tests.unit.families.test_gguf_unigram import _opened as opened_gguf
from tests.unit.families.test_sentencepiece import PROSE, TEXTS, model_file, opened, trained

SYMBOLS = ["<turn>", "[A]", "\n\n"]
BYTES = [(f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)]
SPECIAL = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]


def _random_texts(n: int, parts: list[str], seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return ["".join(draw.choice(parts) for _ in range(draw.randint(1, 20))) for _ in range(n)]


def _said(library: Any, data: bytes) -> dict[str, Any]:
    """The keys that the converter of llama.cpp writes for a model of SentencePiece's."""
    model = library.SentencePieceProcessor(model_proto=data)
    ids = range(model.get_piece_size())
    named = ((2, model.is_unknown), (3, model.is_control), (6, model.is_byte), (4, lambda i: model.id_to_piece(i) in SYMBOLS))
    kind = lambda i: next((number for number, holds in named if holds(i)), 1)
    return {
        "model": "llama",
        "tokens": [model.id_to_piece(i) for i in ids],
        "scores": [float(model.get_score(i)) for i in ids],
        "token_type": [kind(i) for i in ids],
    }


@pytest.mark.parametrize("in_front", [True, False])
def test_symbols_of_the_user_divide_a_text_as_llama_cpp_divides_it(tmp_path: Path, in_front: bool) -> None:
    """Each part between two of them is a text of its own, with a space in front: SentencePiece's own ids of the parts."""
    library = pytest.importorskip("sentencepiece")
    data = trained(
        byte_fallback=True,
        remove_extra_whitespaces=False,
        user_defined_symbols=SYMBOLS,
        add_dummy_prefix=in_front,
        vocab_size=430,
    )
    theirs = library.SentencePieceProcessor(model_proto=data)
    ours = opened_gguf(tmp_path, _said(library, data) | {"add_space_prefix": in_front})
    parts = [*SYMBOLS, "the ", " wolf", "a", "  ", "é", "日", "<tur", "[", "\n"]
    for text in (*TEXTS, *PROSE, *_random_texts(300, parts)):
        each = re.split(f"({'|'.join(map(re.escape, SYMBOLS))})", text)
        expected = [i for part in each for i in ([theirs.piece_to_id(part)] if part in SYMBOLS else theirs.encode(part))]
        assert list(ours.encode_uncached(text)) == expected, text


def test_a_score_of_minus_zero_is_less_than_zero_to_sentencepiece_and_equal_to_llama_cpp(tmp_path: Path) -> None:
    library = pytest.importorskip("sentencepiece")
    words = ["ab", "bc", "abc", "ca", "cab", "▁a", "▁ab", "bb", "aa"]
    made = lambda less: [
        *SPECIAL,
        *BYTES,
        *((c, 0.0, 1) for c in "abc▁"),
        *((w, less if i % 2 else 0.0, 1) for i, w in enumerate(words)),
    ]
    pieces, equals = made(-0.0), library.SentencePieceProcessor(model_proto=model_file(made(0.0)))
    texts, scores, kinds = (list(each) for each in zip(*pieces, strict=True))
    data = model_file(pieces)
    theirs = library.SentencePieceProcessor(model_proto=data)
    lone = opened(data)
    packed = opened_gguf(tmp_path, {"model": "llama", "tokens": texts, "scores": scores, "token_type": kinds})
    for text in ("abcab", "cabbc aab", *_random_texts(300, list("abc "))):
        assert list(lone.encode_uncached(text)) == theirs.encode(text), text
        assert list(packed.encode_uncached(text)) == equals.encode(text), text
    assert theirs.encode("cabbc aab") != equals.encode("cabbc aab")


def test_bytes_that_are_no_character_are_shown_as_tokenizers_shows_them(tmp_path: Path) -> None:
    """A run of bytes is a text or it is not: one that is cut in a character has U+FFFD for each of its bytes."""
    library = pytest.importorskip("sentencepiece")
    from tokenizers import Tokenizer as Theirs

    pieces = [*SPECIAL, *BYTES, ("▁", -1.0, 1), ("a", -2.0, 1)]
    texts, scores, kinds = (list(each) for each in zip(*pieces, strict=True))
    data = model_file(pieces)
    whole, lone = library.SentencePieceProcessor(model_proto=data), opened(data)
    packed = opened_gguf(tmp_path, {"model": "llama", "tokens": texts, "scores": scores, "token_type": kinds})
    other = Theirs.from_str(lone.file_text())
    draw, a = random.Random(3), len(pieces) - 1
    for _ in range(300):
        sent = "".join(draw.choice("é日🙂a\x00") for _ in range(draw.randint(1, 4))).encode()
        cut = sent[: draw.randrange(len(sent) + 1)] + (b"\xff" if draw.random() < 0.3 else b"")
        ids = tuple(a if byte == 97 else 3 + byte for byte in cut)
        shown = other.decode(list(ids))
        assert lone.decode(ids) == packed.decode(ids) == shown
        try:
            text = cut.decode()
        except UnicodeDecodeError:
            assert "\ufffd" in shown
        else:
            assert shown == text == whole.decode(list(ids))


def test_a_tokenizer_json_of_the_same_pieces_shows_them_alike() -> None:
    """What is saved is what was opened, bytes included."""
    ours = opened(model_file([*SPECIAL, *BYTES, ("▁", -1.0, 1)]))
    again = Tokenizer.from_bytes(json.dumps(json.loads(ours.file_text())).encode(), "tokenizer.json")
    for ids in ((3 + 0xC3, 3 + 0xA9), (3 + 0xC3,), (3 + 0xFF, 3 + 0x41), (3 + 0xE6, 3 + 0x97, 3 + 0xA5, 3 + 0xE6)):
        assert ours.decode(ids) == again.decode(ids)
