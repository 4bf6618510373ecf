"""SentencePiece's Unigram models, and BPE ones that normalise a text: ids as its own library gives them; hostile tables."""

from __future__ import annotations

import base64
import json
import random
import struct
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from circuitlab.errors import BadInput, BadModel
from circuitlab.model.loading import open_model
from circuitlab.model.loading.tokenizer_files import find_tokenizer
from circuitlab.model.text.sentencepiece_file import description
from circuitlab.model.text.sentencepiece_normaliser import Normaliser, Rules
from circuitlab.model.text.tokenizer import Tokenizer
from tests.lines_run import lines_run
from tests.unit.families.test_sentencepiece import PROSE, TEXTS, model_file, opened, trained
from tests.unit.families.test_tokenizers import model_in, write

# spaces of many kinds, control characters, combining marks, ligatures, full width, Hangul in parts, emoji in parts
ALPHABET = "ab the  \n\t.,<>s/turn[INST]▁éß日🙂01\u0301\u0308\u3000\u200b\x00\x01\x7fﬁ①Ａ한\u1100\u1161\u202e👩\u200d"
SYMBOLS = ["<turn>", "▁▁", "\n\n", "ab", " x"]
KINDS: dict[str, dict[str, Any]] = {
    "as it is trained if nothing is said": {},
    "bytes": {"byte_fallback": True, "vocab_size": 600},
    "identity": {"normalization_rule_name": "identity"},
    "identity, bytes": {"normalization_rule_name": "identity", "byte_fallback": True, "vocab_size": 600},
    "case folded": {"normalization_rule_name": "nmt_nfkc_cf"},
    "spaces kept": {"remove_extra_whitespaces": False},
    "nothing in front": {"add_dummy_prefix": False},
    "spaces behind": {"treat_whitespace_as_suffix": True},
    "symbols": {"user_defined_symbols": SYMBOLS},
    "symbols, spaces kept, nothing in front": {
        "user_defined_symbols": SYMBOLS[:4],
        "remove_extra_whitespaces": False,
        "add_dummy_prefix": False,
    },
    "control symbols": {"control_symbols": ["[INST]", "ab"]},
    "words joined": {"split_by_whitespace": False},
}
_USUAL = {"normalization_rule_name": "nmt_nfkc", "vocab_size": 500}
cached = lru_cache(lambda kind, name: trained(model_type=kind, **_USUAL | KINDS[name]))
BOTH = [(kind, name) for kind in ("unigram", "bpe") for name in KINDS]


