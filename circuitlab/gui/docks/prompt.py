"""The prompt: an editor, its tokens as they are typed, their losses, and what the model would write next."""

from __future__ import annotations

import re
import time
import tomllib
from functools import lru_cache

import numpy as np
from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Slot
from PySide6.QtGui import QKeyEvent, QKeySequence, QShowEvent, QTextCursor
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDockWidget,
    QDoubleSpinBox,
    QLabel,
    QPlainTextEdit,
    QSpinBox,
    QSplitter,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from circuitlab.analysis.alignment import alignment_of
from circuitlab.analysis.token_loss import TokenLossParams, TokenLossResult
from circuitlab.draw.view import FigureView
from circuitlab.engine.request import Answer, Request
from circuitlab.errors import BadInput, Cancelled, CircuitLabError
from circuitlab.figures.common import pick_position, top_level
from circuitlab.figures.marks import ColourMap, Figure, Hit, Tokens, empty
from circuitlab.gui.bench import Bench
from circuitlab.gui.continuation import SLOT as WRITING
from circuitlab.gui.continuation import Continuation
from circuitlab.gui.flow import FlowLayout
from circuitlab.gui.icons import icon
from circuitlab.gui.title_bar import TitleBar
from circuitlab.paths import resource
from circuitlab.session.state import State

