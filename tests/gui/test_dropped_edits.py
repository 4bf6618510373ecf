"""Interventions that another model does without: said as long as they are gone, and put back where they fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from circuitlab.gui.shell.window import Window
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.saving import random_tensors, save_directory
from circuitlab.model.subject import Head
from circuitlab.state.cuts import ablation, with_edits
from tests.gui.driving import dock, settle
from tests.models import TINY

SMALL = replace(TINY, n_layers=1)
ZEROED, DEEP = ablation(Head(0, 1)), ablation(Head(1, 2))
AT = Intervention("zero", Site("z", 0, (2,), (3,)))


def opened(qtbot: Any, window: Window, path: Path) -> None:
    with qtbot.waitSignal(window.opening.opened):
        window.open_model(str(path))
    settle(qtbot, window)


def other(window: Window, path: Path) -> Path:
    save_directory(path, SMALL, random_tensors(SMALL, 3, 0.35), window.context.tokenizer())
    return path


def losses(window: Window) -> Any:
    return window.prompt.losses._answer.result.loss[1:]  # type: ignore[union-attr]


def test_what_another_model_dropped_is_said_and_put_back_where_it_fits(qtbot: Any, window: Window, tmp_path: Path) -> None:
    context, line = window.context, window.status.dropped
    context.apply(with_edits(context.document.recorded, ZEROED, AT, DEEP), "cut")
    settle(qtbot, window)
    cut = context.document.recorded
    assert not line.isVisible()
    opened(qtbot, window, other(window, tmp_path / "small" / "one"))
    assert not context.document.recorded.edits and line.isVisible()
    said = line.words.text()
    assert "3 interventions" in said and context.name_of(cut.model) in said and "L0H1" in said and "undo brings them back" in said
    assert "L0H2 at 3" in line.back_button.toolTip() and "L1H2" not in line.back_button.toolTip()
    intact = losses(window)
    context.apply(context.document.recorded.with_heads(Head(0, 3)), "work goes on")
    assert line.isVisible(), "it lasts"
    line.back_button.click()
    settle(qtbot, window)
    assert [edit for edit, _ in context.document.recorded.edits] == [ZEROED, AT]
    assert np.nanmax(np.abs(losses(window) - intact)) > 1e-4, "they are in force"
    assert line.isVisible() and "1 intervention " in line.words.text() and not line.back_button.isVisible()
    window.undo()
    settle(qtbot, window)
    assert line.isVisible() and "3 interventions" in line.words.text()
    for _ in range(2):
        window.undo()
        settle(qtbot, window)
    assert context.document.recorded == cut and not line.isVisible()
    window.redo()
    settle(qtbot, window)
    assert line.isVisible()
    line.dismiss_button.click()
    assert not line.isVisible()


def test_of_another_text_positions_are_not_put_back(qtbot: Any, window: Window, tmp_path: Path) -> None:
    context, line = window.context, window.status.dropped
    context.apply(with_edits(context.document.recorded, AT), "cut")
    opened(qtbot, window, other(window, tmp_path / "small" / "one"))
    assert line.isVisible() and line.back_button.isVisible()
    window.prompt.editor.setPlainText("another text of other tokens")
    window.prompt.commit()
    settle(qtbot, window)
    assert line.isVisible() and not line.back_button.isVisible()


def test_a_model_that_keeps_them_is_no_loss(qtbot: Any, window: Window, tmp_path: Path) -> None:
    """As a pin's model, or a step of a slider, which the same interventions fit."""
    context, line = window.context, window.status.dropped
    context.apply(with_edits(context.document.recorded, ZEROED, DEEP), "cut")
    path = other(window, tmp_path / "small" / "one")
    ref = replace(context.document.recorded.model, source=f"file:{path}")
    with qtbot.waitSignal(context.loader.settled):
        context.go(ref, "another model")
    settle(qtbot, window)
    assert [edit for edit, _ in context.document.recorded.edits] == [ZEROED]
    assert line.isVisible() and "1 intervention " in line.words.text() and "L1H2" in line.words.text()
    assert dock(window, "attention").view.figure.grid
