"""Special tokens in the prompt: typed as they are spelled, marked where tokens are drawn, switched to letters and back."""

from __future__ import annotations

import json
from math import floor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import Qt

from circuitlab.draw.look.theme import LIGHT
from circuitlab.draw.painted.tokens import TokensMark
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.figures.marks import Tokens
from circuitlab.gui.docks.chat_dialog import ChatDialog
from circuitlab.gui.shell.window import Window
from circuitlab.model.text.tokenizer import Tokenizer
from tests.gui.driving import pixels, settle, shown_window
from tests.models import byte_tokenizer, directory, with_special
from tests.session_files import saved_and_opened

SPELLED = "ab<|bos|>c"
AS_TOKEN, AS_LETTERS = byte_tokenizer().encode(SPELLED, special=True), byte_tokenizer().encode(SPELLED)


def typed(qtbot: Any, window: Window, text: str = SPELLED) -> None:
    window.prompt.editor.setPlainText(text)
    qtbot.waitUntil(lambda: window.context.document.recorded.text == text)
    settle(qtbot, window)


def strip(view: FigureView) -> Tokens:
    (mark,) = view.figure.marks()
    assert isinstance(mark, Tokens)
    return mark


def test_a_spelling_is_its_token_and_letters_when_switched(qtbot: Any, window: Window, tmp_path: Path) -> None:
    prompt, recorded = window.prompt, lambda: window.context.document.recorded
    typed(qtbot, window)
    assert recorded().tokens == (0, *AS_TOKEN) and prompt.special.isChecked() and prompt.special.isEnabled()
    mark = strip(prompt.losses.view)
    assert mark.special == (0, 3) and mark.texts[3] == "<|bos|>" and "special token" in mark.tips[3]
    assert "special" not in mark.tips[1] and "<|bos|>" in prompt.special.toolTip()
    prompt.special.click()
    settle(qtbot, window)
    assert recorded().tokens == (0, *AS_LETTERS) and not recorded().special and recorded().text == SPELLED
    assert strip(prompt.losses.view).special == (0,)
    state = recorded()
    assert saved_and_opened(state, tmp_path, window.context.engine) == state
    typed(qtbot, window, SPELLED + "d")
    assert len(recorded().tokens) == len(AS_LETTERS) + 2, "typing goes on in letters"
    window.undo()
    window.undo()
    settle(qtbot, window)
    assert recorded().tokens == (0, *AS_TOKEN) and prompt.special.isChecked()
    window.redo()
    assert recorded().tokens == (0, *AS_LETTERS) and not prompt.special.isChecked()
    settle(qtbot, window)


def test_a_text_too_long_as_letters_becomes_a_draft_and_is_taken_back(qtbot: Any, window: Window) -> None:
    text = "<|bos|>" * 12  # 12 tokens, or 84 letters; the context holds 48
    typed(qtbot, window, text)
    window.prompt.special.click()
    settle(qtbot, window)
    state = window.context.document.recorded
    assert state.draft == text and "36 more" not in window.prompt.warning.text() and "context" in window.prompt.warning.text()
    window.prompt.special.click()
    settle(qtbot, window)
    assert window.context.document.recorded.text == text and not window.context.document.recorded.draft


def test_what_the_model_writes_behind_a_special_token_has_its_text(qtbot: Any, window: Window) -> None:
    typed(qtbot, window)
    window.prompt.continue_text(2)
    qtbot.waitUntil(lambda: len(window.context.document.recorded.tokens) == len(AS_TOKEN) + 3)
    settle(qtbot, window)
    state = window.context.document.recorded
    assert not state.text or byte_tokenizer().encode(state.text, True, True) == state.tokens


