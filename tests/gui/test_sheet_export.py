"""A sheet from the window: what the step shows, with caption and numbers, as a script writes it; dropped, it is on the screen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog

from circuitlab import api
from circuitlab.draw.look.paper import Paper
from circuitlab.gui.pictures.paper_dialog import PaperDialog
from circuitlab.gui.shell.window import Window
from circuitlab.report.saved_session import FILM_NOT_DRAWN, SavedStep, opened_session
from tests.gui.driving import command, dock, save, settle, shown_window
from tests.gui.test_commands import go
from tests.gui.test_pictures import dropped
from tests.gui.test_zoom import tell
from tests.gui.training import checkpoints
from tests.models import directory

SHOWN = ("predictions", "attention", "composition")  # not in the order in which they stand in the window


def exported(qtbot: Any, window: Window, path: Path, monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Written by menu, dialog and file dialog."""
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(path), ""))
    command(window, "export-sheet").trigger()
    qtbot.waitUntil(lambda: bool(window.findChildren(PaperDialog)))
    (dialog,) = window.findChildren(PaperDialog)
    assert all(
        f"{letter} {dock(window, name).panel.title}" in dialog.subject.text() for letter, name in zip("ABC", SHOWN, strict=True)
    )
    for name, value in fields.items():
        dialog.fields[name].setValue(value)
    qtbot.mouseClick(dialog.primary, Qt.MouseButton.LeftButton)
    settle(qtbot, window)


@pytest.fixture
def told(qtbot: Any, window: Window, tmp_path: Path) -> Window:
    """A window at a step of three panels, and its session beside."""
    tell(window, {"prompt": "ab cab ab", "heads": ("L1H2",), "cut": ("L0H1",), "show": SHOWN})
    (tmp_path / "kept").mkdir()
    save(qtbot, window, tmp_path / "kept" / "talk.circuitlab")
    window.lessons.begin_own(0)
    qtbot.waitUntil(lambda: window.lessons.tour.ready is not None)
    settle(qtbot, window)
    return window


def test_the_step_is_written_as_a_script_writes_it(
    qtbot: Any, told: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, before = tmp_path / "fig1.pdf", told.context.document.work
    exported(qtbot, told, path, monkeypatch, width_mm=150.0)
    assert told.context.document.work == before
    assert told.sheets.paper is not None and told.sheets.paper.width_mm == 150, "as it was chosen last"
    by_script = tmp_path / "script"
    by_script.mkdir()
    output = api.session(tmp_path / "kept" / "talk.circuitlab").steps[0].sheet(told.sheets.paper).save(by_script / "fig1.pdf")
    names = sorted(file.name for file in tmp_path.iterdir() if file.is_file())
    assert names == sorted(file.name for file in output.files) == ["fig1.pdf", "fig1.tex", "fig1.txt", "fig1.zip"]
    for file in output.files:
        if file.suffix != ".zip":  # how long it took is in there
            assert file.read_bytes() == (tmp_path / file.name).read_bytes(), file.name


@pytest.mark.parametrize("suffix", [".pdf", ".svg", ".png"])
def test_dropped_it_is_on_the_screen_with_all_its_panels(
    qtbot: Any, told: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    path = tmp_path / f"fig{suffix}"
    exported(qtbot, told, path, monkeypatch)
    state = told.context.document.recorded
    with shown_window(qtbot, directory(tmp_path / "other", n_ctx=40)) as second:
        before = second.context.document.work
        dropped(qtbot, second, path)
        assert {name for name in SHOWN if dock(second, name).shown} == set(SHOWN)
        recorded = second.context.document.recorded
        assert (recorded.selection, recorded.edits, recorded.tokens) == (state.selection, state.edits, state.tokens)
        titles = {name: dock(second, name).view.figure.title for name in SHOWN}
        assert titles == {name: dock(told, name).view.figure.title for name in SHOWN}
        go(second, "undo")
        assert second.context.document.work == before
    seen, step = opened_session(path, api.engine()).now, api.session(tmp_path / "kept" / "talk.circuitlab").steps[0]
    assert drawn(seen) == drawn(step)


def drawn(step: SavedStep) -> bytes:
    """The sheet of a step without its title, which is that of the story."""
    return re.sub(rb"<title>.*?</title>", b"", step.sheet(Paper(width_mm=174)).picture(".svg", False))


def test_a_file_of_another_kind_beside_it_is_not_overwritten(
    qtbot: Any, told: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fig1.txt").write_text("my own words")
    errors: list[BaseException] = []
    told.context.failed.disconnect()
    told.context.failed.connect(errors.append)
    exported(qtbot, told, tmp_path / "fig1.pdf", monkeypatch)
    assert "fig1.txt" in str(errors[0]) and (tmp_path / "fig1.txt").read_text() == "my own words"
    assert not (tmp_path / "fig1.pdf").exists()


def test_the_figure_of_a_step_that_plays_says_that_it_is_one_state_of_its_film(
    qtbot: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = directory(tmp_path / "played")
    checkpoints(folder, (0, 100, 200))
    with shown_window(qtbot, folder) as window:
        tell(window, {"prompt": "ab cab ab", "heads": ("L1H2",), "show": SHOWN, "play": (0, 200)})
        window.lessons.begin_own(0)
        qtbot.waitUntil(lambda: window.lessons.tour.ready is not None)
        settle(qtbot, window)
        exported(qtbot, window, tmp_path / "film.pdf", monkeypatch)
        assert FILM_NOT_DRAWN in (tmp_path / "film.txt").read_text(encoding="utf-8")
