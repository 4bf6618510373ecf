"""A server on loopback that speaks as much of the hub's protocol as a download needs, and can misbehave on purpose."""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.loopback import Handler, serving
from tests.patience import SECONDS

COMMIT = "0123456789abcdef0123456789abcdef01234567"
BLOCK = 1 << 14
LARGE = 4096  # bytes from which a file counts as LFS: named by its sha256


@dataclass
class Hub:
    """Repositories by name, each a folder; `log` has (method, path, range).

    `cut_after`: bytes after which a transfer breaks off, once. `wait`: a transfer pauses after every block until this is set.
    `damage`: bytes sent are not those of the file. `etag`, `commit`: what it says in place of hashes, `etag` from the
    `honest`-th question for a file on. `endless`: a transfer says no length and never ends. `packed`: gzip, though not asked for.
    `swapped`: by name, what is sent in place of a small file, under the name of the file itself. `elsewhere`: a host that large
    files are sent from. `sent` counts the bytes of weights that went out; `tokens`: the authorization of each question,
    "" for none.
    """

    repos: dict[str, Path]
    gated: frozenset[str] = frozenset()
    revisions: tuple[str, ...] = ("main",)
    log: list[tuple[str, str, str]] = field(default_factory=list)
    cut_after: int = 0
    wait: threading.Event | None = None
    damage: bool = False
    etag: str = ""
    honest: int = 0
    commit: str = COMMIT
    swapped: dict[str, bytes] = field(default_factory=dict)
    endless: bool = False
    packed: bool = False
    elsewhere: str = ""
    sent: int = 0
    tokens: list[str] = field(default_factory=list)
    url: str = ""
    silent: threading.Event | None = None


def _name_of(data: bytes) -> str:
    if len(data) >= LARGE:
        return hashlib.sha256(data).hexdigest()
    return _git_name(data)


def _git_name(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class _Handler(Handler):
    hub: Hub

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        self.hub.log.append((self.command, path, self.headers.get("Range", "")))
        self.hub.tokens.append(self.headers.get("Authorization", ""))
        if self.hub.silent is not None:
            self.hub.silent.wait(SECONDS)
            self.close_connection = True
            return
        if path.startswith("api/models/"):
            self._api(path.removeprefix("api/models/"))
        elif "/resolve/" in path:
            repo, _, rest = path.partition("/resolve/")
            revision, _, name = rest.partition("/")
            self._file(repo, revision, name, body)
        else:
            self._error(404, "RepoNotFound", "no such page")

    def _api(self, path: str) -> None:
        repo, _, what = path.partition("/revision/")
        refs = path.endswith("/refs")
        repo = path.removesuffix("/refs") if refs else repo
        if repo not in self.hub.repos:
            self._error(401, "RepoNotFound", "Repository not found, or you are not logged in")
        elif refs:
            branches = [{"name": r, "ref": f"refs/heads/{r}", "targetCommit": COMMIT} for r in self.hub.revisions]
            self._json({"branches": branches, "tags": [], "converts": []})
        elif what and what not in (*self.hub.revisions, COMMIT):
            self._error(404, "RevisionNotFound", f"no revision {what}")
        else:
            folder = self.hub.repos[repo]
            siblings = [self._listed(f, f.relative_to(folder).as_posix()) for f in sorted(folder.rglob("*")) if f.is_file()]
            self._json({"id": repo, "modelId": repo, "sha": self.hub.commit, "siblings": siblings, "tags": [], "private": False})

    def _listed(self, file: Path, name: str) -> dict[str, object]:
        data = file.read_bytes()
        about: dict[str, object] = {"rfilename": name, "size": len(data), "blobId": _git_name(data)}
        if len(data) >= LARGE:
            about["lfs"] = {"size": len(data), "sha256": _name_of(data), "pointerSize": 134}
        return about

    def _file(self, repo: str, revision: str, name: str, body: bool) -> None:
        file = self.hub.repos.get(repo, Path("/nowhere")) / name
        if repo in self.hub.gated:
            self._error(403, "GatedRepo", "Access to this model is restricted")
        elif not file.is_file():
            self._error(404, "EntryNotFound", name)
        elif self.hub.elsewhere and file.stat().st_size >= LARGE:
            self._redirect(file.read_bytes())
        else:
            self._send(file.read_bytes(), body)

    def _redirect(self, data: bytes) -> None:
        """To the host that keeps large files, as the hub does."""
        self.send_response(302)
        self.send_header("Location", self.hub.elsewhere + self.path)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("X-Linked-ETag", f'"{_name_of(data)}"')
        self.send_header("X-Linked-Size", str(len(data)))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, data: bytes, body: bool) -> None:
        asked = self.headers.get("Range", "")
        start = int(asked.removeprefix("bytes=").split("-")[0]) if asked else 0
        self.send_response(206 if asked else 200)
        self.send_header("X-Repo-Commit", COMMIT)
        asked_before = sum(m == "HEAD" for m, _, _ in self.hub.log)
        lies = bool(self.hub.etag) and asked_before > self.hub.honest
        self.send_header("ETag", f'"{self.hub.etag if lies else _name_of(data)}"')
        self.send_header("Accept-Ranges", "bytes")
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        if body and len(data) >= LARGE and (self.hub.endless or self.hub.packed):
            self._misbehave(data[start:])
            return
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        if body:
            data = self.hub.swapped.get(self.path.rpartition("/")[2], data)
            self._blocks(bytes(len(data) - start) if self.hub.damage and len(data) >= LARGE else data[start:])

    def _misbehave(self, data: bytes) -> None:
        """What no hub does: gzip unasked, or a stream without an end (64 MiB here, for a client that would take it all)."""
        if self.hub.packed:
            self.send_header("Content-Encoding", "gzip")
        self.close_connection = True
        self.end_headers()
        blocks = [gzip.compress(bytes(1 << 24))] if self.hub.packed else [data, *[bytes(1 << 16)] * 1024]
        try:
            for block in blocks:
                self.wfile.write(block)
                self.hub.sent += len(block)
        except OSError:  # nobody listens any more
            pass

    def _blocks(self, data: bytes) -> None:
        _, broken = self.send_blocks(data, BLOCK, self.hub.cut_after, self.hub.wait)
        if broken:
            self.hub.cut_after = 0

    def _json(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _error(self, status: int, code: str, message: str) -> None:
        data = json.dumps({"error": message}).encode()
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", message)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextmanager
def reached(hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """`hub` served, as the only one there is; what is downloaded goes to `cache`.

    Tests run with `HF_HUB_OFFLINE`. The library reads that once, when it is first imported, which may have been before.
    """
    with serving(hub, _Handler, "hub") as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        monkeypatch.setenv("HF_HUB_CACHE", str(cache))
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        yield served


@contextmanager
def redirected(hub: Hub) -> Iterator[Hub]:
    """The other host, to which `hub` redirects for large files."""
    with serving(Hub(hub.repos), _Handler, "hub") as other:
        hub.elsewhere = other.url
        yield other
