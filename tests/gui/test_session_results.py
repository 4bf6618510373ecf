"""A session is saved with results and opened where its model is not: the same pictures, marked, and the rest says why not."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PySide6.QtWidgets import QFileDialog, QMessageBox

from circuitlab.draw.export.pictures import export
from circuitlab.draw.look.paper import Paper
from circuitlab.engine.engine import Engine
from circuitlab.figures.marks import Tokens
from circuitlab.gui.panel.panel_dock import PanelDock
from circuitlab.gui.sessions.controller import FILTER, FILTER_WITH
from circuitlab.gui.shell.window import Window
from circuitlab.model.subject import Head
from circuitlab.session_files.container import MAGIC
from circuitlab.session_files.results import Results, read_file, read_results
from circuitlab.session_files.session_text import bytes_of
from circuitlab.story.setup import Setup
from circuitlab.story.story import Step, Story
from tests.figure_prints import figure_print
from tests.gui.driving import dock, settle, shown_window
from tests.gui.test_commands import go
from tests.gui.test_lessons import settle as settle_lesson
from tests.gui.test_sessions import Answer, answer, models_dialog, open_session, save, work_on
from tests.models import directory

__all__ = ["answer"]
BUTTONS = QMessageBox.StandardButton


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What the next save dialogs answer, in turn: path and kind of file."""
    answers: list[tuple[str, str]] = []
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: answers.pop(0))
    return answers


def session_path(folder: Path) -> Path:
    """Where a session lies without a model below it."""
    (folder / "talk").mkdir()
    return folder / "talk" / "talk.circuitlab"


def shown(window: Window) -> list[PanelDock]:
    """The panels on the screen."""
    return [place for place in window.docks.values() if isinstance(place, PanelDock) and place.shown]


def figures(window: Window) -> dict[str, str]:
    return {place.panel.name: figure_print(place.feed.figure()) for place in shown(window)}


def pictures(window: Window, folder: Path) -> dict[str, bytes]:
    """The panels on the screen as they are exported, without their captions."""
    folder.mkdir(exist_ok=True)
    data = {}
    for place in shown(window):
        if place.view.figure.grid:
            export(replace(place.feed.figure(), caption_parts=()), folder / "a.png", Paper())
            data[place.panel.name] = (folder / "a.png").read_bytes()
    return data


def saved(qtbot: Any, window: Window, path: Path, asked: list[tuple[str, str]]) -> Results:
    """The results in the file of the present session, saved by the command."""
    asked.append((str(path), FILTER_WITH))
    with qtbot.waitSignal(window.sessions.saves.written):
        go(window, "save-session-results")
    settle(qtbot, window)
    results = read_results(path)
    assert results is not None
    return results


def with_results_only(qtbot: Any, window: Window, path: Path) -> None:
    dialog = models_dialog(qtbot, window, path)
    assert dialog.results.isVisible() and dialog.results.isEnabled() and dialog.results.isDefault()
    with qtbot.waitSignal(window.sessions.opened):
        dialog.results.click()
    settle(qtbot, window)


def test_a_session_opens_without_its_model_as_it_was(
    qtbot: Any, window: Window, tmp_path: Path, asked: list[tuple[str, str]]
) -> None:
    work_on(window)
    window.context.apply(replace(window.context.document.recorded, compare="difference"), "compare")
    window.lessons.own_steps.keep_view()
    qtbot.waitUntil(lambda: bool(window.context.document.work.story.steps))
    settle(qtbot, window)
    path = session_path(tmp_path)
    results = saved(qtbot, window, path, asked)
    assert path.read_bytes()[:4] == MAGIC and not any(place.lacking for place in results.places)
    assert window.sessions.path == path and not window.isWindowModified() and len(results.places) == 2
    live, drawn = figures(window), pictures(window, tmp_path / "live")
    assert len(drawn) >= 4
    window.sessions.hold.release()
    (tmp_path / "model").rename(tmp_path / "gone")
    recorded = window.context.document.recorded
    (tmp_path / "elsewhere").mkdir()
    path = path.rename(tmp_path / "elsewhere" / "talk.circuitlab")
    with shown_window(qtbot, directory(tmp_path / "other", n_ctx=40)) as second:
        with_results_only(qtbot, second, path)
        state = second.context.document.recorded
        assert state.model.source.startswith("stored:") and state.tokens == recorded.tokens
        assert second.windowTitle() == f"talk[*] · {recorded.model.name} · CircuitLab" and not second.isWindowModified()
        assert figures(second) == live
        assert pictures(second, tmp_path / "second") == drawn
        assert all(any("stored" in part for part in place.feed.figure().caption_parts) for place in shown(second))
        losses = second.prompt.losses.view.figure
        (strip,) = losses.marks()
        assert isinstance(strip, Tokens) and np.isfinite(strip.values).any()
        assert any("stored" in part for part in losses.caption_parts)


