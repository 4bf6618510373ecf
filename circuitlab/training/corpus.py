"""Text files into token streams: one stream a source, the last hundredth held out.

A source is a file, a folder (its `.txt`, `.md`, `.py` files, sorted) or `stdlib`, the running interpreter's own library; a
share of the training sequences may follow a colon: `novels:0.4 stdlib:0.5`.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from circuitlab.errors import BadInput
from circuitlab.model.tokenizer import Tokenizer

_SUFFIXES = (".txt", ".md", ".py")
_SKIPPED = ("test", "tests", "site-packages", "idlelib", "lib2to3", "__pycache__")
HELD_OUT = 0.01


@dataclass(frozen=True)
class Source:
    """One source of text. `share` 0 stands for an equal part of what the others leave."""

    label: str
    files: tuple[Path, ...]
    share: float = 0.0


@dataclass(frozen=True, eq=False)
class Stream:
    """The tokens of one source: `train` and `held_out`, uint16 or uint32."""

    label: str
    share: float
    train: np.ndarray
    held_out: np.ndarray


def find_sources(arguments: list[str]) -> tuple[Source, ...]:
    """Sources of `--text` arguments, shares summing to 1. Raises `BadInput` for what is missing or empty."""
    found = [_source(a) for a in arguments]
    if not found:
        raise BadInput("There is no text to train on.", expected="--text FILE …", got="none")
    given = sum(s.share for s in found)
    free = [s for s in found if not s.share]
    if given > 1 + 1e-9 or (not free and abs(given - 1) > 1e-6):
        raise BadInput("Shares do not add up.", expected="shares that sum to 1", got=f"{given:g}")
    rest = (1 - given) / len(free) if free else 0.0
    return tuple(Source(s.label, s.files, s.share or rest) for s in found)


def _source(argument: str) -> Source:
    name, colon, share = argument.rpartition(":")
    number = 0.0
    if colon and share.replace(".", "", 1).isdigit():
        number = float(share)
    else:
        name = argument
    if name == "stdlib":
        root = Path(sysconfig.get_paths()["stdlib"])
        files = [p for p in sorted(root.rglob("*.py")) if not set(p.relative_to(root).parts[:-1]) & set(_SKIPPED)]
        return Source("Python standard library", tuple(files), number)
    path = Path(name)
    if path.is_dir():
        files = [p for p in sorted(path.rglob("*")) if p.suffix in _SUFFIXES and p.is_file()]
        if not files:
            raise BadInput("A folder holds no text.", expected=" ".join(_SUFFIXES), got=str(path))
        return Source(path.name, tuple(files), number)
    if not path.is_file():
        raise BadInput("A text file is not there.", expected="a file or a folder", got=str(path))
    return Source(path.name, (path,), number)


def read_text(path: Path) -> str:
    """The text of a file. Raises `BadInput` where it is no UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path} is not UTF-8 text.", expected="UTF-8", got=str(error), remedy="Convert it, or leave it out."
        ) from error


def texts(source: Source) -> Iterator[str]:
    """The texts of a source, one a file; the library's own files that are not UTF-8 are passed over."""
    for path in source.files:
        if source.label == "Python standard library":
            text = path.read_bytes().decode("utf-8", errors="ignore")
        else:
            text = read_text(path)
        if text.strip():
            yield text


def tokenised(source: Source, tokenizer: Tokenizer, n_ctx: int) -> Stream:
    """The token stream of a source. Raises `BadInput` where there is too little for a sequence."""
    kind = np.uint16 if tokenizer.n_tokens <= 65536 else np.uint32
    parts = [np.array(tokenizer.encode(text + "\n"), dtype=kind) for text in texts(source)]
    tokens = np.concatenate(parts) if parts else np.zeros(0, kind)
    cut = len(tokens) - max(int(len(tokens) * HELD_OUT), 2 * n_ctx)
    if cut <= n_ctx:
        raise BadInput(f"{source.label} has too little text.", expected=f"more than {3 * n_ctx} tokens", got=str(len(tokens)))
    return Stream(source.label, source.share, tokens[:cut], tokens[cut:])
