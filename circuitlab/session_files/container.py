"""A zip of a few members with known names, read as if a stranger had written it: no bomb, no path, no member larger than it says.

The members of a session with results (`results`). Their order and dates are fixed, so that equal members give equal bytes.
"""

from __future__ import annotations

import functools
import io
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from circuitlab.counting import number_of
from circuitlab.errors import BadInput, printable, stated
from circuitlab.session_files.session_text import LARGEST

MAGIC = b"PK\x03\x04"
TEXT = "session.json"
LARGEST_REST = 2**28  # bytes of all members but the text, unpacked
MOST = 2**13  # members
_LONGEST = 240  # characters of a member's name
_DIRECTORY = 2**22  # bytes of the zip's own list of its members
_END = struct.Struct("<4s4H2LH")  # the record that ends a zip: signature, disks, counts, size and place of the list, comment
LARGEST_FILE = LARGEST + LARGEST_REST + 2 * _DIRECTORY  # bytes of a session's file
_EPOCH = (1980, 1, 1, 0, 0, 0)
_PACKED = (".npz",)  # compressed already
_REMEDY = "Open a .circuitlab file that CircuitLab has saved. The one before it may lie beside it, with ~ behind its name."
_PLAIN = re.compile(r"[^/\\:\0-\x1f\x7f]+(/[^/\\:\0-\x1f\x7f]+)*")
_BROKEN = (
    zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, struct.error, ValueError, OverflowError, OSError,
)  # fmt: skip


def refused(place: str, expected: str, got: object) -> BadInput:
    """The error for a member, or a place in one, that is not as CircuitLab writes it."""
    what = f"The session cannot be read at {printable(place, 120)}."
    return BadInput(what, expected=expected, got=stated(got), remedy=_REMEDY)


@dataclass(frozen=True)
class Container:
    """The members of a zip: by name the bytes of each, unpacked. `fetch` reads some of them; none is read before that. It gives
    the error of one that is damaged in its place."""

    sizes: Mapping[str, int]
    fetch: Callable[[Iterable[str]], Iterator[tuple[str, bytes | BadInput]]]

    def read(self, name: str) -> bytes:
        """One member. Raises `BadInput`."""
        return next(iter(self.each((name,))))[1]

    def each(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """These members in turn, each with its name. Raises `BadInput`."""
        for name, data in self.fetch(names):
            if isinstance(data, BadInput):
                raise data
            yield name, data


def container_of(members: Mapping[str, bytes]) -> Container:
    """Members that are in memory."""
    return Container({name: len(data) for name, data in members.items()}, lambda names: ((n, members[n]) for n in names))


def container_at(path: Path) -> Container:
    """The members of a file, which must still be the same one when they are read. Raises `BadInput`."""
    with _as_bad_input(lambda: "the zip"):
        stat = path.stat()
    return _listed(functools.partial(_reopened, path, (stat.st_size, stat.st_mtime_ns, stat.st_ino)))


def _reopened(path: Path, identity: tuple[int, ...]) -> IO[bytes]:
    file = path.open("rb")
    stat = os.fstat(file.fileno())
    if (stat.st_size, stat.st_mtime_ns, stat.st_ino) != identity:
        file.close()
        raise refused(path.name, "the file as it was opened", "another one in its place")
    return file


def _fetched(
    opened: Callable[[], IO[bytes]], sizes: Mapping[str, int], names: Iterable[str]
) -> Iterator[tuple[str, bytes | BadInput]]:
    with _as_bad_input(lambda: "the zip"), opened() as file, zipfile.ZipFile(file) as archive:
        for name in names:
            try:
                data = _member(archive, name, sizes)
            except BadInput as error:
                data = error
            yield name, data


def _member(archive: zipfile.ZipFile, name: str, sizes: Mapping[str, int]) -> bytes:
    if name not in sizes:
        raise refused(name, "a member of that name", "none")
    with _as_bad_input(lambda: name), archive.open(name) as member:
        data = member.read(sizes[name] + 1)
    if len(data) != sizes[name]:
        raise refused(name, number_of(sizes[name], "byte"), len(data))
    return data


@contextmanager
def _as_bad_input(name: Callable[[], str]) -> Iterator[None]:
    try:
        yield
    except _BROKEN as error:
        raise refused(name(), "a zip as CircuitLab writes it", str(error) or type(error).__name__) from error


def _listed(opened: Callable[[], IO[bytes]]) -> Container:
    """The container with the sizes of its members, once the list has been held against every bound."""
    with _as_bad_input(lambda: "the zip"), opened() as file:
        _check_end(file)
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
    sizes: dict[str, int] = {}
    for info in infos:
        _check(info, sizes)
        sizes[info.filename] = info.file_size
    if TEXT not in sizes:
        raise refused("the zip", TEXT, "no such member")
    if sizes[TEXT] > LARGEST:
        raise refused(TEXT, f"at most {LARGEST} bytes", sizes[TEXT])
    if (rest := sum(sizes.values()) - sizes[TEXT]) > LARGEST_REST:
        largest = max((name for name in sizes if name != TEXT), key=lambda name: sizes[name])
        raise refused(largest, f"at most {LARGEST_REST} bytes of results", rest)
    return Container(sizes, functools.partial(_fetched, opened, sizes))


def _check_end(file: IO[bytes]) -> None:
    """Refuse a list of members that is too long, before it is read: `zipfile` believes what the end of a zip says of it."""
    length = file.seek(0, os.SEEK_END)
    file.seek(max(0, length - _END.size - 20))
    tail = file.read()
    if len(tail) < _END.size:
        raise refused("the zip", "the end of a zip", number_of(length, "byte"))
    signature, _, _, _, count, size, place, comment = _END.unpack(tail[-_END.size :])
    if signature != b"PK\x05\x06" or comment or place + size + _END.size != length or tail.startswith(b"PK\x06\x07"):
        raise refused("the zip", "the end of a zip as CircuitLab writes it", "another")
    if count > MOST or size > _DIRECTORY:
        raise refused("the zip", f"at most {MOST} members", count)


def _check(info: zipfile.ZipInfo, known: Mapping[str, int]) -> None:
    name = info.orig_filename
    if name != info.filename or not plain_name(name):
        raise refused(name, "the name of a member, which leads nowhere else", name)
    if name in known:
        raise refused(name, "each member once", "two of that name")
    if info.flag_bits & 0x1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise refused(name, "a member that is stored or deflated", f"method {info.compress_type}")


def plain_name(name: str) -> bool:
    """Whether a member's name is a relative path that stays where it is on every system."""
    return len(name) <= _LONGEST and bool(_PLAIN.fullmatch(name)) and not {".", ".."} & set(name.split("/"))


def unpacked_size(data: bytes) -> int:
    """How many bytes a zip in memory says that its members have; of what is no zip its own."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return sum(info.file_size for info in archive.infolist())
    except _BROKEN:
        return len(data)


def container_bytes(members: Mapping[str, bytes]) -> bytes:
    """A zip of members, the session's text first, the others by their names."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in sorted(members, key=lambda name: (name != TEXT, name)):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.create_system, info.external_attr = 3, 0o644 << 16
            info.compress_type = zipfile.ZIP_STORED if name.endswith(_PACKED) else zipfile.ZIP_DEFLATED
            archive.writestr(info, members[name])
    return out.getvalue()