def test_what_was_seen_of_a_stored_figure_is_seen_and_no_film_plays(
    qtbot: Any, window: Window, tmp_path: Path, asked: list[tuple[str, str]]
) -> None:
    part = (2.0, 3.0, 12.0, 14.0)
    window.layout_of_docks.zooms.show({"attention/attention": part})
    story = Story("", (Step("a film", "words", Setup(play=(0, "final"), zoom={"attention/attention": (1.0, 1.0, 9.0, 9.0)})),))
    window.context.document.edit(replace(window.context.document.work, story=story), "tell")
    path = session_path(tmp_path)
    saved(qtbot, window, path, asked)
    assert "film of step 1 not stored" in window.status.readout.text()
    window.sessions.hold.release()
    (tmp_path / "model").rename(tmp_path / "gone")
    with shown_window(qtbot, directory(tmp_path / "other", n_ctx=40)) as second:
        with_results_only(qtbot, second, path)
        view = dock(second, "attention").view
        assert view.visible_parts() == {"attention": part} and "part:" in view.whole_caption
        second.lessons.begin_own(0)
        settle_lesson(qtbot, second)
        page = second.lessons.page
        assert "not on this machine" in page.warning.text() and not page.play.isEnabled()
        bar = second.checkpoints
        assert not bar.plays and not bar.play_button.isEnabled() and "weights" in bar.play_button.toolTip()
        assert view.visible_parts() == {"attention": (1.0, 1.0, 9.0, 9.0)}, "the rest of the step is shown"
        second.lessons.tour.leave()
        settle_lesson(qtbot, second)
        assert view.visible_parts() == {"attention": part}
    settle(qtbot, window)


def test_what_is_not_stored_says_why_and_nothing_breaks(
    qtbot: Any, window: Window, tmp_path: Path, asked: list[tuple[str, str]], answer: Answer
) -> None:
    work_on(window)
    path = session_path(tmp_path)
    saved(qtbot, window, path, asked)
    window.sessions.hold.release()
    (tmp_path / "model").rename(tmp_path / "gone")
    with shown_window(qtbot, directory(tmp_path / "other", n_ctx=40)) as second:
        with_results_only(qtbot, second, path)
        before = figures(second)
        context = second.context
        context.apply(context.document.recorded.with_heads(Head(0, 3)), "select")
        settle(qtbot, second)
        attention = dock(second, "attention").feed.figure()
        assert not attention.grid and "not on this machine" in attention.why_empty
        for name in ("Weights", "Cut", "Training", "Why this token", "Induction", "Laboratory"):
            second.layout_of_docks.arrange(name)
            settle(qtbot, second)
        second.prompt.editor.setPlainText("cab")
        second.prompt.commit()
        settle(qtbot, second)
        assert not dock(second, "attention").feed.figure().grid
        losses = second.prompt.losses.view.figure
        assert all(isinstance(strip, Tokens) and np.isnan(strip.values).all() for strip in losses.marks())
        assert not any("stored" in part or part.startswith("colour") for part in losses.caption_parts), "nothing is coloured"
        second.layout_of_docks.arrange("Explore")
        go(second, "undo")
        go(second, "undo")
        settle(qtbot, second)
        assert {name: figures(second)[name] for name in ("attention", "predictions")} == {
            name: before[name] for name in ("attention", "predictions")
        }
        go(second, "save-session")
        qtbot.waitUntil(lambda: not second.sessions.saves.busy)
        again = read_results(path)
        assert again is not None and {key: again.data(key) for key in again.entries}
        table = json.loads(path_text(path))
        assert [model["path"] for model in table["models"].values()] == ["../model"], "the file says where the model was"
        answer(BUTTONS.Discard)
        with qtbot.waitSignal(second.sessions.opened):
            second.open_model(str(tmp_path / "other"))
            qtbot.waitUntil(lambda: second.context.document.recorded.model.name == "other")
            go(second, "new-session")
        settle(qtbot, second)
        assert not second.context.engine.store.ghosts


def path_text(path: Path) -> bytes:
    """The text of a session's file."""
    return bytes_of(read_file(path).session, path.parent)


