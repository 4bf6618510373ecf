"""Downloading one file of the hub into its cache, from an untrusted server.

A server's answer becomes part of a path only after validation: an ETag of 40 to 64 hexadecimal digits (a git or SHA-256 hash), a
commit likewise, a file's name that leads nowhere else. A stream is read up to the announced size and never decompressed, and its
bytes have the hash that names them. A partial file is stored beside the cache's blobs under its own name until it is complete and
on disk; bytes received are not requested twice, and one process receives them at a time. Of what is there already size and hash
are checked.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeGuard

from circuitlab.counting import number_of
from circuitlab.disk.file_lock import FileLock
from circuitlab.disk.files import FULL, made_folder, on_disk, writing
from circuitlab.disk.own_files import open_own
from circuitlab.disk.regular_file import opened_regular, pieces
from circuitlab.errors import BadInput, BadMachine, BadModel, CircuitLabError, cause, printable
from circuitlab.model.sources.hub import HubName, cache_folder
from circuitlab.model.sources.silent_server import asked, heard
from circuitlab.model.sources.transfer_meter import Meter

PART, LOCK = ".circuitlab-part", ".circuitlab-lock"
_ATTEMPTS = 5  # broken connections in a row without a byte between them
_HASH = re.compile(r"[0-9A-Fa-f]{40,64}")


@dataclass(frozen=True)
class HubFile:
    """One file of a repository; its size in bytes as the hub lists it, 0 if it does not, and the hash that names it there, "" if
    it lists none."""

    name: str
    size: int
    etag: str = ""


@dataclass(frozen=True)
class Place:
    """The address of one file's bytes, with the size and hash that they must have."""

    url: str
    etag: str
    size: int
    same_host: bool


def checked_hash(text: object, what: str) -> str:
    """`text`, checked to be a hash as the cache uses for names. Raises `BadModel`."""
    if not is_hash(text):
        raise BadModel(
            f"The hub names {what} by something that is not a hash.",
            expected="40 to 64 hexadecimal digits",
            got=ascii(text)[:100],
            remedy="Nothing was written. Check HF_ENDPOINT, and download from a hub that you trust.",
        )
    return text


def is_hash(text: object) -> TypeGuard[str]:
    """Whether `text` is a hash as the cache uses for names."""
    return isinstance(text, str) and bool(_HASH.fullmatch(text))


def into_cache(hub: Any, name: HubName, commit: str, file: HubFile, endpoint: str | None, meter: Meter) -> None:
    """Download one file of a commit unless it is in the cache already. Raises `CircuitLabError`, or the library's errors."""
    link = name.folder / "snapshots" / commit / file.name
    cached = hub.try_to_load_from_cache(name.repo, file.name, cache_folder(), revision=commit)
    if isinstance(cached, str) and file.etag and _is_whole(Path(cached), file.etag, file.size, meter):
        meter.add(file.size, moved=False)
        if _lock_of(known := name.folder / "blobs" / file.etag.lower()).exists():
            with _own_part(known, meter):  # whoever was killed behind its last call has left it
                pass
        return
    url = hub.hf_hub_url(name.repo, file.name, revision=commit, endpoint=endpoint)
    place = _place(file, url, asked(lambda: hub.get_hf_file_metadata(url), meter.cancelled))
    blob = name.folder / "blobs" / place.etag
    made_folder(blob.parent)
    with _own_part(blob, meter) as part:
        _transfer(hub, place, part, blob, meter)
        with writing(link):
            _link(link, blob, part)


def brought_into_cache(name: HubName, commit: str, file: HubFile, brought: Path, meter: Meter) -> None:
    """Copy one file of a commit, brought from elsewhere, into the cache. Raises `BadInput` where it is another file.

    `file` must have a hash: nothing else says that it is the one.
    """
    if got := _other_bytes(brought, checked_hash(file.etag, file.name), file.size, meter):
        raise BadInput(
            f"The file {printable(brought.name)} is not the file that the hub has under that name.",
            expected=f"{hash_words(file.etag)}" + (f", {number_of(file.size, 'byte')}" if file.size else ""),
            got=got,
            remedy="Copy or download it again from the model's page on the hub; or open what you have by its path, as it is.",
        )
    link, blob = name.folder / "snapshots" / commit / file.name, name.folder / "blobs" / file.etag.lower()
    made_folder(blob.parent)
    with _own_part(blob, meter) as part:
        if not _is_whole(blob, file.etag, file.size, meter):
            _copy(brought, part, blob, file.etag, meter)
        with writing(link):
            _link(link, blob, part)


def _copy(brought: Path, part: Path, blob: Path, etag: str, meter: Meter) -> None:
    """Copy a file that was brought to its blob, whole or not at all; what a process that is killed has copied, the next one
    begins again, or a download goes on with it."""
    try:
        with writing(part), opened_regular(brought) as source, open_own(part, append=False) as copy:
            _empty(copy)
            for chunk in pieces(source):
                meter.add(len(chunk))
                copy.write(chunk)
            copy.flush()
            os.fsync(copy.fileno())
        with writing(blob):
            _check(part, etag, meter)
            part.replace(blob)
            on_disk(blob.parent)
    finally:
        with suppress(OSError):
            part.unlink()


