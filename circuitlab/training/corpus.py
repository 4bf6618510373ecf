"""Text files into token streams: one stream a source, the last hundredth held out.

A source is a file, a folder (its `.txt`, `.md`, `.py` files, sorted), `stdlib`, the running interpreter's own library, or
`packages=numpy,networkx`, the code of installed packages; a share of the training sequences may follow a colon:
`novels:0.4 stdlib:0.5`. Of the library and of packages, tests, data and long tables are left out (`tables.py`).
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from circuitlab.counting import number_of
from circuitlab.errors import BadInput
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.training.tables import without_tables

_SUFFIXES = (".txt", ".md", ".py")
_SKIPPED = ("test", "tests", "testing", "site-packages", "idlelib", "lib2to3", "__pycache__", "encodings", "pydoc_data")
_VENDORED = ("_vendor", "_vendored", "vendor", "locale")  # in packages: third-party code, and data
# folders written by a run: they are not text, and the same command must find the same files when it resumes
_OUTPUTS = ("model", "so-far")
_MARK = b"\xef\xbb\xbf"  # the byte order mark that some editors write before UTF-8
_LIBRARY = "Python standard library"
_PACKAGES = "packages="
HELD_OUT = 0.01


@dataclass(frozen=True)
class Source:
    """One source of text. `share` 0: an equal part of what is left by the sources with a share."""

    label: str
    files: tuple[Path, ...]
    share: float = 0.0
    installed: bool = False  # code of the interpreter or of packages, which the user cannot correct


@dataclass(frozen=True, eq=False)
class Stream:
    """The tokens of one source: `train` and `held_out`, uint16 or uint32."""

    label: str
    share: float
    train: np.ndarray
    held_out: np.ndarray


def find_sources(arguments: list[str]) -> tuple[Source, ...]:
    """Sources of `--text` arguments, shares summing to 1. Raises `BadInput` for what is missing or empty."""
    sources = [_source(a) for a in arguments]
    if not sources:
        raise BadInput(
            "There is no text to train on.", expected="--text FILE …", got="none", remedy="Name files or folders with --text."
        )
    stated = sum(s.share for s in sources)
    free = [s for s in sources if not s.share]
    if stated > 1 + 1e-9 or (not free and abs(stated - 1) > 1e-6) or (free and stated > 1 - 1e-9):
        raise BadInput(
            "Shares do not add up.",
            expected="shares that sum to 1, or to less where a source has none",
            got=f"{stated:g}" + (f", and nothing is left for {free[0].label}" if free else ""),
            remedy="Change the numbers after the colons of --text.",
        )
    rest = (1 - stated) / len(free) if free else 0.0
    return tuple(replace(s, share=s.share or rest) for s in sources)


def _source(argument: str) -> Source:
    name, share = _name_and_share(argument)
    if name == "stdlib":
        root = Path(sysconfig.get_paths()["stdlib"])
        return Source(_LIBRARY, _code(root, _SKIPPED), share, installed=True)
    if name.startswith(_PACKAGES):
        return _packages(name.removeprefix(_PACKAGES).split(","), share)
    path = Path(name)
    try:
        if path.is_dir():
            written = {run.parent.parent / name for run in path.rglob("state/run.json") for name in _OUTPUTS}
            files = [p for p in sorted(path.rglob("*")) if p.suffix in _SUFFIXES and p.is_file() and not written & set(p.parents)]
            if not files:
                got = f"none in {path}"
                raise BadInput(
                    "A folder holds no text.",
                    expected=f"files named {' '.join('*' + s for s in _SUFFIXES)}",
                    got=got,
                    remedy="Name another folder or a file.",
                )
            return Source(path.name or str(path), tuple(files), share)
        if not path.is_file():
            raise BadInput("A text file does not exist.", expected="a file or a folder", got=str(path), remedy="Check the path.")
    except OSError as error:
        raise unreadable(path, error) from error
    return Source(path.name, (path,), share)


def _code(root: Path, skipped: tuple[str, ...]) -> tuple[Path, ...]:
    return tuple(p for p in sorted(root.rglob("*.py")) if not set(p.relative_to(root).parts[:-1]) & set(skipped))


def _packages(names: list[str], share: float) -> Source:
    """The code of installed packages as one source that names their versions and licences. Raises `BadInput`."""
    files: list[Path] = []
    labels: list[str] = []
    for name in names:
        try:
            spec = find_spec(name) if name.isidentifier() else None
            about = metadata(name)
        except (PackageNotFoundError, ValueError):
            spec, about = None, None
        if spec is None or about is None or not spec.submodule_search_locations:
            raise BadInput(
                "A package is not installed.",
                expected="packages=NAME,NAME of this environment",
                got=name or "no name",
                remedy="Install it, or leave it out.",
            )
        files += [p for place in spec.submodule_search_locations for p in _code(Path(place), _SKIPPED + _VENDORED)]
        labels.append(f"{name} {about['Version']} ({_licence(about)})")
    return Source(", ".join(labels), tuple(files), share, installed=True)


def _licence(about: PackageMetadata) -> str:
    """A package's licence from its metadata, in one line."""
    stated = next((v for key in ("License-Expression", "License") for v in about.get_all(key) or ()), "")
    classes = [c.rpartition(" :: ")[2] for c in about.get_all("Classifier") or () if c.startswith("License ::")]
    return stated if stated and "\n" not in stated and len(stated) <= 80 else ", ".join(classes) or "licence not stated"