def _random_texts(n: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return ["".join(draw.choice(ALPHABET) for _ in range(draw.randint(1, 40))) for _ in range(n)]


def _runs() -> list[str]:
    """Texts that can be divided in many ways of equal score."""
    return [part * n for part in ("a", "ab", "ee ", "11") for n in range(1, 70, 3)] + [" " * n + "x" for n in range(30)]


@pytest.mark.parametrize(("kind", "name"), BOTH)
def test_ids_and_text_are_those_of_sentencepiece(kind: str, name: str) -> None:
    library = pytest.importorskip("sentencepiece")
    data = cached(kind, name)
    theirs, ours = library.SentencePieceProcessor(model_proto=data), opened(data)
    assert [ours.raw(i) for i in range(ours.n_tokens)] == [theirs.id_to_piece(i) for i in range(theirs.get_piece_size())]
    for text in ("", " ", "\u3000", *TEXTS, *PROSE, *_runs(), *_random_texts(1500)):
        ids = ours.encode_uncached(text)
        assert list(ids) == theirs.encode(text), text
        if theirs.unk_id() not in ids and "symbols" not in name:  # of a symbol ▁▁ at the beginning SentencePiece shows one space
            assert ours.decode(ids) == theirs.decode(list(ids)), text


@pytest.mark.parametrize("name", ["nmt_nfkc", "nfkc", "nmt_nfkc_cf"])
def test_every_character_is_normalised_as_sentencepiece_does(name: str) -> None:
    library = pytest.importorskip("sentencepiece")
    data = trained(model_type="unigram", normalization_rule_name=name, vocab_size=60)
    theirs, ours = library.SentencePieceProcessor(model_proto=data), Normaliser(Rules(_table_in(data)))
    for block in range(0, 0x20000 if name == "nmt_nfkc" else 0x3000, 64):
        text = ".".join(chr(c) for c in range(block, block + 64) if not 0xD800 <= c < 0xE000)
        assert ours(text) == theirs.normalize(text), f"from U+{block:04X}"
    for text in _random_texts(1500, 1):
        assert ours(text) == theirs.normalize(text), text


def test_a_sum_of_scores_that_grows_large_is_counted_as_sentencepiece_counts_it() -> None:
    library = pytest.importorskip("sentencepiece")
    data = cached("unigram", "identity, bytes")
    theirs, ours = library.SentencePieceProcessor(model_proto=data), opened(data)
    for seed in range(3):
        text = "".join(_random_texts(1200, seed))
        assert list(ours.encode_uncached(text)) == theirs.encode(text)


def test_other_programs_read_the_description_and_agree_on_plain_text() -> None:
    from tokenizers import Tokenizer as Theirs

    data = cached("unigram", "bytes")
    ours = opened(data)
    theirs = Theirs.from_str(ours.file_text())
    theirs.encode_special_tokens = True
    for text in (*PROSE[:2], "  Once   upon a time  "):
        assert theirs.encode(text.replace("\n", " ").replace("\t", " ")).ids == list(ours.encode(text))


def test_a_saved_one_gives_the_same_ids(tmp_path: Path) -> None:
    for kind in ("unigram", "bpe"):
        ours = opened(cached(kind, "as it is trained if nothing is said"))
        ours.save(tmp_path / "tokenizer.json")
        again = Tokenizer.from_file(tmp_path / "tokenizer.json")
        assert all(again.encode(text) == ours.encode(text) for text in (*TEXTS, *_random_texts(50)))
        assert again.content == ours.content


def test_a_folder_with_a_unigram_model_opens_with_its_text(tmp_path: Path) -> None:
    library = pytest.importorskip("sentencepiece")
    data = cached("unigram", "as it is trained if nothing is said")
    theirs = library.SentencePieceProcessor(model_proto=data)
    folder = model_in(tmp_path / "m", theirs.get_piece_size())
    (folder / "spiece.model").write_bytes(data)
    model = open_model(folder)
    tokenizer = model.weights.tokenizer
    assert tokenizer is not None
    assert any("spiece.model, as SentencePiece's Unigram model" in note for note in model.notes)
    assert tokenizer.quick("x" * 1000) and not tokenizer.quick("x" * 10_000)
    assert list(tokenizer.encode("the little girl")) == theirs.encode("the little girl")
    assert tokenizer.find("there") == theirs.piece_to_id("▁there")
    assert "there" in [tokenizer.display(i).strip("·") for i in tokenizer.search("there", 5)]
    with pytest.raises(BadInput, match="not Unicode"):
        tokenizer.encode("half a character: \ud800")


def test_fewer_characters_are_quick_where_many_pieces_begin_at_each() -> None:
    nested = opened(model_file([*FEW, *(("a" * n, -1.0 - n, 1) for n in range(2, 257))], b"\x18\x01"))
    usual = opened(cached("unigram", "identity"))
    longest = lambda tokenizer: next(n for n in range(1500, 0, -1) if tokenizer.quick("a" * n))
    assert longest(usual) == 1500 and 50 < longest(nested) < 150
    keystroke = lambda tokenizer: lines_run(lambda: tokenizer.encode_uncached("a" * longest(tokenizer)))
    assert keystroke(nested) < 10 * keystroke(usual)


def test_a_symbol_longer_than_pieces_are_is_found_whole_where_a_text_is_normalised() -> None:
    library = pytest.importorskip("sentencepiece")
    symbol = "<" + "turn" * 100 + ">"
    data = trained(**_USUAL, user_defined_symbols=[symbol, "<turn"])
    theirs, ours = library.SentencePieceProcessor(model_proto=data), opened(data)
    for text in (f"the {symbol} girl", f"{symbol}{symbol}", f"a {symbol[:-1]} ﬁ {symbol}>"):
        assert list(ours.encode_uncached(text)) == theirs.encode(text)


@pytest.mark.parametrize("unknown", ["<unk>", "<?>"])
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_what_stands_for_the_unknown_is_no_bos(tmp_path: Path, kind: str, unknown: str) -> None:
    """The first Llamas in Hugging Face's form say 0."""
    folder = write(tmp_path / "t", config={"bos_token_id": 0})
    (folder / "tokenizer.model").write_bytes(trained(model_type=kind, unk_piece=unknown, **_USUAL))
    result = find_tokenizer(folder)
    assert result is not None
    assert result.raw(0) == unknown and (result.unknown, result.bos) == (0, 1)


def test_tokens_added_behind_the_pieces_divide_the_text(tmp_path: Path) -> None:
    data = cached("unigram", "as it is trained if nothing is said")
    n = opened(data).n_tokens
    folder = write(
        tmp_path / "t",
        added_tokens={"[PAD]": n, "<|turn|>": n + 1, "word": n + 2},
        special_tokens_map={"pad_token": "[PAD]"},
        tokenizer_config={
            "added_tokens_decoder": {
                str(n + 1): {"content": "<|turn|>", "special": False, "lstrip": True, "rstrip": True},
                str(n + 2): {"content": "word", "special": False, "single_word": True},
            }
        },
    )
    (folder / "tokenizer.model").write_bytes(data)
    result = find_tokenizer(folder)
    assert result is not None
    a, b = result.encode("a"), result.encode("b")
    assert result.encode("a \n<|turn|> \tb") == (*a, n + 1, *b)
    assert result.encode("a word b") == (*a, n + 2, *b) and n + 2 not in result.encode("words")
    assert n not in result.encode("[PAD]")


def _pieces() -> list[tuple[str, float, int]]:
    """The pieces of a BPE model."""
    library = pytest.importorskip("sentencepiece")
    model = library.SentencePieceProcessor(model_proto=cached("bpe", "identity, bytes"))
    ids = range(model.get_piece_size())
    kinds = [2 if model.is_unknown(i) else 3 if model.is_control(i) else 6 if model.is_byte(i) else 1 for i in ids]
    return [(model.id_to_piece(i), model.get_score(i), kind) for i, kind in zip(ids, kinds, strict=True)]


def with_equals() -> list[tuple[str, float, int]]:
    """Those, and some that were added with one score, as Chinese ones were to Llama's."""
    pieces = _pieces()
    new = ["国人", "中国", "人民", "中", "国", "人", "民", "人民中", "国人民", "民中国人", "e▁t", "ther", "he▁", "▁the▁"]
    return [*pieces, *((text, 0.0, 1) for text in new if text not in {text for text, _, _ in pieces})]


def test_pieces_of_one_score_are_merged_from_the_left() -> None:
    library = pytest.importorskip("sentencepiece")
    data = model_file(with_equals())
    theirs, ours = library.SentencePieceProcessor(model_proto=data), opened(data)
    draw = random.Random(7)
    some = ["".join(draw.choice("中国人民民国 the r") for _ in range(draw.randint(1, 30))) for _ in range(1500)]
    for text in (*TEXTS, *PROSE, *some, *_random_texts(300), *_runs()):
        assert list(ours.encode_uncached(text)) == theirs.encode(text), text
        assert ours.decode(ours.encode_uncached(text)) == theirs.decode(theirs.encode(text))


@pytest.mark.parametrize("without", ["w", "th", "e▁a", "12345"])
def test_a_piece_is_merged_from_characters_that_are_none(without: str) -> None:
    """Of a vocabulary that was cut down: "▁was" is a piece and "w" is not."""
    library = pytest.importorskip("sentencepiece")
    data = model_file([piece for piece in _pieces() if piece[0] not in tuple(without)])
    theirs, ours = library.SentencePieceProcessor(model_proto=data), opened(data)
    for text in (*TEXTS, *PROSE, *_random_texts(300), *_runs()):
        assert list(ours.encode_uncached(text)) == theirs.encode(text), text


# -- tables ------------------------------------------------------------------------------------------------------------------


def _table_in(data: bytes) -> bytes:
    return base64.b64decode(description(data, "")["model"]["sentencepiece"]["table"])


def _array(units: list[int], texts: bytes = b"x\0") -> bytes:
    return struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + texts


FEW = [("<unk>", 0.0, 2), ("a", -1.0, 1), ("▁", -2.0, 1)]
TABLES: dict[str, bytes] = {
    "no size": b"ab",
    "a size beyond it": struct.pack("<I", 2**31) + b"\0" * 64,
    "half a unit": struct.pack("<I", 6) + b"\0" * 64,
    "no unit": struct.pack("<I", 0) + b"\0" * 64,
    "a long replacement": _array([0] * 64, b"x" * 5000),
    "no text": _array([0] * 64, b"\xff\xfe\0"),
    "megabytes": _array([0], b"x\0" * 2**22),
}


def _unigram_with(table: bytes) -> bytes:
    def field(number: int, value: bytes) -> bytes:
        length, out = len(value), bytearray()
        while length > 127:
            out.append(length & 127 | 128)
            length >>= 7
        return bytes([number << 3 | 2]) + bytes([*out, length]) + value

    return model_file(FEW, b"\x18\x01", field(2, table))


@pytest.mark.parametrize("name", TABLES)
def test_damaged_tables_are_typed_errors(tmp_path: Path, name: str) -> None:
    (tmp_path / "tokenizer.model").write_bytes(_unigram_with(TABLES[name]))
    with pytest.raises(BadModel, match=r"tokenizer\.model cannot be read"):
        find_tokenizer(tmp_path)


def test_a_table_that_leads_nowhere_or_in_a_circle_comes_to_an_end() -> None:
    beyond = (2**21 - 1) << 10 | 0x300 | ord("a")  # a letter whose children stand outside the table
    circle = [1 << 10] + [0] * 300
    circle[1 ^ ord("a")] = ord("a") | 0x100
    circle[ord("a") ^ 1 ^ 0] |= (1 ^ 1) << 10
    for units in ([1 << 10, *[beyond] * 255], circle, [0] * 256, [0xFFFFFFFF] * 256, [0x7FFFFFFF] * 256):
        normalised = Normaliser(Rules(_array(units)))
        assert isinstance(normalised("a" * 500 + "\u0301é"), str)


def test_mutated_tables_are_typed_errors_or_normalise(tmp_path: Path) -> None:
    whole, draw = _table_in(cached("unigram", "as it is trained if nothing is said")), random.Random(2)
    size = struct.unpack_from("<I", whole)[0]
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(draw.choice((1, 20, 2000))):
            data[draw.randrange(4 + size if draw.random() < 0.9 else len(data))] = draw.randrange(256)
        (tmp_path / "tokenizer.model").write_bytes(
            _unigram_with(bytes(data[: draw.choice((len(data), len(data), draw.randrange(len(data))))]))
        )
        try:
            result = find_tokenizer(tmp_path)
        except BadModel:
            continue
        assert result is not None
        for text in _random_texts(20, 3):
            assert len(result.encode_uncached(text)) <= 257 * len(text)


@pytest.mark.parametrize(
    "change",
    [
        {"table": "no base64!"},
        {"table": base64.b64encode(b"ab").decode()},
        {"kinds": {"3": [10**9]}},
        {"kinds": {"x": [0]}},
        {"kinds": {}},
        {"in_front": 1},
        {"escapes": None},
    ],
)
def test_a_description_that_was_changed_is_refused_in_words(change: dict[str, object]) -> None:
    spec = json.loads(opened(cached("unigram", "identity")).file_text())
    spec["model"]["sentencepiece"] |= change
    with pytest.raises(BadModel, match=r"tokenizer\.json cannot be read"):
        Tokenizer.from_bytes(json.dumps(spec).encode())
    assert spec["decoder"]
    spec = json.loads(opened(cached("unigram", "identity")).file_text())
    spec["decoder"] = {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}
    with pytest.raises(BadModel, match="beside rules of SentencePiece"):
        Tokenizer.from_bytes(json.dumps(spec).encode())
