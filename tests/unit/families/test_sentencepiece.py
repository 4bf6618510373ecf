"""A lone `tokenizer.model`: ids and text as SentencePiece's own library gives them; other kinds, and hostile files, in words."""

from __future__ import annotations

import io
import json
import random
import struct
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from circuitlab.errors import BadModel
from circuitlab.model.loading import open_model
from circuitlab.model.loading.tokenizer_files import find_tokenizer
from circuitlab.model.text.not_read import NotRead
from circuitlab.model.text.sentencepiece_file import description
from circuitlab.model.text.tokenizer import Tokenizer
from tests.unit.families.test_tokenizers import model_in, write

PROSE = (
    "Once upon a time there was a little girl, who had a red coat; and the wolf, too, was there. " * 3,
    "def f(x):\n    return x + 12345\n\n\tif x:\n\t\tpass\n" * 3,
    "naïve café, déjà vu; the dog's dinner isn't 3.14 <s> and </s> aaaa abab",
)
TEXTS = (
    "Once upon a time there was", "  leading", "trailing  ", "a    b\n\n\tc", "", "  ", "<s> </s> <unk> <0x0A> ▁▁",
    "naïve 🙂 日本語 e\u0301 \x00\u00a0", " " * 37 + "x" + " " * 53, "12345 don't", "aaaaaaaab ababab the the",
)  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    "llama": {"byte_fallback": True, "remove_extra_whitespaces": False},
    "no bytes": {"remove_extra_whitespaces": False},
    "nothing in front": {"byte_fallback": True, "remove_extra_whitespaces": False, "add_dummy_prefix": False},
    "symbols of its own": {
        "byte_fallback": True,
        "remove_extra_whitespaces": False,
        "add_dummy_prefix": False,
        "user_defined_symbols": ["<turn>", "▁▁", "▁▁▁", "\n\n"],
    },
    "control symbols": {"byte_fallback": True, "remove_extra_whitespaces": False, "control_symbols": ["[INST]", "ab"]},
    "digits apart": {"byte_fallback": True, "remove_extra_whitespaces": False, "split_digits": True},
    "words joined": {"byte_fallback": True, "remove_extra_whitespaces": False, "split_by_whitespace": False},
}


def trained(**options: Any) -> bytes:
    """A model of SentencePiece's own trainer."""
    library, out = pytest.importorskip("sentencepiece"), io.BytesIO()
    usual = {"model_type": "bpe", "vocab_size": 420, "normalization_rule_name": "identity", "hard_vocab_limit": False}
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in PROSE for line in text.split("\n")),
        model_writer=out,
        minloglevel=5,
        num_threads=1,
        **usual | options,
    )
    return out.getvalue()


cached = lru_cache(lambda name: trained(**OPTIONS[name]))


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return _number(number << 3) + _number(value)
    return _number(number << 3 | 2) + _number(len(value)) + value


def model_file(pieces: list[tuple[str, float, int]], trainer: bytes = b"", rules: bytes = b"") -> bytes:
    """The file of these (text, score, kind): BPE with bytes, a space in front, nothing normalised."""
    each = (_field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + _field(3, kind) for text, score, kind in pieces)
    trained_as = _field(3, 2) + _field(35, 1) + trainer
    return b"".join(_field(1, piece) for piece in each) + _field(2, trained_as) + _field(3, _field(4, 0) + rules)


def llama_s(shared: Path) -> bytes:
    """Llama's own pieces and scores; the fixture's numbers are damaged, those of this vocabulary follow from the order."""
    data, pieces = (shared / "fixtures" / "gguf_vocab" / "ggml-vocab-llama-spm.gguf").read_bytes(), []
    at = data.index(b"tokenizer.ggml.tokens") + len(b"tokenizer.ggml.tokens") + 8
    (n,) = struct.unpack_from("<Q", data, at)
    at += 8
    for i in range(n):
        (length,) = struct.unpack_from("<Q", data, at)
        text = data[at + 8 : at + 8 + length].decode()
        at += 8 + length
        blank = len(text) > 1 and not text.strip("▁")
        kind = 2 if i == 0 else 3 if i < 3 else 6 if i < 259 else 1
        pieces.append((text, 0.0 if i < 259 else -1e9 if blank else 259.0 - i, kind))
    return model_file(pieces)


