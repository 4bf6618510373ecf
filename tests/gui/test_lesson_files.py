"""The story of a window exported as a lesson and imported again: the same story, one step of undo, nothing lost on failure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QFileDialog

from circuitlab.errors import BadInput
from circuitlab.figures.panels.term_importance import TermImportanceView
from circuitlab.gui.shell.errors import ErrorDialog
from circuitlab.gui.shell.window import Window
from circuitlab.lessons.lesson import read
from circuitlab.session_files.session import ModelEntry, Note
from circuitlab.story.setup import Setup
from circuitlab.story.story import Step, Story
from tests.gui.driving import command, go, settle


def choose(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Answer the file dialogs that come with this path."""
    for name in ("getSaveFileName", "getOpenFileName"):
        monkeypatch.setattr(QFileDialog, name, lambda *args: (str(path), ""))


def is_enabled(window: Window, name: str) -> bool:
    action = command(window, name)
    action.refresh()
    return action.isEnabled()


def with_story(window: Window) -> Story:
    """A story of two steps with the model of the window."""
    document = window.context.document
    steps = (Step("One", "Look.\n\n## Here", Setup(model="mine", heads=("L1H2",)), aside="smile"), Step("Two"))
    models = {"mine": ModelEntry(replace(document.recorded.model, checkpoint=None))}
    document.edit(replace(document.work, story=Story("Talk", steps), models=models), "tell")
    return document.work.story


def test_a_story_is_exported_and_imported_again_as_one_step_of_undo(
    qtbot: Any, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document, context = window.context.document, window.context
    assert not is_enabled(window, "export-lesson") and is_enabled(window, "import-lesson")
    story = with_story(window)
    assert is_enabled(window, "export-lesson")
    document.edit(replace(document.work, notes=(Note("it looks back", "mine", head="L0H0"),)), "note")
    choose(monkeypatch, tmp_path / "talks" / "talk")
    (tmp_path / "talks").mkdir()
    with qtbot.waitSignal(context.message) as exported:
        go(window, "export-lesson")
    lesson = read(tmp_path / "talks" / "talk.md")
    assert exported.args[0].startswith(f"Exported: {lesson.path}. ") and "../" in exported.args[0], "which model must go with it"
    assert "1 note" in exported.args[0], "it stays in the session"
    assert lesson.setup(0).model == document.recorded.model.source

    choose(monkeypatch, lesson.path)
    document.edit(replace(document.work, story=Story("Another", (Step("Three"),))), "tell another")
    before = document.work
    with qtbot.waitSignal(context.message) as imported:
        go(window, "import-lesson")
    assert "Talk, 2 steps" in imported.args[0]
    assert document.work == replace(before, story=story), "by the table's own names; the bench stays"
    window.undo()
    assert document.work == before
    window.redo()
    assert document.work.story == story


def test_what_cannot_be_exported_or_imported_changes_nothing(
    qtbot: Any, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document, context = window.context.document, window.context
    monkeypatch.setattr(ErrorDialog, "open", lambda dialog: dialog.done(0))
    with_story(window)
    choose(monkeypatch, tmp_path / "talk.md")
    with qtbot.waitSignal(context.message):
        go(window, "export-lesson")
    written = (tmp_path / "talk.md").read_bytes()
    document.edit(replace(document.work, story=Story("Talk", (Step("One", unknown={"of tomorrow": 1}),))), "tell")
    with qtbot.waitSignal(context.failed) as failed:
        go(window, "export-lesson")
    assert isinstance(failed.args[0], BadInput) and "Step 1, ‘One’" in failed.args[0].what
    assert "exported" in failed.args[0].title
    assert (tmp_path / "talk.md").read_bytes() == written
    before = document.work
    for text in ("no front matter", '+++\ntitle = "T"\n+++\n## S\n```circuitlab\nmodel = "\\u0000"\n```\n'):
        (tmp_path / "talk.md").write_text(text, encoding="utf-8")
        with qtbot.waitSignal(context.failed) as failed:
            go(window, "import-lesson")
        assert document.work is before and "imported" in failed.args[0].title
    choose(monkeypatch, Path(""))
    go(window, "import-lesson")
    assert document.work is before


def test_a_lesson_names_files_of_settings_from_its_own_folder(
    qtbot: Any, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path.resolve()
    for name in ("talks", "elsewhere"):
        (folder / name).mkdir()
    block = '[view.term_importance]\non = "file"\nfile = "../texts.txt"'
    (folder / "talks" / "talk.md").write_text(f'+++\ntitle = "T"\n+++\n## One\n\n```circuitlab\n{block}\n```\n')
    (folder / "texts.txt").write_text("one two")
    (tmp_path / "link.md").symlink_to(folder / "talks" / "talk.md")
    monkeypatch.chdir(folder / "elsewhere")
    for path in (folder / "talks" / "talk.md", tmp_path / "link.md"):
        window.lessons.begin(read(path))
        settle(qtbot, window)
        view: TermImportanceView = window.context.document.recorded.view("term_importance", TermImportanceView)
        assert view == TermImportanceView(on="file", file=str(folder / "texts.txt"))
        window.lessons.tour.leave()
    settle(qtbot, window)