def _name_and_share(argument: str) -> tuple[str, float]:
    """(name, share) of an argument; share 0 without one."""
    name, colon, share = argument.rpartition(":")
    if not colon or not share.replace(".", "", 1).isdigit():
        return argument, 0.0
    if not 0 < float(share) <= 1:
        raise BadInput(
            "A share is out of range.", expected="above 0, at most 1", got=argument, remedy="Write NAME:0.5, for example."
        )
    return name, float(share)


def unreadable(path: Path, error: OSError) -> BadInput:
    """The error of a text file that cannot be read."""
    got = f"{path}: {error.strerror or error}"
    return BadInput(
        "A text cannot be read.", expected="a readable file", got=got, remedy="Change its permissions, or leave it out."
    )


def checked_bytes(source: Source, path: Path) -> bytes:
    """The bytes of a file of a source. Raises `BadInput` if they are not UTF-8 text, with the position of the first bad byte.

    In installed code such bytes are dropped.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    if source.installed:
        return data.decode("utf-8", errors="ignore").encode()
    if (at := data.find(b"\0")) >= 0 and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise BadInput(
            f"{path.name} is binary data, not text.",
            expected="UTF-8 text",
            got=f"a zero byte at byte {at:,} of {path}",
            remedy="Leave it out.",
        )
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        wide = " (it looks like UTF-16)" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else ""
        raise BadInput(
            f"{path.name} is not UTF-8 text.",
            expected="UTF-8",
            got=f"byte 0x{data[error.start]:02x} at byte {error.start:,} of {path}{wide}",
            remedy="Convert it, or leave it out.",
        ) from error
    return data.removeprefix(_MARK)


def texts(source: Source) -> Iterator[str]:
    """The texts of a source, one a file, line ends as \\n; empty files are left out, and tables in installed code."""
    for path in source.files:
        text = checked_bytes(source, path).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
        text = without_tables(text)[0] if source.installed else text
        if text.strip():
            yield text


def tokenised(source: Source, tokenizer: Tokenizer, n_ctx: int) -> Stream:
    """The token stream of a source. Raises `BadInput` where there is too little text for a sequence."""
    kind = np.uint16 if tokenizer.n_tokens <= 65536 else np.uint32
    parts = [np.array(tokenizer.encode(text + "\n"), dtype=kind) for text in texts(source)]
    tokens = np.concatenate(parts) if parts else np.zeros(0, kind)
    n_train = len(tokens) - max(int(len(tokens) * HELD_OUT), 2 * n_ctx)
    if n_train <= n_ctx:
        raise BadInput(
            f"{source.label} has too little text." if len(tokens) else f"{source.label} is empty.",
            expected=f"more than {number_of(3 * n_ctx, 'token')}: a context of {n_ctx} to train on, two to measure",
            got=number_of(len(tokens), "token"),
            remedy="Give more text, or a recipe with a shorter context.",
        )
    return Stream(source.label, source.share, tokens[:n_train], tokens[n_train:])
