"""Atomic writes: the new file is written beside the old one, flushed to disk, then put in its place. All output goes this way.

If anything goes wrong, the old file is unchanged and no partial file is left beside it. A link, a pipe or a device is written to
only at a path that a person has `named`; at every other it is replaced, see `own_files`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import IO

from circuitlab.disk.own_files import fresh_file, plain_stat
from circuitlab.disk.paths import private_folder
from circuitlab.disk.unfinished_files import unfinished_file, unfinished_link
from circuitlab.errors import BadMachine, bounded

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CAUSES = (  # error numbers: what happened, what to do
    (FULL, ("The disk is full", "Free space")),
    ((errno.EACCES, errno.EPERM, errno.EROFS), ("The folder cannot be written to", "Choose another folder or change its rights")),
    ((errno.ENOTDIR, errno.EEXIST), ("A file is in the way of a folder", "Choose another folder, or move the file away")),
    ((errno.EISDIR,), ("A folder is in the way of a file", "Choose another name")),
    ((errno.ENOENT,), ("The folder does not exist", "Choose an existing folder")),
    ((errno.ENAMETOOLONG,), ("The name is too long for the disk", "Choose a shorter name")),
    ((errno.ELOOP,), ("A link leads back to itself", "Choose another name, or remove the link")),
    ((errno.EINVAL, errno.EILSEQ), ("The disk cannot have such a name", "Choose a name of ordinary characters")),
)
_READER_WITHIN = 2.0  # seconds in which somebody has to read a pipe that is written to
_OTHER_CAUSE = ("A file could not be written", "Choose another folder or disk")


def write_whole(
    path: Path,
    data: bytes | Callable[[IO[bytes]], object],
    previous: Path | None = None,
    durable: bool = True,
    fresh: Path | None = None,
    named: bool = False,
) -> None:
    """Write a file atomically; the old file is kept as `previous` if that is given.

    `data`: the bytes, or a function that writes them to an open file. `durable`: wait until they are on disk. `fresh`: the
    temporary path, where nobody else writes to the folder; by default a random name in it, and such ones of killed processes are
    removed. `named`: a person has named this path, where a link is followed, and a pipe or a device written to.

    Raises `BadMachine` if the disk is full or not writable, or nobody reads a pipe; the old file is then unchanged.
    """
    with whole(path, previous, durable, fresh, named) as beside, beside.open("wb") as file:
        data(file) if callable(data) else file.write(data)


def write_together(files: Mapping[Path, bytes], named: Collection[Path] = ()) -> None:
    """Write several files, each atomically, and none before all are written beside the old ones. Raises `BadMachine`.

    The first is put in place last: of a process that is killed meanwhile it is new only where all are.

    `named`: those of them that a person has named, see `write_whole`.
    """
    with contextlib.ExitStack() as stack:
        for path, data in files.items():
            stack.enter_context(whole(path, named=path in named)).write_bytes(data)


@contextlib.contextmanager
def whole(
    path: Path, previous: Path | None = None, durable: bool = True, fresh: Path | None = None, named: bool = False
) -> Iterator[Path]:
    """A temporary path whose file replaces `path` at the end, for libraries that write to a path. See `write_whole`."""
    with writing(path):
        if named and _cannot_be_replaced(path):
            with _reader_of(path):
                yield path
            return
        path = _replaceable(path, named)
        with _new(fresh) if fresh else unfinished_file(path.parent) as beside, _gone_after(beside):
            old = plain_stat(path)
            mode = None if old is None else stat.S_IMODE(old.st_mode)
            os.close(os.open(beside, os.O_WRONLY | os.O_CREAT, 0o666 if mode is None else 0o600))
            if mode is not None:  # from before its first byte: what nobody else may read they may not read meanwhile
                os.chmod(beside, mode | 0o600)
            usual = beside.stat().st_mode & 0o7777
            yield beside
            if durable:
                on_disk(beside)
            os.chmod(beside, usual if mode is None else mode)  # a library may have put a file of its own there
            if mode is not None and previous is not None:
                _keep(path, previous, fresh)
            os.replace(beside, path)
            if durable:
                on_disk(path.parent)


def _cannot_be_replaced(path: Path) -> bool:
    """Whether a pipe or a device is there, which has no content to lose. Raises `OSError` where nothing can be there."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    except ValueError as error:
        raise _no_name(error) from error
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _no_name(error: ValueError) -> OSError:
    """What the system would say of a name with a zero byte or half of a character, were it asked."""
    return OSError(errno.EINVAL, "a name with characters that no name can have")


def _replaceable(path: Path, named: bool) -> Path:
    """The file that is replaced: where the path is `named`, the one that a link points to. Raises `OSError` for a folder."""
    path = Path(os.path.realpath(path)) if named and path.is_symlink() else path
    if path.is_dir() and not path.is_symlink():
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    return path


@contextlib.contextmanager
def _new(fresh: Path) -> Iterator[Path]:
    """A new empty file at this path, in place of what was there."""
    fresh_file(fresh).close()
    yield fresh


def linked(source: Path, path: Path, fresh: Path) -> None:
    """Make `path` a hard link to `source`, or a copy where links are not possible. `fresh`: as in `write_whole`.

    Raises `BadMachine`.
    """
    with writing(path):
        if _same(path, source):
            return
        with _gone_after(fresh):
            fresh.unlink(missing_ok=True)
            try:
                os.link(source, fresh)
            except OSError:  # another disk, or one without links
                with fresh_file(fresh) as target, source.open("rb") as file:
                    shutil.copyfileobj(file, target)
            os.replace(fresh, path)


