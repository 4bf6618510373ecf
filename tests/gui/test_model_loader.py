"""From one model to the next: opened off the GUI thread, the newest state wins, failures change nothing, what fits is kept."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import QThread
from PySide6.QtWidgets import QApplication

from circuitlab.engine.store import OpenModel, reference
from circuitlab.errors import Cancelled
from circuitlab.gui.shell.window import Window
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.saving import random_tensors, save_directory
from circuitlab.model.subject import Head, ModelRef
from circuitlab.state.cuts import with_edits
from circuitlab.state.state import Pin
from tests.gui.driving import dock, heat, settle
from tests.gui.training import checkpoints
from tests.models import TINY, directory

CUT = Intervention("zero", Site("result", 1, (2,)))


@pytest.fixture
def refs(window: Window) -> list[ModelRef]:
    """The window's model with a series."""
    return checkpoints(Path(window.context.document.state.model.source.removeprefix("file:")))


def test_a_checkpoint_is_opened_off_the_gui_thread_and_drives_the_panels(
    qtbot: Any, window: Window, refs: list[ModelRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    context, before = window.context, heat(window).values.copy()
    threads: list[bool] = []
    staged = type(context.engine.store)._staged

    def spy(store: Any, ref: ModelRef) -> OpenModel:
        threads.append(threading.current_thread() is threading.main_thread())
        return staged(store, ref)

    monkeypatch.setattr(type(context.engine.store), "_staged", spy)
    context.document.apply(with_edits(context.document.recorded, CUT), "cut")
    kept = context.document.recorded
    with qtbot.waitSignal(context.loader.settled):
        context.go(refs[1], "step", "checkpoint")
        assert context.loader.waiting and context.document.state == kept and context.loader.target_state.model == refs[1]
    settle(qtbot, window)
    assert context.document.state == replace(kept, model=refs[1]) and not context.loader.waiting
    assert heat(window).values.shape == before.shape and (heat(window).values != before).any()
    assert threads and not any(threads) and QThread.currentThread() is QApplication.instance().thread()  # type: ignore[union-attr]
    assert window.opening.recent() == []


def test_of_a_burst_the_newest_wins_and_undo_is_one_step(qtbot: Any, window: Window, refs: list[ModelRef]) -> None:
    context = window.context
    first = context.document.recorded
    for ref in refs:
        context.go(ref, "step", "checkpoint")
    qtbot.waitUntil(lambda: context.document.state.model == refs[-1])
    settle(qtbot, window)
    window.undo()
    settle(qtbot, window)
    assert context.document.state == first
    window.redo()
    settle(qtbot, window)
    assert context.document.state.model == refs[-1]


def test_what_cannot_be_read_is_said_and_changes_nothing(qtbot: Any, window: Window, refs: list[ModelRef]) -> None:
    context, errors = window.context, []
    context.failed.disconnect()
    context.failed.connect(errors.append)
    folder = Path(refs[0].source.removeprefix("file:"))
    (folder / "checkpoints" / "step-000200.safetensors").write_bytes(b"no weights")
    before = context.document.recorded
    with qtbot.waitSignal(context.loader.given_up):
        context.go(refs[2], "step")
    assert len(errors) == 1 and context.document.recorded == before and not context.loader.waiting
    with qtbot.waitSignal(context.loader.settled):
        context.go(refs[3], "step")
    assert context.document.recorded.model == refs[3]


def test_undo_takes_back_what_is_on_its_way(qtbot: Any, window: Window, refs: list[ModelRef]) -> None:
    context, before = window.context, window.context.document.recorded
    context.go(refs[2], "step")
    assert context.loader.waiting
    window.undo()
    assert not context.loader.waiting
    settle(qtbot, window)
    assert context.document.recorded == before


def test_what_is_typed_while_a_model_is_opened_stays(qtbot: Any, window: Window, refs: list[ModelRef]) -> None:
    context = window.context
    with qtbot.waitSignal(context.loader.settled):
        context.go(refs[2], "step")
        context.document.apply(context.document.recorded.select(heads=(Head(1, 3),)), "head")
    assert context.document.recorded.model == refs[2] and context.document.recorded.selection.heads == (Head(1, 3),)


def test_undo_opens_what_has_been_closed_checkpoints_and_constructed_models_too(
    qtbot: Any, window: Window, refs: list[ModelRef]
) -> None:
    context, store = window.context, window.context.engine.store
    models = [refs[1], reference("construct:rope-induction?alpha=20"), refs[3]]
    for ref in models:
        with qtbot.waitSignal(context.loader.settled):
            context.go(ref, "step")
        settle(qtbot, window)
    for act, expected in ((window.undo, models[1]), (window.undo, models[0]), (window.redo, models[1])):
        for ref in models:
            store._models.pop(ref, None)
        act()
        qtbot.waitUntil(lambda wanted=expected: context.document.state.model == wanted)
        settle(qtbot, window)
        assert heat(window).values.shape == (len(context.document.state.tokens),) * 2
    store._models.clear()
    context.document.undo()  # as the editor of the prompt does
    assert context.document.state.model == models[0]
    qtbot.waitUntil(lambda: store.peek(models[0]) is not None)
    settle(qtbot, window)
    assert heat(window).values.shape == (len(context.document.state.tokens),) * 2


def test_another_shape_keeps_what_it_has_and_drops_the_rest(qtbot: Any, window: Window, tmp_path: Path) -> None:
    context = window.context
    small = directory(tmp_path / "small", TINY, n_layers=1, n_heads=3, n_kv_heads=3)
    state = with_edits(context.document.recorded, CUT, Intervention("zero", Site("result", 0, (1,))))
    context.document.apply(state.select(heads=(Head(1, 0), Head(0, 2)), destination=3, locked=True), "x")
    with qtbot.waitSignal(context.loader.settled):
        context.go(reference(str(small)), "small")
    settle(qtbot, window)
    now = context.document.recorded
    assert now.tokens == state.tokens and now.text == state.text
    assert [edit.site.layer for edit, _ in now.edits] == [0]
    assert now.selection.heads == (Head(0, 2),) and now.selection.destination == 3
    assert heat(window).values.shape == (len(now.tokens),) * 2
    with qtbot.waitSignal(context.loader.settled):
        context.go(reference("construct:rope-induction"), "constructed")
    settle(qtbot, window)
    now = context.document.recorded
    assert now.edits == () and now.selection.destination is None
    assert all(t < context.facts().config.d_vocab for t in now.tokens)


def test_a_pinned_model_is_opened_with_the_state(qtbot: Any, window: Window, refs: list[ModelRef], tmp_path: Path) -> None:
    context = window.context
    other = tmp_path / "other"
    shutil.copytree(refs[0].source.removeprefix("file:"), other)
    now = context.document.recorded
    pin = Pin("other", replace(now.subject, model=ModelRef(f"file:{other}", 4)), text=now.text)
    with qtbot.waitSignal(context.loader.settled):
        context.show(replace(now, model=refs[0], pins=(pin,), compare="difference"), "pinned")
    assert context.engine.store.peek(pin.subject.model) is not None
    settle(qtbot, window)
    assert dock(window, "attention").view.figure.title.startswith("now − other")


def test_a_pinned_model_that_has_been_closed_is_not_opened_to_be_drawn(
    qtbot: Any, window: Window, refs: list[ModelRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    context = window.context
    state = context.document.recorded
    pin = Pin("early", replace(state.subject, model=refs[0]), state.selection, state.text)
    context.show(replace(state, pins=(pin,), compare="difference"), "pin")
    settle(qtbot, window)
    assert context.facts().others(refs[0]) is not None
    here: list[ModelRef] = []
    staged = type(context.engine.store)._staged

    def spy(store: Any, ref: ModelRef) -> OpenModel:
        if threading.current_thread() is threading.main_thread():
            here.append(ref)
        return staged(store, ref)

    monkeypatch.setattr(type(context.engine.store), "_staged", spy)
    del context.engine.store._models[refs[0]]
    context.document.apply(context.document.recorded.select(heads=(Head(1, 1),)), "another head")
    settle(qtbot, window)
    dock(window, "attention").feed.draw()
    assert not here
    assert "not open" not in dock(window, "attention").view.figure.caption


def test_losses_that_failed_are_not_waited_for(qtbot: Any, window: Window) -> None:
    losses = window.prompt.losses
    losses._reference_request = losses._request
    losses._before = None
    assert losses.waiting
    losses.reference_slot.failed.emit(Cancelled(), None)
    assert not losses.waiting


def test_a_model_that_is_read_again_fills_every_panel_again(qtbot: Any, window: Window) -> None:
    """Other weights at the same place: each panel and the prompt show those, also one that was behind a tab meanwhile."""
    context, behind = window.context, dock(window, "bigram")
    behind.raise_()
    settle(qtbot, window)
    shown = [d for d in window._panels() if d.shown]
    dock(window, "predictions").raise_()
    settle(qtbot, window)
    assert not behind.shown and len(shown) > 2
    before, ref = heat(window).values.copy(), context.document.state.model
    old = context.engine.store.sha256(ref)
    folder = Path(ref.source.removeprefix("file:"))
    save_directory(folder, TINY, random_tensors(TINY, 7, 0.35), context.engine.store.open(ref).opened.weights.tokenizer)
    with qtbot.waitSignal(window.opening.opened):
        window.opening.reload()
    settle(qtbot, window)
    new = context.engine.store.sha256(ref)
    assert new != old and not np.allclose(heat(window).values, before, equal_nan=True)
    behind.raise_()
    settle(qtbot, window)
    drawn = {d.panel.name: d.feed.drawn_answers()["now"].values() for d in window._panels() if d.shown or d in shown}
    hashes = {name: {answer.provenance.weights for answer in answers} for name, answers in drawn.items()}
    assert hashes["bigram"] == {new} and not any(old in hashes[name] for name in hashes), hashes
    losses = window.prompt.losses
    assert losses._answer is not None and losses._answer.provenance.weights == new
