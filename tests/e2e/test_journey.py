"""The whole journey of a session in real windows: worked on, saved, killed, recovered, moved, opened without its model."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from tests.conftest import ROOT
from tests.models import directory
from tests.patience import SECONDS

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system: processes that are killed")


class Person:
    """Somebody at a machine: a home, a folder to start from, a language."""

    def __init__(self, home: Path, language: str) -> None:
        home.mkdir(parents=True)
        places = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("STATE", "CONFIG", "CACHE")}
        self.environment = {**os.environ, **places, "HOME": str(home), "LC_ALL": language, "LANG": language}
        self.environment |= {"PYTHONPATH": str(ROOT), "QT_QPA_PLATFORM": "offscreen", "HF_HUB_OFFLINE": "1"}
        self.home = home

    def plays(self, stage: str, folder: Path, source: Path | None, killed: bool = False) -> dict[str, Any]:
        """What a window holds at the end of a stage (see `tests/journey.py`)."""
        words = [sys.executable, "-m", "tests.journey", stage, str(folder), *([] if source is None else [str(source)])]
        pipe = subprocess.PIPE
        with subprocess.Popen(words, env=self.environment, cwd=self.home, stdout=pipe, stderr=pipe, text=True) as window:
            assert window.stdout is not None and window.stderr is not None
            if killed and window.stdout.readline() == "ready\n":
                window.send_signal(signal.SIGKILL)
            _, complaints = window.communicate(timeout=4 * SECONDS)
        assert window.returncode == (-signal.SIGKILL if killed else 0), complaints
        return json.loads((folder / f"{stage}.json").read_text("utf-8"))


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two windows hold the same session, and draw the same numbers."""
    figures, others = one["figures"], other["figures"]
    alike = all(figures.get(name) == pytest.approx(numbers, rel=1e-4, abs=1e-4) for name, numbers in others.items())
    return alike and set(figures) == set(others) and (one["session"], one["models"]) == (other["session"], other["models"])


@POSIX
@pytest.mark.slow
def test_a_session_goes_its_way_from_work_to_another_machine(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there" / "deeper"
    (here / "talks").mkdir(parents=True)
    model, talk = directory(here / "runs" / "mine"), here / "talks" / "talk.circuitlab"
    author, colleague = Person(tmp_path / "home of one", "C.UTF-8"), Person(tmp_path / "home of another", "de_DE.UTF-8")

    left = author.plays("work", here / "talks", model, killed=True)
    assert left["dirty"] and len(left["session"]["story"]["steps"]) == 3 and len(left["session"]["notes"]) == 2
    assert left["session"]["now"]["text"] == "ab cab ab ab", "with the work after saving"
    again = author.plays("recover", here / "talks", None)
    assert same(again, left)
    assert again["dirty"] and "talk" in again["title"] and not again["dialogs"]
    saved = json.loads((here / "talks" / "saved.json").read_text("utf-8"))
    assert not saved["dirty"] and saved["session"] == left["session"]

    there.parent.mkdir()
    shutil.move(here, there)
    talk = there / "talks" / "talk.circuitlab"
    assert str(tmp_path).encode() not in talk.read_bytes(), "it knows nothing of the place where it was made"
    moved = colleague.plays("elsewhere", there / "talks", talk)
    assert not moved["dialogs"] and not moved["dirty"]
    assert same(moved, left)

    shutil.move(there / "runs", tmp_path / "taken away")
    (question,) = colleague.plays("absent", there / "talks", talk)
    assert str(there / "runs" / "mine") in question
    weights = directory(there / "runs" / "mine") / "model.safetensors"
    save_file({name: tensor + 0.1 for name, tensor in load_file(weights).items()}, weights)
    other = colleague.plays("changed", there / "talks", talk)
    assert other["session"] == left["session"] and not same(other, left)
    assert other["captions"] and all("not the model of this session" in caption for caption in other["captions"] if caption)
