"""A server on loopback that has archives, knows ranges, and can misbehave on purpose."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from tests import loopback

BLOCK = 1 << 12


@dataclass
class Web:
    """A folder of files. `log`: (path, range) of each request; `sent`: bytes of files that went out.

    `cut_after`: bytes after which a transfer breaks off, 0 for never; `cuts`: how often it still does, −1 for ever.
    `flip`: the byte at this place is another one. `ranges`: whether it knows them. `status`: what it answers in place of a file.
    `lies`: in place of the length. `silent`: no length is said. `packed`: says that it is compressed. `wait`: a transfer pauses
    after every block until this is set. `sends_on`: to this address, in place of a file. `page`: what it sends in place of a
    file, as a network that asks for a login does. `index`: by path, the kind and the bytes of a page,
    as a package index has them; asking for one is not in the log.
    """

    folder: Path
    log: list[tuple[str, str]] = field(default_factory=list)
    sent: int = 0
    cut_after: int = 0
    cuts: int = -1
    flip: int = -1
    ranges: bool = True
    status: int = 0
    lies: int | None = None
    silent: bool = False
    packed: bool = False
    wait: threading.Event | None = None
    sends_on: str = ""
    page: bytes = b""
    index: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    url: str = ""


class _Handler(loopback.Handler):
    web: Web

    def do_GET(self) -> None:
        web, asked = self.web, self.headers.get("Range", "")
        if self.path in web.index:
            self._page(*web.index[self.path])
            return
        web.log.append((self.path.strip("/"), asked))
        file = web.folder / self.path.strip("/").rpartition("/")[2]
        if web.sends_on:
            self.send_response(302)
            self.send_header("Location", web.sends_on)
            self.end_headers()
            return
        if web.status or not file.is_file():
            self.send_error(web.status or 404)
            return
        data = bytearray(web.page or file.read_bytes())
        if web.flip >= 0:
            data[web.flip] ^= 1
        start = int(asked.removeprefix("bytes=").split("-")[0]) if asked and web.ranges else 0
        self.send_response(206 if start else 200)
        if web.page:
            self.send_header("Content-Type", "text/html; charset=utf-8")
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        if not web.silent:
            self.send_header("Content-Length", str(len(data) - start if web.lies is None else web.lies))
        if web.packed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self._blocks(bytes(data[start:]))

    def _page(self, kind: str, data: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _blocks(self, data: bytes) -> None:
        web = self.web
        cut = web.cut_after if web.cuts and web.cut_after < len(data) else 0
        web.cuts -= bool(cut)  # before the other side hears of it, and asks again
        sent, _ = self.send_blocks(data, BLOCK, cut, web.wait)
        web.sent += sent


def serving(web: Web) -> AbstractContextManager[Web]:
    """`web` on a port of its own, until the block ends."""
    return loopback.serving(web, _Handler, "web")
