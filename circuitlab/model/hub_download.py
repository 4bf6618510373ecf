"""Downloading from the Hugging Face hub into its own cache: what is needed, how far it is, stopped and taken up again.

The library (`pip install circuitlab[hub]`) speaks the protocol, knows the token and says which file is which; it is imported
when the first download is asked for. A partial file lies beside the cache's blobs under its own name until it is whole: what has
come is not asked for twice. A large file is compared with its sha256 before it counts.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from circuitlab.errors import BadMachine, BadModel, Cancelled, CircuitLabError
from circuitlab.model.hub import INDEXES, SINGLE, HubName, cache_folder, snapshot

_COMPANIONS = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
)
_PART = ".circuitlab-part"
_ATTEMPTS = 5  # broken connections in a row without a byte between them


@dataclass(frozen=True)
class Wanted:
    """One file of a repository; size in bytes."""

    name: str
    size: int


@dataclass(frozen=True)
class Plan:
    """What a download will fetch: the commit that the revision names today, and the files of a model in it."""

    name: HubName
    commit: str
    files: tuple[Wanted, ...]

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return sum(f.size for f in self.files)


@dataclass(frozen=True)
class Progress:
    """How far a download is: bytes, bytes per second over the last seconds (0: not known yet), seconds left."""

    file: str
    done: int
    total: int
    speed: float

    @property
    def left(self) -> float | None:
        """Seconds left at this speed, None while there is none."""
        return (self.total - self.done) / self.speed if self.speed > 0 else None

    def __str__(self) -> str:
        mib = 2**20
        text = f"{self.done / mib:,.1f} of {self.total / mib:,.1f} MiB"
        if self.left is None:
            return text
        left = self.left
        clock = f"{left:.0f} s" if left < 90 else f"{left / 60:.0f} min"
        return f"{text} · {self.speed / mib:,.1f} MiB/s · {clock} left"


Said = Callable[[Progress], None]


def _endpoint() -> str | None:
    """Another hub than the public one, where the environment names it now (the library looks only when it is imported)."""
    return os.environ.get("HF_ENDPOINT") or None


def revisions(repo: str) -> tuple[str, ...]:
    """Branches and tags of a repository, `main` first. Raises `CircuitLabError` in plain words."""
    with _plain_words(HubName(repo)) as hub:
        refs = hub.HfApi(endpoint=_endpoint()).list_repo_refs(repo)
        names = [*(b.name for b in refs.branches), *(t.name for t in refs.tags)]
    return tuple(sorted(set(names), key=lambda n: (n != "main", _by_number(n))))


def _by_number(name: str) -> tuple[str, int]:
    """`step1000` after `step512`."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)


def plan(name: HubName) -> Plan:
    """What there is to fetch. Raises `CircuitLabError` in plain words."""
    with _plain_words(name) as hub:
        found = hub.HfApi(endpoint=_endpoint()).model_info(name.repo, revision=name.revision, files_metadata=True, timeout=20)
    sizes = {s.rfilename: int(s.size or 0) for s in found.siblings or ()}
    weights = _weights(sizes)
    if "config.json" not in sizes or not weights:
        raise BadModel(
            f"{name} holds no model that can be opened.",
            expected="config.json with safetensors or pytorch_model.bin",
            got=", ".join(sorted(sizes)[:8]) or "no files",
        )
    files = [*(n for n in _COMPANIONS if n in sizes), *weights]
    return Plan(name, str(found.sha), tuple(Wanted(n, sizes[n]) for n in files))


def _weights(sizes: dict[str, int]) -> list[str]:
    """Safetensors before pickles, one file before shards."""
    for single, index in zip(SINGLE, INDEXES, strict=True):
        if single in sizes:
            return [single]
        if index in sizes:
            stem, suffix = single.split(".")
            return [index, *sorted(n for n in sizes if n.startswith(f"{stem}-") and n.endswith(f".{suffix}"))]
    return []


