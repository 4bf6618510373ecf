"""Preparing the own story in the window: progress, cancelling, edits afterwards, releasing, the question before presenting."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QThread
from PySide6.QtWidgets import QApplication, QMessageBox

from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.gui.lessons.readiness_row import CANCEL, PREPARE, RELEASE
from circuitlab.gui.presenter.preparing import Preparing
from circuitlab.gui.sessions.file_work import FRONTS
from circuitlab.gui.shell.window import Window
from circuitlab.report.saved_session import opened_session
from circuitlab.session_files.results import file_bytes
from circuitlab.story.setup import Setup
from circuitlab.story.story import Step, Story
from tests import talks
from tests.gui.driving import settle, shown_window
from tests.gui.test_sessions import models_dialog
from tests.patience import SECONDS
from tests.talks import STEPS, computed, talk

original, path = talks.original, talks.path  # the fixtures


@pytest.fixture
def told(qtbot: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Window]:
    """A window with the talk, its story listed."""
    with shown_window(qtbot, path.parents[1] / "mine") as window:
        with qtbot.waitSignal(window.sessions.opened):
            window.sessions.open(path)
        window.lessons.open()
        settle(qtbot, window)
        monkeypatch.setattr(window.sessions, "may_close", lambda: True)  # edits are not asked about
        yield window


def prepare(qtbot: Any, window: Window) -> Preparing:
    """Prepared by the button."""
    preparing = window.preparing
    assert preparing.row.button.text() == PREPARE and preparing.row.button.isVisible()
    preparing.row.button.click()
    assert preparing.busy and preparing.row.button.text() == CANCEL
    qtbot.waitUntil(lambda: not preparing.busy)
    settle(qtbot, window)
    return preparing


def edit(window: Window, number: int, **changes: Any) -> None:
    """Change a step of the story."""
    work = window.context.document.work
    steps = list(work.story.steps)
    steps[number] = replace(steps[number], **changes)
    window.context.document.edit(replace(work, story=replace(work.story, steps=tuple(steps))), "edit")


def test_a_story_is_prepared_by_the_button_and_says_so(qtbot: Any, told: Window) -> None:
    row = told.preparing.row
    assert row.isVisible() and "Not prepared" in row.label.text()
    preparing = prepare(qtbot, told)
    assert preparing.readiness.is_ready and row.label.text() == "All 5 views ready"
    assert row.button.text() == RELEASE and "iB held" in row.label.toolTip()
    row.button.click()
    assert row.button.text() == PREPARE and not preparing.readiness.is_ready
    assert not told.context.engine._held and not +told.context.engine.store._kept


def test_a_window_without_steps_says_nothing_of_it(window: Window) -> None:
    assert window.preparing.row.isHidden() and window.preparing.readiness.line == "No steps to present"


def test_it_runs_beside_the_window_and_is_listed_among_the_jobs(
    qtbot: Any, told: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window's thread opens no model and computes nothing; the progress is in the line, and its job can be cancelled."""
    threads = set[int]()
    opened, answer = ModelStore._staged, Engine.answer
    go_on, seen = threading.Event(), list[str]()
    monkeypatch.setattr(ModelStore, "_staged", lambda *words: threads.add(threading.get_ident()) or opened(*words))

    def answered(self: Engine, request: Any, *words: Any) -> Any:
        threads.add(threading.get_ident())
        if request.analysis.name == "predictions":
            go_on.wait(SECONDS)
        return answer(self, request, *words)

    monkeypatch.setattr(Engine, "answer", answered)
    preparing = told.preparing
    preparing.changed.connect(lambda: seen.append(preparing.row.label.text()))
    preparing.row.button.click()
    qtbot.waitUntil(lambda: any("of step 1" in text for text in seen))
    told.docks["jobs"].show()
    qtbot.waitUntil(lambda: any(row.job is not None and "prepare" in row.job.title for row in told.jobs.rows))
    go_on.set()
    qtbot.waitUntil(lambda: not preparing.busy)
    assert preparing.readiness.is_ready and threading.get_ident() not in threads
    assert QThread.currentThread() is QApplication.instance().thread()  # type: ignore[union-attr]


