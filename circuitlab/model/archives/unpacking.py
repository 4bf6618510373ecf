"""From a zip to files in their place: checked as a whole and file by file, written beside, put in place by one rename."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from circuitlab.counting import number_of
from circuitlab.disk.files import opened, writing
from circuitlab.disk.unfinished_folder import STAGING, remove_abandoned_folders, unfinished_folder
from circuitlab.errors import BadInput, BadMachine, bounded, cause, printable
from circuitlab.model.archives.index import Stored, size_words
from circuitlab.model.archives.zipped import Zipped

PIECE = 1 << 20
SPARE = 2**20  # bytes beyond the files themselves, for folders and what the file system notes
_DISCARD = "Nothing was changed. Fetch or copy the archive again."

Tick = Callable[[int], None]  # called with the bytes just read; may raise


def check_zip(archive: Zipped, file: Path, tick: Tick = lambda n: None) -> None:
    """Raise `BadInput` unless `file` is the archive, byte for byte, or cannot be read."""
    with _reading(file), opened(file) as source:
        size = os.fstat(source.fileno()).st_size
        if size != archive.zip.size:
            raise _another(archive, number_of(archive.zip.size, "byte"), number_of(size, "byte"))
        sha256 = _sha256(source, tick)
    if sha256 != archive.zip.sha256:
        raise _another(archive, f"sha256 {archive.zip.sha256[:16]}…", f"{sha256[:16]}…")


def damaged(archive: Zipped, tick: Tick = lambda n: None) -> tuple[Path, ...]:
    """Its files on this machine that are not what the list says, by size and hash; unreadable ones too."""
    return tuple(path for one in archive.files if (path := archive.place(one)) is not None and not _whole(path, one, tick))


def need_room(archive: Zipped, folder: Path, nbytes: int) -> None:
    """Raise `BadMachine` unless `nbytes` fit on the disk of `folder`, which exists."""
    free = shutil.disk_usage(folder).free
    if free < nbytes + SPARE:
        raise BadMachine(
            f"There is no room for {archive.contents}.",
            expected=f"{size_words(nbytes + SPARE)} free at {folder}",
            got=size_words(free),
            remedy="Free space, then run it again; nothing was changed.",
        )


def unpack(archive: Zipped, file: Path, tick: Tick = lambda n: None) -> Path:
    """Put the files of a zip that `check_zip` has passed in `archive.fetched_folder`, and return that folder.

    What is there is replaced whole, or stays as it was. Raises `BadInput` for a zip whose members are not what the list
    says, `BadMachine` where they cannot be written; and what `tick` raises.
    """
    place = archive.fetched_folder
    with writing(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        need_room(archive, place.parent, archive.nbytes)
        with unfinished_folder(place.parent) as staging:
            inside = staging / archive.inside
            inside.mkdir(parents=True, exist_ok=True)
            with _opened(file) as source, _zip(source) as members:
                _refuse_other_members(archive, members)
                for one in archive.files:
                    _write(archive, one, members, inside / one.name, tick)
            _swap(staging, place)
    return place


def sweep(archive: Zipped) -> None:
    """Remove what unpackings that were killed have left, and put back the files that one of them had set aside. Only while the
    archive is locked."""
    place = archive.fetched_folder
    remove_abandoned_folders(place.parent)
    for aside in sorted(place.parent.glob(f"{_aside_of(place)}*")):
        with contextlib.suppress(OSError):
            if not place.exists():
                os.rename(aside, place)
        shutil.rmtree(aside, ignore_errors=True)


def swept(archive: Zipped) -> bool:
    """Whether `sweep` has nothing to do."""
    parent = archive.fetched_folder.parent
    return not any(path for begins in (STAGING, _aside_of(archive.fetched_folder)) for path in parent.glob(f"{begins}*"))


def _aside_of(place: Path) -> str:
    """How the names begin under which what was at a place steps aside."""
    return f".old-{place.name}-"


def _write(archive: Zipped, one: Stored, members: zipfile.ZipFile, path: Path, tick: Tick) -> None:
    """Write one file, no longer than it must be, and compare it with its hash while it is written."""
    digest, remaining = hashlib.sha256(), one.size
    with members.open(archive.member(one)) as source, path.open("xb") as file:
        while remaining and (piece := source.read(min(PIECE, remaining))):
            digest.update(piece)
            file.write(piece)
            remaining -= len(piece)
            tick(len(piece))
        file.flush()
        os.fsync(file.fileno())
    if digest.hexdigest() != one.sha256:
        raise _another(archive, f"{one.name} of sha256 {one.sha256[:16]}…", f"{digest.hexdigest()[:16]}…")


def _refuse_other_members(archive: Zipped, members: zipfile.ZipFile) -> None:
    """Only files of the sizes of the list, each under one name, so that no name can lead out of the folder; and nothing else in
    the zip where the archive is `alone`."""
    expected = {archive.member(one): one.size for one in archive.files}
    infos = [info for info in members.infolist() if archive.alone or info.filename in expected]
    methods = (zipfile.ZIP_STORED,) if archive.alone else (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    for info in infos:
        kind = stat.S_IFMT(info.external_attr >> 16)
        plain = kind in (0, stat.S_IFREG) and info.compress_type in methods and not info.flag_bits & 1
        if expected.get(info.filename) != info.file_size or not plain:
            raise _another(archive, "the files of the list", f"{printable(info.filename)}, {number_of(info.file_size, 'byte')}")
    if len(infos) != len(expected):
        raise _another(archive, number_of(len(expected), "file"), number_of(len(infos), "file"))


def _swap(staging: Path, place: Path) -> None:
    """Rename the new folder to its place; one that is there steps aside until that has succeeded.

    Of a process that is killed between the two renames, `sweep` puts it back.
    """
    aside = place.with_name(f"{_aside_of(place)}{secrets.token_hex(6)}")
    try:
        os.rename(place, aside)
    except FileNotFoundError:
        os.rename(staging, place)
        return
    try:
        os.rename(staging, place)
    except BaseException:
        os.rename(aside, place)
        raise
    shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Turns errors of reading an archive into `BadInput`."""
    try:
        yield
    except OSError as error:
        raise BadInput(
            f"The archive {bounded(file.name, 80)} cannot be read.",
            expected="the file of an archive",
            got=cause(error),
            remedy="Check the path, and that you may read it.",
        ) from error


def _opened(file: Path) -> IO[bytes]:
    with _reading(file):
        return opened(file)


@contextlib.contextmanager
def _zip(source: IO[bytes]) -> Iterator[zipfile.ZipFile]:
    """The open zip, whose own errors become `BadInput`."""
    try:
        with zipfile.ZipFile(source) as members:
            yield members
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise BadInput("The archive is not a zip that can be read.", got=printable(error), remedy=_DISCARD) from error


def _sha256(source: IO[bytes], tick: Tick) -> str:
    digest = hashlib.sha256()
    while piece := source.read(PIECE):
        digest.update(piece)
        tick(len(piece))
    return digest.hexdigest()


def _whole(path: Path, one: Stored, tick: Tick) -> bool:
    try:
        with opened(path) as source:
            return os.fstat(source.fileno()).st_size == one.size and _sha256(source, tick) == one.sha256
    except OSError:
        return False


def _another(archive: Zipped, expected: str, got: str) -> BadInput:
    return BadInput(
        f"That is not the archive of {archive.model} that this version lists.",
        expected=expected,
        got=got,
        remedy=_DISCARD,
    )
