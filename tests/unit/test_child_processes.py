"""Every process is started in one place, and none runs code of the folder that it is started in."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import circuitlab
from circuitlab.child_process import environment, finished, python, several
from circuitlab.gui.sweeping.run import SweepRun
from circuitlab.gui.training.job import TrainingJob
from circuitlab.gui.training.process import TrainingProcess
from circuitlab.model.text.tokenizer_process import TokenizerProcess
from tests.conftest import ROOT
from tests.models import byte_tokenizer

HERE = "circuitlab/child_process.py"
STARTS = {"Popen", "run", "call", "check_call", "check_output", "system", "popen", "fork", "forkpty", "posix_spawn", "startfile"}
SHADOWED = (
    "random",
    "socket",
    "tempfile",
    "json",
    "argparse",
    "logging",
    "numpy",
    "torch",
    "tokenizers",
    "sitecustomize",
    "circuitlab",
)


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stranger's folder, which is the current one, with modules under names that every program imports."""
    folder = tmp_path / "packed"
    folder.mkdir()
    for name in SHADOWED:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')\n", encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", f"{os.pathsep}{ROOT}")  # an empty entry is the current folder, too
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    return folder


def _calls(source: str) -> list[str]:
    """What starts a process in this text: calls of such names, of modules that have them."""
    result = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            of, name = node.func.value.id, node.func.attr
            if of in ("subprocess", "os", "multiprocessing") and (name in STARTS or name.startswith(("exec", "spawn", "Pool"))):
                result.append(f"{of}.{name}")
            if (of, name) in (
                ("multiprocessing", "get_context"),
                ("multiprocessing", "Process"),
                ("asyncio", "create_subprocess_exec"),
            ):
                result.append(f"{of}.{name}")
        if isinstance(node, ast.ImportFrom) and node.module == "subprocess":
            result.append("from subprocess")
    return result


def test_processes_are_started_in_one_place() -> None:
    package = Path(circuitlab.__file__).parent
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}
    assert {name: calls for name, text in texts.items() if (calls := _calls(text)) and name != HERE} == {}
    assert _calls(texts[HERE]) == ["subprocess.Popen", "multiprocessing.get_context"]
    # what libraries start takes its words or its environment from there
    assert {name for name, text in texts.items() if "QProcess(" in text} == {"circuitlab/gui/training/process.py"}
    assert {n for n, t in texts.items() if "ProcessPoolExecutor(" in t} == {"circuitlab/sweep/crews.py"}
    assert {n for n, t in texts.items() if "LocalCluster(" in t} == {"circuitlab/sweep/cluster.py"}
    own = texts["circuitlab/gui/training/process.py"]
    assert len(re.findall(r"= python\(\*job\.arguments\(\)", own)) == own.count("QProcess(") == 2


def test_a_child_leaves_the_folder_out_that_it_is_started_in(packed: Path) -> None:
    code = "import random, json, argparse, socket; print('whole')"
    assert (
        subprocess.run([sys.executable, "-c", "import socket"], check=False, capture_output=True)
        and (packed.parent / "ran").exists()
    )
    (packed.parent / "ran").unlink()  # so much for a child without care
    assert finished(python("-c", code), 60)[:2] == (0, f"whole{os.linesep}")
    assert finished(python("-m", "circuitlab", "--version"), 60, environment(finds_us=True))[1].startswith("circuitlab")
    assert not (packed.parent / "ran").exists()


def test_an_empty_entry_of_the_path_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{os.pathsep}a{os.pathsep}{os.pathsep}b{os.pathsep}")
    assert environment()["PYTHONPATH"] == f"a{os.pathsep}b" and environment()["PYTHONSAFEPATH"] == "1"
    assert environment(finds_us=True)["PYTHONPATH"] == os.pathsep.join((str(ROOT), "a", "b"))
    assert "PYTHONPATH" not in environment({"PYTHONPATH": os.pathsep}) and environment(A="x")["A"] == "x"


def test_training_from_the_window_runs_no_code_beside_the_model(packed: Path, qtbot: Any) -> None:
    process = TrainingProcess()
    process.start(TrainingJob("no-such-recipe", (("text", ""),), str(packed / "run")))
    qtbot.waitUntil(lambda: process.outcome != "")
    assert process.outcome == "failed" and "no-such-recipe" in process.error  # the command was there, and read its recipe
    assert not (packed.parent / "ran").exists()
    process.deleteLater()


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system: a shell")
def test_a_run_that_is_handed_over_starts_in_the_same_way(packed: Path, qtbot: Any) -> None:
    begun, calls = packed / "begun", packed / "calls"
    script = packed / "script"
    first = f"touch {begun}; trap 'exit 130' TERM; echo ready; read go"  # nothing ever comes: it waits for TERM, or for our end
    script.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n[ -e {begun} ] && exit 0\n{first}\n', encoding="utf-8")
    script.chmod(0o755)
    profile = packed.parent / "profile"
    profile.write_text("mine")
    (packed / "run").mkdir()
    (packed / "run" / "train.log").symlink_to(profile)
    process = TrainingProcess(program=str(script))
    with qtbot.waitSignal(process.line_read):
        process.start(TrainingJob("tiny", (("text", ""),), str(packed / "run")))
    assert process.hand_over()
    qtbot.waitUntil(lambda: len(calls.read_text().splitlines()) == 2)
    assert all(call.startswith("-P -m circuitlab train ") for call in calls.read_text().splitlines())
    assert profile.read_text() == "mine" and not (packed / "run" / "train.log").is_symlink()
    process.deleteLater()


def test_a_sweep_from_the_window_runs_no_code_beside_it(packed: Path, qtbot: Any) -> None:
    (packed / "sweep").mkdir()
    run = SweepRun(packed / "sweep")
    run.start(["-m", "circuitlab", "sweep", str(packed / "none.toml"), "-o", str(packed / "sweep")])
    qtbot.waitUntil(lambda: run.outcome != "")
    assert run.outcome == "failed" and "none.toml" in run.error and not (packed.parent / "ran").exists()
    run.deleteLater()


def test_a_tokenizer_in_a_process_of_its_own_runs_no_code_beside_it(packed: Path) -> None:
    process = TokenizerProcess(byte_tokenizer().file_text().encode())
    assert process.encode("a") == list(byte_tokenizer().encode("a")) and not (packed.parent / "ran").exists()


def _where() -> tuple[bool, str]:
    return sys.flags.safe_path, os.environ.get("PYTHONSAFEPATH", "")


def test_a_pool_of_processes_runs_no_code_of_the_folder(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH")
    with several() as context, ProcessPoolExecutor(1, context) as pool:
        assert pool.submit(_where).result(120) == (True, "1")
    assert "PYTHONSAFEPATH" not in os.environ and not (packed.parent / "ran").exists()


def test_the_command_itself_looks_for_no_modules_where_it_is_started(packed: Path) -> None:
    for name in ("circuitlab", "torch", "numpy", "sitecustomize"):
        (packed / f"{name}.py").unlink()  # a package of our name is what `-m` was asked for
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-m", "circuitlab", "analyses"], check=False, capture_output=True, env=env)
    assert done.returncode == 0, done.stderr.decode()
    assert not (packed.parent / "ran").exists()
