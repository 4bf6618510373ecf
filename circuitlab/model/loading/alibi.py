"""What families with ALiBi (Press et al. 2021) say alike: the bias, and the context, over which nothing but training ends."""

from __future__ import annotations

from circuitlab.model.config import ModelConfig


def alibi_notes(config: ModelConfig) -> tuple[str, ...]:
    """What is added to the scores, and that the context is no limit of the form."""
    first, last = max(config.slopes), min(config.slopes)
    steepest = config.slopes.index(first)
    return (
        f"ALiBi: scores fall by {first:.3g} (head {steepest}) to {last:.3g} a position, the same in every layer",
        f"context {config.n_ctx}: that of training; the bias itself would go on",
    )
