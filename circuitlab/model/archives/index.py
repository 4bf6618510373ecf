"""Which checkpoints of shipped models have an archive, and which of them are on this machine.

`models/archives.json`, written by `circuitlab.training.archiving` and trusted as the program is:

    {"format": "circuitlab-archives-1",
     "address": "",                    where the archives can be fetched: a folder on the web; "" while there is none
     "archives": {NAME: {"file": "NAME-checkpoints.zip", "size": bytes, "sha256": of the whole,
                         "checkpoints": {"step-000512.safetensors": {"size": bytes, "sha256": …}, …}}}}

What has been fetched lies in the person's data folder under model and hash of the archive, so that checkpoints of another version
of a model are never taken for those of this one. A file in the model's own folder comes first.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from circuitlab.counting import number_of
from circuitlab.disk.files import read_at_most
from circuitlab.disk.json_types import JsonObject
from circuitlab.disk.paths import data_home, shipped
from circuitlab.disk.regular_file import Stamp, stamp_of
from circuitlab.errors import BadModel, UsageError, printable

INDEX = "archives.json"
FORMAT = "circuitlab-archives-1"
FOLDER = "checkpoints"  # below the folder of a model
STEP = re.compile(r"step-(\d{1,12})\.safetensors")
LARGEST = 16 * 2**30  # bytes of an archive
LARGEST_INDEX = 16 * 2**20  # bytes
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}")
_REINSTALL = "Install CircuitLab again, or in a checkout restore the file."


@dataclass(frozen=True)
class Stored:
    """A file by its name, with the size in bytes and the sha256 that it must have."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Archive:
    """The archive of a shipped model's checkpoints: the zip, and each checkpoint in it.

    `address`: of the zip's folder, "" if unknown.
    """

    model: str
    zip: Stored
    checkpoints: tuple[Stored, ...]
    address: str = ""

    @property
    def url(self) -> str:
        """Where it can be fetched, "" where no address is known."""
        return f"{self.address.rstrip('/')}/{self.zip.name}" if self.address else ""

    @property
    def files(self) -> tuple[Stored, ...]:
        """What is taken from the zip."""
        return self.checkpoints

    @property
    def alone(self) -> bool:
        """The zip holds nothing else."""
        return True

    @property
    def inside(self) -> str:
        """The folder of the checkpoints."""
        return FOLDER

    @property
    def contents(self) -> str:
        """For a sentence."""
        return f"the checkpoints of {self.model}"

    @property
    def nbytes(self) -> int:
        """Bytes of its checkpoints."""
        return sum(one.size for one in self.checkpoints)

    @property
    def words(self) -> str:
        """What is in it: "24 checkpoints, 55.5 MiB"."""
        return f"{number_of(len(self.checkpoints), 'checkpoint')}, {size_words(self.zip.size)}"

    @property
    def shipped_folder(self) -> Path:
        """The model's own folder, in the checkout or the installed package."""
        return shipped("models") / self.model

    @property
    def fetched_folder(self) -> Path:
        """Where its checkpoints lie once they have been fetched, in a folder `FOLDER`; complete as soon as it exists."""
        return data_home() / "models" / self.model / self.zip.sha256[:16]

    def member(self, checkpoint: Stored) -> str:
        """The name inside the zip, such that unpacking it in `models/` puts every file in its place."""
        return f"{self.model}/{FOLDER}/{checkpoint.name}"

    def place(self, checkpoint: Stored) -> Path | None:
        """Where a checkpoint is on this machine, None where it is not."""
        places = (folder / FOLDER / checkpoint.name for folder in (self.shipped_folder, self.fetched_folder))
        return next((path for path in places if path.is_file()), None)

    @property
    def lacking(self) -> tuple[Stored, ...]:
        """The checkpoints that are not on this machine."""
        return tuple(one for one in self.checkpoints if self.place(one) is None)


def size_words(nbytes: int) -> str:
    """Bytes in words: "55.5 MiB", "3 KiB"."""
    return f"{nbytes / 2**20:,.1f} MiB" if nbytes >= 2**17 else f"{-(-nbytes // 2**10)} KiB"


def archives() -> Mapping[str, Archive]:
    """The archives by the name of their model, sorted; none where there is no index. Raises `BadModel` for a damaged one."""
    path = shipped("models") / INDEX
    try:
        stamp = stamp_of(path.stat())
    except OSError:
        return {}
    return _read(path, stamp)


def find_archive(model: str) -> Archive:
    """The archive of a shipped model. Raises `UsageError` where there is none."""
    known = archives()
    if model not in known:
        raise UsageError(
            "There is no archive of that name.",
            expected=" ".join(known) or "none is listed",
            got=printable(model),
            remedy="Name a model of `circuitlab get --list`; a model of the hub is fetched by opening it.",
        )
    return known[model]


def archive_of(folder: Path) -> Archive | None:
    """The archive of the checkpoints of the model in `folder`, None for one that does not ship. Raises `BadModel`."""
    home = shipped("models")
    if folder.name not in archives() or not (folder.parent == home or os.path.realpath(folder.parent) == os.path.realpath(home)):
        return None
    return archives()[folder.name]


@lru_cache(maxsize=2)
def _read(path: Path, stamp: Stamp) -> Mapping[str, Archive]:
    """The index in a file as it is now."""
    try:
        data = json.loads(read_at_most(path, LARGEST_INDEX) or b"")
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']!r}")
        address = data["address"]
        if not isinstance(address, str):
            raise ValueError("an address that is no text")
        return {name: _archive(name, address, data["archives"][name]) for name in sorted(data["archives"])}
    except (OSError, LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise BadModel(
            "The list of archives is damaged.", expected=f"{INDEX} of {FORMAT}", got=printable(error), remedy=_REINSTALL
        ) from error


def _archive(name: str, address: str, entry: JsonObject) -> Archive:
    named = entry["checkpoints"].items()
    checkpoints = tuple(stored(file, about, STEP) for file, about in sorted(named))
    if not _NAME.fullmatch(name) or not checkpoints:
        raise ValueError(f"{name!r}")
    return Archive(name, stored(entry["file"], entry, _NAME), checkpoints, address)


def stored(name: str, about: JsonObject, form: re.Pattern[str]) -> Stored:
    """The file of an entry that states its size and hash. Raises `ValueError`, `LookupError`, `TypeError`."""
    size, sha256 = about["size"], about["sha256"]
    if not form.fullmatch(name) or type(size) is not int or not 0 < size <= LARGEST or not _HASH.fullmatch(sha256):
        raise ValueError(f"the entry of {name!r}")
    return Stored(name, size, sha256)
