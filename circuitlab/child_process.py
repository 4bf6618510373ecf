"""Every process that this program starts is started here: none runs code of the folder that it is started in.

Python looks for modules in the folder where `-m` or `-c` is used, and in an empty entry of PYTHONPATH: a stranger's `random.py`
beside a model would run. `-P` and PYTHONSAFEPATH leave that folder out.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

_HOME = Path(__file__).resolve().parent.parent  # where this package is found, in a checkout or installed
_SAFE_PATH = "PYTHONSAFEPATH"
Stream = int | IO[bytes] | None


def python(*arguments: str, program: str = "") -> list[str]:
    """The words of a command that runs this Python, or a `program` in its place, with these arguments."""
    return [program or sys.executable, "-P", *arguments]


def environment(environ: Mapping[str, str] | None = None, finds_us: bool = False, **more: str) -> dict[str, str]:
    """`environ`, None: this process' environment, and `more`, for a process that leaves out the folder it is started in.

    `finds_us`: it finds the same CircuitLab, from a checkout or installed.
    """
    given = {**(os.environ if environ is None else environ), _SAFE_PATH: "1", **more}
    paths = list(filter(None, given.pop("PYTHONPATH", "").split(os.pathsep)))  # an empty one is the folder it is started in
    paths = [str(_HOME), *paths] if finds_us else paths
    return {**given, "PYTHONPATH": os.pathsep.join(paths)} if paths else given


def started(
    words: Sequence[str],
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.PIPE,
    stderr: Stream = subprocess.PIPE,
    env: Mapping[str, str] | None = None,
    apart: bool = False,
) -> subprocess.Popen[bytes]:
    """A process that runs these words, `python(…)` or a program's; without a console window of its own.

    `env`: as `environment` gives it, None: that of this process. `apart`: Ctrl+C in a terminal does not reach it.
    Raises `OSError`.
    """
    hidden = subprocess.CREATE_NO_WINDOW if sys.platform == "win32" else 0
    given = environment() if env is None else env
    return subprocess.Popen(
        words, stdin=stdin, stdout=stdout, stderr=stderr, env=given, creationflags=hidden, start_new_session=apart
    )


def finished(words: Sequence[str], seconds: float, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """(exit status, output, errors) of a process that ends within `seconds`.

    Raises `OSError`, `subprocess.TimeoutExpired`; it is killed then.
    """
    with started(words, env=env) as child:
        try:
            out, errors = child.communicate(timeout=seconds)
        except BaseException:
            child.kill()
            raise
    return child.returncode, out.decode("utf-8", "replace"), errors.decode("utf-8", "replace")


@contextlib.contextmanager
def several() -> Iterator[BaseContext]:
    """What makes pools of Python processes; inside the block, also those of libraries leave out the folder they start in.

    They take their options from the environment of this process, which has one more variable while the block runs.
    """
    import multiprocessing

    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield multiprocessing.get_context("spawn")
    finally:
        if before is None:
            os.environ.pop(_SAFE_PATH, None)
        else:
            os.environ[_SAFE_PATH] = before
