"""What an export must read of a model's files first is read on a worker; nothing is read again that is known."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QFileDialog

from circuitlab.engine.store import ModelStore
from circuitlab.gui.shell.window import Window
from tests.gui.driving import dock, settle


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """What the store reads, and whether it does on the window's thread."""
    seen: list[tuple[str, bool]] = []

    def spied(name: str) -> None:
        real: Any = getattr(ModelStore, name)

        def spy(store: Any, *arguments: Any) -> Any:
            seen.append((name, threading.current_thread() is threading.main_thread()))
            return real(store, *arguments)

        monkeypatch.setattr(ModelStore, name, spy)

    for name in ("sha256", "_staged"):
        spied(name)
    return seen


@pytest.mark.parametrize("closed", [False, True])
def test_hash_and_files_are_not_read_on_the_windows_thread(
    qtbot: Any, window: Window, tmp_path: Path, reads: list[tuple[str, bool]], closed: bool
) -> None:
    from dataclasses import replace

    panel, store = dock(window, "heads"), window.context.engine.store
    answers = panel.feed.exchange.answers["now"]
    known = next(iter(answers.values())).provenance.weights or store.sha256(window.context.document.state.model)
    for role, answer in answers.items():  # as where the file had not been hashed when it was computed
        answers[role] = replace(answer, provenance=replace(answer.provenance, weights=""))
    ref = window.context.document.state.model
    model = store.open(ref)
    model.sha256 = ""
    if closed:
        store._models.pop(ref)
    reads.clear()
    said: list[str] = []
    window.context.message.connect(said.append)
    panel.actions_menu.write_data(tmp_path / "a.json")
    assert not any(main for _, main in reads)
    qtbot.waitUntil(lambda: any("a.json" in words for words in said))
    assert reads and not any(main for _, main in reads)
    assert json.loads((tmp_path / "a.json").read_text())["provenance"]["weights"] == known
    settle(qtbot, window)


def test_what_is_known_is_written_at_once(qtbot: Any, window: Window, tmp_path: Path, reads: list[tuple[str, bool]]) -> None:
    settle(qtbot, window)
    reads.clear()
    dock(window, "heads").actions_menu.write_data(tmp_path / "a.csv")
    assert (tmp_path / "a.csv").is_file() and ("_staged", True) not in reads


def test_folders_are_written_where_they_are_asked_for(
    qtbot: Any, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(qtbot, window)
    menu, source = dock(window, "heads").actions_menu, window.context.document.state.model.source
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(tmp_path / "a.csv"), ""))
    folder = str(Path(source.removeprefix("file:")).parent)
    for title, there in (("Export data (", False), ("Export data with full paths", True)):
        next(action for action in menu.actions() if action.text().startswith(title)).trigger()
        assert (folder in (tmp_path / "a.csv").read_text()) == there


def test_a_failure_on_the_worker_is_said(qtbot: Any, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from circuitlab.gui.panel import panel_data

    monkeypatch.setattr(panel_data, "at_hand", lambda *_: False)
    window.context.failed.disconnect(window.dialogs.show_error)
    with qtbot.waitSignal(window.context.failed) as caught:
        dock(window, "heads").actions_menu.write_data(tmp_path / "no" / "such" / "a.csv")
    assert "written" in str(caught.args[0]).lower()
