"""“Open from the hub…” with a real window, against a server on loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from circuitlab.gui.shell.hub_dialog import HubDialog
from circuitlab.gui.shell.window import Window
from circuitlab.model.sources.hub import HubName, snapshot
from tests.hub_server import Hub, reached
from tests.models import CONFIGS, directory

pytest.importorskip("huggingface_hub")
NAME = HubName("somebody/small")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with one model, and an empty cache."""
    path = directory(tmp_path / "repo", CONFIGS["gpt2"])
    with reached(Hub({NAME.repo: path}, revisions=("main", "step64")), tmp_path / "cache", monkeypatch) as made:
        yield made


def _dialog(window: Window) -> HubDialog:
    window.dialogs.ask_hub()
    widget = window.findChild(HubDialog)
    assert isinstance(widget, HubDialog)
    return widget


def test_looked_up_downloaded_opened(window: Window, qtbot: QtBot, hub: Hub) -> None:
    dialog = _dialog(window)
    assert not dialog.get.isEnabled()
    dialog.name.setText(NAME.repo)
    dialog.look.click()
    qtbot.waitUntil(lambda: "3 files" in dialog.status.text())
    assert [dialog.revision.itemText(i) for i in range(dialog.revision.count())] == ["main", "step64"]
    dialog.revision.setCurrentText("step64")
    with qtbot.waitSignal(window.opening.opened):
        dialog.get.click()
    assert window.context.document.state.model.source == "hub:somebody/small@step64"
    assert "small@step64" in window.windowTitle()
    assert not dialog.isVisible()


def test_stopped_and_taken_up_again(window: Window, qtbot: QtBot, hub: Hub) -> None:
    hub.wait = threading.Event()
    before = window.context.document.state.model
    dialog = _dialog(window)
    dialog.name.setText(NAME.repo)
    dialog.get.click()
    assert not dialog.name.isEnabled()
    qtbot.waitUntil(lambda: "MiB" in dialog.status.text() and dialog.bar.value() > 0)
    dialog.stop.click()
    qtbot.waitUntil(lambda: "Stopped." in dialog.status.text())
    assert window.context.document.state.model == before
    assert snapshot(NAME) is None
    hub.wait.set()
    with qtbot.waitSignal(window.opening.opened):
        dialog.get.click()
    assert window.context.document.state.model.source == "hub:somebody/small"


def test_a_model_that_is_not_there_is_said_in_the_dialog(window: Window, qtbot: QtBot, hub: Hub) -> None:
    dialog = _dialog(window)
    dialog.name.setText("nobody/nothing")
    dialog.get.click()
    qtbot.waitUntil(lambda: "not on the hub, or is private" in dialog.status.text())
    assert dialog.get.isEnabled()


def test_opening_by_name_asks_the_hub_where_the_cache_has_nothing(window: Window, qtbot: QtBot, hub: Hub) -> None:
    with qtbot.waitSignal(window.opening.opened):
        window.open_model("somebody/small")
    assert window.context.document.state.model.source == "hub:somebody/small"
    hub.log.clear()
    with qtbot.waitSignal(window.opening.opened):
        window.open_model("somebody/small")
    assert not hub.log


def test_of_several_gguf_models_one_is_chosen(window: Window, qtbot: QtBot, hub: Hub, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    from tests.gguf_files import small

    (many := tmp_path / "many").mkdir()
    for name in ("small-F32.gguf", "small-Q8_0.gguf"):
        small(many / name)
    hub.repos["somebody/many"] = many
    dialog = _dialog(window)
    assert not dialog.weights.isVisible()
    dialog.name.setText("somebody/many")
    dialog.get.click()
    qtbot.waitUntil(lambda: dialog.weights.isVisible())
    assert "somebody/many holds 2 models. Choose one under Weights." in dialog.status.text()
    assert not dialog.get.isEnabled()
    shown = [dialog.weights.itemText(i) for i in range(dialog.weights.count())]
    assert len(shown) == 3 and shown[1].startswith("F32: ") and "MiB, small-F32.gguf" in shown[1]
    dialog.look.click()
    qtbot.waitUntil(lambda: dialog.look.isEnabled() and dialog.revision.count() == 2)
    qtbot.keyClick(dialog.weights, Qt.Key.Key_Down)
    with qtbot.waitSignal(window.opening.opened):
        dialog.get.click()
    assert window.context.document.state.model.source == "hub:somebody/many:small-F32.gguf"
    dialog = _dialog(window)
    dialog.name.setText(NAME.repo)
    assert not dialog.weights.isVisible() and dialog.chosen_name() == NAME


def test_what_is_typed_behind_the_name_is_taken(window: Window, qtbot: QtBot, hub: Hub) -> None:
    dialog = _dialog(window)
    dialog.name.setText(f"{NAME.repo}@step64")
    assert dialog.chosen_name() == HubName(NAME.repo, "step64")
    dialog.name.setText(f"{NAME.repo}:Q4_K_M")
    assert dialog.chosen_name() == HubName(NAME.repo, "main", "Q4_K_M")
    dialog.name.setText(f"{NAME.repo}:nothing")
    assert dialog.chosen_name() is None and not dialog.get.isEnabled()
