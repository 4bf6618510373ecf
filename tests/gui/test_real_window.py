"""The window on a real language model: every panel and every command, a session with a cut, written and opened again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from circuitlab.gui.places.arrangements import ARRANGEMENTS
from circuitlab.gui.shell.commands import COMMANDS
from circuitlab.gui.shell.window import Window
from circuitlab.model.subject import Head
from tests.gui.driving import dock, go, save, settle, shown_window
from tests.gui.test_shipped_walk import ASIDE
from tests.real_file import smollm2
from tests.words import fault_in_figure

pytestmark = pytest.mark.slow

TEXT = "Mr and Mrs Dursley of number four were proud to say that Mr and Mrs Durs"


def named(arrangement: str) -> tuple[str, ...]:
    """The panels that an arrangement names."""
    return tuple(name for stack in ARRANGEMENTS[arrangement].stacks() for name in stack.tabs)


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_every_panel_draws_or_says_why_not(qtbot: Any, arrangement: str) -> None:
    """Each as far as its first numbers: what goes on after them is stopped."""
    with shown_window(qtbot, smollm2(), TEXT) as window, qtbot.captureExceptions() as raised:
        window.layout_of_docks.arrange(arrangement)
        others = [name for name in window.docks if not any(name in named(one) for one in ARRANGEMENTS)]
        for name in (*named(arrangement), *(others if arrangement == "Explore" else ())):
            if name not in {d.panel.name for d in window._panels()}:
                continue  # a dock that is no panel
            window.layout_of_docks.go_to(name)
            view = dock(window, name).view
            qtbot.waitUntil(lambda view=view: bool(view.figure.grid or view.figure.why_empty))
            assert not fault_in_figure(view.figure.why_empty), (name, view.figure.why_empty)
            window.context.runner.cancel_all()
        assert not raised
        qtbot.waitUntil(lambda: not window.context.runner.busy)


def test_every_command_can_be_given(qtbot: Any) -> None:
    with shown_window(qtbot, smollm2(), TEXT) as window, qtbot.captureExceptions() as raised:
        for command in COMMANDS:
            if command.name not in ASIDE and command.enabled(window):
                command.run(window)
                window.context.runner.cancel_all()
        assert not raised
        assert not any(fault_in_figure(d.view.figure.why_empty) for d in window._panels())


def first_choice(window: Window) -> tuple[str, float]:
    """What the panel Predictions lists first, and its probability."""
    ((_, answer),) = dock(window, "predictions").feed.exchange.answers["now"].items()
    ids, log_probs = answer.result.ids, answer.result.log_probs
    return window.context.facts().token_text(int(ids[0])), float(log_probs[0])


def test_it_is_typed_into_cut_saved_and_opened_again(qtbot: Any, tmp_path: Path) -> None:
    path = tmp_path / "real.circuitlab"
    with shown_window(qtbot, smollm2(), "The") as window:
        window.prompt.editor.setPlainText(TEXT)
        window.prompt.commit()
        window.layout_of_docks.go_to("predictions")
        settle(qtbot, window)
        token, uncut = first_choice(window)
        assert token == "ley", "said before"
        context = window.context
        context.apply(context.document.recorded.with_heads(Head(16, 0)), "select")
        go(window, "ablate")
        settle(qtbot, window)
        assert first_choice(window) != (token, uncut)
        after, state = first_choice(window), context.document.recorded
        table = save(qtbot, window, path)
        assert table["now"]["cut"] == ["L16H0"] and table["now"]["text"] == TEXT
        window.sessions.hold.release()  # as when it is closed
    with shown_window(qtbot, smollm2(), "Another text") as window:
        with qtbot.waitSignal(window.sessions.opened):
            window.sessions.open(path)
        settle(qtbot, window)
        window.layout_of_docks.go_to("predictions")
        settle(qtbot, window)
        assert window.context.document.recorded == state and window.prompt.editor.toPlainText() == TEXT
        assert first_choice(window) == after
