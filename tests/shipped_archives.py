"""An installed CircuitLab of small models: their checkpoints are in archives beside it, and not in its `models/`."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from circuitlab.disk import paths
from circuitlab.model.archives.index import Archive, find_archive
from circuitlab.training.archiving import make
from tests.models import TINY, directory
from tests.series_files import keep_scaled

STEPS = {0: 0.25, 64: 0.5, 128: 0.75}
NAME, OTHER = "small", "smaller"


@dataclass(frozen=True)
class Installed:
    """`models`: the folder that is installed; `zips`: of the archives; `checkout`: of the models with their checkpoints."""

    models: Path
    zips: Path
    checkout: Path

    @property
    def archive(self) -> Archive:
        """The archive of `NAME`, as it is listed."""
        return find_archive(NAME)

    @property
    def zip(self) -> Path:
        """Its file."""
        return self.zips / self.archive.zip.name

    def address(self, address: str) -> None:
        """Let the list name an address where the archives can be fetched."""
        path = self.models / "archives.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"address": address}))

    def make_again(self) -> None:
        """The archives and their list of the checkpoints that the checkout has now."""
        make(self.checkout, self.zips, "")
        shutil.copy(self.checkout / "archives.json", self.models)


@cache
def _made() -> Path:
    """A checkout and its archives, made once a process and copied for each test."""
    folder = Path(tempfile.mkdtemp(prefix="circuitlab-archives-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, factor in ((NAME, 1.0), (OTHER, 0.5)):
        directory(folder / "checkout" / name, TINY)
        keep_scaled(folder / "checkout" / name, {step: factor * f for step, f in STEPS.items()})
    make(folder / "checkout", folder / "zips", "")
    return folder


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    """`NAME`, with a series, and `OTHER`; the program finds them as the models that ship."""
    checkout, package = folder / "checkout", folder / "site-packages" / "circuitlab"
    for part in ("checkout", "zips"):
        shutil.copytree(_made() / part, folder / part)
    package.mkdir(parents=True)
    shutil.copytree(checkout, package / "models", ignore=shutil.ignore_patterns("checkpoints"))
    (package / "resources").symlink_to(paths.shipped("resources"))
    monkeypatch.setattr(paths, "_PACKAGE", package)
    return Installed(package / "models", folder / "zips", checkout)