def computing(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Results are computed until that is cancelled; set once it has begun."""
    begun, answer_of = threading.Event(), Engine.answer

    def endless(engine: Engine, request: Any, ctx: Any = None, fresh: bool = False) -> Any:
        answered = answer_of(engine, request, ctx, fresh)
        if threading.current_thread().name.startswith("circuitlab-slow"):
            begun.set()
            while ctx is not None:
                ctx.tick(0, 1)
        return answered

    monkeypatch.setattr(Engine, "answer", endless)
    return begun


def test_a_session_that_is_left_is_not_saved_any_more(
    qtbot: Any, window: Window, tmp_path: Path, asked: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, begun = session_path(tmp_path), computing(monkeypatch)
    asked.append((str(path), FILTER_WITH))
    go(window, "save-session-results")
    qtbot.waitUntil(begun.is_set)
    with qtbot.waitSignal(window.sessions.opened):
        go(window, "new-session")
    qtbot.waitUntil(lambda: not window.context.runner.busy)
    settle(qtbot, window)
    assert not path.exists() and window.sessions.path is None


def test_a_stand_in_has_no_results_in_the_session(
    qtbot: Any, window: Window, tmp_path: Path, asked: list[tuple[str, str]]
) -> None:
    path = session_path(tmp_path)
    save(qtbot, window, path)
    window.sessions.hold.release()
    (tmp_path / "model").rename(tmp_path / "gone")
    directory(tmp_path / "model", d_model=32)
    with shown_window(qtbot, directory(tmp_path / "other", n_ctx=40)) as second:
        dialog = models_dialog(qtbot, second, path)
        with qtbot.waitSignal(second.sessions.opened):
            dialog.use.click()
        settle(qtbot, second)
        results = saved(qtbot, second, path, asked)
        assert not results.entries and "not of the session" in results.places[0].lacking[0]


def test_cancelling_leaves_the_file_as_it_was(
    qtbot: Any, window: Window, tmp_path: Path, asked: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = session_path(tmp_path)
    save(qtbot, window, path)
    before = path.read_bytes()
    begun = computing(monkeypatch)
    asked.append((str(path), FILTER_WITH))
    go(window, "save-session-results")
    qtbot.waitUntil(begun.is_set)
    assert path.read_bytes() == before
    with qtbot.waitSignal(window.context.message, check_params_cb=lambda text: "not saved" in text):
        go(window, "cancel")
    settle(qtbot, window)
    assert path.read_bytes() == before and not list(path.parent.glob(".*.new"))
    assert window.sessions.path == path and window.sessions.results.of_file is None


def test_a_file_keeps_its_results_until_it_is_saved_without(
    qtbot: Any, window: Window, tmp_path: Path, asked: list[tuple[str, str]]
) -> None:
    path, other = session_path(tmp_path), tmp_path / "other.circuitlab"
    first = saved(qtbot, window, path, asked)
    window.context.apply(window.context.document.recorded.with_heads(Head(1, 2)), "select")
    settle(qtbot, window)
    go(window, "save-session")
    qtbot.waitUntil(lambda: not window.sessions.saves.busy)
    second = read_results(path)
    assert second is not None and set(second.entries) != set(first.entries) and not second.places[0].lacking
    open_session(qtbot, window, path)
    go(window, "save-session")
    qtbot.waitUntil(lambda: not window.sessions.saves.busy)
    third = read_results(path)
    assert third is not None and set(third.entries) == set(second.entries)
    asked.append((str(other), FILTER))
    with qtbot.waitSignal(window.sessions.saves.written):
        go(window, "save-session-as")
    assert json.loads(other.read_text("utf-8"))["now"] and window.sessions.results.of_file is None
    settle(qtbot, window)


def test_the_file_has_what_the_panels_on_the_screen_ask_for(
    qtbot: Any, window: Window, tmp_path: Path, asked: list[tuple[str, str]]
) -> None:
    work_on(window)
    window.context.apply(replace(window.context.document.recorded, compare="difference"), "compare")
    settle(qtbot, window)
    results = saved(qtbot, window, session_path(tmp_path), asked)
    stored = {entry.analysis for entry in results.entries.values()}
    requests = [r for place in shown(window) for side in place.feed.exchange.requests.values() for r in side.values()]
    assert len(requests) > 5 and {request.analysis.name for request in requests} <= stored


def test_a_model_of_other_weights_is_passed_over_for_the_results(
    qtbot: Any, window: Window, tmp_path: Path, asked: list[tuple[str, str]]
) -> None:
    path = session_path(tmp_path)
    saved(qtbot, window, path, asked)
    live = figures(window)
    window.sessions.hold.release()
    (tmp_path / "model").rename(tmp_path / "gone")
    directory(tmp_path / "model", d_model=32)
    with shown_window(qtbot, directory(tmp_path / "other", n_ctx=40)) as second:
        dialog = models_dialog(qtbot, second, path)
        ((line, _),) = dialog.rows.values()
        assert "other weights" in line.text() and "results" in line.text() and dialog.use.isEnabled()
        with qtbot.waitSignal(second.sessions.opened):
            dialog.results.click()
        settle(qtbot, second)
        assert figures(second) == live
        parts = dock(second, "attention").feed.figure().caption_parts
        assert not any(part.startswith("not the model") for part in parts) and any("stored" in part for part in parts)


def test_a_session_without_results_does_not_offer_them(qtbot: Any, window: Window, tmp_path: Path) -> None:
    path = session_path(tmp_path)
    save(qtbot, window, path)
    window.sessions.hold.release()
    (tmp_path / "model").rename(tmp_path / "gone")
    with shown_window(qtbot, directory(tmp_path / "other", n_ctx=40)) as second:
        dialog = models_dialog(qtbot, second, path)
        assert not dialog.results.isVisible() and not dialog.use.isEnabled()
        dialog.cancel.click()
