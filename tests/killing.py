"""Processes that are killed while they write: at each call that changes files, or at a random moment. POSIX only."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

# Audit events of what reads or changes a folder or a file; Python raises each of them before the call.
_CALLS = {
    "open",
    "os.rename",
    "os.remove",
    "os.link",
    "os.symlink",
    "os.chmod",
    "os.mkdir",
    "os.truncate",
    "os.rmdir",
    "os.utime",
}


def killed_before(call: int, act: Callable[[], object]) -> bool:
    """Run `act` in a process that is killed before its `call`-th call, counted from 1; False if it ended before that."""
    child = os.fork()
    if not child:
        _run(lambda: _count_down(call), act)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0, "it failed by itself"
    return False


def killed_after(most: float, act: Callable[[], object], rng: random.Random) -> None:
    """Run `act` in a process that is killed at a random moment within `most` seconds; it must not end by itself."""
    child = os.fork()
    if not child:
        _run(lambda: None, act)
    time.sleep(rng.random() * most)
    assert os.waitpid(child, os.WNOHANG) == (0, 0), "it ended by itself"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _run(prepare: Callable[[], None], act: Callable[[], object]) -> None:
    """In the child: nothing of the test's own process runs at its end."""
    try:
        prepare()
        act()
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)
    os._exit(0)


def _count_down(call: int) -> None:
    left = [call]

    def count() -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    before_each_call(count)


def before_each_call(act: Callable[[], None], under: str = "") -> None:
    """From now on `act` runs before each call of this process that opens or changes a file `under` a folder, and each flush."""

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _CALLS and any(_text(one).startswith(under) for one in arguments[:2]):
            act()

    def flushed(opened: int, flush: Callable[[int], None] = os.fsync) -> None:
        act()
        flush(opened)

    os.fsync = flushed  # it has no audit event
    sys.addaudithook(heard)


def _text(one: object) -> str:
    return os.fsdecode(one) if isinstance(one, str | bytes | os.PathLike) else ""