def git_name(path: Path) -> str:
    """The name of a file's bytes in git, by which the hub names small ones. Raises `OSError`."""
    return _digest(path, 40, lambda n: None)


def _other_bytes(path: Path, etag: str, size: int, meter: Meter) -> str:
    """What a file is that has not this size (0: not known) and the hash that names it, "" for one that has."""
    try:
        if size and (there := path.stat().st_size) != size:
            return number_of(there, "byte")
        if len(etag) not in (40, 64):  # of another length, which nobody can check
            return ""
        came = _digest(path, len(etag), lambda n: meter.add(0, moved=False))
        return "" if came == etag.lower() else f"{hash_words(came)}, {number_of(path.stat().st_size, 'byte')}"
    except OSError as error:
        return cause(error)


def hash_words(etag: str) -> str:
    """A hash for a sentence: which kind, and its beginning."""
    return f"{'sha256' if len(etag) == 64 else 'the git hash'} {etag[:16]}…"


def _place(file: HubFile, url: str, about: Any) -> Place:
    """The server's answer about one file, validated. Raises `BadModel`."""
    sizes = {n for n in (file.size or None, about.size) if n is not None}
    if len(sizes) != 1 or min(sizes) < 0:
        stated = " and ".join(number_of(n, "byte") for n in sorted(sizes)) or "no size"
        raise BadModel(
            f"The hub does not say how long {file.name} is.",
            expected="one size in bytes",
            got=stated,
            remedy="Try again later, or download the model another way and open its folder.",
        )
    etag = checked_hash(about.etag, file.name)
    if file.etag and file.etag.lower() != etag.lower():
        raise BadModel(
            f"The hub offers another {file.name} than it lists.",
            expected=f"the hash {file.etag[:16]}…",
            got=f"{etag[:16]}…",
            remedy="Nothing was written. Check HF_ENDPOINT and the network between; the list of files may have changed just now.",
        )
    same = about.location.split("/")[2:3] == url.split("/")[2:3]
    return Place(about.location, etag, sizes.pop(), same)


def _link(link: Path, blob: Path, part: Path) -> None:
    """Link a snapshot's file to its blob, relatively as the library does; where links are impossible, move the blob there.

    `part`: where the blob has grown; what is put in the place of the link is named alike. The library itself would ask the server
    once more and believe its second answer. Raises `OSError`.
    """
    link.parent.mkdir(parents=True, exist_ok=True)
    fresh = link.with_name(link.name + part.name.removeprefix(blob.name))
    try:
        fresh.unlink(missing_ok=True)  # of one that was killed
        try:
            fresh.symlink_to(os.path.relpath(blob, link.parent))
        except (OSError, NotImplementedError) as error:
            if isinstance(error, OSError) and error.errno in FULL:
                raise
            shutil.move(blob, fresh)
        fresh.replace(link)
    finally:
        with suppress(OSError):
            fresh.unlink()


def _is_whole(path: Path, etag: str, size: int, meter: Meter) -> bool:
    """Whether a file is there, with this size (0: not known) and the hash that names it."""
    try:
        return path.is_file() and path.stat().st_size == (size or path.stat().st_size) and _has_hash(path, etag, meter)
    except OSError:
        return False


def _transfer(hub: object, place: Place, part: Path, blob: Path, meter: Meter) -> None:
    """Download one file from where an earlier attempt stopped; reconnects after a break as long as bytes arrive."""
    if _is_whole(blob, place.etag, place.size, meter):  # of before, or of another process meanwhile
        meter.add(place.size, moved=False)
    else:
        _transfer_alone(hub, place, part, blob, meter)


def _lock_of(blob: Path) -> Path:
    return blob.with_name(blob.name + LOCK)


@contextmanager
def _own_part(blob: Path, meter: Meter) -> Iterator[Path]:
    """Where a blob grows, once nobody else receives it; a file of this process alone on a disk without locks."""
    part = blob.with_name(blob.name + PART)
    with _alone(_lock_of(blob), part, meter) as alone:
        yield part if alone else part.with_name(f"{part.name}-{secrets.token_hex(6)}")


@contextmanager
def _alone(path: Path, part: Path, meter: Meter) -> Iterator[bool]:
    """Waits until no other download receives the same file, and shows how far that is. False on a disk without locks."""
    lock, seen = FileLock(path), 0
    with suppress(OSError):
        while lock.take() is not None:
            size = part.stat().st_size if part.is_file() else seen
            meter.add(size - seen)
            seen = size
            meter.wait(0.2)
    meter.add(-seen, moved=False)
    try:
        yield lock.held
    finally:
        lock.release(remove=True)


