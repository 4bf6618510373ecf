"""Who may know whom, proved twice: by the import contracts in pyproject.toml, and by what a real process has loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
QT = {"PySide6", "shiboken6", "pyqtgraph"}

_LOADED = "import json, sys; print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"

_WALK = """
import importlib, pkgutil
for room in {rooms!r}:
    package = importlib.import_module("circuitlab." + room)
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
"""


def _loaded(code: str) -> set[str]:
    """The top-level modules in a fresh process after `code`."""
    done = subprocess.run([sys.executable, "-c", f"{code}\n{_LOADED}"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_everything_below_draw_loads_no_qt() -> None:
    rooms = ("model", "analysis", "training", "engine", "state", "story", "session_files", "lessons", "figures")
    loaded = _loaded(_WALK.format(rooms=rooms))
    assert "torch" in loaded, "the walk imported the rooms"
    assert not loaded & QT


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_version_and_help_load_neither_torch_nor_qt(arguments: list[str]) -> None:
    code = f"""
import contextlib, io
from circuitlab.__main__ import main
with contextlib.redirect_stdout(io.StringIO()) as out:
    try:
        main({arguments!r})
    except SystemExit as done:
        assert not done.code, done.code
assert "circuitlab" in out.getvalue()
"""
    assert not _loaded(code) & (QT | {"torch", "numpy", "tokenizers", "transformers"})


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_version_and_help_look_for_no_plug_in(arguments: list[str]) -> None:
    code = f"""
import sys
from circuitlab.__main__ import main
assert main({arguments!r}) == 0
print(repr([name for name in sys.modules if name.startswith("circuitlab.plugins") or name == "importlib.metadata"]))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


def test_the_launcher_settles_the_environment_before_torch() -> None:
    code = """
import os, sys
for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
    os.environ.pop(name, None)
os.environ["GOMP_SPINCOUNT"] = "7"
from circuitlab.launch import settle_environment
settle_environment()
assert "torch" not in sys.modules
assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
assert os.environ["GOMP_SPINCOUNT"] == "7", "what the person has set stays"
"""
    _loaded(code)


@pytest.mark.slow  # `make test` begins with them
def test_import_contracts() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout
