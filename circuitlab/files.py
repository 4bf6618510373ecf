"""Atomic writes: the new file is written beside the old one, flushed to disk, then put in its place. All output goes this way.

If anything goes wrong, the old file is unchanged and no partial file is left beside it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from circuitlab.errors import BadMachine

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CAUSES = (  # error numbers: what happened, what to do
    (FULL, ("The disk is full", "Free space")),
    ((errno.EACCES, errno.EPERM, errno.EROFS), ("The folder cannot be written to", "Choose another folder or change its rights")),
    ((errno.ENOTDIR, errno.EEXIST), ("A file is in the way of a folder", "Choose another folder, or move the file away")),
    ((errno.EISDIR,), ("A folder is in the way of a file", "Choose another name")),
    ((errno.ENOENT,), ("The folder does not exist", "Choose an existing folder")),
)
_OTHER_CAUSE = ("A file could not be written", "Choose another folder or disk")


def write_whole(
    path: Path,
    data: bytes | Callable[[IO[bytes]], Any],
    previous: Path | None = None,
    durable: bool = True,
    fresh: Path | None = None,
) -> None:
    """Write a file atomically; the old file is kept as `previous` if that is given.

    `data`: the bytes, or a function that writes them to an open file. `durable`: wait until they are on disk. `fresh`: the
    temporary path, by default a random name in the same folder. Raises `BadMachine` if the disk is full or not writable; the old
    file is then unchanged.
    """
    with whole(path, previous, durable, fresh) as beside, beside.open("wb") as file:
        data(file) if callable(data) else file.write(data)


@contextlib.contextmanager
def whole(path: Path, previous: Path | None = None, durable: bool = True, fresh: Path | None = None) -> Iterator[Path]:
    """A temporary path whose file replaces `path` at the end, for libraries that write to a path. See `write_whole`."""
    with writing(path):
        if path.exists() and not path.is_file() and not path.is_dir():
            yield path  # a pipe or a device, which cannot be replaced and has no content to lose
            return
        path = Path(os.path.realpath(path)) if path.is_symlink() else path  # replace the file that a link points to, not the link
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
                    _keep(path, previous, fresh)
            os.replace(beside, path)
            if durable:
                _on_disk(path.parent)
        finally:
            with contextlib.suppress(OSError):
                beside.unlink()  # already gone if all went well


def linked(source: Path, path: Path, fresh: Path | None = None) -> None:
    """Make `path` a hard link to `source`, or a copy where links are not possible. `fresh`: as in `write_whole`.

    Raises `BadMachine`.
    """
    with writing(path):
        if path.exists() and path.samefile(source):
            return
        beside = fresh or path.with_name(f".{secrets.token_hex(6)}.new")
        try:
            beside.unlink(missing_ok=True)
            try:
                os.link(source, beside)
            except OSError:  # another disk, or one without links
                shutil.copyfile(source, beside)
            os.replace(beside, path)
        finally:
            with contextlib.suppress(OSError):
                beside.unlink()  # already gone if all went well


def moved(source: Path, path: Path) -> None:
    """Rename a file within its disk; one that is at `path` is replaced. Raises `BadMachine`."""
    with writing(path):
        os.replace(source, path)


def read_at_most(path: Path, most: int) -> bytes | None:
    """A file's content, None if longer than `most` bytes (a device has no size and may never end).

    Raises `OSError`, also for a pipe, which nobody may ever write to.
    """
    if path.is_fifo():
        raise OSError(errno.EINVAL, "It is a pipe, not a file")
    with path.open("rb") as file:
        data = file.read(most + 1)
    return data if len(data) <= most else None


def _keep(path: Path, previous: Path, fresh: Path | None) -> None:
    """Give a file a second name, so that `path` is there at any moment; where links are not possible, another one."""
    if previous.exists() and previous.samefile(path):  # since a write that was killed
        return
    beside = previous.with_name(f"{previous.name}.new" if fresh else f".{secrets.token_hex(6)}.new")
    beside.unlink(missing_ok=True)
    try:
        os.link(path, beside)
    except OSError:
        os.replace(path, previous)
    else:
        os.replace(beside, previous)


def _new_name(path: Path) -> Path:
    """A new empty file in the same folder, hence on the same disk, so that it can replace `path`."""
    fresh = path.with_name(f".{secrets.token_hex(6)}.new")
    os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    return fresh


def _on_disk(path: Path) -> None:
    """Flush a file to disk, or a folder's entries where the system supports that."""
    folder = path.is_dir()
    if folder and os.name == "nt":
        return
    opened = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    try:
        os.fsync(opened)
    except OSError:
        if not folder:  # some file systems cannot flush a folder
            raise
    finally:
        os.close(opened)


def made_folder(path: Path) -> None:
    """Create a folder and its parents. Raises `BadMachine`."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> BadMachine:
    """The error for a file that could not be written."""
    what, remedy = next((words for numbers, words in _CAUSES if error.errno in numbers), _OTHER_CAUSE)
    return BadMachine(
        f"{what}: {path.name} could not be written.",
        expected=f"a writable disk with room at {path.parent}",
        got=error.strerror or str(error),
        remedy=f"{remedy}, then try again; what was saved before is intact.",
    )


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns disk errors while writing to `path` into `BadMachine`."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from error
    except Exception as error:  # safetensors wraps the error of the operating system in its own text
        code = re.search(r"os error (\d+)", str(error)) if type(error).__name__ == "SafetensorError" else None
        if code is None:
            raise
        raise unwritable(path, OSError(int(code[1]), str(error))) from error
