"""Exporting a picture asks what it is to be on paper, refuses what no paper is, and remembers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog

from circuitlab.draw.look.paper import Paper
from circuitlab.gui.panel.paper_dialog import PaperDialog, load_paper, save_paper
from circuitlab.gui.shell.window import Window
from circuitlab.gui.work.settings import settings_file
from tests.gui.driving import dock


@pytest.fixture
def asked(qtbot: Any) -> PaperDialog:
    made = PaperDialog(Paper())
    qtbot.addWidget(made)
    return made


def test_a_panel_is_exported_as_the_dialog_says(
    qtbot: Any, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.svg"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(path), ""))
    dock(window, "attention").actions_menu.export_picture()
    (dialog,) = window.findChildren(PaperDialog)
    dialog.preset.setCurrentIndex(2)
    dialog.preset.activated.emit(2)
    dialog.fields["text"].setCurrentIndex(1)
    dialog.fields["ink"].setCurrentIndex(1)
    qtbot.mouseClick(dialog.primary, Qt.MouseButton.LeftButton)
    said = path.read_text(encoding="utf-8")
    assert 'width="174mm"' in said
    assert "@font-face" in said
    assert all(len(set(parts)) == 1 for parts in re.findall(r'fill="#(..)(..)(..)"', said))


def test_the_dialog_names_what_it_writes_and_refuses_what_cannot_be_read(
    qtbot: Any, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: ("", ""))
    dock(window, "attention").actions_menu.export_picture()
    (dialog,) = window.findChildren(PaperDialog)
    head = str(window.context.document.state.selection.heads[0])
    assert dialog.subject.isVisible()
    assert all(word in dialog.subject.text() for word in ("Attention", head, window.context.facts().name))
    dialog.fields["width_mm"].setValue(20)
    qtbot.mouseClick(dialog.primary, Qt.MouseButton.LeftButton)
    assert dialog.isVisible() and dialog.problem.isVisible()
    least = int(re.search(r"at least (\d+) mm", dialog.problem.text())[1])  # type: ignore[index]
    dialog.fields["width_mm"].setValue(least)
    qtbot.mouseClick(dialog.primary, Qt.MouseButton.LeftButton)
    assert not dialog.isVisible()


def test_a_width_has_its_name_and_defaults_come_back(asked: PaperDialog) -> None:
    one_column = asked.preset.currentIndex()
    asked.fields["width_mm"].setValue(120)
    wider = asked.preset.currentIndex()
    assert wider != one_column
    asked.fields["width_mm"].setValue(121)
    assert asked.preset.currentIndex() not in (one_column, wider)
    asked.restore()
    asked.accept()
    assert asked.paper == Paper()


def test_what_no_paper_is_stays_in_the_dialog(asked: PaperDialog) -> None:
    asked.show()
    asked.fields["height_mm"].setValue(7)
    asked.accept()
    assert asked.isVisible()
    assert "20 to 1200 mm" in asked.problem.text()
    asked.fields["height_mm"].setValue(70)
    asked.accept()
    assert not asked.isVisible()
    assert asked.paper == Paper(height_mm=70)


def test_the_last_paper_is_remembered_and_a_damaged_one_forgotten() -> None:
    assert load_paper(True) == Paper()
    chosen = Paper(width_mm=174, height_mm=80, font_pt=9, caption="none", ink="grey", text="outlines", dpi=600)
    save_paper(chosen)
    assert load_paper(True) == chosen
    assert load_paper(False) == Paper()
    save_paper(Paper())
    assert load_paper(True) == Paper()
    for name, value in (("width_mm", "-5"), ("dpi", "many"), ("ink", "blue")):
        save_paper(chosen)
        settings_file().setValue(f"paper/{name}", value)
        assert load_paper(True) == Paper()
