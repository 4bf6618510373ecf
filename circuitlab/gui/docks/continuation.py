"""Lets the model continue the text, on a worker, and records the continuation in the document."""

from __future__ import annotations

from PySide6.QtCore import QObject, Slot

from circuitlab.counting import number_of
from circuitlab.engine.continuation import written_on
from circuitlab.errors import BadInput, Cancelled
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.text.reading import Reading
from circuitlab.model.text.tokenizer import Tokenizer


def _text_of(tokenizer: Tokenizer, tokens: tuple[int, ...], reading: Reading) -> str:
    """The text of tokens; "" if it does not encode to exactly these: an incomplete character, a merge across the seam."""
    try:
        return tokenizer.text_of(tokens, *reading)
    except BadInput:
        return ""


class Continuation(QObject):
    """Runs `written_on` in its `slot`, and records the outcome in the document."""

    def __init__(self, context: AppContext, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.context, self._state = context, context.document.state
        self.slot = WorkSlot(self, finished=self._finished, failed=self._failed)

    def start(self, n: int, sampled: bool, temperature: float = 1.0, seed: int = 0) -> None:
        """Continue the recorded prompt by `n` tokens: greedily, or `sampled` at a `temperature` with a `seed`."""
        state, context = self.context.document.recorded, self.context
        self._state, tokenizer = state, context.tokenizer()

        def work(job: Job) -> tuple[tuple[int, ...], str]:
            def stop(i: int) -> bool:
                job.done, job.total, job.text = i, n, "tokens"
                return job.cancelled.is_set()

            tokens = written_on(context.engine, state.subject, n, sampled, seed, stop, temperature)
            return tokens, "" if tokenizer is None else _text_of(tokenizer, tokens, state.reading)

        self.context.runner.do(self.slot, f"continue by {number_of(n, 'token')}", work, "slow")

    @Slot(object)
    def _finished(self, tokens_and_text: tuple[tuple[int, ...], str]) -> None:
        tokens, text = tokens_and_text
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