def test_a_slow_tokenizer_reads_them_on_its_thread(qtbot: Any, window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    typed(qtbot, window)
    monkeypatch.setattr(Tokenizer, "quick", lambda *_: False)
    window.prompt.special.click()
    qtbot.waitUntil(lambda: window.context.document.recorded.tokens == (0, *AS_LETTERS))
    settle(qtbot, window)
    assert not window.context.document.recorded.draft


def test_a_model_without_them_has_no_switch(qtbot: Any, tmp_path: Path) -> None:
    with shown_window(qtbot, directory(tmp_path / "ids", tokenizer=False)) as window:
        assert not window.prompt.special.isEnabled() and "no special tokens" in window.prompt.special.toolTip()


def test_the_frame_is_painted_around_the_token_alone(qtbot: Any) -> None:
    texts, values = ("ab", "<s>", "cd"), np.full(3, np.nan, np.float32)
    widget = TokensMark(LIGHT)
    qtbot.addWidget(widget)
    widget.resize(300, 60)
    widget.show()
    widget.show_mark(Tokens("t", texts, values))
    bare = pixels(widget.viewport())
    widget.show_mark(Tokens("t", texts, values, special=(1,)))
    changed = (pixels(widget.viewport()) != bare).any(-1)
    box = widget.item_rect((1,))
    columns = np.flatnonzero(changed.any(0))
    assert changed.sum() > 10
    assert floor(box.left()) <= columns.min() and columns.max() <= box.right()


def test_any_special_token_is_put_in_front(qtbot: Any, tmp_path: Path) -> None:
    with shown_window(qtbot, with_special(directory(tmp_path / "m"), "<|x|>", "<|y|>")) as window:
        front, recorded = window.prompt.front, lambda: window.context.document.recorded
        assert [front.itemText(i) for i in range(front.count())] == ["no BOS", "BOS <|bos|>", "<|x|>", "<|y|>"]
        rest = recorded().tokens[1:]
        for index, first, chosen in ((3, (258,), (False, "<|y|>")), (0, (), (False, "")), (2, (257,), (False, "<|x|>"))):
            front.setCurrentIndex(index)
            front.activated.emit(index)
            settle(qtbot, window)
            assert recorded().tokens == (*first, *rest) and (recorded().bos, recorded().front) == chosen
        assert strip(window.prompt.losses.view).special == (0,) and "<|x|>" in window.top.conventions.accessibleName()
        typed(qtbot, window, "ab")
        assert recorded().tokens == (257, 65, 66)
        window.undo()
        window.undo()
        settle(qtbot, window)
        assert recorded().tokens == rest and front.currentIndex() == 0
        window.redo()
        settle(qtbot, window)
        assert front.currentText() == "<|x|>"
        assert saved_and_opened(recorded(), tmp_path, window.context.engine) == recorded()


def test_a_chat_message_is_the_prompt_as_the_model_was_trained(qtbot: Any, tmp_path: Path) -> None:
    folder = with_special(directory(tmp_path / "m"), "<|x|>")
    settings = {"chat_template": "<|x|>{{ messages[0].content }}{% if add_generation_prompt %}<|bos|>{% endif %}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    with shown_window(qtbot, folder) as window:
        prompt = window.prompt
        typed(qtbot, window, "ab")
        prompt.special.click()
        last = prompt.sample.count() - 1
        assert prompt.sample.itemText(last) == "As a chat message…"
        prompt.sample.activated.emit(last)
        dialog = prompt.findChild(ChatDialog)
        assert dialog is not None and dialog.user.toPlainText() == "ab"
        qtbot.mouseClick(dialog.primary, Qt.MouseButton.LeftButton)
        qtbot.waitUntil(lambda: window.context.document.recorded.text == "<|x|>ab<|bos|>")
        settle(qtbot, window)
        state = window.context.document.recorded
        assert state.tokens == (257, 65, 66, 0) and state.special and not state.bos
        window.undo()
        assert window.context.document.recorded.text == "ab" and not window.context.document.recorded.special
        settle(qtbot, window)


def test_a_model_without_a_template_says_so(qtbot: Any, window: Window) -> None:
    sample = window.prompt.sample
    last = sample.count() - 1
    assert "no template" in sample.itemText(last)
    sample.activated.emit(last)
    assert window.prompt.findChild(ChatDialog) is None