@dataclass(eq=False)
class _Meter:
    """Counts bytes, and stops the transfer where nobody wants it any more."""

    total: int
    say: Said
    cancelled: Callable[[], bool]
    file: str = ""
    done: int = 0
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, n: int, moved: bool = True) -> None:
        """`n` more bytes; `moved`: over the network just now."""
        if self.cancelled():
            raise Cancelled
        self.done += n
        now = time.monotonic()
        if moved:
            self._recent.append((now, self.done))
            while len(self._recent) > 2 and now - self._recent[0][0] > 3:
                self._recent.popleft()
        self.say(Progress(self.file, self.done, self.total, self._speed()))

    def wait(self, seconds: float) -> None:
        """Before another attempt, unless it is no longer wanted."""
        until = time.monotonic() + min(seconds, 5)
        while time.monotonic() < until:
            self.add(0, moved=False)
            time.sleep(0.05)

    def _speed(self) -> float:
        if len(self._recent) < 2:
            return 0.0
        (t0, n0), (t1, n1) = self._recent[0], self._recent[-1]
        return (n1 - n0) / (t1 - t0) if t1 > t0 else 0.0


def fetch(what: Plan, say: Said, cancelled: Callable[[], bool] = lambda: False) -> Path:
    """Download what is missing; the snapshot's folder. Raises `Cancelled`, or another `CircuitLabError` in plain words.

    What has come stays: the same call goes on where an earlier one stopped.
    """
    meter = _Meter(what.total, say, cancelled)
    with _plain_words(what.name) as hub:
        for file in what.files:
            meter.file = file.name
            _one(hub, what, file, meter)
        ref = what.name.folder / "refs" / what.name.revision
        if what.name.revision != what.commit:
            ref.parent.mkdir(parents=True, exist_ok=True)
            ref.write_text(what.commit, encoding="utf-8")
    found = snapshot(HubName(what.name.repo, what.commit))
    if found is None:
        raise BadModel(f"{what.name} is not whole after the download.", expected="all files of its index", got="some of them")
    return found


def _one(hub: Any, what: Plan, file: Wanted, meter: _Meter) -> None:
    """One file into the cache; at once where it is there already."""
    repo, commit = what.name.repo, what.commit
    if isinstance(hub.try_to_load_from_cache(repo, file.name, cache_folder(), revision=commit), str):
        meter.add(file.size, moved=False)
        return
    url = hub.hf_hub_url(repo, file.name, revision=commit, endpoint=_endpoint())
    about = hub.get_hf_file_metadata(url)
    blob = what.name.folder / "blobs" / about.etag
    if not blob.is_file():
        _transfer(hub, url, about, blob, meter)
    else:
        meter.add(file.size, moved=False)
    hub.hf_hub_download(
        repo, file.name, revision=commit, cache_dir=cache_folder(), endpoint=_endpoint()
    )  # the blob is there: this only names it in the snapshot


def _transfer(hub: Any, url: str, about: Any, blob: Path, meter: _Meter) -> None:
    """One file from where an earlier attempt stopped; a connection that breaks off is taken up again while bytes still come."""
    blob.parent.mkdir(parents=True, exist_ok=True)
    part = blob.with_name(blob.name + _PART)
    with part.open("ab") as file:
        meter.add(file.tell(), moved=False)
        failures = 0
        while about.size is None or file.tell() < about.size:
            before = file.tell()
            try:
                _stream(hub, url, about, file, meter)
                break
            except (CircuitLabError, hub.errors.HfHubHTTPError):
                raise
            except Exception:  # the transport's own classes differ between versions of the library
                failures = 0 if file.tell() > before else failures + 1
                if failures == _ATTEMPTS:
                    raise
                meter.wait(failures)
        if about.size is not None and file.tell() != about.size:
            raise OSError(f"{meter.file}: {file.tell()} bytes came, not {about.size}")
    _check(part, about.etag, meter)
    part.replace(blob)


