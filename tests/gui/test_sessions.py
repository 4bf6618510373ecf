"""A session is saved, changed, closed and opened in the real window: the same State, and never anything lost unasked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QMessageBox

from circuitlab.draw.look.plain_text import PlainBox
from circuitlab.gui.shell.window import Window
from circuitlab.model.subject import Head
from tests.gui.driving import dock, settle, shown_window
from tests.gui.test_commands import go
from tests.models import directory

Answer = Callable[[QMessageBox.StandardButton], list[str]]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Answers the questions that come from now on, and lists them."""
    asked: list[str] = []

    def answered(with_: QMessageBox.StandardButton) -> list[str]:
        def exec_(box: PlainBox) -> int:
            asked.append(box.text())
            return int(with_)

        monkeypatch.setattr(PlainBox, "exec", exec_)
        return asked

    return answered


def save(qtbot: Any, window: Window, path: Path) -> dict[str, Any]:
    """The file of the present session, saved."""
    with qtbot.waitSignal(window.sessions.changed):
        window.sessions.save_to(path)
    qtbot.waitUntil(lambda: not window.sessions.saves.busy)
    return json.loads(path.read_text("utf-8"))


def open_session(qtbot: Any, window: Window, path: Path) -> None:
    with qtbot.waitSignal(window.sessions.opened, timeout=20000):
        window.sessions.open(path)
    settle(qtbot, window)


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


def test_a_session_comes_back_in_another_window(qtbot: Any, window: Window, tmp_path: Path) -> None:
    work_on(window)
    settle(qtbot, window)
    path = tmp_path / "talk.circuitlab"
    table = save(qtbot, window, path)
    assert table["now"]["text"] == "ab cab ab" and [m["path"] for m in table["models"].values()] == ["model"]
    title = f"talk[*] · {window.context.document.recorded.model.name} · CircuitLab"
    assert window.windowTitle() == title and not window.isWindowModified()
    state = window.context.document.recorded
    with shown_window(qtbot, directory(tmp_path / "other")) as second:
        open_session(qtbot, second, path)
        assert second.context.document.recorded == state
        assert second.windowTitle() == title and not second.isWindowModified()
        assert not second.context.document.undo_label
        assert save(qtbot, second, tmp_path / "again.circuitlab") | {"docks": ""} == table | {"docks": ""}
    settle(qtbot, window)
