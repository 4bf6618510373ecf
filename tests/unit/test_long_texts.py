"""Text files of any length: the tokens of their pieces are those of the whole, and reading them can be stopped."""

import hashlib
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers, pre_tokenizers, trainers

from circuitlab.analysis.base import NullContext, TextRef
from circuitlab.analysis.behaviour.samples import pieces
from circuitlab.disk import paths
from circuitlab.engine.texts import read_text, text_of
from circuitlab.errors import BadInput, Cancelled, OverBudget
from circuitlab.model.text import long_text
from circuitlab.model.text.tokenizer import Tokenizer
from tests.patience import SECONDS

GIB = 2**30
WORDS = "the cat sat on a mat, and 1234567 dogs don't: naïve 日本語 🎉👩‍👩‍👧 e\u0301 \u200f x=1; ﬁ".split(" ")


def prose(n: int, ends: tuple[str, ...]) -> str:
    rng = random.Random(0)
    return "".join(rng.choice(WORDS) + rng.choice(ends) for _ in range(n))


HOSTILE = {
    "words": prose(4000, (" ", " ", "\n")),
    "blank": prose(3000, (" ", "  ", "\n\n", " \n ", "\t", "\t\t", "\u00a0", "\u3000", "\x0b", "\x85", "\u2028")),
    "crlf": prose(3000, (" ", "\r\n", "\r", "\r\r\n", "\n\r")),
    "runs": ("aaaa " * 500 + "a" * 3000 + " - - - -" * 400 + "!" * 999 + "\n" + "0" * 2001 + " ") * 2,
    "emoji": "👩‍👩‍👧🎉" * 1500 + " " + "🏳️‍🌈 " * 2000,
    "no spaces": "".join(WORDS) * 150,
    "spaces": " " * 7000 + "a" + "\n" * 7000 + "b c" * 3,
    "ends": "\ufeff\ufeff" + prose(3000, (" ", "\n")) + "\r\n\r\n",
}


def ours() -> Tokenizer:
    return Tokenizer.from_file(paths.shipped("models") / "attn-only-2l" / "tokenizer.json")


def _trained(inner: Library, trainer: object) -> Tokenizer:
    inner.train_from_iterator([HOSTILE["words"], HOSTILE["runs"], HOSTILE["blank"]], trainer)
    return Tokenizer.from_bytes(inner.to_str().encode())


def gpt2() -> Tokenizer:
    inner = Library(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return _trained(inner, trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False))


def llama() -> Tokenizer:
    """The whole text is one word, with a space before it."""
    inner = Library(models.BPE(unk_token="<unk>"))
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>"], show_progress=False)
    trained = _trained(inner, trainer)
    spec = Library.from_str(trained.file_text())
    spec.pre_tokenizer = pre_tokenizers.Sequence([])
    return Tokenizer(spec)


def bert() -> Tokenizer:
    inner = Library(models.WordPiece(unk_token="[UNK]"))
    inner.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(), normalizers.Lowercase()])
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return _trained(inner, trainers.WordPieceTrainer(vocab_size=300, special_tokens=["[UNK]"], show_progress=False))


def unigram() -> Tokenizer:
    inner = Library(models.Unigram())
    inner.normalizer = normalizers.NFKC()
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    return _trained(
        inner, trainers.UnigramTrainer(vocab_size=300, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False)
    )


def in_a_process() -> Tokenizer:
    inner = Library.from_str(ours().file_text())
    inner.normalizer = normalizers.Replace("qqq", "qqqq" * 200)
    return Tokenizer.from_bytes(inner.to_str().encode())


def _read(tokenizer: Tokenizer, file: Path, memory: int = GIB) -> tuple[int, ...]:
    return tuple(read_text(TextRef(str(file)), tokenizer, NullContext(), memory))


@pytest.mark.parametrize("make", [ours, gpt2, llama, bert, unigram, in_a_process])
def test_pieces_have_the_tokens_of_the_whole(
    make: Callable[[], Tokenizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, n = make(), 0
    monkeypatch.setattr(long_text, "PIECE", 1500)
    monkeypatch.setattr("circuitlab.engine.texts.PIECE", 997)  # characters of several bytes, and \r\n, stand across blocks
    encode = tokenizer.encode_uncached

    def counted(text: str) -> tuple[int, ...]:
        nonlocal n
        n += len(text) > 1500
        return encode(text)

    monkeypatch.setattr(tokenizer, "encode_uncached", counted)
    texts = ("words", "crlf") if make is in_a_process else HOSTILE
    for name in texts:
        n, text = 0, HOSTILE[name]
        (file := tmp_path / "a.txt").write_bytes(text.encode())
        whole = tokenizer.encode(text_of(text.encode()))
        assert _read(tokenizer, file) == whole, name
        assert n > 3 or name not in ("words", "crlf"), f"{name} was not divided"


def test_single_characters_are_divided_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Library(models.WordLevel({c: i for i, c in enumerate("acgt")}))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = Tokenizer(inner)
    monkeypatch.setattr(long_text, "PIECE", 1000)
    monkeypatch.setattr(long_text, "LONGEST", 3000)
    (file := tmp_path / "a.txt").write_text("gattaca" * 1000)
    assert _read(tokenizer, file) == (2, 0, 3, 3, 0, 1, 0) * 1000


def test_what_cannot_be_divided_or_held_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = ours()
    monkeypatch.setattr(long_text, "PIECE", 1000)
    monkeypatch.setattr(long_text, "LONGEST", 5000)
    (file := tmp_path / "a.txt").write_text("日本" * 10_000, "utf-8")
    with pytest.raises(BadInput, match="5,000"):
        _read(tokenizer, file)
    file.write_text("a b " * 10_000)
    with pytest.raises(OverBudget, match="100 tokens"):
        _read(tokenizer, file, memory=1600)
    file.write_bytes(b"\xef\xbb\xbfab " * 10_000 + b"\xff")
    with pytest.raises(BadInput, match="0xff at 60000"):
        _read(tokenizer, file)
    file.write_bytes(b"a b " * 10_000)
    with pytest.raises(BadInput, match="changed"):
        read_text(TextRef(str(file), "0" * 64), tokenizer, NullContext(), GIB)
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    assert read_text(TextRef(str(file), sha256), tokenizer, NullContext(), GIB)


def test_reading_stops_from_another_thread(tmp_path: Path) -> None:
    """Held at a tick in the middle of a long file, cancelled, and no tick and no byte more is read."""
    (file := tmp_path / "a.txt").write_text("the cat sat on the mat. " * 60_000)
    half, stop, done, outcome = threading.Event(), threading.Event(), [0], []

    class Held(NullContext):
        def tick(self, i: int, total: int, text: str = "") -> None:
            done[0], size = i, total
            if i > size // 2:
                half.set()
                stop.wait(SECONDS)
                raise Cancelled("Cancelled.")

    def work() -> None:
        try:
            read_text(TextRef(str(file)), ours(), Held(), GIB)
        except Cancelled as error:
            outcome.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert half.wait(SECONDS)
    stop.set()
    thread.join(60)
    assert outcome and done[0] <= file.stat().st_size // 2 + long_text.PIECE


def test_an_empty_text_is_called_empty() -> None:
    with pytest.raises(BadInput, match="empty"):
        pieces((), 0, 8, 1, 0)
    with pytest.raises(BadInput, match="no piece"):
        pieces((1, 2), 0, 1, 1, 0)
