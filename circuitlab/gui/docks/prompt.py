"""The prompt: an editor, its tokens as they are typed, their losses, and what the model would write next."""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache

import numpy as np
from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Slot
from PySide6.QtGui import QKeyEvent, QKeySequence, QTextCursor
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDockWidget,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QSpinBox,
    QSplitter,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from circuitlab.analysis.token_loss import TokenLossParams, TokenLossResult
from circuitlab.draw.view import FigureView
from circuitlab.engine.request import Answer, Request
from circuitlab.errors import BadInput, Cancelled, CircuitLabError
from circuitlab.figures.common import pick_position
from circuitlab.figures.marks import Figure, Hit, Tokens, empty
from circuitlab.gui.bench import Bench
from circuitlab.gui.continuation import Continuation
from circuitlab.paths import resource
from circuitlab.session.state import State

DEBOUNCE = 60  # ms after the last keystroke
SLOT = "prompt/loss/now"
_IDS = re.compile(r"[,\s]+")


@lru_cache(maxsize=1)
def samples() -> tuple[tuple[str, str], ...]:
    """(title, text) of the sample prompts."""
    data = tomllib.loads(resource("prompts", "samples.toml").read_text(encoding="utf-8"))
    return tuple((s["title"], s["text"]) for s in data["samples"])


def parse_ids(text: str) -> tuple[int, ...]:
    """Token ids separated by spaces or commas. Raises `BadInput`."""
    try:
        return tuple(int(part) for part in _IDS.split(text.strip()) if part)
    except ValueError as error:
        raise BadInput("These are no token ids.", expected="whole numbers such as 0 17 42", got=text[:40]) from error


