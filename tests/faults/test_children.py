"""A child × {its window is killed, it is stopped twice}: a training goes on, or what it said to be saved is there; a tokenizer
and a chat template end, whatever they are at.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from circuitlab.disk.paths import resource
from circuitlab.model.text import tokenizer_child
from circuitlab.model.text.tokenizer_child import read_frame, write_frame
from circuitlab.training.state import read_state
from tests.conftest import ROOT
from tests.models import byte_tokenizer
from tests.training_runs import progress, written

if sys.platform == "win32":
    pytest.skip("needs a POSIX system: signals", allow_module_level=True)


LINUX = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux: descriptors of processes")


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


def _ended(process: int, seconds: float) -> bool:
    """Whether a process, by a descriptor of it, ends within so many seconds."""
    return bool(select.select([process], [], [], seconds)[0])


@contextlib.contextmanager
def _watched(pid: int) -> Iterator[int]:
    """A descriptor of a process, which is killed at the end."""
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        os.close(descriptor)


def _processor_time(pid: int) -> float:
    """Seconds that a process has computed."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


_ENCODES = """
import sys
from circuitlab.model.text import tokenizer_process
tokenizer_process.SECONDS = 600
process = tokenizer_process.TokenizerProcess(sys.argv[1].encode())
print(process._running[0].pid, flush=True)
process.encode("x" * 300_000)
"""

_RENDERS = """
import sys
from circuitlab.model.text import chat_template
started = chat_template.started

def told(*words, **how):
    child = started(*words, **how)
    print(child.pid, flush=True)
    return child

chat_template.started, chat_template.SECONDS = told, 600
chat_template.rendered(chat_template.ChatTemplate(sys.argv[1]), [chat_template.Message("user", "a")])
"""
_ENDLESS_TEMPLATE = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


def _endless() -> str:
    """A tokenizer that takes ten minutes for 300,000 x: each is looked at from each."""
    expression = {"type": "Split", "pattern": {"Regex": "x*?(?<=y)"}, "behavior": "Isolated", "invert": False}
    return json.dumps({**json.loads(byte_tokenizer().file_text()), "pre_tokenizer": expression})


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("what", ["a tokenizer", "a chat template"])
def test_a_child_ends_with_its_window_in_the_middle_of_a_text(what: str) -> None:
    words = (_ENCODES, _endless()) if what == "a tokenizer" else (_RENDERS, _ENDLESS_TEMPLATE)
    with subprocess.Popen([sys.executable, "-c", *words], stdout=subprocess.PIPE, text=True, cwd=ROOT) as window:
        assert window.stdout is not None
        pid = int(window.stdout.readline())
        with _watched(pid) as child:
            loaded = _processor_time(pid)
            while _processor_time(pid) < loaded + 0.5:  # until it is at the text
                assert not _ended(child, 0.05)
            window.kill()
            assert _ended(child, 30)


@LINUX
@pytest.mark.slow
def test_a_tokenizer_that_nobody_stops_is_ended_by_the_system() -> None:
    words = [sys.executable, tokenizer_child.__file__]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdin is not None and process.stdout is not None
        with _watched(process.pid) as child:
            write_frame(process.stdin, _endless().encode())
            assert read_frame(process.stdout) == b"{}"
            write_frame(
                process.stdin,
                json.dumps({"text": "x" * 300_000, "special": False, "added": False, "most": 9, "seconds": 0.1}).encode(),
            )
            assert _ended(child, 60)
        assert process.wait() == -signal.SIGXCPU


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
