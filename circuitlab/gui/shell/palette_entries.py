"""The palette's entries besides commands and panels: heads, tokens of the prompt and of the vocabulary, models."""

from __future__ import annotations

import re
from functools import partial

from circuitlab.gui.shell.opening import Opening
from circuitlab.gui.shell.palette import Entry
from circuitlab.gui.work.app_context import AppContext
from circuitlab.model.subject import Head, Target

_HEAD = re.compile(r"\s*(?:head\s*)?l(\d{1,3})\s*(?:h(\d{0,4}))?\s*$", re.IGNORECASE)
TOKENS = 6  # of each kind


class SearchEntries:
    """The entries for a typed text. Each changes the State in one recorded step, or opens a model."""

    def __init__(self, context: AppContext, opening: Opening) -> None:
        self.context, self.opening = context, opening

    def __call__(self, typed: str) -> list[Entry]:
        """The heads, tokens and models that match; models also while nothing is typed."""
        models = [
            Entry(f"Open {title}", partial(self.opening.open, source), name=title) for source, title in self.opening.sources()
        ]
        if not typed.strip() or self.context.engine.store.peek(self.context.document.recorded.model) is None:
            return models
        return [*self._heads(typed), *self._tokens(typed), *models]

    def _heads(self, typed: str) -> list[Entry]:
        match, c = _HEAD.match(typed), self.context.facts().config
        if match is None or int(match[1]) >= c.n_layers:
            return []
        layer, number = int(match[1]), match[2]
        heads = [int(number)] if number else range(c.n_heads)
        return [Entry(str(h := Head(layer, i)), partial(self._select, h)) for i in heads if i < c.n_heads]

    def _select(self, head: Head) -> None:
        self.context.apply(self.context.document.recorded.select(heads=(head,)), f"head {head}")

    def _tokens(self, typed: str) -> list[Entry]:
        facts, state, word = self.context.facts(), self.context.document.recorded, typed.strip().lower()
        texts = facts.tokens(state.tokens)
        equal = [i for i, text in enumerate(texts) if text.strip("·").lower() == word]
        begins = [i for i, text in enumerate(texts) if text.strip("·").lower().startswith(word) and i not in equal]
        prompt = [Entry(f"{texts[i]}, position {i}", partial(self._read_at, i), token=True) for i in (*equal, *begins)[:TOKENS]]
        tokens = [t for t in facts.find_tokens(typed, TOKENS) if t < facts.config.d_vocab_out]
        measure = lambda t: Entry(f"Measure ‘{facts.token_text(t)}’, token {t}", partial(self._measure, t), token=True)
        return [*prompt, *map(measure, tokens)]

    def _read_at(self, position: int) -> None:
        state = self.context.document.recorded
        if position < len(state.tokens):
            self.context.apply(state.select(destination=position, locked=True), "select a token")

    def _measure(self, token: int) -> None:
        state = self.context.document.recorded
        self.context.apply(state.select(target=Target((token,))), f"target: ‘{self.context.facts().token_text(token)}’")