def moved(source: Path, path: Path) -> None:
    """Rename a file within its disk; one that is at `path` is replaced. Raises `BadMachine`."""
    with writing(path):
        os.replace(source, path)


def read_at_most(path: Path, most: int) -> bytes | None:
    """A file's content, None if longer than `most` bytes (a device has no size and may never end).

    Raises `OSError`, also for a pipe, which nobody may ever write to.
    """
    with opened(path) as file:
        data = file.read(most + 1)
    return data if len(data) <= most else None


def opened(path: Path) -> IO[bytes]:
    """A file, open to be read. Raises `OSError`, also for a pipe, which nobody may ever write to."""
    if path.is_fifo():
        raise OSError(errno.EINVAL, "It is a pipe, not a file")
    try:
        return path.open("rb")
    except ValueError as error:
        raise _no_name(error) from error


def _keep(path: Path, previous: Path, fresh: Path | None) -> None:
    """Give a file a second name, so that `path` is there at any moment; where links are not possible, another one."""
    if _same(previous, path):  # since a write that was killed
        return
    with contextlib.ExitStack() as stack:
        try:
            beside = stack.enter_context(_link(path, previous) if fresh else unfinished_link(path, previous.parent))
        except OSError:
            os.replace(path, previous)
        else:
            os.replace(beside, previous)


def _same(path: Path, other: Path) -> bool:
    """Whether both are names of one plain file; a link is no name of what it leads to."""
    one, two = plain_stat(path), plain_stat(other)
    return one is not None and two is not None and os.path.samestat(one, two)


@contextlib.contextmanager
def _link(path: Path, previous: Path) -> Iterator[Path]:
    """A second name of a file in a folder that nobody else writes to."""
    beside = previous.with_name(f"{previous.name}.new")
    with _gone_after(beside):
        beside.unlink(missing_ok=True)
        os.link(path, beside)
        yield beside


@contextlib.contextmanager
def _gone_after(beside: Path) -> Iterator[None]:
    """Whatever happens in the block, no file is left there."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()  # already gone if all went well


@contextlib.contextmanager
def _reader_of(path: Path) -> Iterator[None]:
    """Keep a pipe open while it is written to, so that opening it does not wait for a reader. A device needs none.

    Raises `BadMachine` where nobody reads the pipe.
    """
    if not path.is_fifo():
        yield
        return
    pipe = _opened_pipe(path)
    try:
        yield
    finally:
        os.close(pipe)


def _opened_pipe(path: Path) -> int:
    give_up = time.monotonic() + _READER_WITHIN
    while True:
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > give_up:
                raise BadMachine(
                    f"Nobody reads the pipe: {path.name} could not be written.",
                    expected="a program that reads from it",
                    got=f"none within {_READER_WITHIN:g} seconds",
                    remedy="Start the program that reads first, or write to a file.",
                ) from error
        time.sleep(0.02)


def on_disk(path: Path) -> None:
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


def made_folder(path: Path, private: bool = False, within: Path | None = None) -> None:
    """Create a folder and its parents; `private`: one of ours, which nobody else reads. Raises `BadMachine`.

    `within`: the folder that a person has named; below it, nothing on the way to `path` may be a link, which would lead whatever
    is written into another folder.
    """
    try:
        for folder in () if within is None else (path, *path.parents)[: len(path.relative_to(within).parts)]:
            if folder.is_symlink() or getattr(folder, "is_junction", bool)():
                raise _link_in_the_way(folder)
        private_folder(path) if private else path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


def _link_in_the_way(folder: Path) -> BadMachine:
    return BadMachine(
        f"A link is in the way of a folder: nothing was written to {bounded(folder.name)}.",
        expected=f"a folder, or nothing, at {bounded(str(folder))}",
        got="a link to another place",
        remedy="Remove the link, or choose another folder.",
    )


def need_writable(*paths: Path, named: bool = True) -> None:
    """Raise `BadMachine` where one of these files could not be written: before the work, not behind it.

    Found out by making a file beside each, which is removed at once. A pipe or a device is not tried: trying it would be writing.
    `named`: as in `write_whole`.
    """
    for path in paths:
        with writing(path):
            if not (named and _cannot_be_replaced(path)):
                _try_folder(_replaceable(path, named).parent)


def need_folder(path: Path) -> None:
    """Raise `BadMachine` where a folder could not be made, or no file in it: before the work. It is not made."""
    with writing(path):
        nearest = path.absolute()
        while not _is_there(nearest):
            nearest = nearest.parent
        _try_folder(nearest)


def _is_there(path: Path) -> bool:
    """Raises `OSError` where there can be nothing, as with a link that leads nowhere."""
    _cannot_be_replaced(path)
    if path.is_symlink() and not path.exists():
        raise FileExistsError(errno.EEXIST, "a link that leads nowhere")
    return path.exists()


def _try_folder(folder: Path) -> None:
    """Make a file in it, and remove it. Raises `OSError`."""
    with unfinished_file(folder) as beside, _gone_after(beside):
        pass


def unwritable(path: Path, error: OSError) -> BadMachine:
    """The error for a file that could not be written."""
    folder = Path(os.path.realpath(path) if os.path.islink(path) else path.absolute()).parent
    if error.errno == errno.ENOENT and os.path.isdir(folder):  # so say folders of the system, such as /proc
        error = OSError(errno.EACCES, "No file can be made there")
    what, remedy = next((words for numbers, words in _CAUSES if error.errno in numbers), _OTHER_CAUSE)
    return BadMachine(
        f"{what}: {bounded(path.name or str(path))} could not be written.",
        expected=f"a writable disk with room at {bounded(str(folder))}",
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