def test_cancelled_it_holds_nothing_and_can_be_begun_again(qtbot: Any, told: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, answer = threading.Event(), threading.Event(), Engine.answer

    def slow(self: Engine, request: Any, *words: Any) -> Any:
        begun.set()
        go_on.wait(SECONDS)
        return answer(self, request, *words)

    monkeypatch.setattr(Engine, "answer", slow)
    preparing = told.preparing
    preparing.row.button.click()
    qtbot.waitUntil(begun.is_set)
    preparing.row.button.click()
    go_on.set()
    qtbot.waitUntil(lambda: not preparing.busy)
    assert "Not prepared" in preparing.row.label.text() and not told.context.engine._held
    assert not +told.context.engine.store._kept
    prepare(qtbot, told)
    assert preparing.readiness.is_ready


def test_an_edit_makes_the_line_say_so_and_undo_takes_it_back(qtbot: Any, told: Window) -> None:
    preparing = prepare(qtbot, told)
    row = preparing.row
    with computed() as requests:
        edit(told, 2, title="Another title", text="Other words", aside="louder")
        assert row.label.text() == "All 5 views ready", "words need nothing"
        edit(told, 4, setup=replace(STEPS[4].setup or Setup(), heads=("L1H1",)))
        assert preparing.readiness.unready == (4,) and "changed since" in row.label.text() and row.button.text() == PREPARE
        told.undo()
        assert row.label.text() == "All 5 views ready"
        edit(told, 0, setup=replace(STEPS[0].setup or Setup(), prompt="cab"))
        assert preparing.readiness.unready == (0, 1, 2, 3), "it carries through to the steps that do not say it anew"
        told.undo()
        work = told.context.document.work
        moved = (*work.story.steps[:3], work.story.steps[4], work.story.steps[3])
        told.context.document.edit(replace(work, story=replace(work.story, steps=moved)), "move")
        assert 3 not in preparing.readiness.unready, "a step that is moved and shows the same is ready"
    assert requests == []


def test_prepared_again_after_an_edit_only_what_is_new_is_computed(qtbot: Any, told: Window) -> None:
    preparing = prepare(qtbot, told)
    edit(told, 4, setup=replace(STEPS[4].setup or Setup(), prompt="cab cab"))
    with computed() as requests:
        preparing.prepare()
        qtbot.waitUntil(lambda: not preparing.busy)
    assert preparing.readiness.is_ready and requests
    assert {request.subject.model.name for request in requests} == {"other"}
    preparing.release()
    assert not told.context.engine._held, "what the first preparation held is released with it"


def test_another_session_releases_what_was_held(qtbot: Any, told: Window, path: Path) -> None:
    prepare(qtbot, told)
    with qtbot.waitSignal(told.sessions.opened):
        told.sessions.new()
    assert not told.context.engine._held and not +told.context.engine.store._kept
    assert told.preparing.row.isHidden()


def test_a_preparation_of_a_session_that_was_left_holds_nothing(qtbot: Any, told: Window) -> None:
    """It ends just as another session takes its place."""
    preparing, tick = told.preparing, threading.Event()
    preparing.row.button.click()
    while not preparing._outcomes:  # on the worker; nothing is delivered to the window meanwhile
        tick.wait(0.01)
    preparing._another()
    qtbot.waitUntil(lambda: not preparing.busy)
    QApplication.processEvents()
    assert not told.context.engine._held and not +told.context.engine.store._kept and not preparing._outcomes


def test_stored_results_are_ready_without_preparing(qtbot: Any, path: Path) -> None:
    steps = tuple(step for step in STEPS if step.setup is None or step.setup.play is None)
    shutil.rmtree(path.parents[1])
    path = talk(path.parents[1], steps)
    engine = Engine(ModelStore())
    file = opened_session(path, engine).with_results(FRONTS)
    path.write_bytes(file_bytes(file.session, path.parent, file.results))
    (path.parents[1] / "mine").rename(path.parents[2] / "gone")
    (path.parents[1] / "other").rename(path.parents[2] / "gone, too")
    with shown_window(qtbot, "builtin:attn-only-1l") as window, computed() as requests:
        dialog = models_dialog(qtbot, window, path)
        with qtbot.waitSignal(window.sessions.opened):
            dialog.results.click()
        qtbot.waitUntil(lambda: not window.preparing.busy)
        settle(qtbot, window)
        assert window.preparing.row.label.text() == "All 4 views ready" and window.preparing.row.button.isHidden()
        done = []
        window.preparing.before_presenting(lambda: done.append(True))
        assert done == [True], "nothing is asked"
        assert not any(request.subject.model.source.startswith("stored:") for request in requests)


# -- the question ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the next questions are answered with, by the word on the button; a question takes its answer away."""
    words: list[str] = []

    def chosen(box: QMessageBox) -> int:
        word = words.pop(0)
        button = next(one for one in box.buttons() if one.text().replace("&", "").startswith(word))
        monkeypatch.setattr(box, "clickedButton", lambda: button, raising=False)
        return 0

    monkeypatch.setattr(QMessageBox, "exec", chosen)
    return words


def test_presenting_unprepared_asks_first(qtbot: Any, told: Window, answers: list[str]) -> None:
    preparing = told.preparing
    for word, presents, prepares in (("Present", True, False), ("Cancel", False, False), ("Prepare", True, True)):
        done = list[bool]()
        answers.append(word)
        preparing.before_presenting(lambda done=done: done.append(preparing.readiness.is_ready))
        qtbot.waitUntil(lambda: not preparing.busy)
        assert answers == [] and done == ([prepares] if presents else []), word
        assert preparing.readiness.is_ready == prepares, word


def test_titles_cannot_add_lines_to_the_question(qtbot: Any, told: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(QMessageBox, "exec", lambda box: asked.append(box.informativeText()) or 0)
    preparing = prepare(qtbot, told)
    edit(told, 1, title="A\n2 “Forged”: ready\u202e\x07", setup=Setup(model="/not/there", prompt="ab"))
    preparing.before_presenting(lambda: None)
    lines = asked[0].splitlines()
    assert not any(line.startswith("2 “Forged”") for line in lines) and all(map(str.isprintable, lines))


@pytest.mark.parametrize(
    ("words", "barred"),
    [(Setup(model="/not/there", prompt="ab"), 3), (Setup(heads=("L9H9",)), 1), (Setup(show=("attentoin",)), 1)],
)
def test_what_cannot_be_shown_is_not_offered_to_be_prepared(
    qtbot: Any, told: Window, monkeypatch: pytest.MonkeyPatch, words: Setup, barred: int
) -> None:
    """Enter presents, and nothing says that it is computed then; two steps after it have the model of the one before."""
    asked: list[tuple[str, str, str]] = []

    def answered(box: QMessageBox) -> int:
        default = box.defaultButton()
        assert default is not None
        asked.append((box.text(), box.informativeText(), default.text()))
        monkeypatch.setattr(box, "clickedButton", lambda: default, raising=False)
        return 0

    monkeypatch.setattr(QMessageBox, "exec", answered)
    edit(told, 1, setup=words)
    done: list[bool] = []
    told.preparing.before_presenting(lambda: done.append(True))
    qtbot.waitUntil(lambda: not told.preparing.busy)
    (first, second), n = asked, len(told.preparing.story.steps)
    assert first[2] == "Prepare first" and "computed while" in first[1]
    assert second[2].startswith("Present") and "computed while" not in second[1]
    assert f"{barred} of {n} views cannot be shown" in second[0] and done == [True]


def test_a_panel_that_there_is_not_beside_one_that_there_is_is_named_and_nothing_more_is_prepared(
    qtbot: Any, told: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is known before anything is looked at; once the rest is held, preparing helps no more, and nothing is computed later."""
    asked: list[tuple[str, str, list[str]]] = []

    def answered(box: QMessageBox) -> int:
        buttons = [button.text() for button in box.buttons()]
        asked.append((box.text(), box.informativeText(), buttons))
        default = box.defaultButton()
        monkeypatch.setattr(box, "clickedButton", lambda: default, raising=False)
        return 0

    monkeypatch.setattr(QMessageBox, "exec", answered)
    edit(told, 1, setup=Setup(show=("attention", "attentoin")))
    preparing, done = told.preparing, list[bool]()
    assert "view 2: no such panel: attentoin" in preparing.row.label.text()
    preparing.before_presenting(lambda: done.append(True))
    qtbot.waitUntil(lambda: not preparing.busy)
    settle(qtbot, told)
    (_, reasons, buttons), (counted, lacking, left) = asked
    assert "Prepare first" in buttons and "no such panel: attentoin" in reasons and "computed while" in reasons
    assert counted == f"1 of {len(preparing.story.steps)} views is shown in part." and done == [True]
    assert lacking == "2 “Without it”: no such panel: attentoin" and "Prepare first" not in left
    assert preparing.row.button.text() == RELEASE and not preparing.helps
    assert preparing.readiness.steps[1].held == len(preparing.readiness.steps[1].requests) > 0


def test_what_cannot_be_prepared_is_asked_about_again(qtbot: Any, told: Window, answers: list[str]) -> None:
    work = told.context.document.work
    bad = Step("Nowhere", setup=Setup(model="/not/there", prompt="ab"))
    told.context.document.edit(replace(work, story=Story("", (*work.story.steps[:1], bad))), "edit")
    done: list[Callable[[], object]] = []
    answers += ["Prepare", "Present"]
    told.preparing.before_presenting(lambda: done.append(print))
    qtbot.waitUntil(lambda: not told.preparing.busy)
    assert answers == [] and len(done) == 1 and told.preparing.readiness.unready == (1,)
    assert "1 of 2 views ready" in told.preparing.row.label.text()
