"""How tests wait for the window and find what is in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication, QMessageBox

from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.plain_text import PlainBox
from circuitlab.figures.marks import Heatmap
from circuitlab.gui.panel.panel_dock import PanelDock, on_screen
from circuitlab.gui.shell.command import CommandAction
from circuitlab.gui.shell.main import make_window
from circuitlab.gui.shell.window import Window
from circuitlab.model.subject import Head

TEXT = "one two one two one"


def settle(qtbot: Any, window: Window) -> None:
    """Until no model is being opened, nothing is computed, and every visible dock shows its answer."""
    context = window.context
    QApplication.processEvents()
    qtbot.waitUntil(
        lambda: (
            not window.waiting and not context.runner.busy and not context.loader.waiting and not window.prompt.timer.isActive()
        ),
    )
    QApplication.processEvents()


@contextmanager
def shown_window(qtbot: Any, source: str | Path, text: str = TEXT, arrangement: str = "Explore") -> Iterator[Window]:
    """A window on a model, every visible dock with its answer; closed at the end."""
    window = make_window(str(source), text, remember=False)
    window.resize(1280, 800)
    window.show()
    if arrangement != "Explore":
        window.layout_of_docks.arrange(arrangement)
    settle(qtbot, window)
    try:
        yield window
    finally:  # also where a test fails: its workers would go on under the next one
        window.close()
        window.context.runner.close()  # it may refuse to close; a worker that reports to what is deleted ends the process
        window.deleteLater()


def command(window: Window, name: str) -> CommandAction:
    """A command of the menus."""
    (action,) = (a for a in window.menus.actions if isinstance(a, CommandAction) and a.command.name == name)
    return action


def go(window: Window, name: str) -> Any:
    """The recorded state after a command of the menus."""
    command(window, name).trigger()
    return window.context.document.recorded


def work_on(window: Window) -> None:
    """A text, heads, an ablation, a pin and a setting of a panel."""
    window.prompt.editor.setPlainText("ab cab ab")
    window.prompt.commit()
    go(window, "pin")
    go(window, "ablate")
    context = window.context
    context.apply(context.document.recorded.with_heads(Head(1, 2), Head(0, 1)), "select")
    context.apply(context.document.recorded.select(destination=3, source=1, locked=True), "select")
    view = type(dock(window, "attention").panel.view())(leave_out_bos=True)
    context.apply(context.document.recorded.with_view("attention", view), "setting")


def save(qtbot: Any, window: Window, path: Path) -> dict[str, Any]:
    """The file of the present session, saved."""
    with qtbot.waitSignal(window.sessions.changed):
        window.sessions.save_to(path)
    qtbot.waitUntil(lambda: not window.sessions.saves.busy)
    return json.loads(path.read_text("utf-8"))


def answer_questions(
    monkeypatch: pytest.MonkeyPatch, button: str | QMessageBox.StandardButton, questions: list[str] | None = None
) -> list[str]:
    """Questions are answered by this button, or the one of this text, from now on; their texts are appended to `questions`."""
    questions = [] if questions is None else questions

    def exec_(box: PlainBox) -> int:
        questions.append(f"{box.text()} {box.informativeText()}")
        by_text = {one.text().replace("&", ""): one for one in box.buttons()}
        pressed = by_text[button] if isinstance(button, str) else box.button(button)
        monkeypatch.setattr(box, "clickedButton", lambda: pressed, raising=False)
        return int(box.standardButton(pressed).value)

    monkeypatch.setattr(PlainBox, "exec", exec_)
    return questions


def docks_on_screen(window: Window) -> set[str]:
    return {name for name, one in window.docks.items() if on_screen(one)}


def dock(window: Window, name: str) -> PanelDock:
    panel_dock = window.docks[name]
    assert isinstance(panel_dock, PanelDock)
    return panel_dock


def heat(window: Window, name: str = "attention") -> Heatmap:
    mark = dock(window, name).view.figure.marks()[0]
    assert isinstance(mark, Heatmap)
    return mark


def exported(
    qtbot: Any, window: Window, path: Path, panel: str = "attention", paper: Paper | None = None, whole: bool = False
) -> Path:
    """A panel's picture, written as its menu does."""
    with qtbot.waitSignal(window.context.message, check_params_cb=lambda text: text.startswith("Written:")):
        dock(window, panel).actions_menu.write_picture(path, paper or Paper(), whole)
    return path


def pixels(widget: Any) -> np.ndarray:
    image = widget.grab().toImage().convertToFormat(QImage.Format.Format_RGB32)
    return np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), image.width(), 4).copy()
