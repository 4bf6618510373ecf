"""What is shown is not closed under it, whatever else is opened, and what is closed all the same is opened again."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuitlab.engine.open_model import BESIDES
from circuitlab.gui.shell.window import Window
from circuitlab.model.subject import Head, ModelRef
from circuitlab.state.state import Pin
from circuitlab.story.setup import Index, Other
from tests.gui.driving import dock, heat, settle
from tests.models import directory


@pytest.fixture
def others(window: Window, tmp_path: Path) -> list[ModelRef]:
    """Three models beside the shown one, in a store that has room for no more than three of the four."""
    window.context.engine.store._room = 0
    return [ModelRef(f"file:{directory(tmp_path / name)}") for name in ("one", "two", "three")]


def pin_all(qtbot: Any, window: Window, refs: list[ModelRef]) -> None:
    """A pin on each, set while it was shown; then the first model again."""
    context = window.context
    first = context.document.recorded.model
    for ref in (*refs, first):
        with qtbot.waitSignal(context.loader.settled):
            context.go(ref, "model")
        settle(qtbot, window)
        if ref != first:
            window.state_commands.pin()
            settle(qtbot, window)


def test_writing_the_session_closes_nothing_that_is_shown(qtbot: Any, window: Window, others: list[ModelRef]) -> None:
    pin_all(qtbot, window, others)
    context, store = window.context, window.context.engine.store
    assert len(context.document.recorded.pins) == 3
    for head in (Head(0, 1), Head(1, 2), Head(0, 2)):
        open_before = set(store._models)
        window.sessions.session_maker()()  # as each autosave does
        assert set(store._models) == open_before, "words need no weights"
        context.apply(context.document.recorded.with_heads(head), "head")
        settle(qtbot, window)
        assert dock(window, "attention").view.figure.title.count(str(head)), dock(window, "attention").view.figure.title
        window.prompt.editor.setPlainText(f"one two {head}")
        window.prompt.commit()
        settle(qtbot, window)
        assert context.document.recorded.text == f"one two {head}" and not context.document.recorded.draft


def test_whoever_opens_others_closes_neither_the_shown_model_nor_the_reference(
    qtbot: Any, window: Window, others: list[ModelRef], tmp_path: Path
) -> None:
    pin_all(qtbot, window, others[:1])
    context, store = window.context, window.context.engine.store
    for name in ("four", "five", "six", "seven"):
        store.open(ModelRef(f"file:{directory(tmp_path / name)}"))
    assert store.peek(context.document.recorded.model) and store.peek(others[0])
    assert store.n_open == store.most
    window.state_commands.unpin()
    store.open(ModelRef(f"file:{directory(tmp_path / 'eight')}"))
    assert store.peek(context.document.recorded.model) and not store.peek(others[0])


def test_a_model_that_has_been_closed_is_opened_again_where_it_is_drawn(qtbot: Any, window: Window) -> None:
    context, store = window.context, window.context.engine.store
    del store._models[context.document.recorded.model]
    context.apply(context.document.recorded.with_heads(Head(1, 2)), "another head")
    settle(qtbot, window)
    assert "L1H2" in dock(window, "attention").view.figure.title
    assert heat(window).values.shape == (len(context.document.state.tokens),) * 2


def test_a_pin_on_a_model_that_is_gone_is_written_as_it_was(qtbot: Any, window: Window, others: list[ModelRef]) -> None:
    """Its words are kept from when it was set; of one that was never open here it is spoken in ids."""
    pin_all(qtbot, window, others)
    context, store = window.context, window.context.engine.store
    before = window.sessions.session_maker()()
    gone = others[0]
    assert store.peek(gone) is None
    shutil.rmtree(gone.source.removeprefix("file:"))
    assert window.sessions.session_maker()() == before
    pin = context.document.recorded.pins[-1]
    assert pin.subject.model == gone
    never = replace(pin, subject=replace(pin.subject, model=ModelRef("file:/nowhere/at/all", 2)))
    unset = Pin("never here", never.subject, never.selection, never.text)
    context.apply(replace(context.document.recorded, pins=(*context.document.recorded.pins[:2], unset)), "pin")
    session = window.sessions.session_maker()()
    assert isinstance(session.now.pin, tuple)
    last = session.now.pin[2]
    assert isinstance(last, Other) and last.label == "never here" and last.words.checkpoint == Index(2)


def test_a_copy_of_the_model_beside_it_takes_no_room(qtbot: Any, window: Window, tmp_path: Path) -> None:
    """One file under two paths, one pinned and one shown: its weights are held once."""
    context = window.context
    store, first = context.engine.store, context.document.recorded.model
    alone = store.held_bytes
    window.state_commands.pin()
    copy = tmp_path / "elsewhere" / "model"
    shutil.copytree(first.source.removeprefix("file:"), copy)
    with qtbot.waitSignal(window.opening.opened):
        window.open_model(str(copy))
    settle(qtbot, window)
    assert context.document.recorded.model != first and {first, context.document.recorded.model} <= set(store._models)
    assert store.held_bytes - alone < 2 * BESIDES
    window.state_commands.compare("difference")
    settle(qtbot, window)
    assert not np.nan_to_num(heat(window).values).any() or "same" in dock(window, "attention").view.figure.title
