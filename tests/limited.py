"""Trying what a file does to the program: each in a process of its own, within limits of memory and of steps, without a clock.

    tried("tests.limited:open_a_model", paths)   ->  an `Outcome` of each

A step is a line of Python. What spends its time in one call of a library counts no steps; it is stopped after so much time of the
processor that no machine is as slow, which is a failure like any other.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MIB = 2**20
PROCESSOR = 300  # s of the processor


@dataclass(frozen=True)
class Outcome:
    """What came of one file. `kind`: "opened", the class of an error of ours, or "FAILED"; `peak`: bytes it took at most."""

    kind: str
    text: str = ""
    peak: int = 0
    steps: int = 0

    @property
    def refused(self) -> bool:
        """Whether it was refused with an error of ours."""
        return self.kind not in ("opened", "FAILED")


def open_a_model(path: str) -> None:
    """As the window does."""
    from circuitlab.model.loading import open_model

    open_model(Path(path))


def read_a_pickle(path: str) -> None:
    """The tensors of a file, and what is beside them."""
    from circuitlab.model.files.pickled import read_pickle

    contents = read_pickle(Path(path))
    assert contents is not None
    json.dumps(contents.metadata, default=str)  # as whoever shows it walks it


def open_a_tokenizer(path: str) -> None:
    """And encode a letter, as each keystroke does."""
    from circuitlab.model.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_file(Path(path))
    tokenizer.first_added()
    if tokenizer.quick("a"):  # in the window's own thread
        tokenizer.encode("a")


def read_a_state(path: str) -> None:
    """The state of a training run, as resuming it does; `path`: its folder."""
    from circuitlab.training.state import read_state

    read_state(Path(path))


def tried(what: str, paths: Iterable[Path], memory: int = 512 * MIB, steps: int = 6_000_000) -> dict[Path, Outcome]:
    """What `module:function` does with each path."""
    given = list(paths)
    request = json.dumps({"what": what, "paths": [os.fsencode(path).hex() for path in given], "memory": memory, "steps": steps})
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.limited"]
    done = subprocess.run(command, input=request.encode(), capture_output=True, cwd=ROOT, env=env, check=False)
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    assert len(lines) == len(given), done.stderr.decode("utf-8", "replace")[-2000:]
    return {path: Outcome(**json.loads(line)) for path, line in zip(given, lines, strict=True)}


class _Steps(BaseException):
    """More steps than there may be."""


def _bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return 1024 * int(line.split()[1])
    return 0


def _outcome(function: Any, path: str, memory: int, most: int) -> dict[str, Any]:
    import resource

    from circuitlab.errors import CircuitLabError

    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        count += 1
        if count > most:
            raise _Steps
        return trace

    Path("/proc/self/clear_refs").write_text("5")
    before, limit = _bytes("VmRSS"), _bytes("VmSize") + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR, PROCESSOR))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    result: dict[str, Any]
    sys.settrace(trace)
    try:
        function(path)
        result = {"kind": "opened"}
    except CircuitLabError as error:
        result = {"kind": type(error).__name__, "text": str(error)}
    except BaseException:
        result = {"kind": "FAILED", "text": traceback.format_exc()[-2000:]}
    finally:
        sys.settrace(None)
    if count > most:
        result = {"kind": "FAILED", "text": f"more than {most} steps"}
    return {**result, "peak": max(0, _bytes("VmHWM") - before), "steps": count}


def _in_a_child(function: Any, path: str, memory: int, steps: int) -> dict[str, Any]:
    ours, theirs = os.pipe()
    if not (child := os.fork()):
        try:
            data = json.dumps(_outcome(function, path, memory, steps)).encode()
            os.write(theirs, data[:60_000])  # at most what a pipe holds
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(data) if data else {"kind": "FAILED", "text": f"the process ended with {os.waitstatus_to_exitcode(status)}"}


def main() -> None:
    request = json.load(sys.stdin)
    module, _, name = request["what"].partition(":")
    import torch

    import circuitlab.model.loading
    import circuitlab.model.text.tokenizer  # noqa: F401

    torch.set_num_threads(1)
    function = getattr(importlib.import_module(module), name)
    for path in request["paths"]:
        one = _in_a_child(function, os.fsdecode(bytes.fromhex(path)), request["memory"], request["steps"])
        print(json.dumps(one), flush=True)


if __name__ == "__main__":
    main()
