"""The text of the editor as tokens: at once if that is quick, otherwise from a thread of its own; or the reason for none."""

from __future__ import annotations

import re
from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.errors import BadInput, CircuitLabError
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.forward import check_tokens
from circuitlab.model.text.tokenizer import Tokenizer

_IDS = re.compile(r"[,\s]+")


def parse_ids(text: str) -> tuple[int, ...]:
    """Token ids separated by spaces or commas. Raises `BadInput`."""
    try:
        return tuple(int(part) for part in _IDS.split(text.strip()) if part)
    except ValueError as error:
        raise BadInput("These are not token ids.", expected="whole numbers such as 0 17 42", got=text[:40]) from error


@dataclass(frozen=True)
class Read:
    """A text with its tokens, () where there are none; `error`: why the model cannot take it."""

    text: str
    bos: bool
    tokens: tuple[int, ...] = ()
    error: CircuitLabError | None = None


class Reading(QObject):
    """Reads texts. `read(Read)`: the newest text with its tokens; `cut(Read)`: the beginning of a text that was too long."""

    read = Signal(object)
    cut = Signal(object)

    def __init__(self, context: AppContext, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.context = context
        self._reading = WorkSlot(self, finished=self._read)
        self._cutting = WorkSlot(self, finished=self._cut)

    def quick(self, text: str) -> bool:
        """Whether a keystroke may wait for the tokens of a text."""
        tokenizer = self.context.tokenizer()
        return tokenizer is None or tokenizer.quick(text)

    def tokens_of(self, text: str, bos: bool) -> tuple[int, ...]:
        """The prompt's tokens; without a tokenizer `text` holds ids. Raises `BadInput`."""
        tokenizer = self.context.tokenizer()
        return parse_ids(text) if tokenizer is None else tokenizer.encode(text, bos)

    def now(self, text: str, bos: bool) -> Read:
        """Read here and now. An empty prompt is allowed, and panels say so."""
        tokens: tuple[int, ...] = ()
        try:
            tokens = self.tokens_of(text, bos)
            if tokens:
                check_tokens(self.context.facts().config, tokens)
        except CircuitLabError as error:
            return Read(text, bos, tokens, error)
        return Read(text, bos, tokens)

    def later(self, text: str, bos: bool) -> None:
        """Encode on the thread of texts; `read` when that is done, or has failed."""
        tokenizer = self.context.tokenizer()
        if tokenizer is not None:
            self.context.runner.do(self._reading, "read the prompt", lambda job: _encoded(tokenizer, text, bos), "text")

    def begin(self, text: str, bos: bool) -> None:
        """`cut` with as much of the beginning of a text as the context holds."""
        tokenizer, most = self.context.tokenizer(), self.context.facts().config.n_ctx

        def work(job: Job) -> Read:
            if tokenizer is None:
                ids = parse_ids(text)[:most]
                return Read(" ".join(map(str, ids)), bos, ids)
            return _encoded(tokenizer, tokenizer.beginning(text, most, bos), bos)

        self.context.runner.do(self._cutting, "truncate the prompt", work, "text")

    @Slot(object)
    def _read(self, read: Read) -> None:
        self.read.emit(self.now(read.text, read.bos) if read.error is None else read)

    @Slot(object)
    def _cut(self, read: Read) -> None:
        self.cut.emit(read)


def _encoded(tokenizer: Tokenizer, text: str, bos: bool) -> Read:
    """Tokenise on a worker. The tokenizer caches the result, so that the next call returns at once."""
    try:
        return Read(text, bos, tokenizer.encode(text, bos))
    except BadInput as error:
        return Read(text, bos, (), error)
