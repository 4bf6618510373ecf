"""A prepared talk on the stage: nothing is computed and nothing is asked, whatever has become of the models' files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from circuitlab.draw.view.places import Places
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.figures.contracts.panel import panels, view_types
from circuitlab.gui.presenter.options import TalkOptions
from circuitlab.gui.presenter.stage import Stage
from circuitlab.gui.sessions.file_work import FRONTS
from circuitlab.gui.shell.present import begin_when_free, window_of
from circuitlab.gui.shell.window import Window
from circuitlab.report.render import figure_of
from circuitlab.report.saved_session import opened_session
from circuitlab.session_files.assembly import FIRST
from circuitlab.session_files.results import file_bytes
from circuitlab.state.state import State
from circuitlab.story.resolver import Resolver
from tests import talks
from tests.figure_prints import figure_print
from tests.gui.driving import settle, shown_window
from tests.gui.test_sessions import models_dialog
from tests.talks import computed

Pictures = list[tuple[str, dict[str, str]]]


original, path = talks.original, talks.path  # the fixtures


def expected(path: Path) -> Pictures:
    """Title and figures of each step, computed by an engine of its own; a film's at its end."""
    engine = Engine(ModelStore())
    session = opened_session(path, engine).session
    resolver = Resolver(engine, view_types(), State(FIRST), None, session.refs(), tolerant=True)
    pictures: Pictures = []
    for i, step in enumerate(session.story.steps):
        setup = session.story.setup(i)
        state = resolver.state(setup)
        pictures.append((step.title, {name: figure_print(figure_of(engine, panels()[name], state)) for name in setup.show}))
    return pictures


@pytest.fixture
def told(qtbot: Any, path: Path) -> Iterator[Window]:
    with shown_window(qtbot, path.parents[1] / "mine") as window:
        with qtbot.waitSignal(window.sessions.opened):
            window.sessions.open(path)
        settle(qtbot, window)
        window.context.engine.cache.clear()  # a run that starts from a prefix of another differs in its last bits
        yield window


@contextmanager
def on_stage(window: Window) -> Iterator[Stage]:
    """The stage of the window's story, as far as it is prepared."""
    steps = window.preparing.readiness.steps
    ready = {i: step.ready for i, step in enumerate(steps) if step.ready is not None}
    stage = Stage(window.context.document.work.story, window.context, None, ready)
    stage.resize(960, 540)
    stage.show()
    try:
        yield stage
    finally:
        stage.end()
        stage.deleteLater()


def walked(qtbot: Any, stage: Stage) -> tuple[Pictures, list[str]]:
    """The pictures of the talk by the key of a clicker, and the titles of all jobs that were begun for it."""
    runner, jobs, pictures = stage.context.runner, list[str](), list[tuple[str, dict[str, str]]]()
    noted = lambda: jobs.extend(job.title for job in runner.jobs)
    runner.jobs_changed.connect(noted)
    stage.go(0)
    for i in range(stage.count):
        if i:
            QTest.keyClick(stage.windowHandle(), Qt.Key.Key_PageDown)
        qtbot.waitUntil(lambda: not stage.waiting and not stage.film.running)
        QApplication.processEvents()
        pictures.append((stage.page.title.text, {feed.panel.name: figure_print(feed.figure()) for feed in stage.views.feeds}))
    runner.jobs_changed.disconnect(noted)
    return pictures, jobs


@pytest.mark.parametrize("gone", [False, True])
def test_a_prepared_talk_computes_nothing(qtbot: Any, path: Path, told: Window, gone: bool) -> None:
    pictures = expected(path)
    told.preparing.prepare()
    qtbot.waitUntil(lambda: not told.preparing.busy)
    assert told.preparing.readiness.is_ready
    engine = told.context.engine
    engine.cache.clear()
    if gone:
        for name in ("mine", "other"):
            (path.parents[1] / name).rename(path.parents[2] / name)
    calls: list[Request] = []
    answer = Engine.answer
    frames: list[int | None] = []
    noted = mock.patch.object(Engine, "answer", lambda *words: calls.append(words[1]) or answer(*words))
    with computed() as requests, noted, on_stage(told) as stage:
        stage.context.document.changed.connect(lambda old, new: frames.append(new.model.checkpoint))
        shown, jobs = walked(qtbot, stage)
    assert shown == pictures
    assert requests == [] and calls == [] and jobs == []
    assert frames.count(1) == 1 and frames.count(2) == 1, "the film has passed its points"
    assert told.preparing.readiness.is_ready


