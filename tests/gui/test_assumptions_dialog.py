"""“What was assumed…” with a real window: corrected, refused in place, asked before a file can be opened at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PySide6.QtWidgets import QComboBox, QLineEdit
from pytestqt.qtbot import QtBot

from circuitlab.gui.shell.assumptions_dialog import AssumptionsDialog
from circuitlab.gui.shell.command import CommandAction
from circuitlab.gui.shell.window import Window
from circuitlab.model.subject import ModelRef
from tests.gui.driving import command, settle
from tests.reference.make_hooked import FOLDER


@pytest.fixture
def inferred(window: Window, qtbot: QtBot, tmp_path: Path) -> Path:
    """A state dict with nothing beside it, open in the window."""
    file = tmp_path / "inferred.pt"
    torch.save(torch.load(FOLDER / "shortformer.pt", weights_only=True)["model"], file)
    with qtbot.waitSignal(window.opening.opened):
        window.open_model(str(file))
    settle(qtbot, window)
    return file


def _command(window: Window) -> CommandAction:
    window.menus.refresh()
    return command(window, "assumed")


def _dialog(window: Window) -> AssumptionsDialog:
    window.menus.enable()
    _command(window).trigger()
    widget = window.findChild(AssumptionsDialog)
    assert isinstance(widget, AssumptionsDialog)
    return widget


def test_the_command_is_there_only_where_something_was_assumed(window: Window, qtbot: QtBot, tmp_path: Path) -> None:
    assert not _command(window).isEnabled()


def test_every_assumption_has_a_row_and_another_value_opens_another_model(window: Window, qtbot: QtBot, inferred: Path) -> None:
    before = window.opening.assumptions()
    dialog = _dialog(window)
    assert dialog.values() == {a.name: a.value for a in before}
    assert not dialog.reset.isEnabled()
    positions, scale = dialog.fields["positions"], dialog.fields["score_scale"]
    assert isinstance(positions, QComboBox) and isinstance(scale, QComboBox) and scale.isEditable()
    positions.setCurrentText("shortformer")
    scale.setCurrentText("0.25")
    with qtbot.waitSignal(window.opening.opened):
        dialog.again.click()
    ref = window.context.document.state.model
    assert ref == ModelRef(f"file:{inferred}", None, (("positions", "shortformer"), ("score_scale", "0.25")))
    config = window.context.facts().config
    assert (config.positions, config.score_scale) == ("shortformer", 0.25)
    values = {a.name: a.value for a in window.opening.assumptions()}
    assert (values["positions"], values["score_scale"]) == ("shortformer", "0.25")
    settle(qtbot, window)
    dialog.fields["positions"].setCurrentText("learned")  # type: ignore[union-attr]
    with qtbot.waitSignal(window.opening.opened):
        dialog.again.click()
    assert window.context.document.state.model.assume == (("positions", "learned"), ("score_scale", "0.25"))
    with qtbot.waitSignal(window.opening.opened):
        dialog.reset.click()
    assert window.context.document.state.model.assume == ()
    assert window.opening.assumptions() == before
    settle(qtbot, window)


def test_what_cannot_be_is_said_in_place_and_the_open_model_stays(window: Window, qtbot: QtBot, inferred: Path) -> None:
    before = window.context.document.state
    dialog = _dialog(window)
    tokenizer = dialog.fields["tokenizer"]
    assert isinstance(tokenizer, QLineEdit)
    tokenizer.setText("/nowhere/tokenizer.json")
    dialog.again.click()
    qtbot.waitUntil(lambda: "does not exist" in dialog.message.text())
    assert window.context.document.state == before
    assert dialog.again.isEnabled()
    assert tokenizer.text() == "/nowhere/tokenizer.json"
    tokenizer.setText("none")
    dialog.again.click()
    assert dialog.message.text() and window.context.document.state == before


def test_a_file_that_does_not_say_enough_is_asked_about(window: Window, qtbot: QtBot, tmp_path: Path) -> None:
    rng = torch.Generator().manual_seed(6)
    shapes = {"embed.W_E": (7, 10), "pos_embed.W_pos": (9, 10), "unembed.W_U": (10, 7)}
    shapes |= {f"blocks.0.attn.W_{n}": (10, 12) for n in "QKV"} | {"blocks.0.attn.W_O": (12, 10)}  # heads side by side
    torch.save({n: torch.randn(s, generator=rng) for n, s in shapes.items()}, tmp_path / "flat.pt")
    before = window.context.document.state.model
    with qtbot.waitSignal(window.opening.assumptions_needed):
        window.open_model(str(tmp_path / "flat.pt"))
    dialog = window.findChild(AssumptionsDialog)
    assert isinstance(dialog, AssumptionsDialog)
    assert "n_heads" in dialog.message.text() and "--assume" not in dialog.message.text()
    assert list(dialog.fields) == ["n_heads"]
    assert window.context.document.state.model == before
    heads = dialog.fields["n_heads"]
    assert isinstance(heads, QLineEdit)
    heads.setText("three")
    dialog.again.click()
    qtbot.waitUntil(lambda: "whole number" in dialog.message.text())
    assert window.context.document.state.model == before
    heads.setText("3")
    with qtbot.waitSignal(window.opening.opened):
        dialog.again.click()
    assert window.context.facts().config.n_heads == 3
    assert "n_heads" in dialog.fields and "norm" in dialog.fields
    settle(qtbot, window)


def test_a_file_of_two_sets_of_weights_asks_which(window: Window, qtbot: QtBot, tmp_path: Path) -> None:
    model = {n: x.clone() for n, x in torch.load(FOLDER / "shortformer.pt", weights_only=True)["model"].items()}
    twice = {n: 2 * x for n, x in model.items()}
    torch.save({"net": model, "ema": twice, "seen": {1}}, tmp_path / "two.pt")
    with qtbot.waitSignal(window.opening.assumptions_needed):
        window.open_model(str(tmp_path / "two.pt"))
    dialog = window.findChild(AssumptionsDialog)
    assert isinstance(dialog, AssumptionsDialog)
    key = dialog.fields["under"]
    assert isinstance(key, QComboBox) and {key.itemText(i) for i in range(key.count())} >= {"net", "ema"}
    key.setCurrentText("ema")
    with qtbot.waitSignal(window.opening.opened):
        dialog.again.click()
    assert window.context.document.state.model.assume == (("under", "ema"),)
    settle(qtbot, window)
