"""Other weights at the same place: whoever reads them, no number of the old ones is shown any more, nor exported as theirs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.gui.shell.window import Window
from circuitlab.model.saving import random_tensors, save_directory
from tests.gui.driving import dock, heat, settle
from tests.models import TINY
from tests.patience import SECONDS


def rewrite(window: Window, seed: int) -> None:
    """Other weights in the folder of the model that is shown."""
    ref = window.context.document.recorded.model
    tokenizer = window.context.tokenizer()
    save_directory(Path(ref.source.removeprefix("file:")), TINY, random_tensors(TINY, seed, 0.35), tokenizer)


def of_the_files(window: Window) -> Any:
    """What the panel of attention has to show of the files as they are now, computed elsewhere."""
    request = dock(window, "attention").feed.exchange.requests["now"]["attention"]
    return Engine(ModelStore()).answer(request).result.values


def shows_the_files(window: Window) -> bool:
    return bool(np.allclose(np.nan_to_num(heat(window).values), np.nan_to_num(of_the_files(window)[0]), atol=1e-5))


def test_opened_again_the_second_time_too_it_shows_what_the_files_hold(qtbot: Any, window: Window) -> None:
    """As “Open the newest checkpoint” does, in one folder each time."""
    source = window.context.document.recorded.model.source
    assert shows_the_files(window)
    for seed in (7, 8):
        rewrite(window, seed)
        assert not shows_the_files(window)
        with qtbot.waitSignal(window.opening.opened):
            window.open_model(source)
        settle(qtbot, window)
        assert shows_the_files(window)
        (loss,) = [window.prompt.losses._answer]
        assert loss is not None and window.context.is_current(loss)


def test_read_again_behind_the_window_every_exchange_forgets(qtbot: Any, window: Window) -> None:
    """By a sweep or a download on a thread of their own: shown docks are answered anew, and hidden ones when they are shown."""
    behind = dock(window, "bigram")
    behind.raise_()
    settle(qtbot, window)
    dock(window, "predictions").raise_()
    settle(qtbot, window)
    assert behind.feed.exchange.answers["now"] and not behind.shown
    rewrite(window, 7)
    store, ref = window.context.engine.store, window.context.document.recorded.model
    reading = threading.Thread(target=lambda: store.reload(ref))
    with qtbot.waitSignal(window.context.read_again):
        reading.start()
    reading.join(SECONDS)
    assert not behind.feed.exchange.answers["now"]
    settle(qtbot, window)
    assert shows_the_files(window)
    assert window.prompt.losses._answer is not None and window.context.is_current(window.prompt.losses._answer)
    behind.raise_()
    settle(qtbot, window)
    answers = behind.feed.exchange.answers["now"].values()
    assert answers and all(answer.provenance.weights == store.sha256(ref) for answer in answers)


def test_an_answer_that_was_under_way_is_not_taken_for_one_of_the_new_weights(
    qtbot: Any, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange, context = dock(window, "attention").feed.exchange, window.context
    late = exchange.answers["now"]["attention"]
    asked = list[Any]()
    monkeypatch.setattr(context.runner, "ask", lambda slot, request: asked.append((slot, request)))
    rewrite(window, 7)
    with qtbot.waitSignal(window.opening.opened):
        window.opening.reload()
    slot = exchange.slot("now", "attention")
    assert (slot, late.request.asked) in [(one, request.asked) for one, request in asked]
    slot.answered.emit(late, slot.role)
    assert not exchange.answers["now"] and exchange.waiting
    slot.answered.emit(context.engine.answer(late.request), slot.role)
    assert not exchange.waiting and shows_the_files(window)
