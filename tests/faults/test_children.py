"""A child × {its window is killed, it is stopped twice}: a training goes on, or what it said to be saved is there; a tokenizer
and a chat template end, whatever they are at; so do pip and the workers of a sweep, and the next run completes what they were at.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from circuitlab.__main__ import main
from circuitlab.child_process import started
from circuitlab.disk.paths import resource
from circuitlab.model.catalogue import getting as catalogue_getting
from circuitlab.model.text import tokenizer_child
from circuitlab.model.text.tokenizer_child import read_frame, write_frame
from circuitlab.sweep.journal import NAME as JOURNAL
from circuitlab.sweep.journal import lines_in
from circuitlab.training.state import read_state
from tests import archive_server, loopback
from tests.archive_server import Web
from tests.catalogued import FILES, NAME, install
from tests.conftest import ROOT
from tests.loopback import Handler
from tests.models import CONFIGS, byte_tokenizer, directory
from tests.patience import SECONDS
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
            assert _ended(child, SECONDS)


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
            assert _ended(child, SECONDS)
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


# -- pip -----------------------------------------------------------------------------------------------------------------------


class _Slow(Handler):
    """An index that takes a question, and then says nothing, or a byte ten times a second, of a page without an end."""

    site: _Index

    def do_GET(self) -> None:
        """Until nobody listens any more."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.site.asked.set()
        while not self.site.over.wait(0.1):
            if self.site.trickles:
                try:
                    self.wfile.write(b" ")
                except OSError:
                    return


@dataclass
class _Index:
    trickles: bool
    wait: threading.Event | None = None
    over: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)
    url: str = ""


@dataclass(frozen=True)
class _Getting:
    """A command that gets a model by pip, which waits for its index. `pip`: a descriptor of it; `complete()`: the model is got
    by another run, from an index that has it, and nothing else is left."""

    command: int
    pip: int
    complete: Callable[[], None]


