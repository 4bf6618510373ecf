"""A catalogue of small models: one in a wheel of a package index and on a hub, one on the hub alone with its training."""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from circuitlab.model.catalogue import entries
from circuitlab.model.catalogue.entries import Entry, HubSource, Package, catalogue
from tests.archive_server import Web
from tests.models import TINY, directory

NAME, OTHER = "small-words", "small-training"
WHEEL = "small_words-1.0-py3-none-any.whl"
FILES = ("config.json", "model.safetensors", "tokenizer.json")
REPO, TRAINED = "somebody/small", "somebody/trained"
STEPS = ("step0", "step64")

_ENTRY = """title = "Small words"
about = "A model of tests."
shows = "Nothing much."
licence = "CC0-1.0"
"""
_HUB = """
[[sources]]
kind = "hub"
weights = "as they were"
repo = "{repo}"
size = 20000
"""


@dataclass(frozen=True)
class Catalogued:
    """`resources`: where the catalogue is; `wheels`: the folder of the wheel; `original`: of the model in it."""

    resources: Path
    wheels: Path
    original: Path

    @property
    def wheel(self) -> Path:
        """The wheel."""
        return self.wheels / WHEEL

    @property
    def entry(self) -> Entry:
        """The entry of `NAME` as it is written now."""
        return catalogue()[NAME]

    @property
    def package(self) -> Package:
        """Its first source."""
        source = self.entry.source("package")
        assert isinstance(source, Package)
        return source

    @property
    def hub(self) -> HubSource:
        """Its second source."""
        source = self.entry.source("hub")
        assert isinstance(source, HubSource)
        return source

    def list_wheel(self, **other: object) -> None:
        """Write the entry of the wheel as it is now. `other`: in place of what it is."""
        data = self.wheel.read_bytes()
        about = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} | other
        lines = ["", "[[sources]]", 'kind = "package"', 'weights = "rounded"', 'project = "Small.Words"', 'version = "1.0"']
        lines += [f'file = "{WHEEL}"', f"size = {about['size']}", f'sha256 = "{about["sha256"]}"']
        for file in FILES:
            own = (self.original / file).read_bytes()
            lines += ["", "[[sources.members]]", f'path = "small_words/model/{file}"']
            lines += [f"size = {len(own)}", f'sha256 = "{hashlib.sha256(own).hexdigest()}"']
        (self.resources / "catalogue" / f"{NAME}.toml").write_text(_ENTRY + "\n".join(lines) + "\n" + _HUB.format(repo=REPO))

    def write_wheel(self, **more: bytes) -> None:
        """The wheel: code, metadata, and the model deflated."""
        files = {f"small_words/model/{file}": (self.original / file).read_bytes() for file in FILES}
        files |= {"small_words/__init__.py": b"raise SystemExit('the code of a wheel ran')\n", **more}
        files |= {"small_words-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: small-words\nVersion: 1.0\n"}
        files |= {"small_words-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
        files |= {"small_words-1.0.dist-info/RECORD": b""}
        with zipfile.ZipFile(self.wheel, "w", zipfile.ZIP_DEFLATED) as members:
            for name, data in files.items():
                members.writestr(name, data)

    def index(self, web: Web, form: str = "json", address: str = "", sha256: str | None = None) -> None:
        """Let `web` be a package index that has the wheel. `address`: of the wheel; `sha256`: what it says of it."""
        sha256 = self.package.zip.sha256 if sha256 is None else sha256
        address = address or f"../../files/{WHEEL}"
        page = f'<!DOCTYPE html><a href="{address}#sha256={sha256}" data-requires-python="&gt;=3.9">{WHEEL}</a>'.encode()
        if form == "json":
            files = [{"filename": "small_words-0.9.tar.gz", "url": "x.tar.gz", "hashes": {}}]
            files += [{"filename": WHEEL, "url": address, "hashes": {"sha256": sha256} if sha256 else {}}]
            page = json.dumps({"meta": {"api-version": "1.1"}, "name": "small-words", "files": files}).encode()
        kinds = {"json": "application/vnd.pypi.simple.v1+json", "html": "text/html; charset=utf-8"}
        web.index["/simple/small-words/"] = (kinds[form], page)


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Catalogued:
    """The catalogue in place of the one that ships; pip knows no index but what a test sets as PIP_INDEX_URL."""
    resources, wheels = folder / "resources", folder / "wheels"
    (resources / "catalogue").mkdir(parents=True)
    wheels.mkdir()
    made = Catalogued(resources, wheels, directory(folder / "original", TINY))
    made.write_wheel()
    made.list_wheel()
    training = f"checkpoints = {json.dumps(STEPS)}\n"
    (resources / "catalogue" / f"{OTHER}.toml").write_text(_ENTRY + training + _HUB.format(repo=TRAINED))
    monkeypatch.setattr(entries, "resource", resources.joinpath)
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # nobody listens there
    return made