class PromptDock(QDockWidget):
    """See the module."""

    def __init__(self, bench: Bench, parent: QWidget | None = None) -> None:
        super().__init__("Prompt", parent)
        self.setObjectName("dock.prompt")
        self.bench = bench
        self._answer: Answer | None = None
        self._asked: Request | None = None
        self._texts: tuple[tuple[int, ...], tuple[str, ...], tuple[str, ...]] = ((), (), ())
        self._filling = False
        self._make_widgets()
        self._lay_out()
        self.timer = QTimer(self)
        self.timer.setSingleShot(True)
        self.timer.setInterval(DEBOUNCE)
        self._connect()

    def _make_widgets(self) -> None:
        self.editor = QPlainTextEdit(self)
        self.editor.setUndoRedoEnabled(False)  # the document owns Ctrl+Z
        self.editor.setPlaceholderText("Type text here.")
        self.editor.setAccessibleName("Prompt text")
        self.editor.setTabChangesFocus(True)
        self.editor.installEventFilter(self)
        self.strip = FigureView(parent=self)
        self.count = QLabel(self)
        self.count.setProperty("role", "caption")
        self.bos = QCheckBox("BOS", self)
        self.bos.setToolTip("Begin the prompt with the beginning-of-sequence token")
        self.sample = QComboBox(self)
        self.sample.addItem("Samples…")
        for title, _ in samples():
            self.sample.addItem(title)
        self.how = QComboBox(self)
        self.how.addItems(["greedy", "sampled"])
        self.how.setToolTip("Greedy takes the most probable token; sampled draws one at temperature 1")
        self.number = QSpinBox(self)
        self.number.setRange(1, 256)
        self.number.setValue(8)
        self.number.setToolTip("How many tokens are written")
        self.go = QToolButton(self)
        self.go.setText("Continue ▸")
        self.go.setToolTip("Let the model write on (Ctrl+Return)")
        self.warning = QLabel(self)
        self.warning.setTextFormat(Qt.TextFormat.PlainText)
        self.warning.setProperty("role", "caption")
        self.continuation = Continuation(self.bench, self)

    def _lay_out(self) -> None:
        body = QWidget(self)
        outer = QVBoxLayout(body)
        outer.setContentsMargins(8, 4, 8, 4)
        outer.setSpacing(4)
        split = QSplitter(Qt.Orientation.Horizontal, body)
        split.addWidget(self.editor)
        split.addWidget(self.strip)
        split.setSizes([420, 860])
        split.setChildrenCollapsible(False)
        outer.addWidget(split, 1)
        row = QHBoxLayout()
        row.setSpacing(8)
        for widget in (self.sample, self.bos, self.count):
            row.addWidget(widget)
        row.addWidget(self.warning, 1)
        for widget in (self.how, self.number, self.go):
            row.addWidget(widget)
        outer.addLayout(row)
        self.setWidget(body)

    def _connect(self) -> None:
        bench = self.bench
        self.timer.timeout.connect(self.commit)
        self.editor.textChanged.connect(self._typed)
        self.bos.toggled.connect(self._bos)
        self.sample.activated.connect(self._sample)
        self.go.clicked.connect(self.continue_text)
        bench.document.changed.connect(self._changed)
        bench.runner.answered.connect(self._answered)
        bench.runner.failed.connect(self._failed)
        bench.theme_changed.connect(self.strip.set_theme)
        self.strip.picked.connect(self._picked)
        self.strip.hovered.connect(self._hovered)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Undo and redo belong to the document; Esc releases; Ctrl+Return continues."""
        if isinstance(event, QKeyEvent) and event.type() in (QEvent.Type.KeyPress, QEvent.Type.ShortcutOverride):
            undo, redo = event.matches(QKeySequence.StandardKey.Undo), event.matches(QKeySequence.StandardKey.Redo)
            if undo or redo:
                if event.type() == QEvent.Type.KeyPress:
                    self.commit()
                    (self.bench.document.undo if undo else self.bench.document.redo)()
                event.accept()
                return True
        return False

    def tokens_of(self, text: str, bos: bool) -> tuple[int, ...]:
        """The prompt's tokens; without a tokenizer `text` holds ids. Raises `BadInput`."""
        tokenizer = self.bench.tokenizer()
        return parse_ids(text) if tokenizer is None else tokenizer.encode(text, bos)

    @Slot()
    def _typed(self) -> None:
        if not self._filling:
            self.timer.start()

    @Slot()
    def commit(self) -> None:
        """Take the editor's text into the document: typing is one step of undo per burst."""
        self.timer.stop()
        state, text = self.bench.document.recorded, self.editor.toPlainText()
        if self._filling or text == self._text_of(state):
            return
        try:
            tokens = self.tokens_of(text, state.bos)
            self._check(tokens)
        except CircuitLabError as error:
            self._warn(f"{error.what} Expected {error.expected}, got {error.got}.")
            return
        self._warn("")
        kept = text if self.bench.tokenizer() is not None else ""
        self.bench.document.apply(state.with_text(kept, tokens), "typing", "typing")

    def _check(self, tokens: tuple[int, ...]) -> None:
        """Raise `BadInput` for what the model cannot take; an empty prompt is allowed and says so in the panels."""
        from circuitlab.model.forward import check_tokens

        if tokens:
            check_tokens(self.bench.facts().config, tokens)

    def _warn(self, text: str) -> None:
        self.warning.setText(text)
        self.warning.setToolTip("")

    @Slot(bool)
    def _bos(self, on: bool) -> None:
        state = self.bench.document.recorded
        if self._filling or on == state.bos:
            return
        from dataclasses import replace

        tokens = self.tokens_of(self.editor.toPlainText(), on)
        self.bench.document.apply(replace(state, bos=on).with_text(state.text, tokens), "BOS on" if on else "BOS off")

    @Slot(int)
    def _sample(self, index: int) -> None:
        if index > 0:
            self.editor.setPlainText(samples()[index - 1][1])
            self.commit()
        self.sample.setCurrentIndex(0)

    @Slot()
    def continue_text(self) -> None:
        """Let the model write on; a second click stops it."""
        self.commit()
        self.continuation.start(self.number.value(), self.how.currentText() == "sampled")

    def _text_of(self, state: State) -> str:
        return state.text if state.text or not state.tokens else " ".join(map(str, state.tokens))

    @Slot(object, object)
    def _changed(self, old: State, new: State) -> None:
        self.refresh()

    def refresh(self) -> None:
        """Show the document's text and tokens; ask for their losses."""
        state = self.bench.document.state
        if self.bench.engine.store.peek(state.model) is None:
            self.strip.show_figure(empty("Open a model: File → Open model…"))
            return
        facts = self.bench.facts()
        self._filling = True
        if self._text_of(state) != self.editor.toPlainText() and not self.timer.isActive():
            self.editor.setPlainText(self._text_of(state))
            self.editor.moveCursor(QTextCursor.MoveOperation.End)
        self.bos.setChecked(state.bos and facts.has_bos)
        self.bos.setEnabled(facts.has_bos)
        self.bos.setToolTip(
            "Begin the prompt with the beginning-of-sequence token"
            if facts.has_bos
            else "No BOS token in this model's tokenizer"
        )
        self.editor.setPlaceholderText(
            "Type text here." if facts.has_tokenizer else "No tokenizer: type ids, such as 0 17 42"
        )
        self._filling = False
        limit = facts.config.n_ctx
        self.count.setText(f"{len(state.tokens)} / {limit} tokens")
        self._ask(state)
        self.draw()

    def _ask(self, state: State) -> None:
        request = Request("token_loss", TokenLossParams(), state.subject)
        if not state.tokens:
            self._asked = self._answer = None
        elif request != self._asked:
            self._asked = request
            found = self.bench.runner.ask(SLOT, request)
            self._answer = found or self._answer

    @Slot(str, object)
    def _answered(self, slot: str, answer: Answer) -> None:
        if slot == SLOT and answer.request == self._asked:
            self._answer = answer
            self.draw()

    @Slot(str, object)
    def _failed(self, slot: str, error: BaseException) -> None:
        if slot == SLOT and isinstance(error, CircuitLabError) and not isinstance(error, Cancelled):
            self._warn(f"{error.what} {error.remedy}")

    @property
    def waiting(self) -> bool:
        """Whether the losses of what is shown are still to come."""
        return self._asked is not None and (self._answer is None or self._answer.request != self._asked)

    def draw(self) -> None:
        """The token strip, coloured by loss where that is known for exactly these tokens."""
        state = self.bench.document.state
        if not state.tokens:
            self.strip.show_figure(empty("The prompt is empty: type some text, or choose a sample."))
            return
        facts = self.bench.facts()
        texts, tips = self._labels(state)
        result = self._answer.result if self._answer is not None and self._answer.request == self._asked else None
        values = result.loss if isinstance(result, TokenLossResult) else np.full(len(texts), np.nan, np.float32)
        top = float(np.log(facts.config.d_vocab_out))
        mark = Tokens(
            "prompt",
            texts,
            values,
            (0.0, top),
            "loss",
            "nats",
            tips,
            state.selection.destination,
            state.selection.locked,
        )
        self.strip.show_figure(Figure(((mark,),), "", self._caption(result, top)))

    def _labels(self, state: State) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Display texts and tooltips, the same objects while the tokens are the same."""
        if self._texts[0] != state.tokens:
            texts = self.bench.facts().tokens(state.tokens)
            tips = tuple(
                f"position {i} · {t} · id {k}" for i, (t, k) in enumerate(zip(texts, state.tokens, strict=True))
            )
            self._texts = (state.tokens, texts, tips)
        return self._texts[1], self._texts[2]

    def _caption(self, result: object, top: float) -> str:
        if not isinstance(result, TokenLossResult) or len(result.loss) < 2:
            return "colour: loss of each token in nats"
        mean = f"mean {result.mean:.3f} nats over {len(result.loss) - 1} tokens"
        return f"colour: loss of each token, 0 to {top:.1f} nats (uniform guess) · {mean}"

    @Slot(object)
    def _picked(self, hit: Hit) -> None:
        document = self.bench.document
        document.apply(pick_position(document.recorded, hit), "select a token")

    @Slot(object, str)
    def _hovered(self, hit: Hit, readout: str) -> None:
        self.bench.readout.emit(readout)
        document = self.bench.document
        if hit.gesture == "leave":
            document.end_preview()
        else:
            document.apply(pick_position(document.recorded, hit), "")
