"""Text that the model cannot take, or whose tokens take long: it is counted, said, offered a cut, and never lost."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt

from circuitlab.gui.docks.prompt_reading import PromptText
from circuitlab.gui.panel.panel_dock import PanelDock
from circuitlab.gui.shell.errors import ErrorDialog
from circuitlab.gui.shell.window import Window
from circuitlab.model.text import tokenizer_process
from circuitlab.model.text.tokenizer import Tokenizer
from tests.gui.driving import TEXT, dock, settle, shown_window
from tests.models import byte_tokenizer, directory
from tests.session_files import saved_and_opened
from tests.unit.test_hostile_tokenizers import cut, doubling, written

LONG = "x" * 60  # 61 tokens with BOS; the context holds 48


def overflow(qtbot: Any, window: Window, text: str = LONG) -> None:
    window.prompt.editor.setPlainText(text)
    qtbot.waitUntil(lambda: window.context.document.recorded.draft == text)
    settle(qtbot, window)


def test_a_prompt_too_long_is_counted_and_the_panels_say_what_they_show(qtbot: Any, window: Window) -> None:
    subject = window.context.document.state.subject
    overflow(qtbot, window)
    prompt = window.prompt
    assert prompt.count.text().startswith("61 / 48")
    assert prompt.count.property("role") == "warning"
    assert prompt.warning.isVisible() and "13" in prompt.warning.text()
    assert window.context.document.state.subject == subject
    assert "earlier prompt" in dock(window, "attention").view.figure.title
    assert "before" in prompt.losses.view.figure.caption
    prompt.editor.setPlainText(TEXT)
    qtbot.waitUntil(lambda: not window.context.document.recorded.draft)
    settle(qtbot, window)
    assert not prompt.warning.isVisible()
    assert prompt.count.property("role") == "caption"
    assert "earlier" not in dock(window, "attention").view.figure.title


def test_a_panel_of_weights_has_no_earlier_prompt(qtbot: Any, window: Window) -> None:
    window.layout_of_docks.arrange("Weights")
    settle(qtbot, window)
    overflow(qtbot, window)
    shown = [d for d in window.docks.values() if isinstance(d, PanelDock) and d.shown and d.view.figure.grid]
    marked = {d.panel.name for d in shown if "earlier" in d.view.figure.title}
    assert {"spectra", "heads"} <= {d.panel.name for d in shown} - marked, "weights, and random tokens"


def test_undo_and_redo_lose_nothing_of_what_was_typed(qtbot: Any, window: Window) -> None:
    overflow(qtbot, window)
    editor = window.prompt.editor
    qtbot.keyClick(editor, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert editor.toPlainText() == TEXT
    qtbot.keyClick(editor, Qt.Key.Key_Y, Qt.KeyboardModifier.ControlModifier)
    assert editor.toPlainText() == LONG
    assert window.prompt.count.text().startswith("61 / 48")
    settle(qtbot, window)


def test_the_first_tokens_are_offered_and_taken_back(qtbot: Any, window: Window) -> None:
    text = "äöü " * 20  # two bytes a letter: the cut falls within one
    overflow(qtbot, window, text)
    window.prompt.shorten.click()
    qtbot.waitUntil(lambda: not window.context.document.recorded.draft)
    settle(qtbot, window)
    state = window.context.document.recorded
    assert text.startswith(state.text) and 46 <= len(state.tokens) <= 48
    assert state.tokens == byte_tokenizer().encode(state.text, True)
    assert window.prompt.editor.toPlainText() == state.text
    window.undo()
    assert window.prompt.editor.toPlainText() == text
    settle(qtbot, window)


def test_ids_too_many_are_cut_as_ids(qtbot: Any, tmp_path: Path) -> None:
    with shown_window(qtbot, directory(tmp_path / "ids", tokenizer=False)) as window:
        overflow(qtbot, window, " ".join(["7"] * 50))
        window.prompt.shorten.click()
        qtbot.waitUntil(lambda: window.context.document.recorded.tokens == (7,) * 48)
        settle(qtbot, window)


def test_what_is_no_prompt_at_all_is_not_lost_either(qtbot: Any, tmp_path: Path) -> None:
    with shown_window(qtbot, directory(tmp_path / "ids", tokenizer=False)) as window:
        window.prompt.editor.setPlainText("3 4")
        qtbot.waitUntil(lambda: window.context.document.recorded.tokens == (3, 4))
        settle(qtbot, window)
        window.prompt._typed_at = -math.inf  # a pause: another burst
        overflow(qtbot, window, "3 4 x")
        assert not window.prompt.shorten.isVisible()
        window.undo()
        assert window.prompt.editor.toPlainText() == "3 4"
        window.redo()
        assert window.prompt.editor.toPlainText() == "3 4 x"
        settle(qtbot, window)


def _front(window: Window, index: int) -> None:
    window.prompt.front.setCurrentIndex(index)
    window.prompt.front.activated.emit(index)


def test_bos_finds_no_room_in_a_full_context(qtbot: Any, window: Window) -> None:
    _front(window, 0)
    overflow(qtbot, window, "y" * 60)
    window.prompt.shorten.click()
    qtbot.waitUntil(lambda: len(window.context.document.recorded.tokens) == 48)
    _front(window, 1)
    assert not window.context.document.recorded.bos and window.prompt.front.currentIndex() == 0
    assert "no room" in window.status.readout.text()
    settle(qtbot, window)


def test_a_draft_is_kept_in_a_session_and_taken_by_a_longer_context(qtbot: Any, window: Window, tmp_path: Path) -> None:
    overflow(qtbot, window)
    state = window.context.document.recorded
    assert saved_and_opened(state, tmp_path, window.context.engine) == state and state.draft == LONG
    window.prompt.writing.start(1)
    assert window.context.document.recorded.tokens == state.tokens, "nothing is written behind a text that is not shown"
    window.open_model(str(directory(tmp_path / "longer", n_ctx=100)))
    qtbot.waitUntil(lambda: window.context.document.recorded.model.name == "longer")
    settle(qtbot, window)
    assert window.context.document.recorded.text == LONG
    assert len(window.context.document.recorded.tokens) == 61


def test_a_long_text_is_read_on_another_thread(qtbot: Any, window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[threading.Thread] = set()
    encode = Tokenizer._ids

    def watched(self: Tokenizer, text: str, *how: bool) -> tuple[int, ...]:
        if len(text) > 1000:
            threads.add(threading.current_thread())
        return encode(self, text, *how)

    monkeypatch.setattr(Tokenizer, "_ids", watched)
    overflow(qtbot, window, "z" * 20_000)
    assert window.prompt.count.text().startswith("20001 / 48")
    assert threads and threading.main_thread() not in threads


@pytest.mark.parametrize(
    "changes", [{"pre_tokenizer": cut("(?:(a+)+b)|c")}, {"normalizer": doubling(30)}], ids=["regex", "doubling"]
)
def test_a_hostile_tokenizer_is_said_and_typing_goes_on(
    qtbot: Any, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    monkeypatch.setattr(tokenizer_process, "SECONDS", 0.4)
    folder = directory(tmp_path / "hostile")
    spec = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    written(folder, **(changes | {"added_tokens": spec["added_tokens"]}))
    if "normalizer" in changes:  # one letter is too much for it: the model is not opened
        monkeypatch.setattr(ErrorDialog, "open", lambda dialog: None)
        with qtbot.waitSignal(window.context.failed):
            window.open_model(str(folder))
        assert window.context.document.recorded.text == TEXT
        return
    threads: list[threading.Thread] = []
    encode = tokenizer_process.TokenizerProcess.encode

    def watched(self: Any, text: str, *how: bool) -> list[int]:
        threads.append(threading.current_thread())
        return encode(self, text, *how)

    monkeypatch.setattr(tokenizer_process.TokenizerProcess, "encode", watched)
    window.open_model(str(folder))
    qtbot.waitUntil(lambda: window.context.document.recorded.model.name == "hostile")
    settle(qtbot, window)
    with qtbot.waitSignal(window.prompt.reader.tokenized) as tokenized:
        window.prompt.editor.setPlainText("a" * 4000)
    prompt = tokenized.args[0]
    assert isinstance(prompt, PromptText) and prompt.error is not None
    assert prompt.error.what in window.prompt.warning.text()
    window.prompt.editor.setPlainText("one")
    qtbot.waitUntil(lambda: window.context.document.recorded.text == "one")
    settle(qtbot, window)
    assert threads and threading.main_thread() not in threads
