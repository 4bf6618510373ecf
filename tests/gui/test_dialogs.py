"""What holds for every dialog: Enter in a field presses nothing but the button that the dialog is for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractSpinBox, QApplication, QDialog, QPushButton

from circuitlab.errors import BadModel
from circuitlab.gui.assumptions_dialog import AssumptionsDialog
from circuitlab.gui.dialog import Dialog
from circuitlab.gui.errors import ErrorDialog
from circuitlab.gui.hub_dialog import HubDialog
from circuitlab.gui.settings import SettingsDialog
from circuitlab.gui.training_dialog import TrainingDialog
from circuitlab.gui.window import Window
from circuitlab.model.loading.assumptions import Assumption
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
