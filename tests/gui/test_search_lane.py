"""While the models of a session are looked for, for which whole files are hashed, what is to be kept is written."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from circuitlab.gui.sessions import autosave, file_work
from circuitlab.gui.sessions.models_dialog import ModelsDialog
from circuitlab.session_files.model_search import located
from circuitlab.session_files.recovery_files import recovery_folder
from tests.gui.driving import TEXT, go, save
from tests.gui.test_recovery import rest, started
from tests.models import directory
from tests.patience import SECONDS


def test_neither_autosave_nor_save_waits_for_the_search_for_a_model(
    qtbot: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autosave, "INTERVAL", 1)
    model, searching, go_on = directory(tmp_path / "model"), threading.Event(), threading.Event()

    def search(*arguments: Any) -> Any:
        searching.set()
        assert go_on.wait(SECONDS)
        return located(*arguments)

    with started(qtbot, str(model), TEXT) as window:
        file, taken = tmp_path / "talk.circuitlab", list[Any]()
        save(qtbot, window, file)
        rest(qtbot, window)
        monkeypatch.setattr(file_work, "located", search)
        try:
            window.sessions.opening.file(file, taken.append)
            qtbot.waitUntil(searching.is_set)
            with qtbot.waitSignal(window.autosave.written):
                go(window, "pin")
            assert list(recovery_folder().glob("*.circuitlab"))
            save(qtbot, window, tmp_path / "other.circuitlab")
            assert not taken
            go_on.set()
            qtbot.waitUntil(lambda: bool(taken))
            searching.clear()
            go_on.clear()
            dialog = ModelsDialog(taken[0], window.context.runner, window.sessions._searcher(), window)
            dialog._look_for("model")
            qtbot.waitUntil(searching.is_set)
            save(qtbot, window, tmp_path / "third.circuitlab")
        finally:
            go_on.set()
        qtbot.waitUntil(lambda: not window.context.runner.busy)  # the dialog has what it looked for, and is gone
