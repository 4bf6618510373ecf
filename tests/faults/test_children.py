"""A training × {its window is killed, it is stopped twice}: it goes on, or what it said to be saved is there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from circuitlab.disk.paths import resource
from circuitlab.training.state import read_state
from tests.conftest import ROOT
from tests.training_runs import progress, written

if sys.platform == "win32":
    pytest.skip("needs a POSIX system: signals", allow_module_level=True)


def _started(folder: Path, steps: int) -> subprocess.Popen[str]:
    """A run of so many steps, of which the first lines have been heard."""
    recipe = folder / "longer.toml"
    tiny = resource("recipes", "tiny.toml").read_text(encoding="utf-8")
    recipe.write_text(tiny.replace("steps = 20", f"steps = {steps}"), encoding="utf-8")
    words = ["train", str(recipe), "--text", str(written(folder / "text.txt")), "--out", str(folder / "run"), "--no-measure"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.Popen([sys.executable, "-m", "circuitlab", *words], env=environment, text=True, **pipes)  # type: ignore[call-overload]
    assert run.stdout is not None
    for line in run.stdout:
        if line.startswith("step "):
            return run
    raise AssertionError(run.communicate()[1])


@pytest.mark.slow
def test_a_run_goes_on_when_its_window_is_killed(tmp_path: Path) -> None:
    run = _started(tmp_path, 400)
    for pipe in (run.stdout, run.stderr):
        assert pipe is not None
        pipe.close()
    assert run.wait() == 0
    assert progress(tmp_path / "run")["state"] == "done" and (tmp_path / "run" / "model" / "config.json").is_file()
    assert "step 400/400" in (tmp_path / "run" / "train.log").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_run_that_is_stopped_twice_has_what_it_said_to_be_saved(tmp_path: Path) -> None:
    run = _started(tmp_path, 100_000)
    run.send_signal(signal.SIGTERM)
    run.send_signal(signal.SIGTERM)
    said = run.communicate()[1]
    assert run.returncode == 130, said
    saved, skipped = read_state(tmp_path / "run" / "state")
    assert not skipped
    assert "is saved" not in said or saved is not None, "what was said to be saved is there"
