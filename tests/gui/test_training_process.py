"""The process that trains, with a shell script in its place: what it is asked, how it ends, what is heard of it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from circuitlab.gui.training import process as training_process
from circuitlab.gui.training.job import TrainingJob
from circuitlab.gui.training.process import TrainingProcess

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system: a shell")
STUBBORN = "trap '' TERM; echo ready; read forever"  # only a kill ends it
Start = Callable[[str], TrainingProcess]


@pytest.fixture
def start(qtbot: QtBot, tmp_path: Path) -> Iterator[Start]:
    """Starts a script in place of the command; `lines` are what it said."""
    made = TrainingProcess()

    def started(script: str) -> TrainingProcess:
        path = tmp_path / "script"
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
        made.program = str(path)
        made.start(TrainingJob("tiny", (("text", ""),), str(tmp_path / "run")))
        return made

    yield started
    if made.running:
        made.kill()
    qtbot.waitUntil(lambda: not made.running)
    made.deleteLater()


def heard(process: TrainingProcess) -> list[str]:
    """Lines as they come."""
    lines: list[str] = []
    process.line_read.connect(lines.append)
    return lines


@pytest.mark.parametrize(
    ("script", "outcome", "error"),
    [
        ("exit 0", "done", ""),
        ("exit 130", "stopped", ""),
        ("echo 'The disk is full.' >&2; exit 3", "failed", "The disk is full."),
        ("echo 'first' >&2; echo 'ValueError: odd' >&2; exit 1", "failed", "exit status 1: ValueError: odd"),
        ("exit 1", "failed", "exit status 1: no error message"),
        ("exit 3", "failed", "exit status 3: no error message"),
        ("kill -9 $$", "failed", "killed or crashed"),
        ("kill -TERM $$", "failed", "killed or crashed"),  # nobody asked it to stop
    ],
)
def test_how_it_ended(qtbot: QtBot, start: Start, script: str, outcome: str, error: str) -> None:
    process = start(script)
    qtbot.waitUntil(lambda: not process.running)
    qtbot.waitUntil(lambda: process.outcome != "")
    assert process.outcome == outcome
    assert error in process.error and bool(process.error) == bool(error)
    assert not process.stopping and process.pid == 0


def test_a_program_that_is_not_there_is_said(qtbot: QtBot, tmp_path: Path) -> None:
    process = TrainingProcess(program=str(tmp_path / "no-python"))
    process.start(TrainingJob("tiny", (("text", ""),), str(tmp_path / "run")))
    qtbot.waitUntil(lambda: process.outcome != "")
    assert process.outcome == "failed" and not process.running
    assert str(tmp_path / "no-python") in process.error
    process.deleteLater()


def test_lines_are_heard_whole(qtbot: QtBot, start: Start) -> None:
    process = start("read go; printf 'one\\nha'; read go; printf 'lf\\r\\nthree\\n'; echo aside >&2; exit 0")
    lines = heard(process)
    process._process.write(b"\n")
    qtbot.waitUntil(lambda: lines == ["one"])
    process._process.write(b"\n")
    qtbot.waitUntil(lambda: process.outcome == "done")
    assert [line for line in lines if line != "aside"] == ["one", "half", "three"] and "aside" in lines


def test_it_is_asked_to_stop_and_may_save(qtbot: QtBot, start: Start, tmp_path: Path) -> None:
    process = start(f"trap 'echo kept > {tmp_path}/state; exit 130' TERM; echo ready; while :; do read go || :; done")
    lines, changes = heard(process), []
    process.changed.connect(lambda: changes.append(process.stopping))
    qtbot.waitUntil(lambda: lines == ["ready"])
    process.stop()
    assert process.stopping and changes[-1]
    qtbot.waitUntil(lambda: not process.running)
    assert (process.outcome, process.error, process.stopping) == ("stopped", "", False)
    assert (tmp_path / "state").read_text() == "kept\n"


def test_a_save_that_fails_when_it_is_stopped_is_said(qtbot: QtBot, start: Start) -> None:
    process = start("trap 'echo The disk is full. >&2; exit 3' TERM; echo ready; while :; do read go || :; done")
    lines = heard(process)
    qtbot.waitUntil(lambda: lines == ["ready"])
    process.stop()
    qtbot.waitUntil(lambda: not process.running)
    assert (process.outcome, process.error) == ("failed", "The disk is full.")


def test_the_window_s_end_waits_for_a_save_that_was_asked_for(
    qtbot: QtBot, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The save ends no sooner than the window has begun to wait for it."""
    os.mkfifo(tmp_path / "go")
    saving = f"echo saving; read go < {tmp_path}/go; echo kept > {tmp_path}/state; exit 130"
    process = start(f"trap '{saving}' TERM; echo ready; while :; do read go || :; done")
    lines = heard(process)
    qtbot.waitUntil(lambda: lines == ["ready"])
    process.stop()
    qtbot.waitUntil(lambda: lines[-1] == "saving")
    wait = process._process.waitForFinished

    def waits(most: int) -> bool:
        monkeypatch.undo()
        opened = os.open(tmp_path / "go", os.O_RDWR | os.O_NONBLOCK)
        os.write(opened, b"now\n")
        ended = wait(most)
        os.close(opened)
        return ended

    monkeypatch.setattr(process._process, "waitForFinished", waits)
    process.end()
    assert (process.outcome, process.error) == ("stopped", "")
    assert (tmp_path / "state").read_text() == "kept\n"


