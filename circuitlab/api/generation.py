"""Text that a model continues, token by token; every step is an answer of `predictions`, on the cached run of the step before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from circuitlab.counting import number_of
from circuitlab.errors import UsageError, quoted
from circuitlab.notebook_html import shortened


@dataclass(frozen=True)
class Generated:
    """What a model continued: `prompt` and `new`, ids; `text`, the new ones as `decode` has them, "" without a tokenizer."""

    prompt: tuple[int, ...]
    new: tuple[int, ...]
    text: str

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Generated {number_of(len(self.new), 'token')} · {shortened(self.text)!r}>"


def chosen(logits: np.ndarray, temperature: float, rng: np.random.Generator) -> int:
    """A token drawn from softmax(logits / temperature) [d_vocab], in float64: the first whose cumulated share exceeds a draw."""
    scaled = logits.astype(np.float64) / temperature
    p = np.exp(scaled - scaled.max())
    cumulated = np.cumsum(p / p.sum())
    return int(min(np.searchsorted(cumulated, rng.random(), side="right"), len(p) - 1))


def need_sampling(n: int, temperature: float, seed: int) -> None:
    """Raise `UsageError` for arguments that cannot be."""
    whole = lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= 0
    number = isinstance(temperature, (int, float)) and not isinstance(temperature, bool) and 0 <= temperature < float("inf")
    for name, good, expected, got in (
        ("n", whole(n), "a whole number, 0 or more", n),
        (
            "temperature",
            number and (temperature == 0 or temperature >= 1e-3),
            "0 for the most probable token, or 0.001 or more",
            temperature,
        ),
        ("seed", whole(seed), "a whole number, 0 or more", seed),
    ):
        if not good:
            raise UsageError(
                f"The argument {name} cannot be used.", expected=expected, got=quoted(got), remedy="Change or drop it."
            )
