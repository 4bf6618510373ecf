"""What every test stands on: no screen, a home of its own, one thread, nothing left behind, no silent skips.

- Qt draws offscreen unless `--headed`; HOME, settings, log and cache are a fresh folder per test.
- After a test that used Qt: close and delete all windows, collect, and fail if a widget, an active timer or a thread that the
  test made is still there. Not after a failed test, whose traceback holds on to things.
- A skip whose reason no line of `tests/allowed_skips.txt` matches is a failure.
- What outlives a test, first of all the imported modules, is frozen out of the garbage collector: the collections above then
  look only at what the test has made. Twice for each of thousands of tests over the whole heap was half of the suite's time.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from pytestqt.qtbot import QtBot

from tests.patience import SECONDS

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
ALLOWED_SKIPS = Path(__file__).with_name("allowed_skips.txt")

# One thread a process: xdist fills the cores, and bit-equality is promised at one thread.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}

# Where pytest finds one of these it prints the whole difference of two files that are compared, which takes it minutes.
_ON_CI = ("CI", "BUILD_NUMBER")

_failed = pytest.StashKey[bool]()

# The gate has the same examples at every run. `make test-slow` draws others (--hypothesis-profile random); a failure among them
# prints the seed that draws them again.
hypothesis_settings.register_profile("seeded", deadline=None, derandomize=True)
hypothesis_settings.register_profile("random", deadline=None, print_blob=True, database=None)
hypothesis_settings.load_profile("seeded")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("circuitlab")
    group.addoption("--headed", action="store_true", help="draw on the screen instead of offscreen")
    group.addoption("--update-snapshots", action="store_true", help="write the golden pictures instead of comparing")


def _listen_to_interrupts() -> None:
    """Started in the background by a shell, a process ignores Ctrl+C and so do its children, which tests interrupt."""
    for name in ("SIGINT", "SIGQUIT", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    for name in _ON_CI:
        os.environ.pop(name, None)
    _listen_to_interrupts()
    if not config.getoption("--headed"):
        os.environ["QT_QPA_PLATFORM"] = "offscreen"


def pytest_collection_finish() -> None:
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    _freeze_all()


# -- the garbage collector -------------------------------------------------------------------------------------------------

_GROWTH = 100_000  # objects frozen after tests, among which some may have become garbage
_grown = 0


def _freeze_all() -> None:
    """Collect over the whole heap, and freeze what is left."""
    global _grown
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    _grown = 0


def _freeze() -> None:
    """Freeze what outlives this test; garbage among what earlier ones left is looked for when it may be much."""
    global _grown
    _grown += len(gc.get_objects())
    gc.freeze()
    if _grown > _GROWTH:
        _freeze_all()


# -- skips -----------------------------------------------------------------------------------------------------------------


def allowed_skips() -> list[re.Pattern[str]]:
    """The permitted reasons, one regular expression a line; `#` begins a comment."""
    lines = (line.strip() for line in ALLOWED_SKIPS.read_text("utf-8").splitlines())
    return [re.compile(line) for line in lines if line and not line.startswith("#")]


def _unexpected(report: pytest.TestReport | pytest.CollectReport) -> str | None:
    """The reason of a skip that is not on the list, else None."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return None
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    return None if any(pattern.search(reason) for pattern in allowed_skips()) else reason


def _fail_if_unexpected(report: Any) -> None:
    if (reason := _unexpected(report)) is not None:
        report.outcome = "failed"
        report.longrepr = f"skipped for a reason that is not in {ALLOWED_SKIPS.name}: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    _fail_if_unexpected(report)
    if report.failed:
        item.stash[_failed] = True
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report = yield
    _fail_if_unexpected(report)
    return report


# -- patience --------------------------------------------------------------------------------------------------------------


class _PatientBot(QtBot):
    """pytest-qt's, without a time of its own for each wait."""

    waitActive = partialmethod(QtBot.waitActive, timeout=int(SECONDS * 1000))
    waitCallback = partialmethod(QtBot.waitCallback, timeout=int(SECONDS * 1000))
    waitExposed = partialmethod(QtBot.waitExposed, timeout=int(SECONDS * 1000))
    waitSignal = partialmethod(QtBot.waitSignal, timeout=int(SECONDS * 1000))
    waitSignals = partialmethod(QtBot.waitSignals, timeout=int(SECONDS * 1000))
    waitUntil = partialmethod(QtBot.waitUntil, timeout=int(SECONDS * 1000))