def test_one_that_does_not_stop_is_killed_in_the_end(qtbot: QtBot, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_process, "PATIENCE", 20)
    process = start(STUBBORN)
    lines = heard(process)
    qtbot.waitUntil(lambda: lines == ["ready"])
    process.stop()
    qtbot.waitUntil(lambda: not process.running)
    assert process.outcome == "stopped"


def test_a_second_stop_does_not_wait(qtbot: QtBot, start: Start) -> None:
    process = start(STUBBORN)
    lines = heard(process)
    qtbot.waitUntil(lambda: lines == ["ready"])
    process.stop()
    assert process.running
    process.stop()
    qtbot.waitUntil(lambda: not process.running)
    assert (process.outcome, process.error) == ("stopped", training_process.KILLED)


def test_the_same_is_taken_up_again_and_only_one_runs(qtbot: QtBot, start: Start, tmp_path: Path) -> None:
    process = start(f'echo "$@" >> {tmp_path}/calls; echo ready; read go; exit 3')
    first, lines = process.pid, heard(process)
    qtbot.waitUntil(lambda: lines == ["ready"])
    process.resume()
    assert process.pid == first, "it runs already"
    os.kill(first, signal.SIGKILL)
    qtbot.waitUntil(lambda: process.outcome == "failed")
    process.resume()
    assert process.running and (process.outcome, process.error) == ("", "") and process.pid != first
    process._process.write(b"\n")
    qtbot.waitUntil(lambda: process.outcome == "failed")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 2 and calls[0] == calls[1]
    assert calls[0].startswith("-P -m circuitlab train tiny --text text --out ")


def test_handed_over_it_goes_on_in_another_process(qtbot: QtBot, start: Start, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    marks = tmp_path / "begun"
    process = start(
        f"if [ -e {marks} ]; then echo heir; exit 0; fi; trap 'exit 130' TERM; echo ready; touch {marks}; "
        "while :; do read go || :; done"
    )
    lines = heard(process)
    qtbot.waitUntil(lambda: lines == ["ready"] and marks.exists())
    assert process.hand_over()
    assert process.outcome == "stopped"
    log = tmp_path / "run" / training_process.LOG
    qtbot.waitUntil(lambda: log.is_file() and log.read_text() == "heir\n")
    assert not process.hand_over(), "it is no longer here"


def test_one_that_ended_by_itself_is_not_handed_over(qtbot: QtBot, start: Start, tmp_path: Path) -> None:
    process = start("trap 'exit 3' TERM; echo ready; while :; do read go || :; done")
    lines = heard(process)
    qtbot.waitUntil(lambda: lines == ["ready"])
    os.kill(process.pid, signal.SIGTERM)
    qtbot.waitUntil(lambda: process.outcome == "failed")
    assert not process.hand_over() and not (tmp_path / "run" / training_process.LOG).exists()