def opened(data: bytes) -> Tokenizer:
    """The tokenizer of these bytes."""
    return Tokenizer.from_bytes(json.dumps(description(data, "tokenizer.model")).encode(), "tokenizer.model")


def _random_texts(n: int, alphabet: str, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return ["".join(draw.choice(alphabet) for _ in range(draw.randint(1, 40))) for _ in range(n)]


@pytest.mark.parametrize("name", OPTIONS)
def test_ids_and_text_are_those_of_sentencepiece(name: str) -> None:
    library = pytest.importorskip("sentencepiece")
    data = cached(name)
    theirs, ours = library.SentencePieceProcessor(model_proto=data), opened(data)
    assert ours.n_tokens == theirs.get_piece_size()
    assert [ours.raw(i) for i in range(ours.n_tokens)] == [theirs.id_to_piece(i) for i in range(ours.n_tokens)]
    for text in (*TEXTS, *PROSE, *_random_texts(400, "ab the  \n\t.,<>s/turn[INST]▁éß日🙂01")):
        ids = ours.encode(text)
        assert list(ids) == theirs.encode(text), text
        if theirs.unk_id() not in ids:
            assert ours.decode(ids) == theirs.decode(list(ids)), text


def test_llama_s_own_vocabulary_gives_its_ids(shared_dir: Path) -> None:
    library = pytest.importorskip("sentencepiece")
    data, folder = llama_s(shared_dir), shared_dir / "fixtures" / "gguf_vocab"
    theirs, ours = library.SentencePieceProcessor(model_proto=data), opened(data)
    texts = (folder / "ggml-vocab-llama-spm.gguf.inp").read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    ids = (folder / "ggml-vocab-llama-spm.gguf.out").read_text(encoding="utf-8").split("\n")
    assert len(texts) == len(ids) > 40
    for text, line in zip(texts, ids, strict=True):
        assert list(ours.encode(text)) == [int(i) for i in line.split()], text
    runs = [" " * n + "x" for n in range(1, 100)]
    for text in (*TEXTS, *runs, *_random_texts(1000, "ab aba  the  \n\t.,<>s/0xA▁éß日🙂")):
        assert list(ours.encode(text)) == theirs.encode(text), text


@pytest.mark.parametrize("lengths", [(2, 3, 4, 8), (2, 4, 8, 5, 16, 6, 12, 13, 10, 14, 3, 9, 7, 11), (3, 2, 6, 12)])
def test_pieces_of_equal_scores_are_merged_from_the_left(lengths: tuple[int, ...]) -> None:
    """As runs of spaces are in Llama's and Mistral's, where SentencePiece goes by the place alone."""
    library = pytest.importorskip("sentencepiece")
    special = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), *((f"<0x{b:02X}>", 0.0, 6) for b in range(256))]
    pieces = [
        *special,
        *(("▁" * n, -1e9, 1) for n in lengths),
        *((c, -1e8 - i, 1) for i, c in enumerate("▁x")),
    ]
    data = model_file(pieces)
    theirs, ours = library.SentencePieceProcessor(model_proto=data), opened(data)
    for n in range(60):
        assert list(ours.encode(" " * n + "x")) == theirs.encode(" " * n + "x"), n


_FEW = [("<unk>", 0.0, 2), ("a", -1.0, 1), ("▁", -2.0, 1)]
NOT_READ: dict[str, bytes] = {
    "words or characters": model_file(_FEW, _field(3, 4)),
    "not used": model_file([*_FEW, ("aa", 0.0, 5)]),
    "longer than 256": model_file([*_FEW, ("x" * 300, 0.0, 1)]),
    "pieces longer than 256": model_file([*_FEW, ("x" * 300, 0.0, 1)], _field(3, 1)),
}