@pytest.fixture(scope="module")
def engine() -> Any:
    """One engine for a module's tests, with models and answers of its own."""
    from circuitlab.engine.engine import Engine
    from circuitlab.engine.store import ModelStore

    return Engine(ModelStore())


@pytest.fixture
def qtbot(qapp: Any, request: pytest.FixtureRequest) -> QtBot:
    """The hand and the eyes of a test of the window."""
    return _PatientBot(request)


# -- the person's own folders ----------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home for this test; settings, log and cache lie inside it."""
    folder = tmp_path_factory.mktemp("home")
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(folder))
    places = {"CONFIG": ".config", "STATE": ".local/state", "CACHE": ".cache", "DATA": ".local/share"}
    for name, place in places.items():
        monkeypatch.setenv(f"XDG_{name}_HOME", str(folder / place))
    runtime = folder / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    return folder


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of corpora and reference checkpoints beside the checkout; a test that needs it is skipped without."""
    if not SHARED.is_dir():
        pytest.skip("needs ../shared")
    return SHARED


@pytest.fixture(scope="session")
def update_snapshots(pytestconfig: pytest.Config) -> bool:
    """Whether golden pictures are to be written."""
    return bool(pytestconfig.getoption("--update-snapshots"))


# -- nothing left behind ---------------------------------------------------------------------------------------------------

# Threads that libraries keep for the whole process.
_LASTING_THREADS = re.compile(r"MainThread|execnet|tqdm|pydevd|raylet|Dummy|Dask|IO loop|QueueFeederThread")


def _app() -> Any:
    widgets = sys.modules.get("PySide6.QtWidgets")
    return widgets.QApplication.instance() if widgets else None


def _threads() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.is_alive() and not _LASTING_THREADS.search(t.name)}


def _timers() -> dict[int, Any]:
    """The active QTimers by address, of those that Python made since the last freeze."""
    from PySide6.QtCore import QTimer
    from shiboken6 import isValid

    timers = [thing for thing in gc.get_objects() if issubclass(type(thing), QTimer)]
    return {id(timer): timer for timer in timers if isValid(timer) and timer.isActive()}


def _of_qt(widget: Any) -> bool:
    """An empty window without a name: Qt keeps one to style the parts of a slider."""
    return type(widget).__name__ == "QWidget" and widget.parent() is None and not widget.children() and not widget.objectName()


def _left(app: Any, timers: set[int]) -> list[str]:
    """Widgets and active timers that are still there; `timers` were before."""
    widgets = [_describe(widget) for widget in app.allWidgets() if not _of_qt(widget)]
    return widgets + [_describe(timer) for key, timer in _timers().items() if key not in timers]


def _settle(app: Any, timers: set[int]) -> list[str]:
    """Close the windows and let everything that was deleted later be deleted now; what is left all the same."""
    from PySide6.QtCore import QCoreApplication, QEvent

    left = list[str]()
    if app.platformName() == "offscreen":
        app.clipboard().clear()  # it is destroyed after Python is, and with it would be what Python has put there
    for again in range(3):  # what is deleted may let go of more; its events are had before the next test begins
        for widget in app.topLevelWidgets():
            if widget.parent() is None:  # others go with what they are of; Qt may fall over a part of a scene that goes first
                widget.close()
                widget.deleteLater()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        app.processEvents()
        gc.collect()
        left = _left(app, timers)
        if again and not left:
            break
    return left


def _describe(thing: Any) -> str:
    name = thing.objectName() if hasattr(thing, "objectName") else getattr(thing, "name", "")
    return f"{type(thing).__module__}.{type(thing).__qualname__}({name!r})"


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest, home: Path) -> Iterator[None]:
    """Fail a test that leaves a widget, an active timer or a thread."""
    had_app = _app() is not None
    before_threads = _threads()
    before_timers = set(_timers()) if had_app else set()
    yield
    app = _app()
    if app is None:
        return
    left = _settle(app, before_timers)
    _freeze()
    if request.node.stash.get(_failed, False):
        return
    deadline = time.monotonic() + SECONDS
    while (threads := _threads() - before_threads) and time.monotonic() < deadline:
        time.sleep(0.01)
    left += [_describe(thread) for thread in threads]
    assert not left, f"left behind: {', '.join(sorted(left))}"
