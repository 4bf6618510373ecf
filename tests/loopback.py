"""A server on loopback whose answers a test can hold back or break off."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol, TypeVar


class Served(Protocol):
    """What a server has. `url`: where it is, once it is served; `wait`: a transfer pauses after every block until this is set."""

    url: str
    wait: threading.Event | None


S = TypeVar("S", bound=Served)


class Handler(BaseHTTPRequestHandler):
    """Answers of a server that writes no log."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def send_blocks(self, data: bytes, size: int, cut_after: int, wait: threading.Event | None) -> tuple[int, bool]:
        """Send data in blocks of `size` bytes, pausing after each: how many bytes went out, and whether it was broken off.

        `cut_after`: bytes after which it breaks off, 0 for never.
        """
        for at in range(0, len(data), size):
            if cut_after and at >= cut_after:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return at, True
            try:
                self.wfile.write(data[at : at + size])
            except OSError:  # nobody listens any more
                return at, False
            if wait is not None and len(data) > size:
                wait.wait(0.2)
        return len(data), False


@contextmanager
def serving(site: S, handler: type[Handler], name: str) -> Iterator[S]:
    """`site` on a port of its own, until the block ends; handlers know it by this name."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (handler,), {name: site}))
    server.daemon_threads = False  # closing waits for them
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield site
    finally:
        if site.wait is not None:
            site.wait.set()
        server.shutdown()
        server.server_close()
