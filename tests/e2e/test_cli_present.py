"""`circuitlab present`: what it refuses before a window is there, and a talk on a real X server with two screens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from circuitlab import launch
from circuitlab.cli.parser import main
from circuitlab.errors import BadInput, UsageError
from circuitlab.gui.presenter.options import TalkOptions, remember
from circuitlab.gui.presenter.screens import attached
from circuitlab.gui.shell.present import begin_when_free, options_of, window_of
from circuitlab.model.subject import ModelRef
from circuitlab.session_files.session import ModelEntry, Session
from circuitlab.session_files.session_lock import session_lock
from circuitlab.session_files.session_text import bytes_of
from circuitlab.story.setup import Setup
from circuitlab.story.story import Step, Story
from tests.models import directory


def session(folder: Path, *steps: Step) -> Path:
    model, path = directory(folder / "mine"), folder / "talk.circuitlab"
    now = Setup(model="mine", prompt="ab cab", heads=("L1H1",), show=("attention",))
    path.write_bytes(bytes_of(Session({"mine": ModelEntry(ModelRef(f"file:{model}"))}, now, Story("A talk", steps)), folder))
    return path


def test_the_options_reach_the_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(launch, "present", lambda *arguments: asked.append(arguments) or 0)
    path = tmp_path / "talk.circuitlab"
    assert main(["present", str(path)]) == 0
    assert main(["present", str(path), "--screen", "2", "--windowed", "--from", "3", "--dark", "--minutes", "12"]) == 0
    assert asked == [(path, None, False, 1, False, None), (path, 2, True, 3, True, 12)]


@pytest.mark.parametrize("name", ["talk.md", "talk.png", "models"])
def test_only_a_session_is_presented(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["present", str(tmp_path / name)]) == 2
    assert name in capsys.readouterr().err


def test_without_a_display_there_is_no_talk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["present", str(tmp_path / "talk.circuitlab")]) == 3
    assert "display" in capsys.readouterr().err


def test_a_screen_that_there_is_not_is_refused_with_those_there_are(qapp: Any) -> None:
    (only,) = attached()
    with pytest.raises(UsageError) as error:
        options_of(2, False, 1, False, None)
    assert only.name in error.value.expected
    assert options_of(1, False, 3, True, 5) == TalkOptions(only.name, False, 2, True, 5)
    for minutes in (-1, 100_000):
        with pytest.raises(UsageError):
            options_of(None, False, 1, False, minutes)


def test_what_is_left_out_is_as_it_was_last_time(qapp: Any) -> None:
    remember(TalkOptions("beamer", False, 0, True, 35))
    assert options_of(None, False, 1, False, None) == TalkOptions("beamer", False, 0, False, 35)


def test_a_story_without_that_step_is_refused(qapp: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput):
        window_of(session(tmp_path / "empty"), 1)
    path = session(tmp_path, Step("One", setup=Setup(show=("attention",))), Step("Two"))
    for number in (0, 3):
        with pytest.raises(UsageError) as error:
            window_of(path, number)
        assert "2" in error.value.expected


def test_a_file_that_another_window_has_open_is_presented_read_only(qtbot: Any, tmp_path: Path) -> None:
    path = session(tmp_path, Step("One", setup=Setup(show=("attention",))))
    before, lock = path.read_bytes(), session_lock(path)
    assert lock.take() is None  # by that window
    window = window_of(path, 1)
    try:
        assert window.sessions.path == path and window.sessions.read_only
        window.show()
        begin_when_free(window, TalkOptions(windowed=True))
        qtbot.waitUntil(lambda: window.presenting.stage is not None and not window.presenting.stage.waiting)
        window.presenting.end()
        window.presenting.from_start()  # by the menu
        assert window.presenting.stage is not None
        window.presenting.end()
    finally:
        window.close()
        window.deleteLater()
    holder = session_lock(path).take()
    assert holder is not None, "the other window still has it"
    assert path.read_bytes() == before
    lock.release(remove=True)


def test_a_question_about_a_newer_copy_is_answered_before_the_talk(
    qtbot: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = window_of(session(tmp_path, Step("One", setup=Setup(show=("attention",)))), 1)
    begun: list[TalkOptions] = []
    monkeypatch.setattr(window.presenting, "present_prepared", begun.append)
    dialog: Any = object()
    window.recovering.dialog = dialog
    options = TalkOptions(minutes=3)
    with qtbot.waitSignal(begin_when_free(window, options).timeout):
        pass
    qtbot.waitUntil(lambda: not window.context.runner.busy)
    assert not begun
    window.recovering.dialog = None
    qtbot.waitUntil(lambda: bool(begun))
    assert begun == [options]
    window.close()
    window.deleteLater()
