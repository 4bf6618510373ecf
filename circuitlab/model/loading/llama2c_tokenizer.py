"""Tokenizers of llama2.c: `tokenizer.bin`, the pieces of a SentencePiece BPE model with their scores.

int32: the longest piece in bytes; then for each id a float32 score, an int32 length and that many bytes of UTF-8, in which a
space stands for SentencePiece's "▁". Pairs are merged in the order of the score of the merged piece, as in llama2.c itself.
"""

from __future__ import annotations

import struct
from pathlib import Path

from tokenizers import AddedToken, decoders, normalizers
from tokenizers import Tokenizer as Inner
from tokenizers.models import BPE

from circuitlab.counting import number_of
from circuitlab.errors import BadModel
from circuitlab.model.files.whole_file import WholeFile
from circuitlab.model.text.tokenizer import Tokenizer

_LARGEST, _LONGEST = 2**23, 256  # bytes of a file, and of a piece, which is divided at each of its characters
_SPECIAL = ("<unk>", "<s>", "</s>")  # ids 0, 1 and 2
BOS = 1
_REMEDY = "Write it with llama2.c's tokenizer.py, or remove it and use token ids."


def beside(checkpoint: Path, n_tokens: int) -> Tokenizer | None:
    """The tokenizer of `n_tokens` pieces beside a checkpoint, None without one."""
    for name in (f"tok{n_tokens}.bin", "tokenizer.bin"):
        file = checkpoint.with_name(name)
        if file.is_file():
            tokenizer = read_tokenizer(file)
            if tokenizer.n_tokens == n_tokens:
                return tokenizer
    return None


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a file. Raises `BadModel`."""
    file = WholeFile(path)
    if file.size > _LARGEST:
        raise BadModel(f"{file.name} is too large.", expected=f"at most {_LARGEST} bytes", got=str(file.size), remedy=_REMEDY)
    pieces = _pieces(file.read(0, file.size), file.name)
    if pieces is None or tuple(text.strip("\n") for text, _ in pieces[:3]) != _SPECIAL:
        raise BadModel(
            f"{file.name} is not a tokenizer of llama2.c.",
            expected="pieces with scores and lengths",
            got="other bytes",
            remedy=_REMEDY,
        )
    spelled = [text.strip("\n") if i < len(_SPECIAL) else text.replace(" ", "▁") for i, (text, _) in enumerate(pieces)]
    vocab = {text: i for i, text in enumerate(spelled)}
    if len(vocab) != len(spelled):
        raise BadModel(
            f"{file.name} has a piece twice.", expected=f"{len(spelled)} different ones", got=str(len(vocab)), remedy=_REMEDY
        )
    model = BPE(vocab=vocab, merges=_merges(vocab, [s for _, s in pieces]), unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    inner = Inner(model)
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    inner.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in _SPECIAL])
    tokenizer = Tokenizer(inner, BOS)
    tokenizer.notes = (f"tokenizer read from {path.name}",)
    return tokenizer


def _pieces(data: bytes, name: str) -> list[tuple[str, float]] | None:
    """(text, score) by id, None if the bytes are something else. Raises `BadModel` for a piece that is too long to be divided."""
    pieces, at = [], 4
    while at < len(data):
        if at + 8 > len(data):
            return None
        score, length = struct.unpack_from("<fi", data, at)
        at += 8
        if not 0 <= length <= len(data) - at:
            return None
        if length > _LONGEST:
            what, got = f"{name} has a piece that is too long.", number_of(length, "byte")
            raise BadModel(what, expected=f"at most {_LONGEST} bytes", got=got, remedy=_REMEDY)
        try:
            pieces.append((data[at : at + length].decode("utf-8"), score))
        except UnicodeDecodeError:
            return None
        at += length
    return pieces


def _merges(vocab: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Every merge of two pieces into one, the best piece first, among equals that of the longer left piece, as a run of spaces is
    merged from the left."""
    merges = []
    for text, i in vocab.items():
        if i < len(_SPECIAL) or (len(text) == 6 and text.startswith("<0x")):
            continue
        splits = ((text[:k], text[k:]) for k in range(1, len(text)))
        merges += [(-scores[i], -len(a), vocab[a], vocab[b], (a, b)) for a, b in splits if a in vocab and b in vocab]
    return [pair for *_, pair in sorted(merges)]
