"""Downloading one file of the hub into its cache, from an untrusted server.

A server's answer becomes part of a path only after validation: an ETag of 40 to 64 hexadecimal digits (a git or SHA-256 hash), a
commit likewise, a file's bare name. A stream is read up to the announced size and never decompressed, and its bytes have the hash
that names them. A partial file is stored beside the cache's blobs under its own name until it is complete; bytes received are not
requested twice, and one process receives them at a time.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeGuard

from circuitlab.counting import number_of
from circuitlab.disk.file_lock import FileLock
from circuitlab.disk.own_files import open_own
from circuitlab.errors import BadMachine, BadModel, CircuitLabError
from circuitlab.model.sources.hub import HubName, cache_folder
from circuitlab.model.sources.transfer_meter import Meter

PART, LOCK = ".circuitlab-part", ".circuitlab-lock"
_ATTEMPTS = 5  # broken connections in a row without a byte between them
_HASH = re.compile(r"[0-9A-Fa-f]{40,64}")
_BARE = re.compile(r"[A-Za-z0-9_][\w.-]{0,200}", re.ASCII)


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


def is_bare(name: str) -> bool:
    """Whether `name` is a bare file name, not a path."""
    return bool(_BARE.fullmatch(name))


def into_cache(hub: Any, name: HubName, commit: str, file: HubFile, endpoint: str | None, meter: Meter) -> None:
    """Download one file of a commit unless it is in the cache already. Raises `CircuitLabError`, or the library's errors."""
    link = name.folder / "snapshots" / commit / file.name
    if isinstance(hub.try_to_load_from_cache(name.repo, file.name, cache_folder(), revision=commit), str):
        meter.add(file.size, moved=False)
        return
    url = hub.hf_hub_url(name.repo, file.name, revision=commit, endpoint=endpoint)
    place = _place(file, url, hub.get_hf_file_metadata(url))
    blob = name.folder / "blobs" / place.etag
    if not blob.is_file():
        _transfer(hub, place, blob, meter)
    else:
        meter.add(file.size, moved=False)
    _link(link, blob)


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


def _link(link: Path, blob: Path) -> None:
    """Link a snapshot's file to its blob, relatively as the library does; where links are impossible, move the blob there.

    The library itself would ask the server once more and believe its second answer.
    """
    link.parent.mkdir(parents=True, exist_ok=True)
    fresh = link.with_name(link.name + PART)
    fresh.unlink(missing_ok=True)
    try:
        fresh.symlink_to(os.path.relpath(blob, link.parent))
    except (OSError, NotImplementedError):
        shutil.move(blob, fresh)
    fresh.replace(link)


def _transfer(hub: Any, place: Place, blob: Path, meter: Meter) -> None:
    """Download one file from where an earlier attempt stopped; reconnects after a break as long as bytes arrive."""
    blob.parent.mkdir(parents=True, exist_ok=True)
    with _alone(blob.with_name(blob.name + LOCK), meter):
        if blob.is_file():  # another process has had it meanwhile
            meter.add(place.size, moved=False)
        else:
            _transfer_alone(hub, place, blob, meter)


@contextmanager
def _alone(path: Path, meter: Meter) -> Iterator[None]:
    """Waits until no other download receives the same file. On a disk without locks nobody waits: the size is checked then."""
    lock = FileLock(path)
    with suppress(OSError):
        while lock.take() is not None:
            meter.wait(0.2)
    try:
        yield
    finally:
        lock.release(remove=True)


def _transfer_alone(hub: Any, place: Place, blob: Path, meter: Meter) -> None:
    part = blob.with_name(blob.name + PART)
    with open_own(part, append=False) as file:  # each byte at its own place, whoever else writes
        file.seek(0, os.SEEK_END)
        if file.tell() > place.size:  # part of another file, or from a server that sent too much
            _empty(file)
        meter.add(file.tell(), moved=False)
        failures = 0
        while file.tell() < place.size:
            before = file.tell()
            try:
                _stream(place, file, meter)
                break
            except (CircuitLabError, hub.errors.HfHubHTTPError):
                raise
            except Exception:  # the transport's own classes differ between versions of the library
                failures = 0 if file.tell() > before else failures + 1
                if failures == _ATTEMPTS:
                    raise
                meter.wait(failures)
        if file.tell() != place.size:
            raise OSError(f"{meter.file}: {number_of(file.tell(), 'byte')} came, not {place.size}")
        file.truncate()
    _check(part, place.etag, meter)
    part.replace(blob)


def _stream(place: Place, file: IO[bytes], meter: Meter) -> None:
    """Append the server's bytes to `file` up to the announced size. Raises `BadModel` where the server sends more."""
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if not place.same_host:
        headers.pop("authorization", None)  # the token is for the hub, not for the host it redirects to
    start = file.tell()
    headers |= {"Range": f"bytes={start}-"} if start else {}
    with get_session().stream("GET", place.url, headers=headers, follow_redirects=True, timeout=10) as response:
        hf_raise_for_status(response)
        _refuse_packed(response, meter.file)
        if start and not _resumes_at(response, start):  # the server starts again from the first byte, or elsewhere
            _empty(file)
            meter.add(-start, moved=False)
            if response.status_code == 206:
                raise OSError(f"{meter.file}: the server sent another part than requested")
        for chunk in response.iter_raw():
            if file.tell() + len(chunk) > place.size:
                _empty(file)
                raise BadModel(
                    f"The hub sends more of {meter.file} than it announced.",
                    expected=number_of(place.size, "byte"),
                    got="a stream that continues beyond them",
                    remedy="The download was discarded. Check HF_ENDPOINT and the network between; then download again.",
                )
            file.write(chunk)
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
    """Check a file against the hash that names it: a large one's sha256, a small one's name in git, the sha1 of its head and its
    bytes. Raises `BadModel`, and removes the file, where they differ."""
    if len(etag) not in (40, 64):
        return
    digest = hashlib.sha256()
    if len(etag) == 40:
        digest = hashlib.sha1(b"blob %d\0" % part.stat().st_size, usedforsecurity=False)
    with part.open("rb") as file:
        while chunk := file.read(1 << 22):
            meter.add(0, moved=False)
            digest.update(chunk)
    if digest.hexdigest() != etag.lower():
        part.unlink()
        raise BadModel(
            f"{meter.file} was damaged in transit, or is another file.",
            expected=f"{'sha256' if len(etag) == 64 else 'the git hash'} {etag[:16]}…",
            got=f"{digest.hexdigest()[:16]}…",
            remedy="Download it again.",
        )  # fmt: skip
