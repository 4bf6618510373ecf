"""A vocabulary of single characters saved with a model: `stoi`, `itos` or `chars` in its file, or nanoGPT's `meta.pkl`.

It becomes a tokenizer that splits a text into its characters and rejects all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Inner
from tokenizers import decoders, pre_tokenizers
from tokenizers.models import WordLevel

from circuitlab.counting import number_of
from circuitlab.errors import BadModel
from circuitlab.model.files.archive import LARGEST_PICKLE
from circuitlab.model.files.unpickling import DAMAGE, Unwanted, unpickled
from circuitlab.model.files.whole_file import WholeFile
from circuitlab.model.text.tokenizer import Tokenizer

_META = "meta.pkl"
_MOST = 2**20


def vocabulary(metadata: Mapping[str, object]) -> dict[str, int] | None:
    """Characters and their ids from a checkpoint's metadata, None where it has none or they are not numbered."""
    inner = [v for v in metadata.values() if isinstance(v, Mapping)]
    for mapping in (metadata, *inner):
        stoi, itos, chars = (mapping.get(name) for name in ("stoi", "itos", "chars"))
        ids = _by_text(stoi) or _by_id(itos) or _in_order(chars)
        if ids is not None:
            return ids
    return None


def _by_text(stoi: object) -> dict[str, int] | None:
    return _numbered(list(stoi.items())) if isinstance(stoi, Mapping) else None


def _by_id(itos: object) -> dict[str, int] | None:
    if isinstance(itos, Mapping):
        return _numbered([(c, i) for i, c in itos.items()])
    return _in_order(itos)


def _in_order(chars: object) -> dict[str, int] | None:
    return _numbered([(c, i) for i, c in enumerate(chars)]) if isinstance(chars, str | list | tuple) else None


def _numbered(pairs: list[tuple[Any, Any]]) -> dict[str, int] | None:
    """The pairs as a vocabulary, None unless they are characters numbered from 0 without a gap."""
    ids = {i for _, i in pairs if type(i) is int}
    single = all(isinstance(c, str) and len(c) == 1 for c, _ in pairs)
    if not pairs or len(pairs) > _MOST or not single or ids != set(range(len(pairs))):
        return None
    ids = dict(pairs)
    return ids if len(ids) == len(pairs) else None


def meta_beside(folder: Path) -> tuple[dict[str, int] | None, str]:
    """The vocabulary in nanoGPT's `meta.pkl`, and a note where the file has none. No code in it is run."""
    if not (folder / _META).is_file():
        return None, ""
    try:
        file = WholeFile(folder / _META)
        meta = unpickled(BytesIO(file.read(0, min(file.size, LARGEST_PICKLE))))[0]
    except (BadModel, Unwanted, *DAMAGE) as error:
        return None, f"{_META} cannot be read: {ascii(str(error))[1:-1][:80]}"
    ids = vocabulary(meta) if isinstance(meta, dict) else None
    return ids, "" if ids else f"{_META} holds no vocabulary of single characters"


def character_tokenizer(metadata: Mapping[str, object], folder: Path) -> tuple[Tokenizer | None, str, str]:
    """(the tokenizer, None without a vocabulary; its origin in words; a note on an unusable `meta.pkl`)."""
    if (vocab := vocabulary(metadata)) is not None:
        return tokenizer_of(vocab), f"a vocabulary of {number_of(len(vocab), 'character')} was saved with the weights", ""
    vocab, note = meta_beside(folder)
    if vocab is None:
        return None, "", note
    return tokenizer_of(vocab), f"{_META} beside the weights has a vocabulary of {number_of(len(vocab), 'character')}", ""


def tokenizer_of(vocab: dict[str, int]) -> Tokenizer:
    """A tokenizer of single characters."""
    inner = Inner(WordLevel(vocab, unk_token="\0none"))  # what is not in the vocabulary is an error, never another token
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    inner.decoder = decoders.Fuse()
    return Tokenizer(inner)