@pytest.fixture
def getting_by_pip(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Getting]:
    shelf, index = install(tmp_path, monkeypatch), _Index(request.param == "trickling")
    told, tell = os.pipe()

    def heard(*words: Any, **options: Any) -> subprocess.Popen[bytes]:
        child = started(*words, **options)
        os.write(tell, f"{child.pid}\n".encode())
        return child

    with (
        archive_server.serving(Web(shelf.wheels)) as web,
        loopback.serving(index, _Slow, "site") as slow,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(slow.over.set)
        shelf.index(web)
        by_pip_alone = lambda url: monkeypatch.setenv("PIP_INDEX_URL", url.replace("://", "://name:word@") + "/simple")

        def complete() -> None:
            by_pip_alone(web.url)
            assert catalogue_getting.get(shelf.package).fetched
            folder = shelf.package.fetched_folder
            assert all((folder / name).read_bytes() == (shelf.original / name).read_bytes() for name in FILES)
            assert list(folder.parent.iterdir()) == [folder]

        by_pip_alone(index.url)
        monkeypatch.setattr(catalogue_getting, "started", heard)
        command = os.fork()
        if not command:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                os._exit(main(["get", NAME]))
            except BaseException:
                os._exit(99)
        monkeypatch.setattr(catalogue_getting, "started", started)
        with _watched(command), os.fdopen(told) as lines, _watched(int(lines.readline())) as pip:
            os.close(tell)
            assert index.asked.wait(SECONDS)
            yield _Getting(command, pip, complete)


SLOW = pytest.mark.parametrize("getting_by_pip", ["silent", "trickling"], indirect=True)


@LINUX
@pytest.mark.slow
@SLOW
def test_pip_ends_with_its_window(getting_by_pip: _Getting) -> None:
    os.kill(getting_by_pip.command, signal.SIGKILL)
    assert _ended(getting_by_pip.pip, SECONDS)
    os.waitpid(getting_by_pip.command, 0)
    getting_by_pip.complete()


@LINUX
@pytest.mark.slow
@SLOW
@pytest.mark.parametrize("when", ["at once", "when pip has ended"])
def test_a_get_that_is_stopped_twice_leaves_no_pip(getting_by_pip: _Getting, when: str) -> None:
    os.kill(getting_by_pip.command, signal.SIGINT)
    if when != "at once":
        assert _ended(getting_by_pip.pip, SECONDS)
    os.kill(getting_by_pip.command, signal.SIGINT)
    _, status = os.waitpid(getting_by_pip.command, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    assert _ended(getting_by_pip.pip, SECONDS)
    getting_by_pip.complete()


# -- the workers of a sweep ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sweeping:
    """A sweep whose workers have answered some of its questions. `workers`: descriptors of all processes of its own."""

    command: subprocess.Popen[str]
    workers: list[int]
    out: Path
    complete: Callable[[], None]


def _descendants(pid: int) -> list[int]:
    """The processes that a process has started, by any of its threads, and those that these have."""
    children = list[int]()
    with contextlib.suppress(OSError):  # it has ended
        for started_by in Path(f"/proc/{pid}/task").glob("*/children"):
            children += map(int, started_by.read_text().split())
    return [*children, *(below for child in children for below in _descendants(child))]


def _done(folder: Path) -> list[str]:
    """The questions that the journal says are answered."""
    return [line["cell"] for line in lines_in(folder)] if (folder / JOURNAL).exists() else []


@pytest.fixture(params=["--dask", "--workers"])
def sweeping(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[_Sweeping]:
    if request.param == "--dask":
        pytest.importorskip("distributed")
    texts = ", ".join(f'"{f"{i:04d} " * 8}"' for i in range(1000))
    directory(tmp_path / "gpt2", CONFIGS["gpt2"])
    (tmp_path / "spec.toml").write_text(
        f'title = "a try"\n[models]\nopen = ["gpt2"]\n[[prompts]]\ntexts = [{texts}]\n[[analyses]]\nname = "token_loss"\n'
    )
    out, environment = tmp_path / "out", {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "circuitlab", "sweep", "spec.toml", "-o", "out"]
    start = lambda *more: subprocess.Popen(
        [*words, *more], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        start_new_session=True,
    )  # fmt: skip
    command = start(request.param, "2")

    def complete() -> None:
        kept = _done(out)
        assert kept
        with start() as again:
            said = again.communicate()[1]
        assert again.returncode == 0, said
        assert _done(out)[: len(kept)] == kept and len(_done(out)) == len(set(_done(out))) == 1000

    with contextlib.ExitStack() as stack:
        stack.enter_context(command)
        stack.callback(command.kill)
        whole = stack.enter_context(_watched(command.pid))
        while len(_done(out)) < 5:
            assert not _ended(whole, 0.05), command.communicate()[1]
        workers = [stack.enter_context(_watched(pid)) for pid in _descendants(command.pid)]
        assert len(workers) >= 2
        assert len(_done(out)) < 1000
        yield _Sweeping(command, workers, out, complete)


@LINUX
@pytest.mark.slow
def test_the_workers_of_a_sweep_end_with_it(sweeping: _Sweeping) -> None:
    sweeping.command.kill()
    assert all(_ended(worker, SECONDS) for worker in sweeping.workers)
    sweeping.command.communicate()
    sweeping.complete()


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("to", ["all", "the command"])
def test_a_sweep_that_is_stopped_twice_says_what_is_kept(sweeping: _Sweeping, to: str) -> None:
    """`to`: a terminal sends Ctrl+C to all processes that it runs, a window to the one it has started."""
    for _ in range(2):
        if to == "all":
            os.killpg(sweeping.command.pid, signal.SIGINT)
        else:
            sweeping.command.send_signal(signal.SIGINT)
    said = sweeping.command.communicate()[1]
    assert sweeping.command.returncode == 130, said
    assert "what is done is kept" in said and "Traceback" not in said, said
    assert all(_ended(worker, SECONDS) for worker in sweeping.workers)
    sweeping.complete()