def test_at_a_step_each_figure_is_laid_out_once(qtbot: Any, told: Window) -> None:
    """Page, words and figures change together: a layout in between would be of the last figure in the new room."""
    told.preparing.prepare()
    qtbot.waitUntil(lambda: not told.preparing.busy)
    with on_stage(told) as stage:
        walked(qtbot, stage)
        laid_out: list[Places] = []
        begin = Places.forget
        with mock.patch.object(Places, "forget", lambda places: laid_out.append(places) or begin(places)):
            for number in (0, 1):
                laid_out.clear()
                stage.go(number)
                qtbot.waitUntil(lambda: not stage.waiting)
                QApplication.processEvents()
                assert len(laid_out) == len(set(laid_out)) == len(stage.views.feeds), number


def test_the_numbers_of_a_step_are_there_with_its_picture(qtbot: Any, told: Window) -> None:
    told.preparing.prepare()
    qtbot.waitUntil(lambda: not told.preparing.busy)
    with on_stage(told) as stage:
        stage.go(1)
        assert not stage.waiting, "shown by the time that the key has been heard"
        assert stage.public_line().startswith("The loss is ") and float(stage.public_line().split()[-1].rstrip(".")) > 0


def test_unprepared_the_same_talk_computes(qtbot: Any, told: Window, path: Path) -> None:
    told.context.engine.cache.clear()
    with computed() as requests, on_stage(told) as stage:
        shown, jobs = walked(qtbot, stage)
        qtbot.waitUntil(lambda: not told.context.runner.busy)
    assert requests and jobs and shown == expected(path)


def test_with_results_inside_nothing_is_prepared(qtbot: Any, path: Path) -> None:
    pictures = expected(path)
    file = opened_session(path, Engine(ModelStore())).with_results(FRONTS)
    path.write_bytes(file_bytes(file.session, path.parent, file.results))
    for name in ("mine", "other"):
        (path.parents[1] / name).rename(path.parents[2] / name)
    with shown_window(qtbot, "builtin:attn-only-1l") as window:
        dialog = models_dialog(qtbot, window, path)
        with qtbot.waitSignal(window.sessions.opened):
            dialog.results.click()
        settle(qtbot, window)
        qtbot.waitUntil(lambda: not window.preparing.busy)
        frames: list[int | None] = []
        with computed() as requests, on_stage(window) as stage:
            stage.context.document.changed.connect(lambda old, new: frames.append(new.model.checkpoint))
            shown, jobs = walked(qtbot, stage)
        assert frames.count(1) == frames.count(2) == 1, "the film plays"
        assert [title for title, _ in shown] == [title for title, _ in pictures] and requests == [] and jobs == []
        assert all(set(figures) == set(others) for (_, figures), (_, others) in zip(shown, pictures, strict=True))


def test_results_inside_are_presented_at_once_where_the_models_are_gone(qtbot: Any, path: Path) -> None:
    file = opened_session(path, Engine(ModelStore())).with_results(FRONTS)
    path.write_bytes(file_bytes(file.session, path.parent, file.results))
    for name in ("mine", "other"):
        (path.parents[1] / name).rename(path.parents[2] / name)
    with computed() as requests:
        window = window_of(path, 1)
        try:
            window.show()
            begin_when_free(window, TalkOptions(windowed=True))
            qtbot.waitUntil(lambda: window.presenting.stage is not None and not window.presenting.stage.waiting)
            talk, stage = window.presenting.talk, window.presenting.stage
            assert talk is not None and stage is not None
            shown, jobs = walked(qtbot, stage)
            assert [len(figures) for _, figures in shown] == [3, 2, 1, 2, 1] and not jobs
            stage.go(0)
            qtbot.waitUntil(lambda: "All 5 views ready" in talk.view.ready.text())
            assert "mine" in talk.view.ready.text() and "not here" in talk.view.ready.text()
            context, (feed, *_) = stage.context, stage.views.feeds
            state = context.document.recorded
            context.apply(state.with_tokens(state.tokens[:4]), "shorter")
            qtbot.waitUntil(lambda: "not on this machine" in feed.figure().why_empty)
        finally:
            window.presenting.end()
            window.close()
            window.deleteLater()
    assert requests == []


def test_nothing_is_computed_ahead_while_presenting(qtbot: Any, told: Window) -> None:
    context = told.context
    qtbot.waitUntil(lambda: not context.runner.prefetch.busy and not told.ahead.timer.isActive())
    state = context.document.recorded
    near = [replace(request, subject=replace(request.subject, tokens=state.tokens[:3])) for request in _asked(told)]
    with computed() as requests, on_stage(told):
        context.runner.prefetch.queue(near)
        context.runner.prefetch.go_on()
        assert context.runner.prefetch._stop is None and requests == []
    with computed() as requests:
        context.runner.prefetch.queue(near)
        qtbot.waitUntil(lambda: not context.runner.prefetch.busy)
        assert requests, "afterwards it is"


def _asked(window: Window) -> list[Request]:
    """What a panel of the window asks for."""
    return list(window.docks["attention"].feed.exchange.requests["now"].values())  # type: ignore[attr-defined]
