"""Calls from Python that take long: they say how far they are, and an interrupt ends them and leaves the engine as it was."""

from __future__ import annotations

import io
import signal
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from circuitlab import api
from circuitlab.api import long_work as module
from circuitlab.engine.engine import Engine
from circuitlab.engine.in_flight import InFlight
from circuitlab.engine.recording_context import RecordingContext
from circuitlab.engine.store import ModelStore
from circuitlab.errors import Cancelled
from circuitlab.report import picture as pictures
from circuitlab.report import render
from tests.models import TINY, directory

TEXT = "ab ab ab"


@pytest.fixture
def model(tmp_path: Any) -> api.Model:
    directory(tmp_path / "m", TINY)
    return api.open(str(tmp_path / "m"), use=Engine(ModelStore()))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Progress is shown from the first tick on, and at every one."""
    monkeypatch.setattr(module, "AFTER", -1.0)
    monkeypatch.setattr(module, "EVERY", -1.0)
    yield
    api.progress(True)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _interrupted_at(monkeypatch: pytest.MonkeyPatch, n: int, more: int = 0) -> None:
    """Ctrl+C at the n-th tick, and `more` of it behind that."""
    real, count = RecordingContext.tick, [0]

    def tick(self: RecordingContext, *args: Any) -> None:
        count[0] += 1
        if n <= count[0] <= n + more:
            signal.raise_signal(signal.SIGINT)
        real(self, *args)

    monkeypatch.setattr(RecordingContext, "tick", tick)


def test_an_interrupt_ends_the_work_and_the_engine_goes_on(model: api.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = model.compute("head_scores", fresh=True).fingerprint
    for n in (1, 2, 4):
        with monkeypatch.context() as patched:
            _interrupted_at(patched, n)
            with pytest.raises(KeyboardInterrupt):
                model.compute("head_scores", fresh=True)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        in_flight = vars(model.engine._in_flight)
        assert not in_flight["_holders"] and not in_flight["_paused_since"]
        assert model.compute("head_scores", fresh=True).fingerprint == wanted


def test_an_interrupt_never_falls_between_two_lines_of_the_engine(model: api.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the key of a computation is being taken or let go, an interrupt is remembered and nothing is left half done."""
    cache, done = type(model.engine.cache), list[bool]()
    real = cache.put

    def put(self: Any, *args: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        real(self, *args)
        done.append(True)

    with monkeypatch.context() as patched:
        patched.setattr(cache, "put", put)
        with pytest.raises(KeyboardInterrupt):
            model.compute("attention", text=TEXT)
    assert done, "what was being put away when it came has been put away"
    assert model.compute("attention", text=TEXT).complete


def test_an_interrupt_right_behind_the_taking_of_a_key_lets_it_go(model: api.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it may fall where the engine is used without `working`, and where a second one is raised at once."""
    real = InFlight._take

    def take(self: InFlight, *args: Any) -> None:
        real(self, *args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(InFlight, "_take", take)
        with pytest.raises(KeyboardInterrupt):
            model.compute("attention", text=TEXT)
    assert model.compute("attention", text=TEXT).complete


def test_an_interrupt_while_a_picture_is_drawn_comes_behind_it(model: api.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = model.figure("attention", text=TEXT)
    real = render.drawn

    def drawn(*args: Any) -> bytes:
        signal.raise_signal(signal.SIGINT)
        return real(*args)

    with monkeypatch.context() as patched:
        patched.setattr(pictures, "drawn", drawn)
        with pytest.raises(KeyboardInterrupt):
            picture.png()
    assert picture.png().startswith(b"\x89PNG")


def test_a_second_interrupt_is_raised_where_it_comes(model: api.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt), module.working("w"):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the second one waits")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_figures_and_sessions_are_interrupted_alike(model: api.Model, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model.figure("attention", text=TEXT, out=tmp_path / "a.png")
    session = api.session(tmp_path / "a.png", use=model.engine)
    calls = (
        lambda: model.figure("heads"),
        lambda: session.now.figure("heads"),
        lambda: session.now.compute("head_scores", set={"seed": 3}),
    )
    for i, call in enumerate(calls):
        model.engine.cache.clear()
        with monkeypatch.context() as patched:
            _interrupted_at(patched, 2)
            with pytest.raises(KeyboardInterrupt):
                call()
        assert call(), i


def test_what_is_cancelled_otherwise_stays_cancelled() -> None:
    with pytest.raises(Cancelled), module.working("w"):
        raise Cancelled("elsewhere")


def test_a_handler_of_somebody_else_stays_and_other_threads_have_none(model: api.Model) -> None:
    got: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: got.append(number))
    try:
        with module.working("w"):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert got == [signal.SIGINT]
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(model.compute("attention", text=TEXT)))
    thread.start()
    thread.join()
    assert len(answers) == 1


def test_a_terminal_sees_a_line_that_goes(
    model: api.Model, monkeypatch: pytest.MonkeyPatch, at_once: None, capsys: pytest.CaptureFixture[str]
) -> None:
    for with_tqdm in (True, False):
        shown = _Terminal()
        monkeypatch.setattr(sys, "stderr", shown)
        if not with_tqdm:
            monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
        model.compute("head_scores", set={"seed": 1 + with_tqdm})
        text = shown.getvalue()
        assert "head_scores" in text and ("%|" in text) == with_tqdm
        assert not text.replace("\x1b[K", "\r").split("\r")[-1].strip(), "the line is taken away"
    assert not capsys.readouterr().out


def test_a_notebook_without_tqdm_sees_a_line(model: api.Model, monkeypatch: pytest.MonkeyPatch, at_once: None) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object())))  # type: ignore[arg-type]
    model.compute("head_scores", set={"seed": 1})
    assert "head_scores" in shown.getvalue() and "\x1b" not in shown.getvalue()


def test_nothing_is_shown_to_a_file_nor_when_switched_off(
    model: api.Model, monkeypatch: pytest.MonkeyPatch, at_once: None
) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    model.compute("head_scores", set={"seed": 1})
    api.progress(False)
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    model.compute("head_scores", set={"seed": 2})
    assert not shown.getvalue() and not terminal.getvalue()


def test_short_work_shows_nothing(model: api.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AFTER", 3600.0)
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    model.compute("head_scores", set={"seed": 1})
    assert not terminal.getvalue()
