"""The prompt: an editor, beside it its tokens as they are typed, with their losses, and what the model would write next."""

from __future__ import annotations

import re
import time
import tomllib
from dataclasses import replace
from functools import lru_cache

from PySide6.QtCore import QEvent, QObject, QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QKeyEvent, QKeySequence, QShowEvent, QTextCursor
from PySide6.QtWidgets import QCheckBox, QComboBox, QDockWidget, QLabel, QPlainTextEdit, QSplitter, QVBoxLayout, QWidget

from circuitlab.errors import BadInput, CircuitLabError
from circuitlab.figures.marks import empty
from circuitlab.gui.bench import Bench
from circuitlab.gui.docks.prompt_losses import LossStrip
from circuitlab.gui.docks.prompt_writing import WritingControls
from circuitlab.gui.flow import FlowLayout
from circuitlab.gui.room import Room
from circuitlab.gui.title_bar import TitleBar
from circuitlab.model.forward import check_tokens
from circuitlab.paths import resource
from circuitlab.session.state import State

LEAST_LOSSES = QSize(96, 54)  # a line of tokens with its caption
MOST = 5  # of the window’s height, one part in so many is the most that the text asks for
BURST = 1.5  # s: typing after a longer pause is another step of undo
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
    """See the module. `height_wanted()`: its text has another number of lines, or another width to stand in."""

    height_wanted = Signal()

    def __init__(self, bench: Bench, parent: QWidget | None = None) -> None:
        super().__init__("Prompt", parent)
        self.setObjectName("dock.prompt")
        self.bench = bench
        self._filling = False
        self._burst, self._typed_at = 0, 0.0
        self._wanted = 0  # px of height when it was last asked for
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
        self.losses = LossStrip(self.bench, self)
        self.writing = WritingControls(self.bench, self)
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
        self.warning = QLabel(self)
        self.warning.setTextFormat(Qt.TextFormat.PlainText)
        self.warning.setProperty("role", "warning")
        self.warning.setWordWrap(True)
        self.warning.hide()

    def _lay_out(self) -> None:
        body = QWidget(self)
        outer = QVBoxLayout(body)
        outer.setContentsMargins(8, 4, 8, 4)
        outer.setSpacing(4)
        self.split = split = QSplitter(Qt.Orientation.Horizontal, body)
        self.room = Room(self.losses.view, split, LEAST_LOSSES)
        split.addWidget(self.editor)
        split.addWidget(self.room)
        split.setSizes([420, 860])
        split.setChildrenCollapsible(False)
        outer.addWidget(split, 1)
        outer.addWidget(self.warning)
        self.setWidget(body)
        head = QWidget(self)
        row = FlowLayout(head)
        for widget in (self.sample, self.bos, self.count, *self.writing.widgets):
            row.addWidget(widget)
        self.bar = TitleBar(self, self.bench, head)

    def _connect(self) -> None:
        bench = self.bench
        self.timer.timeout.connect(self.commit)
        self.editor.textChanged.connect(self._typed)
        self.bos.toggled.connect(self._bos)
        self.sample.activated.connect(self._sample)
        self.writing.about_to_write.connect(self.commit)
        self.losses.failed.connect(self._warn)
        self.losses.drawn.connect(self._measure)
        self.editor.document().documentLayout().documentSizeChanged.connect(self._measure)
        self.room.installEventFilter(self)
        self.editor.installEventFilter(self)
        bench.document.changed.connect(self._changed)

    def showEvent(self, event: QShowEvent) -> None:
        """First look."""
        super().showEvent(event)
        self.refresh()

    # -- height -------------------------------------------------------------------------------------------------------

    def natural_height(self) -> int:
        """px that its bar and all lines of its text ask for at the present width; a long text scrolls."""
        editor, body = self.editor, self.split.parentWidget()
        lines = max(1, round(editor.document().size().height())) * editor.fontMetrics().lineSpacing()
        text = lines + 2 * (editor.document().documentMargin() + editor.frameWidth())
        inside = max(LEAST_LOSSES.height(), round(text), self.losses.view.natural_height())
        margins = body.layout().contentsMargins()  # type: ignore[union-attr]
        warning = 0 if self.warning.isHidden() else self.warning.heightForWidth(max(self.split.width(), 1)) + 4
        most = max(LEAST_LOSSES.height(), (self.window().height() - self.bar.sizeHint().height()) // MOST)
        return self.bar.sizeHint().height() + margins.top() + min(inside, most) + warning + margins.bottom()

    def ask_height(self) -> int:
        """The same; another is said from now on."""
        self._wanted = self.natural_height()
        return self._wanted

    @Slot()
    def _measure(self, *_: object) -> None:
        if self.natural_height() != self._wanted:
            self.height_wanted.emit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Undo and redo belong to the document; Esc releases; Ctrl+Return continues."""
        if watched is self.room and event.type() == QEvent.Type.Resize:
            self._measure()
        if isinstance(event, QKeyEvent) and event.type() in (QEvent.Type.KeyPress, QEvent.Type.ShortcutOverride):
            undo, redo = event.matches(QKeySequence.StandardKey.Undo), event.matches(QKeySequence.StandardKey.Redo)
            if undo or redo:
                if event.type() == QEvent.Type.KeyPress:
                    self.commit()
                    (self.bench.driver.undo if undo else self.bench.driver.redo)()
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
        if tokens:
            check_tokens(self.bench.facts().config, tokens)

    @Slot(str)
    def _warn(self, text: str) -> None:
        self.warning.setText(text)
        self.warning.setVisible(bool(text))
        self._measure()

    @Slot(bool)
    def _bos(self, on: bool) -> None:
        state = self.bench.document.recorded
        if self._filling or on == state.bos:
            return
        tokens = self.tokens_of(self.editor.toPlainText(), on)
        self.bench.document.apply(replace(state, bos=on).with_text(state.text, tokens), "BOS on" if on else "BOS off")

    @Slot(int)
    def _sample(self, index: int) -> None:
        if index > 0:
            self.editor.setPlainText(samples()[index - 1][1])
            self.commit()
        self.sample.setCurrentIndex(0)

    def continue_text(self, n: int | None = None) -> None:
        """Let the model write on by `n` tokens, None: as many as the field says."""
        self.writing.start(n)

    def _text_of(self, state: State) -> str:
        """What the editor shows: the text; ids of tokens that came without one. BOS alone is the empty text."""
        tokenizer = self.bench.tokenizer()
        bare = tokenizer is not None and state.tokens == tokenizer.encode("", state.bos)
        return state.text if state.text or bare else " ".join(map(str, state.tokens))

    @Slot(object, object)
    def _changed(self, old: State, new: State) -> None:
        if _seen_here(old) != _seen_here(new):
            self.refresh()

    def refresh(self) -> None:
        """Show the document's text and tokens; ask for their losses."""
        state = self.bench.document.state
        if self.bench.engine.store.peek(state.model) is None:
            self.losses.view.show_figure(empty("Open a model: File → Open model…"))
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
        self.losses.refresh()

    @property
    def waiting(self) -> bool:
        """Whether the losses of what is shown are still to come."""
        return self.losses.waiting


def _seen_here(state: State) -> tuple[object, ...]:
    """What of a state this dock shows: another head or another panel's control is not part of it."""
    compared = state.compare, state.reference
    return state.subject, state.text, state.bos, state.selection.destination, state.selection.locked, compared
