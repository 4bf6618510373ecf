"""The prompt: an editor, beside it the tokens of its text coloured by their losses, and controls to let the model continue it."""

from __future__ import annotations

import time
import tomllib
from dataclasses import replace
from functools import lru_cache

from PySide6.QtCore import QEvent, QObject, QPoint, QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QKeyEvent, QKeySequence, QShowEvent, QStandardItemModel, QTextCursor
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDockWidget,
    QHBoxLayout,
    QPlainTextEdit,
    QSplitter,
    QVBoxLayout,
    QWidget,
)

from circuitlab.counting import number_of
from circuitlab.disk.paths import resource
from circuitlab.draw.look.plain_text import PlainLabel, tip_of
from circuitlab.draw.look.style_rules import set_role
from circuitlab.errors import Cancelled, TooLong
from circuitlab.figures.contracts.facts import Facts
from circuitlab.figures.marks import Hit, empty
from circuitlab.gui.docks.bos_words import bos_words
from circuitlab.gui.docks.chat_dialog import ChatDialog
from circuitlab.gui.docks.front_choice import FrontChoice
from circuitlab.gui.docks.prompt_losses import LossStrip
from circuitlab.gui.docks.prompt_reading import PromptReader, PromptText
from circuitlab.gui.docks.prompt_writing import WritingControls
from circuitlab.gui.docks.token_menu import TokenMenu
from circuitlab.gui.panel.title_bar import TitleBar
from circuitlab.gui.widgets.buttons import push
from circuitlab.gui.widgets.one_row import OneRow
from circuitlab.gui.widgets.room import Room
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.state_commands import StateCommands
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.text.chat_template import rendered
from circuitlab.model.text.reading import Front, Reading
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.state.state import State

LEAST_LOSSES = QSize(96, 54)  # a line of tokens with its caption
LARGEST_PART = 5  # the text asks for at most a fifth of the window’s height
SPELLINGS = 6  # of special tokens that a tip lists
CHAT = "As a chat message…"
BURST = 1.5  # s: typing after a longer pause is another step of undo


@lru_cache(maxsize=1)
def samples() -> tuple[tuple[str, str], ...]:
    """(title, text) of the sample prompts."""
    data = tomllib.loads(resource("prompts", "samples.toml").read_text(encoding="utf-8"))
    return tuple((s["title"], s["text"]) for s in data["samples"])


