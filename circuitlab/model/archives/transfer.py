"""Downloading one file of known size over HTTP, from where an earlier attempt stopped.

The server is not trusted: no more is read than the announced size, nothing is inflated, and what came is compared with its hash
by whoever asked for it (`unpacking.check_zip`).
"""

from __future__ import annotations

import contextlib
import http.client
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO

from circuitlab import __version__
from circuitlab.counting import number_of
from circuitlab.disk.files import writing
from circuitlab.disk.own_files import open_own
from circuitlab.errors import BadMachine, UsageError, cause, printable
from circuitlab.model.archives.address import need_address
from circuitlab.model.sources.transfer_meter import Meter

PIECE = 1 << 16
MAGIC = b"PK\x03\x04"  # how a zip begins
TIMEOUT = 10.0  # s without a byte
_ATTEMPTS = 5  # broken connections in a row without a byte between them
_PASSING = (408, 425, 429, 500, 502, 503, 504)  # statuses after which asking again helps
_FROM = "Or take the file from another machine: circuitlab get NAME --from FILE.zip."


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Raises `UsageError` or `ValueError` where a server sends on to what is not an address."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        need_address(newurl.replace(" ", "%20"))
        return super().redirect_request(req, fp, code, msg, headers, newurl)

    def http_error_302(self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage) -> object:
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except (ValueError, UsageError):
            fp.close()
            raise

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def opener() -> urllib.request.OpenerDirector:
    """What asks an address on the web, and follows where a server sends on to another one."""
    return urllib.request.build_opener(_Redirects)


def transfer(url: str, part: Path, size: int, meter: Meter) -> None:
    """Append to `part` what it lacks of the `size` bytes of the zip at `url`. Whatever comes of it stays for the next attempt.

    Raises `UsageError` for what is no address, `BadMachine` where the server cannot be reached, breaks off time and again, has
    another file, or the disk is full; `Cancelled`.
    """
    need_address(url)
    with writing(part), _growing(part) as file:
        if file.tell() > size or not _begins_as_zip(file):
            _empty(file)
        meter.add(file.tell(), moved=False)
        failures = 0
        while file.tell() < size:
            before = file.tell()
            problem = _attempt(url, file, size, meter)
            if problem is not None:
                failures = 0 if file.tell() > before else failures + 1
                if failures == _ATTEMPTS:
                    raise _unreachable(problem) from problem
                meter.wait(failures)


@contextlib.contextmanager
def _growing(part: Path) -> Iterator[IO[bytes]]:
    """The file, open to be read and appended to; one in which nothing stands at the end is removed."""
    try:
        with open_own(part) as file:
            yield file
    finally:
        with contextlib.suppress(OSError):
            if not part.stat().st_size:
                part.unlink()


def _begins_as_zip(file: IO[bytes]) -> bool:
    file.seek(0)
    start = file.read(len(MAGIC))
    file.seek(0, os.SEEK_END)
    return MAGIC.startswith(start)


def _attempt(url: str, file: IO[bytes], size: int, meter: Meter) -> Exception | None:
    """One connection: None once all bytes are there, else why it ended before. Raises what asking again does not change."""
    try:
        _stream(url, file, size, meter)
    except urllib.error.HTTPError as error:
        with error:
            if error.code not in _PASSING:
                raise _refused(error.code, error.reason, meter.file) from error
            return error
    except (http.client.HTTPException, ssl.SSLError, urllib.error.URLError, TimeoutError, ConnectionError) as error:
        return error
    except (ValueError, UsageError) as error:  # the address that was asked first is one
        raise BadMachine(
            f"The server of {meter.file} sends on to what is not an address.",
            expected="another address on the web",
            got=printable(error.got if isinstance(error, UsageError) else error),
            remedy=f"Check the address, and the network between. {_FROM}",
        ) from error
    return None if file.tell() == size else ConnectionError("The connection ended before the file did")


