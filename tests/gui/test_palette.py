"""The palette: words before scattered letters; panels, heads, models and tokens; and where the keyboard goes."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QWidget

from circuitlab.gui.panel.panel_dock import PanelDock
from circuitlab.gui.shell.commands import COMMANDS
from circuitlab.gui.shell.palette import Entry, Palette, rank
from circuitlab.gui.shell.palette_entries import SearchEntries
from circuitlab.gui.shell.window import Window
from circuitlab.model.subject import Head, Target
from tests.gui.driving import dock, settle


def opened(qtbot: Any, window: Window, typed: str = "") -> Palette:
    window.menus.refresh()
    palette = Palette([*window.menus.actions, *window.menus.lessons], window, SearchEntries(window.context, window.opening))
    window.menus.enable()
    qtbot.addWidget(palette)
    qtbot.keyClicks(palette.line, typed)
    return palette


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.enabled.__name__ == "_always"], ids=lambda c: c.name)
def test_the_whole_title_is_the_first_line(command: Any) -> None:
    others = [c.title for c in COMMANDS if c.title != command.title]
    assert all(rank(command.title, command.title) > rank(command.title, title) for title in others)


def test_words_come_before_scattered_letters() -> None:
    assert rank("pin", "Pin this as the reference") > rank("pin", "Compare in the panel") > (0, 0)
    assert rank("log", "Go to Log") > rank("log", "Logits of it, larger")
    assert rank("text larger", "Larger text") > rank("text larger", "Continue the text, later")
    assert rank("zzz", "Reset layout") == (0, 0)


def test_panels_heads_models_and_tokens_are_known(qtbot: Any, window: Window) -> None:
    for panel in (d for d in window.docks.values() if isinstance(d, PanelDock)):
        assert opened(qtbot, window, panel.windowTitle()).entries[0].title == f"Go to {panel.windowTitle()}"
    palette = opened(qtbot, window, "L1H3")
    assert palette.entries[0].title == "L1H3"
    palette.choose()
    assert window.context.document.recorded.selection.heads == (Head(1, 3),)
    assert [e.title for e in opened(qtbot, window, "l0").entries[:4]] == ["L0H0", "L0H1", "L0H2", "L0H3"]
    assert not any(e.title.startswith("L7") for e in opened(qtbot, window, "L7H0").entries)
    assert "Open attn-only-1l" in [e.title for e in opened(qtbot, window, "attn-only-1l").entries][:2]
    settle(qtbot, window)


def test_a_token_of_the_prompt_is_read_at_and_one_of_the_vocabulary_measured(qtbot: Any, window: Window) -> None:
    entries = opened(qtbot, window, "w").entries
    assert any("position" in e.title for e in entries[:8])
    next(e for e in entries if "position" in e.title).run()
    selection = window.context.document.recorded.selection
    assert selection.locked and selection.destination is not None
    assert window.context.facts().token_text(window.context.document.recorded.tokens[selection.destination]) == "w"
    token = next(e for e in opened(qtbot, window, "w").entries if e.title.startswith("Measure"))
    token.run()
    target = window.context.document.recorded.selection.target
    assert target != Target() and window.context.facts().token_text(target.tokens[0]) in token.title
    settle(qtbot, window)


def test_a_command_stands_before_tokens_that_are_spelt_alike(qtbot: Any, window: Window) -> None:
    command, token = Entry("Write a report…", lambda: None), Entry("Measure ‘·report’, token 3631", lambda: None, token=True)
    for typed in ("report", "Report", "write report"):
        assert command.rank(typed) > token.rank(typed), typed
    assert token.rank("report") > (0, 0)
    entries = opened(qtbot, window, "open").entries
    assert not entries[0].token and entries[0].title.startswith("Open")
    settle(qtbot, window)


def test_going_to_a_panel_puts_the_keyboard_into_it(qtbot: Any, window: Window) -> None:
    window.activateWindow()
    for name in ("attention", "predictions", "prompt", "log", "lessons", "interventions", "circuits", "spectra"):
        window.layout_of_docks.go_to(name)
        settle(qtbot, window)
        focus = QApplication.focusWidget()
        assert focus is not None, name
        place = window.docks[name]
        assert place.isAncestorOf(focus), name
        if isinstance(place, PanelDock):
            assert place.view.isAncestorOf(focus), name
            assert not place.controls.isAncestorOf(focus), name
        if name == "prompt":
            assert focus is window.prompt.editor


def test_the_arrows_walk_at_once(qtbot: Any, window: Window) -> None:
    window.activateWindow()
    window.layout_of_docks.go_to("overview")
    settle(qtbot, window)
    focus = QApplication.focusWidget()
    assert isinstance(focus, QWidget)
    with qtbot.waitSignal(dock(window, "overview").view.hovered):
        qtbot.keyClick(focus, Qt.Key.Key_Right)