@pytest.mark.parametrize("reason", NOT_READ)
def test_what_would_give_other_ids_is_not_read_and_said(tmp_path: Path, reason: str) -> None:
    folder = model_in(tmp_path / "m", 500)
    (folder / "tokenizer.model").write_bytes(NOT_READ[reason])
    model = open_model(folder)
    assert model.weights.tokenizer is None
    assert any("tokenizer.model is not read" in note and reason in note for note in model.notes)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.model", b"IQ== 0\nIg== 1\nIw== 2\n"),
        ("sentencepiece.bpe.model", b"anything"),
        ("qwen.tiktoken", b"IQ== 0\n"),
    ],
)
def test_other_vocabularies_are_named(tmp_path: Path, name: str, content: bytes) -> None:
    folder = model_in(tmp_path / "m", 31)
    (folder / name).write_bytes(content)
    model = open_model(folder)
    assert model.weights.tokenizer is None
    assert any(name in note and "typed as ids" in note for note in model.notes)


BOS: dict[str, tuple[dict[str, Any], int | None, bool]] = {
    "nothing stated": ({}, 1, True),
    "a flag": ({"tokenizer_config": {"add_bos_token": False, "tokenizer_class": "LlamaTokenizer"}}, 1, False),
    "a class that puts it": ({"tokenizer_config": {"tokenizer_class": "LlamaTokenizer"}}, 1, True),
    "a class that does not": ({"tokenizer_config": {"tokenizer_class": "GPTSw3Tokenizer"}}, 1, False),
    "the first Llamas": (
        {"tokenizer_config": {"bos_token": "", "tokenizer_class": "LLaMATokenizer"}, "config": {"bos_token_id": 0}},
        1,
        True,
    ),
    "two files": ({"tokenizer_config": {"bos_token": "<s>"}, "special_tokens_map": {"bos_token": "</s>"}}, 2, True),
    "two files and a table": (
        {"tokenizer_config": {"bos_token": "<s>", "added_tokens_decoder": {}}, "special_tokens_map": {"bos_token": "</s>"}},
        1,
        True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BOS)
def test_bos_is_in_front_where_the_model_s_own_tokenizer_puts_it(tmp_path: Path, name: str) -> None:
    files, bos, adds = BOS[name]
    folder = write(tmp_path / "t", **files)
    (folder / "tokenizer.model").write_bytes(cached("llama"))
    result = find_tokenizer(folder)
    assert result is not None
    assert (result.bos, result.adds_bos) == (bos, adds)


def test_tokens_added_behind_the_pieces_have_the_ids_that_are_stated(tmp_path: Path) -> None:
    n = len(description(cached("llama"), "")["model"]["vocab"])
    folder = write(tmp_path / "t", added_tokens={"[PAD]": n, "<|turn|>": n + 1}, special_tokens_map={"pad_token": "[PAD]"})
    (folder / "tokenizer.model").write_bytes(cached("llama"))
    result = find_tokenizer(folder)
    assert result is not None
    assert (result.is_special(n), result.is_special(n + 1)) == (True, False)
    assert n + 1 in result.encode("a<|turn|>b") and n not in result.encode("[PAD]")
    write(folder, added_tokens={"[PAD]": n + 5})
    with pytest.raises(BadModel, match="do not fit"):
        find_tokenizer(folder)


def test_a_saved_one_gives_the_same_ids(tmp_path: Path) -> None:
    ours = opened(cached("llama"))
    ours.save(tmp_path / "tokenizer.json")
    again = Tokenizer.from_file(tmp_path / "tokenizer.json")
    assert all(again.encode(text) == ours.encode(text) for text in TEXTS)
    assert again.content == ours.content


HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "cut": b"\x0a\x0e\x0a\x05<unk>",
    "endless number": b"\xff" * 40,
    "a length beyond the file": b"\x0a\xff\xff\xff\xff\x0f",
    "a group": b"\x0b\x0c",
    "no unknown": model_file([("a", 0.0, 1)]),
    "twice": model_file([("<unk>", 0.0, 2), ("a", 0.0, 1), ("a", -1.0, 1)]),
    "no kind": model_file([("<unk>", 0.0, 2), ("a", 0.0, 9)]),
    "no number": model_file([("<unk>", float("nan"), 2)]),
    "no text": model_file([("<unk>", 0.0, 2), ("", 0.0, 1)]),
    "no table": model_file(_FEW, rules=_field(2, b"table")),
    "not UTF-8": _field(1, _field(1, b"\xff\xfe")),
    "a number for a text": _field(1, _field(1, 7)),
    "fields without end": b"\x10\x01" * (2**20 + 5),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_damaged_files_are_typed_errors(tmp_path: Path, name: str) -> None:
    (tmp_path / "tokenizer.model").write_bytes(HOSTILE[name])
    with pytest.raises(BadModel, match=r"tokenizer\.model"):
        find_tokenizer(tmp_path)


def test_what_takes_memory_without_end_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    long = [("<unk>", 0.0, 2), *((f"{i:0250d}", 0.0, 1) for i in range(34_000))]
    with pytest.raises(NotRead, match="longer than those"):
        description(model_file(long), "tokenizer.model")
    monkeypatch.setattr("circuitlab.model.text.sentencepiece_bpe._MOST_MERGES", 100)
    with pytest.raises(NotRead, match="more than 100 merges"):
        description(cached("llama"), "tokenizer.model")


def test_mutated_files_are_typed_errors_or_tokenizers(tmp_path: Path) -> None:
    whole, draw = cached("llama"), random.Random(1)
    for _ in range(200):
        data = bytearray(whole)
        for _ in range(draw.randint(1, 6)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        (tmp_path / "tokenizer.model").write_bytes(bytes(data[: draw.choice((len(data), len(data), draw.randrange(len(data))))]))
        try:
            result = find_tokenizer(tmp_path)
        except BadModel:
            continue
        assert result is None or result.encode("a b") is not None


def test_beside_a_tokenizer_json_it_is_not_read_as_in_transformers_and_said_where_it_differs(tmp_path: Path) -> None:
    library, transformers = pytest.importorskip("sentencepiece"), pytest.importorskip("transformers")
    own, other = cached("llama"), cached("digits apart")
    write(tmp_path, tokenizer=description(own, "tokenizer.model"), tokenizer_config={"tokenizer_class": "LlamaTokenizer"})
    (tmp_path / "tokenizer.model").write_bytes(own)
    tokenizer = find_tokenizer(tmp_path)
    assert tokenizer is not None and not any("otherwise" in note for note in tokenizer.notes)
    (tmp_path / "tokenizer.model").write_bytes(other)
    tokenizer, theirs = find_tokenizer(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer is not None
    read = theirs.convert_ids_to_tokens(list(range(tokenizer.n_tokens)))
    assert [tokenizer.raw(i) for i in range(tokenizer.n_tokens)] == read
    pieces = library.SentencePieceProcessor(model_proto=other)
    spelled = [pieces.id_to_piece(i) for i in range(pieces.get_piece_size())]
    n = sum(i >= len(read) or read[i] != piece for i, piece in enumerate(spelled))
    assert n > 20 and any(f"otherwise {n} of {len(spelled)} ids" in note for note in tokenizer.notes)


@pytest.mark.parametrize(
    "data", [b"", b"\x0a", b"\x0a\x02\x0a", b"IQ== 0\nIg== 1\n", model_file([("<unk>", 0.0, 2), ("<s>", 0.0, 3)])]
)
def test_what_lies_beside_a_tokenizer_json_and_says_nothing_of_it_is_no_note(tmp_path: Path, data: bytes) -> None:
    """Damaged, of another kind, or with other names of special tokens alone."""
    write(tmp_path, tokenizer=description(cached("llama"), "tokenizer.model"))
    (tmp_path / "tokenizer.model").write_bytes(data)
    tokenizer = find_tokenizer(tmp_path)
    assert tokenizer is not None and not tokenizer.notes


def test_a_byte_may_be_spelled_as_its_character_beside_it(tmp_path: Path) -> None:
    """As Gemma's tab is."""
    spec = description(cached("llama"), "tokenizer.model")
    spec["model"]["vocab"] = {"~" if text == "<0x7E>" else text: i for text, i in spec["model"]["vocab"].items()}
    write(tmp_path, tokenizer=spec)
    (tmp_path / "tokenizer.model").write_bytes(cached("llama"))
    tokenizer = find_tokenizer(tmp_path)
    assert tokenizer is not None and not tokenizer.notes