BURST = 1.5  # s: typing after a longer pause is another step of undo
SLOT, REFERENCE = "prompt/loss/now", "prompt/loss/ref"
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
        self._before: Answer | None = None
        self._asked_before: Request | None = None
        self._texts: tuple[tuple[int, ...], tuple[str, ...], tuple[str, ...]] = ((), (), ())
        self._filling = False
        self._burst, self._typed_at = 0, 0.0
        self._make_widgets()
        self._lay_out()
        self.timer = QTimer(self)
        self.timer.setSingleShot(True)
        self.timer.setInterval(bench.settings["debounce"])
        bench.settings.changed.connect(self._setting)
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
        self.sample.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.sample.setMinimumContentsLength(10)
        self.sample.setAccessibleName("Sample texts")
        self.sample.view().setMinimumWidth(300)
        self.sample.addItem("Samples…")
        for title, _ in samples():
            self.sample.addItem(title)
        self.how = QComboBox(self)
        self.how.addItems(["greedy", "sampled"])
        self.how.setToolTip("Greedy takes the most probable token; sampled draws one")
        self.how.setAccessibleName("How the text is continued")
        self.temperature = QDoubleSpinBox(self)
        self.temperature.setRange(0.05, 5.0)
        self.temperature.setSingleStep(0.1)
        self.temperature.setValue(1.0)
        self.temperature.setPrefix("T ")
        self.temperature.setToolTip("Temperature: logits are divided by it before the softmax")
        self.seed = QSpinBox(self)
        self.seed.setRange(0, 999_999)
        self.seed.setPrefix("seed ")
        self.seed.setToolTip("The same seed draws the same tokens; it moves on by one after each run")
        self.number = QSpinBox(self)
        self.number.setRange(1, 256)
        self.number.setValue(8)
        self.number.setToolTip("How many tokens are written")
        self.number.setAccessibleName("How many tokens are written")
        self.go = QToolButton(self)
        self.go.setProperty("role", "primary")
        self.go.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.warning = QLabel(self)
        self.warning.setTextFormat(Qt.TextFormat.PlainText)
        self.warning.setProperty("role", "warning")
        self.warning.setWordWrap(True)
        self.warning.hide()
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
        outer.addWidget(self.warning)
        self.setWidget(body)
        head = QWidget(self)
        row = FlowLayout(head)
        for widget in (self.sample, self.bos, self.count, self.how, self.temperature, self.seed, self.number, self.go):
            row.addWidget(widget)
        self.bar = TitleBar(self, self.bench, head)
        self._how()
        self._writing()

    def _connect(self) -> None:
        bench = self.bench
        self.timer.timeout.connect(self.commit)
        self.editor.textChanged.connect(self._typed)
        self.bos.toggled.connect(self._bos)
        self.sample.activated.connect(self._sample)
        self.go.clicked.connect(self.continue_or_stop)
        self.how.currentIndexChanged.connect(self._how)
        bench.runner.jobs_changed.connect(self._writing)
        bench.theme_changed.connect(self._writing)
        bench.document.changed.connect(self._changed)
        bench.runner.answered.connect(self._answered)
        bench.runner.failed.connect(self._failed)
        bench.theme_changed.connect(self.strip.set_theme)
        self.strip.set_theme(bench.theme)
        self.strip.picked.connect(self._picked)
        self.strip.hovered.connect(self._hovered)

    def showEvent(self, event: QShowEvent) -> None:
        """First look."""
        super().showEvent(event)
        self.refresh()

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

    @Slot(str)
    def _setting(self, name: str) -> None:
        if name == "debounce":
            self.timer.setInterval(self.bench.settings[name])

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
        now = time.monotonic()
        self._burst += now - self._typed_at > BURST
        self._typed_at = now
        self.bench.document.apply(state.with_text(kept, tokens), "typing", f"typing {self._burst}")

    def _check(self, tokens: tuple[int, ...]) -> None:
        """Raise `BadInput` for what the model cannot take; an empty prompt is allowed and says so in the panels."""
        from circuitlab.model.forward import check_tokens

        if tokens:
            check_tokens(self.bench.facts().config, tokens)

    def _warn(self, text: str) -> None:
        self.warning.setText(text)
        self.warning.setVisible(bool(text))

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
    def _how(self, *_: object) -> None:
        """Temperature and seed only where something is drawn."""
        sampled = self.how.currentText() == "sampled"
        self.temperature.setVisible(sampled)
        self.seed.setVisible(sampled)

    @Slot()
    def _writing(self, *_: object) -> None:
        """The button continues, or stops what is being written."""
        running = self.bench.runner.is_busy(WRITING)
        self.go.setText("Stop" if running else "Continue")
        self.go.setIcon(icon("stop" if running else "play", self.bench.theme, "text"))
        self.go.setToolTip("Stop writing; what is written stays" if running else "Let the model write on (Ctrl+Return)")

    @Slot()
    def continue_or_stop(self) -> None:
        """The button: start, or stop what is being written."""
        if self.bench.runner.is_busy(WRITING):
            self.bench.runner.cancel_slot(WRITING)
        else:
            self.continue_text()

    def continue_text(self, n: int | None = None) -> None:
        """Let the model write on by `n` tokens, None: as many as the field says."""
        self.commit()
        sampled = self.how.currentText() == "sampled"
        self.continuation.start(n or self.number.value(), sampled, self.temperature.value(), self.seed.value())
        self.seed.setValue(self.seed.value() + sampled)

    def _text_of(self, state: State) -> str:
        return state.text if state.text or not state.tokens else " ".join(map(str, state.tokens))

    @Slot(object, object)
    def _changed(self, old: State, new: State) -> None:
        if _seen_here(old) != _seen_here(new):
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
            "Begin the prompt with the beginning-of-sequence token" if facts.has_bos else "No BOS token in this model's tokenizer"
        )
        self.editor.setPlaceholderText("Type text here." if facts.has_tokenizer else "No tokenizer: type ids, such as 0 17 42")
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
        self._ask_before(state)

    def _ask_before(self, state: State) -> None:
        """The losses of the reference, where they are compared."""
        pin = state.reference
        compared = pin is not None and state.compare != "now" and state.tokens and pin.subject.tokens
        request = Request("token_loss", TokenLossParams(), pin.subject) if compared and pin is not None else None
        if request != self._asked_before:
            self._asked_before = request
            self._before = None if request is None else self.bench.runner.ask(REFERENCE, request)

    @Slot(str, object)
    def _answered(self, slot: str, answer: Answer) -> None:
        if slot == SLOT and answer.request == self._asked:
            self._answer = answer
            self.draw()
        elif slot == REFERENCE and answer.request == self._asked_before:
            self._before = answer
            self.draw()

    @Slot(str, object)
    def _failed(self, slot: str, error: BaseException) -> None:
        if slot == SLOT and isinstance(error, CircuitLabError) and not isinstance(error, Cancelled):
            self._warn(f"{error.what} {error.remedy}")

    @property
    def waiting(self) -> bool:
        """Whether the losses of what is shown are still to come."""
        late = self._asked is not None and (self._answer is None or self._answer.request != self._asked)
        return late or (self._asked_before is not None and self._before is None)

    def draw(self) -> None:
        """The token strip, coloured by loss where that is known for exactly these tokens."""
        state = self.bench.document.state
        if not state.tokens:
            self.strip.show_figure(empty("The prompt is empty: type some text, or choose a sample."))
            return
        facts = self.bench.facts()
        texts, tips = self._labels(state)
        result = self._answer.result if self._answer is not None and self._answer.request == self._asked else None
        top = float(np.log(facts.config.d_vocab_out))
        row, locked = state.selection.destination, state.selection.locked
        compared = self._compared(state, result)
        if compared is not None:
            values, levels, colours, said = compared
            mark = Tokens("prompt", texts, values, levels, colours, "nats", tips, row, locked)
            self.strip.show_figure(Figure(((mark,),), "", said))
            return
        values = result.loss if isinstance(result, TokenLossResult) else np.full(len(texts), np.nan, np.float32)
        mark = Tokens("prompt", texts, values, (0.0, top), "loss", "nats", tips, row, locked)
        self.strip.show_figure(Figure(((mark,),), "", self._caption(result, top)))

    def _compared(self, state: State, now: object) -> tuple[np.ndarray, tuple[float, float], ColourMap, str] | None:
        """Losses of the reference, or how they changed: values, levels, map, caption; None while nothing is compared."""
        before, pin = None if self._before is None else self._before.result, state.reference
        if (
            state.compare == "now"
            or pin is None
            or not isinstance(now, TokenLossResult)
            or not isinstance(before, TokenLossResult)
        ):
            return None
        aligned = alignment_of(state.tokens, pin.subject.tokens)
        there = np.where((aligned.align >= 0) & ~aligned.differs, before.loss[np.maximum(aligned.align, 0)], np.nan)
        same = "" if pin.subject.tokens == state.tokens else f" · {aligned.words}; only equal tokens are compared"
        if state.compare == "reference":
            top = float(np.log(self.bench.facts().config.d_vocab_out))
            return there, (0.0, top), "loss", f"colour: loss in {pin.label}, mean {before.mean:.3f} nats{same}"
        change = now.loss - there
        top = top_level(change)
        mean = f"mean {now.mean:.3f} − {before.mean:.3f} nats"
        return change, (-top, top), "signed", f"colour: change of loss, now minus {pin.label}, ± {top:.2f} nats · {mean}{same}"

    def _labels(self, state: State) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Display texts and tooltips, the same objects while the tokens are the same."""
        if self._texts[0] != state.tokens:
            texts = self.bench.facts().tokens(state.tokens)
            tips = tuple(f"position {i} · {t} · id {k}" for i, (t, k) in enumerate(zip(texts, state.tokens, strict=True)))
            self._texts = (state.tokens, texts, tips)
        return self._texts[1], self._texts[2]

    def _caption(self, result: object, top: float) -> str:
        if not isinstance(result, TokenLossResult) or not result.n_predicted:
            return "colour: loss of each token in nats"
        mean = f"mean {result.mean:.3f} nats over {result.n_predicted} tokens"
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


def _seen_here(state: State) -> tuple[object, ...]:
    """What of a state this dock shows: another head or another panel's control is not part of it."""
    compared = state.compare, state.reference
    return state.subject, state.text, state.bos, state.selection.destination, state.selection.locked, compared
