"""A process in which one system call under a folder fails, or before or in the middle of which it is killed; all are walked in
turn. POSIX only.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from circuitlab.errors import CircuitLabError
from tests.killing import before_each_call

ENDED, SAID, KILLED, UNSAID = "ended", "said", "killed", "unsaid"
_STATUS = {0: ENDED, 10: SAID, 11: UNSAID}
MOST = 400  # calls of one writer


def outcome(act: Callable[[], object], folder: Path, call: int, fault: int, room: int = -1) -> tuple[str, bool]:
    """What becomes of `act` in a process of its own whose `call`-th call under `folder` fails; and whether it came to that call.

    `fault`: an error number, or 0 to be killed before the call. `room`: bytes that no file may exceed, -1 for no such limit.
    """
    return _outcome(
        act, (lambda tell: _no_room(room, tell)) if room >= 0 else lambda tell: _count_down(folder, call, fault, tell)
    )


def cut(act: Callable[[], object], at: int) -> str:
    """What becomes of `act` in a process of its own, killed in the middle of the write that would make a file longer than `at`
    bytes: those that fit are in the file."""
    return _outcome(act, lambda tell: _killed_at(at))[0]


def cuts(sizes: Iterable[int]) -> list[int]:
    """Where files of these sizes are cut: at their ends, in the middle, and where buffers and pages end."""
    at = {min(size - 1, place) for size in sizes if size for place in (0, 1, size // 3, size // 2, 4096, 8192, size - 1)}
    return sorted(at)


def _outcome(act: Callable[[], object], prepare: Callable[[int], None]) -> tuple[str, bool]:
    """What becomes of `act` after `prepare(tell)`, and whether it was told "reached"; both run in a process of their own."""
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        os.close(told)
        _child(act, prepare, tell)
    os.close(tell)
    with os.fdopen(told, "rb") as pipe:
        reached = pipe.read() == b"reached"
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) in (signal.SIGKILL, signal.SIGXFSZ)
        return KILLED, True
    return _STATUS[os.waitstatus_to_exitcode(status)], reached


def walk(act: Callable[[], object], folder: Path, fault: int, prepare: Callable[[], object]) -> Iterator[tuple[int, str]]:
    """(call, what became of it) for each call of `act` in turn, after `prepare`, until it ends before the fault."""
    for call in range(1, MOST):
        prepare()
        how, reached = outcome(act, folder, call, fault)
        if not reached:
            assert how == ENDED, f"it failed by itself: {how}"
            return
        yield call, how
    raise AssertionError("it never comes to an end")


def _child(act: Callable[[], object], prepare: Callable[[int], None], tell: int) -> None:
    """Nothing of the test's own process runs at its end."""
    try:
        prepare(tell)
        act()
    except CircuitLabError as error:
        os.write(2, f"{error}\n".encode("utf-8", "replace"))
        os._exit(10 if str(error) else 11)
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(11)
    os._exit(0)


def _no_room(room: int, tell: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    os.write(tell, b"reached")


def _killed_at(size: int) -> None:
    """The system's own action at a write beyond the limit is to kill; Python ignores the signal from its start."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def _count_down(folder: Path, call: int, fault: int, tell: int) -> None:
    left, under = [call], os.fspath(folder)

    def count() -> None:
        left[0] -= 1
        if left[0]:
            return
        os.write(tell, b"reached")
        if not fault:
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(fault, os.strerror(fault))

    before_each_call(count, under)
