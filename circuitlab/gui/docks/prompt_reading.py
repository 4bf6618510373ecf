"""Tokenises the editor's text: at once if that is quick, otherwise on a thread of its own; or gives the reason why it cannot."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.errors import BadInput, CircuitLabError
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.forward import check_tokens
from circuitlab.model.text.reading import Reading
from circuitlab.model.text.tokenizer import Tokenizer

_IDS = re.compile(r"[,\s]+")


def parse_ids(text: str) -> tuple[int, ...]:
    """Token ids separated by spaces or commas. Raises `BadInput`."""
    try:
        return tuple(int(part) for part in _IDS.split(text.strip()) if part)
    except ValueError as error:
        raise BadInput(
            "These are not token ids.",
            expected="whole numbers such as 0 17 42",
            got=text[:40],
            remedy="Write numbers alone, with spaces or commas between them.",
        ) from error


@dataclass(frozen=True)
class PromptText:
    """A text with its tokens, () if it has none; `error`: why the model cannot take it."""

    text: str
    reading: Reading
    tokens: tuple[int, ...] = ()
    error: CircuitLabError | None = None


class PromptReader(QObject):
    """Tokenises texts. `tokenized(PromptText)`: the newest text; `truncated(PromptText)`: the beginning of one too long."""

    tokenized = Signal(object)
    truncated = Signal(object)

    def __init__(self, context: AppContext, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.context = context
        self._token_slot = WorkSlot(self, finished=self._tokens_finished)
        self._truncation_slot = WorkSlot(self, finished=self._truncation_finished)

    def quick(self, text: str, special: bool) -> bool:
        """Whether a text is tokenised so fast that a keystroke can wait for it."""
        tokenizer = self.context.tokenizer()
        return tokenizer is None or tokenizer.quick(text, special)

    def tokens_of(self, text: str, reading: Reading) -> tuple[int, ...]:
        """The prompt's tokens; without a tokenizer `text` holds ids. Raises `BadInput`."""
        tokenizer = self.context.tokenizer()
        return parse_ids(text) if tokenizer is None else tokenizer.prompt(text, self.context.facts().config.n_ctx, *reading)

    def tokenize(self, text: str, reading: Reading) -> PromptText:
        """Tokenise a text at once. An empty prompt is allowed, and panels say so."""
        try:
            return self._checked(PromptText(text, reading, self.tokens_of(text, reading)))
        except CircuitLabError as error:
            return PromptText(text, reading, (), error)

    def _checked(self, prompt: PromptText) -> PromptText:
        """With the reason why the model cannot take these tokens."""
        try:
            if prompt.tokens:
                check_tokens(self.context.facts().config, prompt.tokens)
        except CircuitLabError as error:
            return replace(prompt, error=error)
        return prompt

    def tokenize_later(self, text: str, reading: Reading) -> None:
        """Tokenise a text on the thread of texts; `tokenized` follows, also if it fails."""
        tokenizer, n_ctx = self.context.tokenizer(), self.context.facts().config.n_ctx
        if tokenizer is not None:
            work = lambda job: _encoded(tokenizer, text, reading, n_ctx)
            self.context.runner.do(self._token_slot, "read the prompt", work, "text")

    def truncate(self, text: str, reading: Reading) -> None:
        """Find as much of the beginning of a text as the context holds; `truncated` follows."""
        tokenizer, n_ctx = self.context.tokenizer(), self.context.facts().config.n_ctx

        def work(job: Job) -> PromptText:
            if tokenizer is None:
                ids = parse_ids(text)[:n_ctx]
                return PromptText(" ".join(map(str, ids)), reading, ids)
            return _encoded(tokenizer, tokenizer.beginning(text, n_ctx, *reading), reading, n_ctx)

        self.context.runner.do(self._truncation_slot, "truncate the prompt", work, "text")

    @Slot(object)
    def _tokens_finished(self, prompt: PromptText) -> None:
        self.tokenized.emit(self._checked(prompt) if prompt.error is None else prompt)

    @Slot(object)
    def _truncation_finished(self, prompt: PromptText) -> None:
        self.truncated.emit(prompt)


def _encoded(tokenizer: Tokenizer, text: str, reading: Reading, n_ctx: int) -> PromptText:
    """Tokenise on a worker, no further than shows that a text is too long."""
    try:
        return PromptText(text, reading, tokenizer.prompt(text, n_ctx, *reading))
    except BadInput as error:
        return PromptText(text, reading, (), error)
