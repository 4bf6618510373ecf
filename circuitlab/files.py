"""Writing files: beside the old one, on the disk, then in its place. The one way anything leaves the program.

Whatever goes wrong, the old file is as it was and no stump lies beside it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from circuitlab.errors import BadMachine

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SAID = (  # error numbers: what happened, what to do
    (FULL, ("The disk is full", "Free space")),
    ((errno.EACCES, errno.EPERM, errno.EROFS), ("The folder cannot be written to", "Choose another folder or change its rights")),
    ((errno.ENOTDIR, errno.EEXIST), ("A file is in the way of a folder", "Choose another folder, or take the file away")),
    ((errno.EISDIR,), ("A folder is in the way of a file", "Choose another name")),
    ((errno.ENOENT,), ("The folder is not there", "Choose a folder that is there")),
)
_OTHERWISE = ("A file could not be written", "Mend that")


def write_whole(
    path: Path,
    data: bytes | Callable[[IO[bytes]], Any],
    previous: Path | None = None,
    durable: bool = True,
    fresh: Path | None = None,
) -> None:
    """Write beside, then replace; what was there is kept as `previous` where that is named.

    `data`: the bytes, or what writes them to an open file. `durable`: not before the disk has them. `fresh`: where it is written
    first, a name of its own where nothing is said. Raises `BadMachine` where the disk is full or cannot be written; the old file
    is then as it was.
    """
    with whole(path, previous, durable, fresh) as beside, beside.open("wb") as file:
        data(file) if callable(data) else file.write(data)


@contextlib.contextmanager
def whole(path: Path, previous: Path | None = None, durable: bool = True, fresh: Path | None = None) -> Iterator[Path]:
    """Where to write what then takes the place of `path`, for a library that wants a path. See `write_whole`."""
    with writing(path):
        if path.exists() and not path.is_file() and not path.is_dir():
            yield path  # a pipe, a device: nothing can lie beside it, and nothing is lost in it
            return
        path = Path(os.path.realpath(path)) if path.is_symlink() else path  # what a link leads to, the link stays
        if path.is_dir():
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        beside = fresh or _new_name(path)
        try:
            yield beside
            if durable:
                _on_disk(beside)
            if path.is_file():
                os.chmod(beside, path.stat().st_mode & 0o7777)
                if previous is not None:
                    os.replace(path, previous)
            os.replace(beside, path)
            if durable:
                _on_disk(path.parent)
        finally:
            with contextlib.suppress(OSError):
                beside.unlink()  # not there any more where all went well


def read_at_most(path: Path, most: int) -> bytes | None:
    """What a file holds, None where that is more than `most` bytes: a device has no size and no end. Raises `OSError`."""
    with path.open("rb") as file:
        data = file.read(most + 1)
    return data if len(data) <= most else None


def _new_name(path: Path) -> Path:
    """An empty file of a name that nobody has, in the same folder: of a disk that `path` can be replaced from."""
    fresh = path.with_name(f".{secrets.token_hex(6)}.new")
    os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    return fresh


def _on_disk(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder where the system can say so."""
    folder = path.is_dir()
    if folder and os.name == "nt":
        return
    opened = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    try:
        os.fsync(opened)
    except OSError:
        if not folder:  # some disks cannot do it of a folder
            raise
    finally:
        os.close(opened)


def made_folder(path: Path) -> None:
    """Make a folder, and those above it. Raises `BadMachine`."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> BadMachine:
    """The error of a file that could not be written."""
    what, remedy = next((words for numbers, words in _SAID if error.errno in numbers), _OTHERWISE)
    return BadMachine(
        f"{what}: {path.name} could not be written.",
        expected=f"a writable disk with room at {path.parent}",
        got=error.strerror or str(error),
        remedy=f"{remedy}, then do the same again; what was saved before is whole.",
    )


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Whatever goes wrong with the disk while something writes to `path` is a `BadMachine`."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from error
    except Exception as error:  # a library's own words around what the operating system said
        code = re.search(r"os error (\d+)", str(error)) if type(error).__name__ == "SafetensorError" else None
        if code is None:
            raise
        raise unwritable(path, OSError(int(code[1]), str(error))) from error
