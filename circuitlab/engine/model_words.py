"""What words about a model need of it, and nothing of its weights: kept when it is closed, as a pin on it has to be named."""

from __future__ import annotations

from dataclasses import dataclass

from circuitlab.model.loading import Opened
from circuitlab.model.text.tokenizer import Tokenizer

MOST_CLOSED = 8  # models that nobody names, and whose words are kept: undo may lead back to them


@dataclass(frozen=True)
class ModelWords:
    """`steps`: of its checkpoints; `prepend_bos`: whether BOS is put before a text; `tokenizer`: None where ids are typed."""

    steps: tuple[int, ...]
    prepend_bos: bool
    tokenizer: Tokenizer | None


def words_of(opened: Opened) -> ModelWords:
    """The words of a model that has been read."""
    return ModelWords(opened.steps, opened.weights.config.prepend_bos, opened.weights.tokenizer)
