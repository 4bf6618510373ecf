"""The constructed model in the window: chosen from the menu, typed into, asked what comes next."""

from __future__ import annotations

from typing import Any

import numpy as np
from PySide6.QtWidgets import QMenu

from circuitlab.gui.shell.window import Window
from circuitlab.model.subject import ModelRef
from tests.gui.driving import heat, settle


def test_it_is_opened_from_the_menu_and_every_panel_answers(qtbot: Any, window: Window) -> None:
    menu = QMenu()
    window.opening.fill(menu)
    action = next(a for a in menu.actions() if a.text() == "rope-induction")
    with qtbot.waitSignal(window.opening.opened):
        action.trigger()
    settle(qtbot, window)
    assert window.context.document.state.model == ModelRef("construct:rope-induction")
    window.prompt.editor.setPlainText("A B C D A")
    qtbot.waitUntil(lambda: window.context.document.state.tokens == (0, 1, 2, 3, 4, 1))
    settle(qtbot, window)
    shown = heat(window).values
    assert shown.shape == (6, 6) and np.nanmin(shown[range(1, 6), range(5)]) > 0.99


def test_parameters_are_opened_as_typed_and_wrong_ones_change_nothing(qtbot: Any, window: Window) -> None:
    with qtbot.waitSignal(window.opening.opened):
        window.opening.open("rope-induction?alpha=20.0")
    assert window.context.document.state.model.source == "construct:rope-induction?alpha=20"
    failures: list[Exception] = []
    window.context.failed.disconnect()
    window.context.failed.connect(failures.append)
    window.opening.open("rope-induction?offset=0")
    qtbot.waitUntil(lambda: bool(failures))
    assert "back" in str(failures[0]) and window.context.document.state.model.source.endswith("alpha=20")
