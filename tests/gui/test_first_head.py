"""A model without stored scores: the window selects the induction head once it is measured, unless a person has selected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuitlab.analysis.attention.head_scores import HeadScoresParams, head_scores
from circuitlab.engine.request import Request
from circuitlab.figures.contracts.selection_reading import of_weights
from circuitlab.gui.sessions.first_look import repeat_in
from circuitlab.gui.shell import main as gui
from circuitlab.gui.shell.window import Window
from circuitlab.model.subject import Head
from tests import constructed
from tests.gui.driving import dock, settle
from tests.models import directory

TEXT = "ABCDAB"


@pytest.fixture
def made(qtbot: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Window]:
    """A window that has not been shown yet."""
    random = getattr(request, "param", "") == "random"
    folder = directory(tmp_path / "model") if random else constructed.directory_of(tmp_path / "model")
    window = gui.make_window(str(folder), TEXT, remember=False)
    window.resize(1280, 800)
    yield window
    window.close()
    window.context.runner.close()
    window.deleteLater()


def measure(qtbot: Any, window: Window) -> np.ndarray:
    """Show the panel that measures; [layer, head] prefix matching."""
    window.show()
    place = dock(window, "heads")
    place.show()
    place.raise_()
    settle(qtbot, window)
    request = Request(head_scores, HeadScoresParams(), of_weights(window.context.document.recorded))
    qtbot.waitUntil(lambda: window.context.engine.cached(request) is not None)
    answer = window.context.engine.cached(request)
    assert answer is not None
    return answer.result.of("prefix_matching")


def test_the_measured_head_is_selected_at_a_repeat(qtbot: Any, made: Window) -> None:
    before = made.context.document.recorded.selection
    assert before.head == Head(0, 0)
    scores = measure(qtbot, made)
    best = Head(*map(int, np.unravel_index(np.nanargmax(scores), scores.shape)))
    state = made.context.document.recorded
    assert state.selection.heads == (best,)
    assert best != Head(0, 0)
    assert state.selection.destination is not None
    assert state.tokens[state.selection.destination] in state.tokens[: state.selection.destination]
    assert state.selection.locked
    assert made.context.document.before is None  # no step of undo
    assert not made.sessions.dirty


def test_what_was_selected_stays(qtbot: Any, made: Window) -> None:
    context = made.context
    context.apply(context.document.recorded.with_heads(Head(0, 0)).select(source=1), "select")
    measure(qtbot, made)
    assert context.document.recorded.selection.head == Head(0, 0)
    assert context.document.recorded.selection.source == 1


def test_a_selection_that_was_taken_back_is_one_too(qtbot: Any, made: Window) -> None:
    context = made.context
    context.apply(context.document.recorded.select(source=1), "select")
    context.undo()
    measure(qtbot, made)
    assert context.document.recorded.selection.head == Head(0, 0)


@pytest.mark.parametrize("made", ["random"], indirect=True)
def test_no_head_of_a_random_model_is_called_one(qtbot: Any, made: Window) -> None:
    assert np.nanmax(measure(qtbot, made)) < 0.4
    assert made.context.document.recorded.selection.head == Head(0, 0)


@pytest.mark.parametrize(("tokens", "at"), [((), None), ((1, 2, 3), None), ((1, 2, 1, 3), 2), ((1, 2, 1, 2), 3)])
def test_the_last_repeat(tokens: tuple[int, ...], at: int | None) -> None:
    assert repeat_in(tokens) == at
