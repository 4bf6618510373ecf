"""What comes from outside, a folder's name or an error's text, is shown as it is and never read as markup."""

from __future__ import annotations

import ast
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtGui import QAction, Qt
from PySide6.QtWidgets import QLabel, QMessageBox, QWidget

import circuitlab
from circuitlab.draw.look.plain_text import PlainBox, tip_of
from circuitlab.errors import CircuitLabError
from circuitlab.gui.shell.errors import ErrorDialog
from tests.gui.driving import settle, shown_window
from tests.models import directory

MARKUP = "<b>bold<i>& <img src=x>"


def _wrong(tree: ast.AST) -> list[str]:
    """Lines that make a label or a box of Qt's own, or a tip of a text that is no literal and has not been looked at."""
    result = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in ("QLabel", "QMessageBox", "question", "warning_box", "information", "critical_box") and node.args:
            result.append(f"{node.lineno}: {name}")
        if name == "setToolTip" and not all(map(_plain, node.args)):
            result.append(f"{node.lineno}: setToolTip")
    return result


def _plain(node: ast.expr) -> bool:
    if isinstance(node, ast.IfExp):
        return _plain(node.body) and _plain(node.orelse)
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("tip_of", "plain_tip")
    return called or isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id.isupper())


def test_no_label_tip_or_box_guesses_what_its_text_is() -> None:
    package = Path(circuitlab.__file__).parent
    files = [f for room in ("gui", "draw") for f in sorted((package / room).rglob("*.py")) if f.name != "plain_text.py"]
    wrong = {f.relative_to(package).as_posix(): _wrong(ast.parse(f.read_text(encoding="utf-8"))) for f in files}
    assert {name: lines for name, lines in wrong.items() if lines} == {}


def _rich(text: str) -> bool:
    return MARKUP in text and Qt.mightBeRichText(text)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system: < in the name of a folder")
def test_a_folder_whose_name_is_markup_is_named_by_its_characters(qtbot: Any, tmp_path: Path) -> None:
    folder = shutil.move(directory(tmp_path / "m"), tmp_path / MARKUP)
    with shown_window(qtbot, folder) as window:
        window.state_commands.pin()
        settle(qtbot, window)
        names = [label for label in window.findChildren(QLabel) if MARKUP in label.text()]
        assert not [label for label in names if label.textFormat() != Qt.TextFormat.PlainText and _rich(label.text())]
        tips = [thing.toolTip() for thing in (*window.findChildren(QWidget), *window.findChildren(QAction))]
        assert not [tip for tip in tips if _rich(tip)]
        assert any("&lt;b&gt;bold" in tip for tip in tips)


def test_boxes_show_both_of_their_texts_as_they_are(qtbot: Any) -> None:
    plain = PlainBox(QMessageBox.Icon.Question, "t", MARKUP)
    plain.setInformativeText(MARKUP)
    for box in (plain, ErrorDialog(CircuitLabError(MARKUP, got=MARKUP)), ErrorDialog(ValueError(MARKUP))):
        qtbot.addWidget(box)
        box.show()
        labels = [label for label in box.findChildren(QLabel) if MARKUP in label.text()]
        assert labels and all(label.textFormat() == Qt.TextFormat.PlainText for label in labels)


def test_tips_without_markup_are_what_they_were() -> None:
    assert tip_of("one & two\nthree") == "one & two\nthree" and tip_of("") == ""
