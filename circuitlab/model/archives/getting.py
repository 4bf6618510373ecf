"""Getting the checkpoints of a shipped model: from the web, or from a file that somebody brought."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from circuitlab.counting import number_of
from circuitlab.disk.file_lock import FileLock, locked
from circuitlab.disk.files import made_folder, unwritable, writing
from circuitlab.errors import BadInput, BadMachine, BadModel
from circuitlab.model.archives.address import is_url, need_address
from circuitlab.model.archives.index import Archive
from circuitlab.model.archives.transfer import transfer
from circuitlab.model.archives.unpacking import check_zip, damaged, need_room, sweep, swept, unpack
from circuitlab.model.archives.zipped import Zipped
from circuitlab.model.sources.transfer_meter import Meter, OnProgress, Progress

__all__ = ["OnProgress", "Progress", "alone", "check", "get", "install", "part_of", "take", "tidy"]


@dataclass(frozen=True)
class Outcome:
    """What `get` has done. `folder`: where the checkpoints are; `fetched`: they were put there now."""

    folder: Path
    fetched: bool


def get(
    archive: Archive,
    source: str = "",
    on_progress: OnProgress = lambda progress: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Get the checkpoints unless all of them are here and whole. They can be opened when this returns.

    `source`: the zip, a folder that holds it, or its address on the web; by default the address of the list. A download that is
    stopped goes on where it stopped. Everything is checked against the list of archives, and what is in place already is replaced
    whole or stays as it was. Raises `BadMachine` where no address is known, the server or the disk fails; `BadInput` for another
    file; `BadModel` where the model's own folder holds damaged checkpoints; `UsageError`; `Cancelled`.
    """
    if not archive.lacking:
        bad = check(archive, on_progress, cancelled)
        if not bad:
            tidy(archive)
            places = {path.parent for one in archive.checkpoints if (path := archive.place(one)) is not None}
            return Outcome(sorted(places)[0], False)
        if own := [path for path in bad if path.is_relative_to(archive.shipped_folder)]:
            raise _damaged_here(own)
    if "://" in source:
        need_address(source)
    take(archive, source or archive.url, on_progress, cancelled)
    return Outcome(archive.fetched_folder, True)


def take(
    archive: Zipped,
    source: str,
    on_progress: OnProgress = lambda progress: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> None:
    """Put the files of an archive in their place: from its zip, a folder that holds it, or an address on the web.

    Raises as `get` does.
    """
    with alone(archive):
        sweep(archive)
        if source and not is_url(source):
            place = os.path.expanduser(source)  # a person that there is not stays as it is written
            install(archive, Path(place, archive.zip.name) if os.path.isdir(place) else Path(place), on_progress, cancelled)
        else:
            _fetch(archive, source, on_progress, cancelled)


def tidy(archive: Zipped) -> None:
    """Remove what a process that was killed has left beside files that are whole; nothing while another one gets them."""
    part = part_of(archive)
    if not swept(archive) or part.exists() or _lock_of(archive).exists():
        with contextlib.suppress(BadMachine), alone(archive), writing(part):
            sweep(archive)
            part.unlink(missing_ok=True)


def check(
    archive: Zipped, on_progress: OnProgress = lambda progress: None, cancelled: Callable[[], bool] = lambda: False
) -> tuple[Path, ...]:
    """Read its files that are here, and return those that differ from the list. Raises `Cancelled`."""
    meter = Meter(archive.nbytes, on_progress, cancelled, "checking")
    return damaged(archive, lambda n: meter.add(n, moved=False))


def part_of(archive: Zipped) -> Path:
    """Where a download grows."""
    return archive.fetched_folder.with_name(f"{archive.zip.sha256[:16]}.zip.part")


def _lock_of(archive: Zipped) -> Path:
    return archive.fetched_folder.with_name(f"{archive.zip.sha256[:16]}.lock")


def _fetch(archive: Zipped, url: str, on_progress: OnProgress, cancelled: Callable[[], bool]) -> None:
    """Download, check, unpack; the download is removed at the end, and at once where it is not the archive."""
    if not url:
        raise BadMachine(
            f"No address is known from which {archive.contents} could be fetched.",
            expected=f"the address of {archive.zip.name}, or the file",
            got="a version of CircuitLab that names none",
            remedy=f"Take the file from where CircuitLab came from: circuitlab get {archive.model} --from FILE.zip.",
        )
    part = part_of(archive)
    have = part.stat().st_size if part.is_file() else 0
    need_room(archive, part.parent, max(0, archive.zip.size - have) + archive.nbytes)
    transfer(url, part, archive.zip.size, Meter(archive.zip.size, on_progress, cancelled, archive.zip.name))
    try:
        install(archive, part, on_progress, cancelled)
    except BadInput:  # it is not the archive, and asking for its rest will not help
        part.unlink(missing_ok=True)
        raise
    part.unlink(missing_ok=True)


def install(archive: Zipped, file: Path, on_progress: OnProgress, cancelled: Callable[[], bool]) -> None:
    """Check the zip in `file`, and put its files in their place; only `alone`. Raises `BadInput`, `BadMachine`, `Cancelled`."""
    meter = Meter(archive.zip.size + archive.nbytes, on_progress, cancelled, "checking")
    tick = lambda n: meter.add(n, moved=False)
    check_zip(archive, file, tick)
    meter.file = "unpacking"
    unpack(archive, file, tick)


@contextlib.contextmanager
def alone(archive: Zipped) -> Iterator[None]:
    """Inside, no other process gets this archive. Raises `BadMachine` where one does, or the folder cannot be written."""
    made_folder(archive.fetched_folder.parent)
    lock = FileLock(_lock_of(archive))
    fetching = lambda holder: BadMachine(
        f"Another process is fetching {archive.contents} already.",
        expected="one CircuitLab that does it",
        got=holder,
        remedy="Wait for it, or stop it.",
    )
    with locked(lock, fetching, partial(unwritable, lock.path), remove=True):
        yield


def _damaged_here(paths: list[Path]) -> BadModel:
    more = f" and {number_of(len(paths) - 1, 'other')}" if len(paths) > 1 else ""
    return BadModel(
        "Checkpoints of a shipped model differ from the list of archives.",
        expected="the files that this version shipped",
        got=f"{paths[0].name}{more} in {paths[0].parent}",
        remedy="Restore them, or remove them and get them again.",
    )
