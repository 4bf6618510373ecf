"""Letting the model write on, on a worker; what it wrote goes into the document."""

from __future__ import annotations

from PySide6.QtCore import QObject, Slot

from circuitlab.counting import number_of
from circuitlab.engine.continuation import written_on
from circuitlab.errors import BadInput, Cancelled
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.text.tokenizer import Tokenizer


def _text_of(tokenizer: Tokenizer, tokens: tuple[int, ...], bos: bool) -> str:
    """The text of tokens; "" where it does not encode to these very ones: a cut-off character, a merge across the seam."""
    try:
        text = tokenizer.decode(tokens)
        return text if tokenizer.encode(text, bos) == tokens else ""
    except BadInput:
        return ""


class Continuation(QObject):
    """Runs `written_on` and puts its outcome into the document."""

    def __init__(self, context: AppContext, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.context, self._state = context, context.document.state
        self.slot = WorkSlot(self, finished=self._finished, failed=self._failed)

    def start(self, n: int, sampled: bool, temperature: float = 1.0, seed: int = 0) -> None:
        """Write `n` tokens."""
        state, context = self.context.document.recorded, self.context
        self._state, tokenizer = state, context.tokenizer()

        def work(job: Job) -> tuple[tuple[int, ...], str]:
            def stop(i: int) -> bool:
                job.done, job.total, job.text = i, n, "tokens"
                return job.cancelled.is_set()

            tokens = written_on(context.engine, state.subject, n, sampled, seed, stop, temperature)
            return tokens, "" if tokenizer is None else _text_of(tokenizer, tokens, state.bos)

        self.context.runner.do(self.slot, f"continue by {number_of(n, 'token')}", work, "slow")

    @Slot(object)
    def _finished(self, written: tuple[tuple[int, ...], str]) -> None:
        tokens, text = written
        state = self.context.document.recorded
        if state.tokens != self._state.tokens or tokens == state.tokens:
            self.context.message.emit("Nothing was added: the text has changed, or the context is full.")
            return
        self.context.apply(state.with_text(text, tokens), "continue")
        self.context.message.emit(f"{number_of(len(tokens) - len(state.tokens), 'token')} written.")

    @Slot(object)
    def _failed(self, error: object) -> None:
        if not isinstance(error, Cancelled):
            self.context.failed.emit(error)