def _transfer_alone(hub: Any, place: Place, part: Path, blob: Path, meter: Meter) -> None:
    with writing(part):
        file = open_own(part, append=False)
    with file:
        file.seek(0, os.SEEK_END)
        if file.tell() > place.size:  # part of another file, or from a server that sent too much
            _empty(file)
        meter.add(file.tell(), moved=False)
        failures = 0
        while file.tell() < place.size:
            before = file.tell()
            try:
                _stream(place, part, file, meter)
                break
            except (CircuitLabError, hub.errors.HfHubHTTPError):
                raise
            except Exception as error:  # the transport's own classes differ between versions of the library
                failures = 0 if file.tell() > before else failures + 1
                if failures == _ATTEMPTS:
                    raise unreachable(error) from error
                meter.wait(failures)
        if file.tell() != place.size:
            came = number_of(file.tell(), "byte")
            raise unreachable(EOFError(f"{meter.file}: {came} came, not {place.size}"))
        with writing(part):
            file.truncate()
            os.fsync(file.fileno())
    _check(part, place.etag, meter)
    with writing(blob):
        part.replace(blob)
        on_disk(blob.parent)


def unreachable(error: Exception) -> BadMachine:
    """The error for a hub that does not answer, or ends before its answer does."""
    return BadMachine(
        "The hub cannot be reached, or broke off.",
        expected="an answer from the hub",
        got=cause(error),
        remedy="Check the network, then download again: it resumes where it stopped.",
    )


def _stream(place: Place, part: Path, file: IO[bytes], meter: Meter) -> None:
    """Append the server's bytes to `file`, at `part`, up to the announced size. Raises `BadModel` where the server sends more."""
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if not place.same_host:
        headers.pop("authorization", None)  # the token is for the hub, not for the host it redirects to
    start = file.tell()
    headers |= {"Range": f"bytes={start}-"} if start else {}
    get = partial(get_session().stream, "GET", place.url, headers=headers, follow_redirects=True, timeout=10)

    def chunks() -> Iterator[bytes]:
        """An empty one first where the server starts again from the first byte, or elsewhere."""
        with get() as response:
            hf_raise_for_status(response)
            _refuse_packed(response, meter.file)
            if start and not _resumes_at(response, start):
                yield b""
                if response.status_code == 206:
                    raise ConnectionError(f"{meter.file}: the server sent another part than requested")
            yield from filter(None, response.iter_raw())

    with closing(heard(chunks, meter.cancelled)) as heard_chunks:
        for chunk in heard_chunks:
            if not chunk:
                _empty(file)
                meter.add(-start, moved=False)
            if file.tell() + len(chunk) > place.size:
                _empty(file)
                raise BadModel(
                    f"The hub sends more of {meter.file} than it announced.",
                    expected=number_of(place.size, "byte"),
                    got="a stream that continues beyond them",
                    remedy="The download was discarded. Check HF_ENDPOINT and the network between; then download again.",
                )
            with writing(part):  # the disk's errors are not the network's
                left = memoryview(chunk)
                while left:
                    left = left[file.write(left) :]
            meter.add(len(chunk))


def _empty(file: IO[bytes]) -> None:
    file.seek(0)  # a position beyond the end would count as bytes received
    file.truncate()


def _resumes_at(response: Any, start: int) -> bool:
    """Whether a response begins at byte `start` of the file."""
    return response.status_code == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {start}-")


def _refuse_packed(response: Any, name: str) -> None:
    packed = response.headers.get("Content-Encoding", "identity")
    if packed != "identity":
        raise BadMachine(
            f"{name} comes compressed, which was not requested.",
            expected="the file's own bytes",
            got=f"Content-Encoding {packed[:40]!r}",
            remedy="A proxy between this machine and the hub changes the data: bypass it.",
        )


def _check(part: Path, etag: str, meter: Meter) -> None:
    """Raise `BadModel`, and remove the file, where it does not have the hash that names it."""
    if _has_hash(part, etag, meter):
        return
    part.unlink()
    raise BadModel(
        f"{meter.file} was damaged in transit, or is another file.",
        expected=hash_words(etag),
        got="another one",
        remedy="What came was discarded: download it again. If that does not help, check HF_ENDPOINT and the proxy between.",
    )


def _has_hash(path: Path, etag: str, meter: Meter) -> bool:
    """Whether a file has the hash that names it: a large one's sha256, a small one's name in git, the sha1 of its head and its
    bytes. True for a name of another length, which nobody can check. Raises `OSError`."""
    return len(etag) not in (40, 64) or _digest(path, len(etag), lambda n: meter.add(0, moved=False)) == etag.lower()


def _digest(path: Path, length: int, on_read: Callable[[int], None]) -> str:
    """A file's sha256 (64 digits), or its name in git (40). Raises `OSError`."""
    digest = hashlib.sha256()
    if length == 40:
        digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with opened_regular(path) as file:
        for chunk in pieces(file):
            on_read(len(chunk))
            digest.update(chunk)
    return digest.hexdigest()
