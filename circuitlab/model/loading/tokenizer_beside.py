"""A `tokenizer.model` beside a `tokenizer.json`: the latter is followed, as in `transformers`, and a note says where they differ.

Which files were made from which is not stated anywhere. Spellings by id are compared; those of control, unknown and unused
pieces are not, as fine-tuned models name them anew, and a byte may be spelled as its character (Gemma's tab).
"""

from __future__ import annotations

from pathlib import Path

from circuitlab.errors import BadInput, BadModel
from circuitlab.model.files.whole_file import WholeFile
from circuitlab.model.text.sentencepiece_bpe import BYTE, NORMAL, USER
from circuitlab.model.text.sentencepiece_file import LARGEST, spellings
from circuitlab.model.text.tokenizer import Tokenizer

NAME = "tokenizer.model"
_COMPARED = (NORMAL, USER, BYTE)


def difference(folder: Path, tokenizer: Tokenizer) -> tuple[str, ...]:
    """A note where the folder's `tokenizer.model` spells ids otherwise than its `tokenizer.json`, which became the tokenizer.

    A file that is not of SentencePiece, or damaged, is nothing that anybody reads, and no note.
    """
    path = folder / NAME
    if not path.is_file():
        return ()
    try:
        file = WholeFile(path)
        pieces = list(spellings(file.read(0, file.size))) if file.size <= LARGEST else []
    except (BadModel, OSError, ValueError, IndexError):
        return ()
    others = [(i, text) for i, (text, kind) in enumerate(pieces) if kind in _COMPARED and not _same(tokenizer, i, text)]
    if not others:
        return ()
    first, text = others[0]
    here = repr(_spelling(tokenizer, first)) if first < tokenizer.n_tokens else "nothing"
    where = (
        f"{len(others):,} of {len(pieces):,} ids, first {first}: {text.decode('utf-8', 'replace')[:40]!r} there, {here[:42]} here"
    )
    return (f"tokenizer.json is followed, as in transformers; {NAME} beside it spells otherwise {where}",)


def _same(tokenizer: Tokenizer, token: int, text: bytes) -> bool:
    own = _spelling(tokenizer, token)
    return own.encode("utf-8", "replace") == text or (
        text[:3] == b"<0x" and len(own) == 1 and text == b"<0x%02X>" % (ord(own) % 256)
    )


def _spelling(tokenizer: Tokenizer, token: int) -> str:
    try:
        return tokenizer.raw(token)
    except BadInput:
        return ""
