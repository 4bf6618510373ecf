"""Files of the open model that another program changes: the window notices, says so while it holds, and waits for no disk."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QApplication

from circuitlab.engine.file_changes import FileChange
from circuitlab.engine.open_model import OpenModel
from circuitlab.engine.store import ModelStore
from circuitlab.gui.shell.window import Window
from circuitlab.gui.work import app_context
from circuitlab.gui.work.file_watch import LOOKING
from circuitlab.model.loading.checkpoint import weight_files
from circuitlab.model.saving import random_tensors, save_directory
from tests.gui.driving import dock, heat, settle
from tests.models import TINY
from tests.patience import SECONDS

CHANGED = "has changed since it was opened"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no disk that does not answer."""
    monkeypatch.setattr(app_context, "A_MOMENT", SECONDS)


def folder(window: Window) -> Path:
    return Path(window.context.document.recorded.model.source.removeprefix("file:"))


def rewrite(window: Window, seed: int = 7) -> None:
    save_directory(folder(window), TINY, random_tensors(TINY, seed, 0.35), window.context.tokenizer())


def come_back(window: Window) -> None:
    """As the desktop does when somebody turns to the window again."""
    window.activateWindow()
    QApplication.sendEvent(window, QEvent(QEvent.Type.ActivationChange))


def test_whoever_comes_back_to_the_window_is_told_until_it_is_read_again(qtbot: Any, window: Window) -> None:
    line = window.status.files
    qtbot.waitUntil(window.isActiveWindow)
    come_back(window)
    settle(qtbot, window)
    assert not line.isVisible()
    before = heat(window).values
    rewrite(window)
    come_back(window)
    qtbot.waitUntil(line.isVisible)
    settle(qtbot, window)
    name = window.context.name_of(window.context.document.recorded.model)
    said = line.words.text()
    assert f"model.safetensors of {name} {CHANGED}." in said and "files that were read" in said
    assert np.array_equal(heat(window).values, before, equal_nan=True), "what was read stays what is shown"
    assert CHANGED in dock(window, "attention").view.figure.caption
    with qtbot.waitSignal(window.opening.opened):
        line.reload_button.click()
    settle(qtbot, window)
    assert not line.isVisible() and CHANGED not in dock(window, "attention").view.figure.caption
    assert not np.allclose(np.nan_to_num(heat(window).values), np.nan_to_num(before), atol=1e-3)


def test_a_configuration_that_changes_is_named_and_one_written_anew_as_it_was_is_not(qtbot: Any, window: Window) -> None:
    line, config = window.status.files, folder(window) / "config.json"
    text = config.read_text("utf-8")
    config.unlink()
    config.write_text(text, "utf-8")
    window.context.before_export()
    assert not line.isVisible(), "as a training that is followed writes it"
    config.write_text(json.dumps({**json.loads(text), "score_scale": 2.0}), "utf-8")
    tokenizer = folder(window) / "tokenizer.json"
    kept = tokenizer.read_bytes()
    tokenizer.unlink()
    window.context.before_export()
    name = window.context.name_of(window.context.document.recorded.model)
    assert line.words.text().startswith(f"tokenizer.json of {name} is gone, config.json {CHANGED}. Numbers are")
    tokenizer.write_bytes(kept)
    window.context.before_export()
    assert line.words.text().startswith(f"config.json of {name} {CHANGED}. Numbers are")
    before = heat(window).values
    with qtbot.waitSignal(window.opening.opened):
        line.reload_button.click()
    settle(qtbot, window)
    assert not np.allclose(np.nan_to_num(heat(window).values), np.nan_to_num(before), atol=1e-3)
    assert not line.isVisible() and window.context.facts(window.context.document.recorded.model).config.score_scale == 2.0


def test_put_away_it_comes_back_with_the_next_change(qtbot: Any, window: Window) -> None:
    line = window.status.files
    rewrite(window)
    window.context.before_export()
    assert line.isVisible()
    line.dismiss_button.click()
    assert not line.isVisible()
    window.context.before_export()
    assert not line.isVisible(), "it is still the same"
    for file in weight_files(folder(window)):
        file.unlink()
    window.context.before_export()
    assert line.isVisible() and "is gone" in line.words.text()


def test_a_picture_says_of_which_weights_its_numbers_are(qtbot: Any, window: Window, tmp_path: Path) -> None:
    """Nobody has turned to another window: what is exported is looked at before."""
    rewrite(window)
    panel = dock(window, "attention")
    panel.actions_menu.write_picture(tmp_path / "a.svg")
    qtbot.waitUntil((tmp_path / "a.svg").exists)
    settle(qtbot, window)
    words = (tmp_path / "a.svg").read_text("utf-8")
    assert "has changed since" in words.replace("</text>", " ") and "that were read" in words
    assert window.status.files.isVisible()


def test_a_report_says_it_of_the_model(qtbot: Any, window: Window, tmp_path: Path) -> None:
    rewrite(window)
    with qtbot.waitSignal(window.context.message):
        window.reports.write(tmp_path / "report.html")
    settle(qtbot, window)
    page = (tmp_path / "report.html").read_text("utf-8")
    assert f"{CHANGED}; numbers are those of the files that were read" in page


def test_a_disk_that_does_not_answer_holds_up_nothing(
    qtbot: Any, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, asked = threading.Event(), list[threading.Thread]()

    def hangs(model: OpenModel) -> FileChange | None:
        if threading.current_thread().name != LOOKING:
            return None
        asked.append(threading.current_thread())
        answers.wait(SECONDS)
        return FileChange(changed=("model.safetensors",))

    monkeypatch.setattr(OpenModel, "file_change", property(hangs))
    monkeypatch.setattr(app_context, "A_MOMENT", 0.01)
    come_back(window)
    panel = dock(window, "attention")
    panel.actions_menu.write_picture(tmp_path / "a.svg")
    panel.actions_menu.write_picture(tmp_path / "b.svg")
    qtbot.waitUntil((tmp_path / "b.svg").exists)
    come_back(window)
    settle(qtbot, window)
    assert len(asked) == 1 and asked[0].daemon, "one thread waits, which keeps no process from ending"
    assert not window.status.files.isVisible()
    answers.set()
    qtbot.waitUntil(window.status.files.isVisible)


def test_another_file_of_the_same_size_and_time_is_another_file(tmp_path: Path, window: Window) -> None:
    """As a copy that keeps its times leaves it: read again, no answer and no hash of the old one is taken for it."""
    store, ref = window.context.engine.store, window.context.document.recorded.model
    (file,) = weight_files(folder(window))
    before, stat = store.sha256(ref), file.stat()
    key = store.open(ref).key
    other = tmp_path / "other"
    other.write_bytes(file.read_bytes()[:-64] + bytes(64))
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    os.replace(other, file)
    window.context.before_export()
    assert window.status.files.isVisible()
    assert store.sha256_unopened(ref) == ModelStore().sha256(ref) != before
    assert store.reload(ref).key != key and store.sha256(ref) != before and store.sha256_of(ref, key) == before
