"""What holds for every dialog: Enter in a field presses nothing but the button that the dialog is for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QAbstractSpinBox, QApplication, QDialog, QLabel, QLineEdit, QPlainTextEdit, QPushButton
from safetensors.torch import save_file

from circuitlab.engine.store import ModelStore, reference
from circuitlab.errors import BadModel, UnknownFamily
from circuitlab.gui.assumptions_dialog import AssumptionsDialog
from circuitlab.gui.dialog import Dialog
from circuitlab.gui.errors import ErrorDialog
from circuitlab.gui.hub_dialog import HubDialog
from circuitlab.gui.opening import asked_of
from circuitlab.gui.settings import SettingsDialog
from circuitlab.gui.training_dialog import TrainingDialog
from circuitlab.gui.window import Window
from circuitlab.model.loading.assumptions import Assumed, Assumption
from tests.gui.driving import dock

DIALOGS: dict[str, Callable[[Window], QDialog]] = {
    "settings": lambda w: SettingsDialog(w.settings, w),
    "assumed": lambda w: AssumptionsDialog(
        w.opening, w.bench.document.state.model, (Assumption("score_scale", "1", (), "no file says it"),), w
    ),
    "hub": lambda w: HubDialog(w.opening, w),
    "training": lambda w: TrainingDialog(w.bench, w),
    "explain": lambda w: dock(w, "attention").actions_menu.explainer(),
    "error": lambda w: ErrorDialog(BadModel("It is not there.", remedy="Look elsewhere."), w),
}


@pytest.mark.parametrize("name", DIALOGS)
def test_enter_belongs_to_no_button_but_the_one_the_dialog_is_for(qtbot: Any, window: Window, name: str) -> None:
    dialog = DIALOGS[name](window)
    dialog.show()
    qtbot.waitExposed(dialog)
    assert isinstance(dialog, (Dialog, ErrorDialog))
    buttons = dialog.findChildren(QPushButton)
    takers = {b.text().replace("&", "") for b in buttons if b.isDefault() or b.autoDefault()}
    safe = {"assumed": {"Open again with these"}, "hub": {"Download and open"}, "error": {"Close"}}.get(name, set())
    assert (takers & safe if isinstance(dialog, ErrorDialog) else takers) == safe
    if isinstance(dialog, ErrorDialog):
        assert [b.text().replace("&", "") for b in buttons if b.isDefault()] == ["Close"]
    dialog.close()
    dialog.deleteLater()


def test_enter_in_the_settings_keeps_theme_and_text_size(qtbot: Any, window: Window) -> None:
    dialog = SettingsDialog(window.settings, window)
    dialog.show()
    qtbot.waitExposed(dialog)
    window.settings.set("theme", "dark")
    window.settings.set("text_scale", 1.2)
    field = dialog.fields["debounce"]
    assert isinstance(field, QAbstractSpinBox)
    field.setFocus()
    field.selectAll()
    qtbot.keyClicks(field, "75")
    qtbot.keyClick(field, Qt.Key.Key_Return)
    QApplication.processEvents()
    chosen = {name: window.settings[name] for name in ("theme", "text_scale", "debounce")}
    assert chosen == {"theme": "dark", "text_scale": 1.2, "debounce": 75}
    assert dialog.isVisible()
    dialog.close()
    dialog.deleteLater()


def test_enter_on_a_button_presses_that_button(qtbot: Any, window: Window) -> None:
    dialog = SettingsDialog(window.settings, window)
    dialog.show()
    qtbot.waitExposed(dialog)
    window.settings.set("debounce", 75)
    defaults = next(b for b in dialog.findChildren(QPushButton) if b.text() == "Defaults")
    defaults.setFocus()
    qtbot.keyClick(defaults, Qt.Key.Key_Return)
    assert dialog.isVisible()
    assert window.settings["debounce"] == 60
    dialog.close()
    dialog.deleteLater()


def test_an_unknown_family_shows_the_files_own_names_and_the_command(qtbot: Any, window: Window, tmp_path: Path) -> None:
    file = tmp_path / "<b>odd.safetensors"
    tensors = {f"a.{i}.mixer.<i>w</i>": torch.zeros(4, 4) for i in range(3)} | {f"part{i}": torch.zeros(i + 1) for i in range(90)}
    save_file(tensors, file)
    with pytest.raises(BadModel) as caught:
        ModelStore().open(reference(str(file)))
    error = caught.value
    assert isinstance(error, UnknownFamily)
    dialog = ErrorDialog(error, window)
    dialog.show()
    qtbot.waitExposed(dialog)
    names = dialog.findChild(QPlainTextEdit)
    assert isinstance(names, QPlainTextEdit)
    lines = names.toPlainText().splitlines()
    assert any("mixer.<i>w</i>" in line and "3 of them" in line for line in lines)
    assert "93" in lines[0] and len(lines) <= 50
    assert dialog.height() < window.height()
    assert all(label.textFormat() == Qt.TextFormat.PlainText for label in dialog.findChildren(QLabel) if label.text())
    command = next(line for line in dialog.findChildren(QLineEdit) if line.isReadOnly())
    assert command.text() == error.command and "import" in error.command
    assert dialog.copy_command is not None
    dialog.copy_command.click()
    assert QGuiApplication.clipboard().text() == error.command
    dialog.deleteLater()


def test_what_an_error_asks_is_a_field_of_it(tmp_path: Path) -> None:
    with pytest.raises(BadModel) as caught:
        Assumed({}).size("n_heads", None, "heads")
    assert dict(asked_of(caught.value)) == {"n_heads": ()}
    assert not asked_of(BadModel("It is not there.", remedy="Say it: --assume x=NUMBER"))