def _stream(hub: Any, url: str, about: Any, file: IO[bytes], meter: _Meter) -> None:
    """Append what the server sends to `file`, from its present end."""
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if about.location.split("/")[2:3] != url.split("/")[2:3]:
        headers.pop("authorization", None)  # the token is the hub's, not that of the host it sends us to
    start = file.tell()
    headers |= {"Range": f"bytes={start}-"} if start else {}
    with get_session().stream("GET", about.location, headers=headers, follow_redirects=True, timeout=10) as response:
        hf_raise_for_status(response)
        if start and response.status_code == 200:  # the server starts again from the front
            file.truncate(0)
            meter.add(-start, moved=False)
        for chunk in response.iter_bytes():
            file.write(chunk)
            meter.add(len(chunk))


def _check(part: Path, etag: str, meter: _Meter) -> None:
    """Large files are named by their sha256. Raises `BadModel` and removes a part that is another one."""
    if len(etag) != 64:
        return
    digest = hashlib.sha256()
    with part.open("rb") as file:
        while chunk := file.read(1 << 22):
            meter.add(0, moved=False)
            digest.update(chunk)
    if digest.hexdigest() != etag:
        part.unlink()
        raise BadModel(
            f"{meter.file} was damaged on its way.", expected=f"sha256 {etag[:16]}…", got=f"{digest.hexdigest()[:16]}…",
            remedy="Download it again.",
        )  # fmt: skip


@contextlib.contextmanager
def _plain_words(name: HubName) -> Iterator[Any]:
    """The library, with its errors turned into ours."""
    try:
        import huggingface_hub as hub
        from huggingface_hub.utils import disable_progress_bars
    except ImportError as error:
        raise BadMachine(
            "Downloading from the hub needs a library that is not installed.",
            expected="huggingface-hub",
            got="not installed",
            remedy='pip install "circuitlab[hub]"; models that are in the local cache open without it.',
        ) from error
    disable_progress_bars()  # the progress is ours
    try:
        if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
            raise hub.errors.OfflineModeIsEnabled("HF_HUB_OFFLINE is set")
        yield hub
    except CircuitLabError:
        raise
    except Exception as error:
        raise _told(name, error) from error


def _told(name: HubName, error: Exception) -> CircuitLabError:
    """What a person can do about an error of the library."""
    from huggingface_hub import errors as known

    status = getattr(getattr(error, "response", None), "status_code", None)
    said = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    if isinstance(error, known.GatedRepoError) or status == 403:
        return BadModel(
            f"{name} is gated: its owner wants its conditions accepted first.",
            expected="access granted to your account, and its token here",
            got=said,
            remedy=f"Accept the conditions on the model's page, then `hf auth login` (or set HF_TOKEN). Page: {name.repo}",
        )
    if isinstance(error, known.RevisionNotFoundError):
        return BadModel(f"{name.repo} has no revision {name.revision}.", expected="a branch, a tag or a commit", got=said)
    if isinstance(error, known.RepositoryNotFoundError) or status == 401:
        return BadModel(
            f"{name.repo} is not on the hub, or is private.",
            expected="a public model, or a token with access",
            got=said,
            remedy="Check the spelling; for a private model `hf auth login` or set HF_TOKEN.",
        )
    if isinstance(error, known.EntryNotFoundError):
        return BadModel(f"{name} lacks a file that it lists.", expected="all of its files", got=said)
    if isinstance(error, known.OfflineModeIsEnabled):
        return BadMachine("The hub's offline mode is on.", expected="a cached model", got=said, remedy="Unset HF_HUB_OFFLINE.")
    if isinstance(error, OSError) and error.errno == 28:
        return BadMachine("The disk is full.", expected=f"room for {name}", got=said, remedy="Free space, then go on.")
    return BadMachine(
        "The hub cannot be reached, or broke off.",
        expected="an answer from the hub",
        got=f"{type(error).__name__}: {said}",
        remedy="Check the network, then download again: it goes on where it stopped.",
    )
