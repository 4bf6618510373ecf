"""Checkpoints that are not on this machine, in a real window: said, offered, got from a server on loopback or a file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QFileDialog

from circuitlab.disk import paths
from circuitlab.figures.marks import Hit, Lines
from circuitlab.gui.shell.get_dialog import GetDialog
from circuitlab.gui.shell.window import Window
from circuitlab.model.archives.getting import get, part_of
from circuitlab.model.archives.index import find_archive
from circuitlab.model.records.series_measures import GONE
from tests.archive_server import Web, serving
from tests.gui.driving import command, dock, settle, shown_window
from tests.gui.training import measures
from tests.models import directory
from tests.shipped_archives import NAME, OTHER, STEPS, Installed, install


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    return install(tmp_path, monkeypatch)


@pytest.fixture
def web(installed: Installed) -> Iterator[Web]:
    with serving(Web(installed.zips)) as served:
        installed.address(served.url)
        yield served


@pytest.fixture
def window(qtbot: Any, installed: Installed) -> Iterator[Window]:
    with shown_window(qtbot, NAME) as made:
        yield made


def _dialog(window: Window) -> GetDialog:
    window.checkpoints.offer.button.click()
    (dialog,) = window.findChildren(GetDialog)
    assert dialog.isVisible()
    return dialog


def _slides(window: Window) -> bool:
    """Whether the slider has all checkpoints and the final weights, and nothing is offered any more."""
    bar = window.checkpoints
    steps = [p.step for p in bar.points[:-1]]
    return bar.slider.isVisible() and steps == list(STEPS) and bar.offer.isHidden() and bar.points[-1].checkpoint is None


def test_offered_downloaded_and_on_the_slider(qtbot: Any, web: Web, window: Window) -> None:
    bar = window.checkpoints
    assert bar.isVisible() and bar.offer.isVisible() and not bar.slider.isVisible()
    assert "3 checkpoints" in bar.offer.label.text() and "KiB" in bar.offer.button.text()
    assert command(window, "get-checkpoints").command.enabled(window)
    assert not command(window, "checkpoint-play").command.enabled(window)
    dialog = _dialog(window)
    with qtbot.waitSignal(dialog.got):
        dialog.go.click()
    settle(qtbot, window)
    assert _slides(window) and not dialog.isVisible()
    assert command(window, "get-checkpoints").command.enabled(window), "for the other model"
    bar.first.click()
    settle(qtbot, window)
    assert window.context.document.recorded.model.checkpoint == 0
    assert window.context.engine.store.open(window.context.document.recorded.model).name.endswith("step 0")


def test_stopped_and_taken_up_again(qtbot: Any, installed: Installed, web: Web, window: Window) -> None:
    web.wait = threading.Event()
    dialog = _dialog(window)
    dialog.go.click()
    assert not dialog.go.isEnabled() and not dialog.file.isEnabled()
    qtbot.waitUntil(lambda: dialog.bar.value() > 0 and "KiB" not in dialog.status.text() and bool(dialog.status.text()))
    dialog.stop.click()
    qtbot.waitUntil(lambda: "are kept" in dialog.status.text())
    kept = part_of(installed.archive).stat().st_size
    assert 0 < kept < installed.archive.zip.size and window.checkpoints.offer.isVisible()
    web.wait.set()
    with qtbot.waitSignal(dialog.got):
        dialog.go.click()
    settle(qtbot, window)
    assert _slides(window) and web.log[-1][1] == f"bytes={kept}-"


def test_a_flipped_byte_is_said_and_changes_nothing(qtbot: Any, web: Web, window: Window) -> None:
    before, web.flip = window.context.document.recorded, 5000
    dialog = _dialog(window)
    dialog.go.click()
    qtbot.waitUntil(lambda: "is not the archive" in dialog.status.text())
    assert dialog.isVisible() and dialog.go.isEnabled() and window.checkpoints.offer.isVisible()
    assert window.context.document.recorded == before and not list(paths.data_home().rglob("*.safetensors"))


def test_without_an_address_from_a_file(
    qtbot: Any, installed: Installed, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialog = _dialog(window)
    assert not dialog.go.isEnabled()
    assert all(words in dialog.about.text() for words in ("No address", installed.archive.zip.name))
    for chosen, here in (("", False), (str(installed.zips / f"{OTHER}-checkpoints.zip"), False), (str(installed.zip), True)):
        monkeypatch.setattr(QFileDialog, "getOpenFileName", staticmethod(lambda *_, chosen=chosen: (chosen, "")))
        dialog.file.click()
        settle(qtbot, window)
        assert _slides(window) == here and bool(dialog.status.text()) == (bool(chosen) and not here)


def test_it_goes_on_while_another_model_is_open(qtbot: Any, installed: Installed, web: Web, window: Window) -> None:
    """The model that was left is read again where it is still open, and the other one has an offer of its own."""
    web.wait = threading.Event()
    dialog = _dialog(window)
    dialog.go.click()
    dialog.close()
    with qtbot.waitSignal(window.opening.opened):
        window.open_model(OTHER)
    assert window.checkpoints.offer.archive is not None and window.checkpoints.offer.archive.model == OTHER
    web.wait.set()
    with qtbot.waitSignal(dialog.got):
        pass
    settle(qtbot, window)
    assert window.context.document.recorded.model.name == OTHER and window.checkpoints.offer.isVisible()
    with qtbot.waitSignal(window.opening.opened):
        window.open_model(NAME)
    settle(qtbot, window)
    assert _slides(window)
    with qtbot.waitSignal(window.opening.opened):
        window.open_model(OTHER)
    settle(qtbot, window)
    window.checkpoints.offer.button.click()
    assert dialog.isVisible() and [dialog.models.itemText(i) for i in range(dialog.models.count())] == [OTHER]


def test_checkpoints_of_a_model_that_is_not_open(qtbot: Any, installed: Installed, web: Web, window: Window) -> None:
    """By the command: the open model is chosen, the other one can be, and the open one stays as it is."""
    command(window, "get-checkpoints").trigger()
    (dialog,) = window.findChildren(GetDialog)
    assert dialog.archive is not None and dialog.archive.model == NAME and dialog.models.count() == 2
    before = window.context.document.recorded
    dialog.models.setCurrentText(OTHER)
    with qtbot.waitSignal(dialog.got):
        dialog.go.click()
    settle(qtbot, window)
    assert [name for name, _ in web.log] == [f"{OTHER}-checkpoints.zip"]
    assert window.context.document.recorded == before and window.checkpoints.offer.isVisible()
    with qtbot.waitSignal(window.opening.opened):
        window.open_model(OTHER)
    settle(qtbot, window)
    assert _slides(window)


def test_a_click_on_a_point_that_is_not_here_says_how_to_get_it(qtbot: Any, installed: Installed) -> None:
    steps = (*STEPS, 600)
    for place in (installed.models, installed.checkout):
        measures(place / NAME, tuple(STEPS), steps[-1], fall=1)
    with shown_window(qtbot, NAME, arrangement="Training") as window:
        before, training = window.context.document.recorded, dock(window, "training")
        loss = training.view.figure.find("loss")
        assert isinstance(loss, Lines) and loss.step_ids is not None
        assert loss.step_ids.ravel().tolist() == [GONE] * len(STEPS) + [-1]
        with qtbot.waitSignal(window.context.message) as said:
            training.view.picked.emit(Hit("loss", (-1, -1, GONE)))
        assert "File → Get checkpoints" in said.args[0] and window.context.document.recorded == before
        get(installed.archive, str(installed.zips))
        with qtbot.waitSignal(window.opening.opened):
            window.opening.reload()
        settle(qtbot, window)
        assert training.view.figure.find("loss").step_ids.ravel().tolist() == [0, 1, 2, -1]


def test_a_model_of_ones_own_and_a_whole_one_offer_nothing(qtbot: Any, installed: Installed, tmp_path: Path) -> None:
    get(installed.archive, str(installed.zips))
    with shown_window(qtbot, NAME) as window:
        assert _slides(window)
        with qtbot.waitSignal(window.opening.opened):
            window.open_model(str(directory(tmp_path / NAME)))
        settle(qtbot, window)
        assert not window.checkpoints.isVisible() and command(window, "get-checkpoints").command.enabled(window)
        get(find_archive(OTHER), str(installed.zips))
        assert not command(window, "get-checkpoints").command.enabled(window)
