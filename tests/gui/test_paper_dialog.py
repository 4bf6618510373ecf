"""Exporting a picture asks what it is to be on paper, refuses what no paper is, and remembers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QFileDialog

from circuitlab.draw.look.paper import Paper
from circuitlab.gui.pictures.paper_dialog import PaperDialog, load_paper, save_paper
from circuitlab.gui.shell.window import Window
from circuitlab.gui.work.settings import settings_file
from tests.gui.driving import dock, save


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
    qtbot.waitUntil(path.exists)
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


def test_the_page_is_drawn_as_it_will_be_written_and_follows_the_fields(
    qtbot: Any, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.png"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(path), ""))
    dock(window, "attention").actions_menu.export_picture()
    (dialog,) = window.findChildren(PaperDialog)
    preview = dialog.preview
    assert preview is not None
    drawn: list[Any] = []
    draw = preview._draw
    preview._draw = lambda *words: drawn.append(words[0]) or draw(*words)  # type: ignore[func-returns-value]
    qtbot.waitUntil(lambda: preview.page.shown is not None)
    first = preview.page.shown
    assert first is not None and "84 ×" in preview.words.text()
    dialog.fields["ink"].setCurrentIndex(1)
    dialog.preset.setCurrentIndex(2)
    dialog.preset.activated.emit(2)
    before = len(drawn)
    qtbot.waitUntil(lambda: not preview.timer.isActive() and "174 ×" in preview.words.text())
    assert len(drawn) == before + 1, "once for both changes"
    shown = preview.page.shown
    assert shown is not None and shown.image.isGrayscale() and not first.image.isGrayscale()
    assert shown.image.width() / shown.image.height() == pytest.approx(shown.width_mm / shown.height_mm, rel=0.02)
    image = preview.page.grab().toImage()
    left, right = (image.pixelColor(image.width() * k // 4, image.height() // 2) for k in (0, 2))
    assert left != right, "the page lies on the ground of the window"
    dialog.fields["width_mm"].setValue(20)
    qtbot.waitUntil(lambda: preview.page.shown is None)
    assert "at least" in preview.words.text()
    dialog.restore()
    qtbot.waitUntil(lambda: preview.page.shown is not None)
    dialog.fields["dpi"].setValue(72)
    qtbot.mouseClick(dialog.primary, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(path.exists)
    written, shown = QImage(str(path)), preview.page.shown
    assert written.width() / written.height() == pytest.approx(shown.width_mm / shown.height_mm, rel=0.01)


def test_a_file_is_asked_for_where_the_last_one_went_else_beside_the_session(
    qtbot: Any, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (session, other) = (tmp_path / name for name in ("session", "other"))
    for folder in (session, other):
        folder.mkdir()
    suggested: list[Path] = []

    def answer(parent: Any, title: str, name: str, kinds: str) -> tuple[str, str]:
        suggested.append(Path(name))
        return str(other / Path(name).name) if len(suggested) == 1 else "", ""

    monkeypatch.setattr(QFileDialog, "getSaveFileName", answer)
    save(qtbot, window, session / "talk.circuitlab")
    for _ in range(2):
        dock(window, "attention").actions_menu.export_data()
    dock(window, "attention").actions_menu.export_picture()
    (dialog,) = window.findChildren(PaperDialog)
    qtbot.mouseClick(dialog.primary, Qt.MouseButton.LeftButton)
    assert [path.parent for path in suggested] == [session, other, other]
    assert {path.suffix for path in suggested} == {".csv", ".pdf"}


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