def _stream(url: str, file: IO[bytes], size: int, meter: Meter) -> None:
    """Append the server's bytes from the end of `file` on. Raises errors of the network, and `BadMachine` for another file."""
    start = file.tell()
    headers = {"User-Agent": f"circuitlab/{__version__}", "Accept-Encoding": "identity"}
    request = urllib.request.Request(url, headers=headers | ({"Range": f"bytes={start}-"} if start else {}))
    with opener().open(request, timeout=TIMEOUT) as response:
        again = bool(start) and response.status != 206  # the server sends the whole
        _refuse_another_file(response, 0 if again else start, size, meter.file)
        if again:
            _pass_over(response, file, size, meter)
        elif not start:
            _begin(response, file, size, meter)
        while file.tell() < size and (piece := response.read1(min(PIECE, size - file.tell()))):
            file.write(piece)
            meter.add(len(piece))
        if file.tell() == size and "Content-Length" not in response.headers and response.read1(1):
            _empty(file)
            raise _another_file(size, "one that is longer", meter.file)


def _begin(response: HTTPResponse, file: IO[bytes], size: int, meter: Meter) -> None:
    """Write the first bytes of a zip. Raises `BadMachine` for others: a page that asks for a login, whatever its length."""
    start = response.read(len(MAGIC))
    if not MAGIC.startswith(start):
        page = printable((start + response.read1(40)).decode("utf-8", "replace"))
        raise _another_file(size, f"{response.headers.get_content_type()} that begins “{page}”", meter.file)
    file.write(start)
    meter.add(len(start))


def _pass_over(response: HTTPResponse, file: IO[bytes], size: int, meter: Meter) -> None:
    """Read what `file` has already, which nothing is taken from before the server has shown that it has something else.

    Of a server that says how long its file is, `file` then ends where the two differ; any other is not believed (`BadMachine`).
    """
    file.seek(0)
    try:
        while have := file.read(PIECE):
            at = 0
            while at < len(have) and (piece := response.read1(len(have) - at)):
                if piece != have[at : at + len(piece)]:
                    _cut(file, file.tell() - len(have) + at, piece, response, size, meter)
                    return
                at += len(piece)
                meter.add(0, moved=False)
            if at < len(have):
                return  # it broke off, and all is kept
    finally:
        file.seek(0, os.SEEK_END)


def _cut(file: IO[bytes], at: int, piece: bytes, response: HTTPResponse, size: int, meter: Meter) -> None:
    """Keep the first `at` bytes of `file`, and append `piece`. Raises `BadMachine` where the server says no length."""
    if "Content-Length" not in response.headers:
        raise _another_file(size, "one of unknown length that begins otherwise", meter.file)
    meter.add(at - os.fstat(file.fileno()).st_size, moved=False)
    file.truncate(at)
    file.seek(at)
    file.write(piece)
    meter.add(len(piece))


def _refuse_another_file(response: HTTPResponse, start: int, size: int, name: str) -> None:
    """Raise `BadMachine` where what the server announces is not the rest of a file of `size` bytes."""
    packed = response.headers.get("Content-Encoding", "identity")
    span, length = response.headers.get("Content-Range", ""), response.headers.get("Content-Length", "")
    expected = f"bytes {start}-{size - 1}/{size}" if response.status == 206 else str(size - start)
    got = span if response.status == 206 else length or expected
    if got == expected and packed == "identity":
        return
    raise _another_file(size, " ".join(filter(None, (got, "" if packed == "identity" else packed))), name)


def _another_file(size: int, got: str, name: str) -> BadMachine:
    return BadMachine(
        f"The server has another file than {name}.",
        expected=f"a zip of {number_of(size, 'byte')}, not compressed",
        got=printable(got),
        remedy=f"Check the address, and the network between. {_FROM}",
    )


def _empty(file: IO[bytes]) -> None:
    file.seek(0)  # a position beyond the end would count as bytes received
    file.truncate()


def _refused(status: int, phrase: object, name: str) -> BadMachine:
    return BadMachine(
        f"The server does not {'have' if status in (404, 410) else 'send'} {name}.",
        expected="the archive",
        got=printable(f"{status} {phrase}"),
        remedy=f"Check the address. {_FROM}",
    )


def _unreachable(error: Exception) -> BadMachine:
    inner = getattr(error, "reason", None)
    return BadMachine(
        "The archive’s server cannot be reached, or broke off.",
        expected="an answer from the server",
        got=cause(inner if isinstance(inner, Exception) else error),
        remedy=f"Check the network, then run it again: it resumes where it stopped. {_FROM}",
    )