class PromptDock(QDockWidget):
    """See the module. `height_changed()`: its natural height is no longer what `announce_height` returned."""

    height_changed = Signal()

    def __init__(self, context: AppContext, state_commands: StateCommands, parent: QWidget | None = None) -> None:
        super().__init__("Prompt", parent)
        self.setObjectName("dock.prompt")
        self.context, self.state_commands = context, state_commands
        self._filling = False
        self._burst, self._typed_at = 0, 0.0
        self._announced_height = 0  # px, as last returned by `announce_height`
        self.reader = PromptReader(context, self)
        self._chat_dialog: ChatDialog | None = None
        self._chat_slot = WorkSlot(self, finished=self._chat_rendered, failed=self._chat_failed)
        self._make_widgets()
        self._lay_out()
        self.timer = QTimer(self)
        self.timer.setSingleShot(True)
        self.timer.setInterval(context.settings["debounce"])
        context.settings.changed.connect(self._setting_changed)
        self._connect()

    def _make_widgets(self) -> None:
        self.editor = QPlainTextEdit(self)
        self.editor.setUndoRedoEnabled(False)  # the document owns Ctrl+Z
        self.editor.setPlaceholderText("Type text here.")
        self.editor.setAccessibleName("Prompt text")
        self.editor.setTabChangesFocus(True)
        self.losses = LossStrip(self.context, self)
        self.token_menu = TokenMenu(self.context, self.state_commands, self.losses.view.copy_image, self)
        self.writing = WritingControls(self.context, self)
        self.count = PlainLabel(self)
        self.count.setProperty("role", "caption")
        self.front = FrontChoice(self)
        self.special = QCheckBox("Special tokens", self)
        self.special.setAccessibleName("Special tokens as written")
        self.sample = QComboBox(self)
        self.sample.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.sample.setMinimumContentsLength(10)
        self.sample.setAccessibleName("Sample texts")
        self.sample.view().setMinimumWidth(300)
        self.sample.addItem("Samples…")
        for title, _ in samples():
            self.sample.addItem(title)
        self.sample.addItem(CHAT)
        self.warning = PlainLabel(self)
        self.warning.setTextFormat(Qt.TextFormat.PlainText)
        self.warning.setProperty("role", "warning")
        self.warning.setWordWrap(True)
        self.shorten = push(self, "", self._shorten)
        self.shorten.setToolTip("Truncate the text at the end of the model’s context; Ctrl+Z restores the rest")

    def _lay_out(self) -> None:
        body = QWidget(self)
        outer = QVBoxLayout(body)
        outer.setContentsMargins(8, 4, 8, 4)
        outer.setSpacing(4)
        self.split = split = QSplitter(Qt.Orientation.Horizontal, body)
        self.room = Room(split, LEAST_LOSSES)
        self.room.hold(self.losses.view)
        split.addWidget(self.editor)
        split.addWidget(self.room)
        split.setSizes([420, 860])
        split.setChildrenCollapsible(False)
        outer.addWidget(split, 1)
        self.notice = QWidget(body)
        line = QHBoxLayout(self.notice)
        line.setContentsMargins(0, 0, 0, 0)
        line.addWidget(self.warning, 1)
        line.addWidget(self.shorten)
        self.notice.hide()
        outer.addWidget(self.notice)
        self.setWidget(body)
        self.bar = TitleBar(self, self.context, self._make_controls)

    def _make_controls(self, parent: QWidget) -> QWidget:
        controls = QWidget(parent)
        row = OneRow(controls)
        for widget in (self.sample, self.front, self.special, self.count, *self.writing.widgets):
            row.addWidget(widget)
        return controls

    def _connect(self) -> None:
        context = self.context
        self.timer.timeout.connect(self.commit)
        self.editor.textChanged.connect(self._text_changed)
        self.front.chosen.connect(self._front_chosen)
        self.special.toggled.connect(self._special_toggled)
        self.sample.activated.connect(self._sample_chosen)
        self.writing.about_to_write.connect(self.commit)
        self.losses.failed.connect(self._warn)
        self.losses.view.context_requested.connect(self._open_token_menu)
        self.losses.figure_changed.connect(self._measure)
        self.losses.view.fold.toggled.connect(self._measure)
        self.editor.document().documentLayout().documentSizeChanged.connect(self._measure)
        self.room.installEventFilter(self)
        self.editor.installEventFilter(self)
        self.reader.tokenized.connect(self._tokenized)
        self.reader.truncated.connect(self._truncated)
        context.document.changed.connect(self._changed)

    def showEvent(self, event: QShowEvent) -> None:
        """Show the document when the dock is shown."""
        super().showEvent(event)
        self.refresh()

    def take_keyboard(self) -> None:
        """Give the editor the keyboard focus."""
        self.editor.setFocus(Qt.FocusReason.ShortcutFocusReason)

    # -- height -------------------------------------------------------------------------------------------------------

    def natural_height(self) -> int:
        """The height in px of the bar and all lines of the text at the present width, up to a limit; a longer text scrolls."""
        editor, body = self.editor, self.split.parentWidget()
        lines = max(1, round(editor.document().size().height())) * editor.fontMetrics().lineSpacing()
        text = lines + 2 * (editor.document().documentMargin() + editor.frameWidth())
        content = max(LEAST_LOSSES.height(), round(text), self.losses.view.natural_height())
        margins = body.layout().contentsMargins()  # type: ignore[union-attr]
        notice, width = self.notice.layout(), max(self.split.width(), 1)
        warning = 0 if self.notice.isHidden() or notice is None else notice.totalHeightForWidth(width) + 4
        bar = self.bar.sizeHint().height()
        most = max(LEAST_LOSSES.height(), (self.window().height() - bar) // LARGEST_PART)
        return bar + margins.top() + min(content, most) + warning + margins.bottom()

    def announce_height(self) -> int:
        """The natural height in px; `height_changed` follows whenever it differs from the height returned here."""
        self._announced_height = self.natural_height()
        return self._announced_height

    @Slot()
    def _measure(self, *_: object) -> None:
        if self.natural_height() != self._announced_height:
            self.height_changed.emit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Take undo and redo from the editor to the document, and measure again when the losses get another size."""
        if watched is self.room and event.type() == QEvent.Type.Resize:
            self._measure()
        if isinstance(event, QKeyEvent) and event.type() in (QEvent.Type.KeyPress, QEvent.Type.ShortcutOverride):
            undo, redo = event.matches(QKeySequence.StandardKey.Undo), event.matches(QKeySequence.StandardKey.Redo)
            if undo or redo:
                if event.type() == QEvent.Type.KeyPress:
                    self.commit()
                    (self.context.undo if undo else self.context.redo)()
                event.accept()
                return True
        return False

    @Slot(object, QPoint)
    def _open_token_menu(self, hit: Hit | None, where: QPoint) -> None:
        self.token_menu.aim(hit)
        self.token_menu.popup(where)

    def tokens_of(self, text: str, bos: bool) -> tuple[int, ...]:
        """The prompt's tokens; without a tokenizer `text` holds ids. Raises `BadInput`."""
        return self.reader.tokens_of(text, Reading(bos, self.context.document.recorded.special))

    @Slot()
    def _text_changed(self) -> None:
        if not self._filling:
            self.timer.start()

    @Slot(str)
    def _setting_changed(self, name: str) -> None:
        if name == "debounce":
            self.timer.setInterval(self.context.settings[name])

    @Slot()
    def commit(self) -> None:
        """Take the editor's text into the document: a burst of typing is one step of undo.

        A text that the model cannot take, or that takes long to tokenise, becomes a draft: nothing typed is ever lost.
        """
        self.timer.stop()
        state, text = self.context.document.recorded, self.editor.toPlainText()
        if self._filling or text == self._text_of(state):
            return
        now = time.monotonic()
        self._burst += now - self._typed_at > BURST
        self._typed_at = now
        self._read(state, text)

    def _read(self, state: State, text: str) -> None:
        """Make a text the prompt, or a draft until its tokens are there."""
        if self.reader.quick(text, state.special):
            self._use(state, self.reader.tokenize(text, state.reading))
        else:
            self._apply(replace(state, draft=text))

    def _use(self, state: State, prompt: PromptText) -> None:
        """Make a text the prompt; one that the model cannot take, a draft."""
        self._apply(self._with(state, prompt))

    def _with(self, state: State, prompt: PromptText) -> State:
        """The state with a text as its prompt; one that the model cannot take, as its draft."""
        text = prompt.text if self.context.tokenizer() is not None else ""
        return state.with_text(text, prompt.tokens) if prompt.error is None else replace(state, draft=prompt.text)

    def _apply(self, state: State) -> None:
        self.context.apply(state, "typing", f"typing {self._burst}")

    @Slot(object)
    def _tokenized(self, prompt: PromptText) -> None:
        """Make the draft the prompt now that its tokens are available, or show why it has none."""
        state = self.context.document.recorded
        if (state.draft, state.reading) != (prompt.text, prompt.reading):
            return
        if prompt.error is None:
            self._use(state, prompt)
        else:
            self._show_draft(prompt)

    def _show_status(self, state: State) -> None:
        """Show how many tokens the editor's text has, and whether the panels are about it."""
        limit = self.context.facts().config.n_ctx
        if not state.draft:
            self._show_count(f"{len(state.tokens)} / {number_of(limit, 'token')}")
        elif self.reader.quick(state.draft, state.special):
            self._show_draft(self.reader.tokenize(state.draft, state.reading))
        else:
            self._show_count(f"… / {number_of(limit, 'token')}")
            self._warn("The text is being read; the panels still show the prompt before it.")
            self.reader.tokenize_later(state.draft, state.reading)

    def _show_draft(self, prompt: PromptText) -> None:
        """Show how many tokens a draft has, why it is not the prompt, and a button for what can be used of it."""
        limit, error = self.context.facts().config.n_ctx, prompt.error
        number = str(len(prompt.tokens)) if prompt.tokens else "?"
        self._show_count(f"{number} / {number_of(limit, 'token')}", error is not None)
        over = len(prompt.tokens) - limit
        if error is None:
            problem, offer = "", "Use this text"
        elif isinstance(error, TooLong):
            more = number_of(over, "more token") if over > 0 else f"{error.got[:1].upper()}{error.got[1:]}, more"
            problem = f"{more} than the model’s context holds. "
            offer = f"Use the first {number_of(limit, 'token')}"
        else:
            problem, offer = f"{error.what} Expected {error.expected}, got {error.got}. ", ""
        self._warn(f"{problem}The panels still show the prompt before it.", offer)

    def _show_count(self, text: str, over: bool = False) -> None:
        self.count.setText(text)
        set_role(self.count, "warning" if over else "caption")

    @Slot()
    def _shorten(self) -> None:
        state = self.context.document.recorded
        self.reader.truncate(state.draft or self.editor.toPlainText(), state.reading)

    @Slot(object)
    def _truncated(self, prompt: PromptText) -> None:
        state = self.context.document.recorded
        if state.draft and prompt.error is None:
            text = prompt.text if self.context.tokenizer() is not None else ""
            self.context.apply(state.with_text(text, prompt.tokens), f"the first {number_of(len(prompt.tokens), 'token')}")

    @Slot(str)
    def _warn(self, text: str, offer: str = "") -> None:
        if (text, offer) == (self.warning.text(), self.shorten.text()):
            return  # setting the same text would lay out the window again
        self.warning.setText(text)
        self.shorten.setText(offer)
        self.shorten.setVisible(bool(offer))
        self.notice.setVisible(bool(text))
        self._measure()

    @Slot(object)
    def _front_chosen(self, front: Front) -> None:
        state = self.context.document.recorded
        tokenizer, limit = self.context.tokenizer(), self.context.facts().config.n_ctx
        if tokenizer is None or front == state.reading.front:
            return
        before, now = tokenizer.front(state.reading.front), tokenizer.front(front)
        tokens = now + (state.tokens[len(before) :] if state.tokens[: len(before)] == before else state.tokens)
        name = tokenizer.display(now[0]) if isinstance(front, str) else "BOS"
        if len(tokens) > limit:
            self.context.message.emit(f"There is no room for {name}: the context holds {number_of(limit, 'token')}.")
            self.refresh()
            return
        bos, other = tokenizer.chosen_front(front)
        changed = replace(state, bos=bos, front=other).with_text(state.text, tokens)
        self.context.apply(replace(changed, draft=state.draft), f"{name} in front" if now else "nothing in front")

    @Slot(bool)
    def _special_toggled(self, on: bool) -> None:
        state = self.context.document.recorded
        if self._filling or on == state.special:
            return
        changed, text, name = replace(state, special=on), state.draft or state.text, f"special tokens {'on' if on else 'off'}"
        tokenizer = self.context.tokenizer()
        if not text or tokenizer is None or not tokenizer.spells(text):  # the tokens are the same
            self.context.apply(changed, name)
        elif not self.reader.quick(text, on):
            self.context.apply(replace(changed, draft=text), name)
        else:
            prompt = self.reader.tokenize(text, changed.reading)
            self.context.apply(self._with(changed, prompt), name)

    @Slot(int)
    def _sample_chosen(self, index: int) -> None:
        self.sample.setCurrentIndex(0)
        if index == self.sample.count() - 1:
            self._ask_messages()
        elif index > 0:
            self.editor.setPlainText(samples()[index - 1][1])
            self.commit()

    def _ask_messages(self) -> None:
        """Ask for a chat message, and make it the prompt as the model was trained to read it."""
        tokenizer = self.context.tokenizer()
        if tokenizer is None or tokenizer.chat is None:
            return
        self._chat_dialog = ChatDialog(self.editor.toPlainText(), self)
        self._chat_dialog.accepted.connect(self._render_chat)
        self._chat_dialog.open()

    @Slot()
    def _render_chat(self) -> None:
        tokenizer, dialog = self.context.tokenizer(), self._chat_dialog
        if tokenizer is None or tokenizer.chat is None or dialog is None:
            return
        template, messages, answers = tokenizer.chat, dialog.messages, dialog.answers
        work = lambda job: (tokenizer, rendered(template, messages, answers))
        self.context.runner.do(self._chat_slot, "write a chat message", work, "text")

    @Slot(object)
    def _chat_rendered(self, outcome: tuple[Tokenizer, str]) -> None:
        """Take the text with its special tokens as written, and nothing in front: templates write BOS themselves."""
        tokenizer, text = outcome
        if tokenizer is not self.context.tokenizer():
            self.context.message.emit("The model has changed since: the chat message was not used.")
            return
        state = replace(self.context.document.recorded, bos=False, front="", special=True)
        if self.reader.quick(text, True):
            changed = self._with(state, self.reader.tokenize(text, state.reading))
        else:
            changed = replace(state, draft=text)
        self.context.apply(changed, "chat message")

    @Slot(object)
    def _chat_failed(self, error: object) -> None:
        if not isinstance(error, Cancelled):
            self.context.failed.emit(error)

    def continue_text(self, n: int | None = None) -> None:
        """Let the model continue the text by `n` tokens; None: as many as the field says."""
        self.writing.start(n)

    def _text_of(self, state: State) -> str:
        """The editor's text for a state: its draft or text, or the ids of tokens without a text. BOS alone is the empty text."""
        if state.draft:
            return state.draft
        tokenizer = self.context.tokenizer()
        bare = tokenizer is not None and state.tokens == tokenizer.encode("", state.bos)
        return state.text if state.text or bare else " ".join(map(str, state.tokens))

    @Slot(object, object)
    def _changed(self, old: State, new: State) -> None:
        if _shown_fields(old) != _shown_fields(new):
            if not new.draft and (old.subject, old.draft) != (new.subject, new.draft):
                self._warn("")
            self.refresh()

    def refresh(self) -> None:
        """Show the document's text and tokens, and request their losses."""
        state = self.context.document.state
        if self.context.engine.store.peek(state.model) is None:
            self.losses.view.show_figure(empty("Open a model: File → Open model…"))
            return
        facts = self.context.facts()
        self._filling = True
        if self._text_of(state) != self.editor.toPlainText() and not self.timer.isActive():
            self.editor.setPlainText(self._text_of(state))
            self.editor.moveCursor(QTextCursor.MoveOperation.End)
        self._offer_chat()
        self.front.show_front(self.context.tokenizer(), state.reading.front, bos_words(facts))
        self.special.setChecked(state.special and bool(facts.special))
        self.special.setEnabled(bool(facts.special))
        self.special.setToolTip(tip_of(_about_special(facts)))
        self.editor.setPlaceholderText("Type text here." if facts.has_tokenizer else "No tokenizer: type ids, such as 0 17 42")
        self._filling = False
        self._show_status(state)
        self.losses.refresh()

    def _offer_chat(self) -> None:
        """The entry for a chat message, or that this model has no template for one."""
        tokenizer, last = self.context.tokenizer(), self.sample.count() - 1
        has = tokenizer is not None and tokenizer.chat is not None
        entry = CHAT if has else f"{CHAT.removesuffix('…')} (this model has no template)"
        model = self.sample.model()
        if self.sample.itemText(last) != entry or not isinstance(model, QStandardItemModel):
            self.sample.setItemText(last, entry)
        if isinstance(model, QStandardItemModel):
            model.item(last).setEnabled(has)

    @property
    def waiting(self) -> bool:
        """Whether losses are outstanding."""
        return self.losses.waiting


def _about_special(facts: Facts) -> str:
    """What the switch does, with spellings that this model has."""
    if not facts.special:
        return "This model’s tokenizer has no special tokens"
    some = [facts.token_text(i) for i in sorted(facts.special)[:SPELLINGS]]
    listed = ", ".join(some) + (" …" if len(facts.special) > SPELLINGS else "")
    return f"Special tokens as written: where the text spells one, that is its token; otherwise letters\n{listed}"


def _shown_fields(state: State) -> tuple[object, ...]:
    """The fields of a state that this dock shows; the head and the controls of panels are not among them."""
    compared = state.compare, state.reference
    return state.subject, state.text, state.draft, state.reading, state.selection.destination, state.selection.locked, compared
