"""A file on disk, read as it was when it was opened; a truncation or another content since then is detected.

Only regular files are opened: a pipe or a device would hang or never end. Another process may truncate a file while it is in use,
and reading past the end of a map then kills the process (SIGBUS). Copies are therefore read through the file handle, which
returns fewer bytes instead, and a view of the map is handed out only after size and time have been checked again; one that
another process has written into since is refused, as its numbers would be of two contents. One gap remains: a file truncated or
written into between that check and the arithmetic on the view. A file replaced by another of its name is harmless, since the
handle still refers to the old one.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import threading
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from circuitlab.counting import number_of
from circuitlab.errors import BadModel, cause

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

_NOTED: ContextVar[set[Path] | None] = ContextVar("noted", default=None)


@contextlib.contextmanager
def noted_files() -> Iterator[set[Path]]:
    """The paths of the files that this thread opens as a `WholeFile` inside the block, once it has ended."""
    paths = set[Path]()
    before = _NOTED.set(paths)
    try:
        yield paths
    finally:
        _NOTED.reset(before)


def shown(path: Path) -> str:
    """A path as text that can be printed, whatever bytes are in it."""
    return str(path).encode("utf-8", "replace").decode("utf-8")


class WholeFile:
    """An open regular file of `size` bytes. Raises `BadModel` where it is missing or unreadable."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, shown(Path(path.name))
        try:
            _regular(self.name, path.stat().st_mode)
            self._file = os.fdopen(os.open(path, _FLAGS), "rb", buffering=0)
        except (OSError, ValueError) as error:
            raise _unreadable(path, error) from error
        weakref.finalize(self, self._file.close)
        now = os.fstat(self._file.fileno())
        _regular(self.name, now.st_mode)
        self.size, self._written = now.st_size, now.st_mtime_ns
        self._lock = threading.Lock()
        self._map: mmap.mmap | None = None
        if (noted := _NOTED.get()) is not None:
            noted.add(path)

    def read(self, start: int, stop: int) -> bytes:
        """Bytes start … stop. Raises `BadModel` where the file ends earlier, or has been written into since it was opened."""
        data = bytearray(max(0, min(stop, self.size) - start))
        self._read_into(memoryview(data), start)
        if len(data) < stop - start:
            raise self._short(start + len(data), stop)
        self._need_unchanged()
        return bytes(data)

    def copy(self, start: int, stop: int) -> Tensor:
        """Bytes start … stop as a uint8 tensor in memory of its own. Raises what `read` raises."""
        if stop > self.size:
            raise self._short(self.size, stop)
        data = torch.empty(stop - start, dtype=torch.uint8)
        if stop > start:
            self._read_into(data.numpy().data, start)
        self._need_unchanged()
        return data

    def view(self, start: int, stop: int) -> memoryview:
        """Bytes start … stop of a shared read-only map. Raises `BadModel` where the file has been cut or written into since."""
        now = os.fstat(self._file.fileno()).st_size
        if now < stop:
            raise self._short(now, stop)
        self._need_unchanged()
        with self._lock:
            if self._map is None:
                self._map = self._mapped()
            if len(self._map) < stop:
                raise self._short(len(self._map), stop)
        return memoryview(self._map)[start:stop]

    def _mapped(self) -> mmap.mmap:
        try:
            return mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError, OverflowError) as error:
            raise BadModel(
                f"{self.name} cannot be mapped.",
                expected=f"room for {number_of(self.size, 'byte')} of addresses",
                got=cause(error),
            ) from error

    def duplicate(self) -> BinaryIO:
        """Another handle on the same file, which the caller closes; both share one position."""
        return os.fdopen(os.dup(self._file.fileno()), "rb", buffering=0)

    def _read_into(self, into: memoryview, start: int) -> None:
        done = 0
        with self._lock:
            try:
                self._file.seek(start)
                while done < len(into):
                    n_read = self._file.readinto(into[done : done + 2**30])
                    if not n_read:
                        raise self._short(start + done, start + len(into))
                    done += n_read
            except OSError as error:
                raise _unreadable(self.path, error) from error

    def _need_unchanged(self) -> None:
        """Raise `BadModel` where the open file itself, not another of its name, has been written into."""
        now = os.fstat(self._file.fileno())
        if (now.st_size, now.st_mtime_ns) != (self.size, self._written):
            size = f", {number_of(now.st_size, 'byte')} instead of {self.size:,}" if now.st_size != self.size else ""
            raise BadModel(
                f"{self.name} has been changed since it was opened.",
                expected="the file whose tensors are in use",
                got=f"one written into meanwhile{size}",
                remedy="Reload the model once no program is writing the file.",
            )

    def _short(self, got: int, needed: int) -> BadModel:
        return BadModel(
            f"{self.name} ends too early.",
            expected=f"at least {number_of(needed, 'byte')}",
            got=number_of(got, "byte") + (f", {self.size} when it was opened" if got != self.size else ""),
            remedy="It is truncated or still being written. Copy or download it again.",
        )


def _regular(name: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
        kind = next((what for is_one, what in kinds if is_one(mode)), "a device")
        raise BadModel(f"{name} is not a regular file.", expected="a file", got=kind, remedy="Put the model's own file there.")


def _unreadable(path: Path, error: OSError | ValueError) -> BadModel:
    if isinstance(error, FileNotFoundError):
        return BadModel(
            f"{shown(Path(path.name))} does not exist.",
            expected=f"a file at {shown(path)}",
            got="a link that leads nowhere" if path.is_symlink() else "no such file",
            remedy="Check the folder, or download the checkpoint again.",
        )
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return BadModel(
        f"{shown(Path(path.name))} cannot be read.",
        expected=f"a readable file at {shown(path)[:300]}",
        got=why[:200],
        remedy="Check its permissions, and the targets of its links.",
    )
