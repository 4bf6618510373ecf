"""Continuing a prompt: one token after another, each a forward pass that reuses its prefix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from circuitlab.analysis.base import NullContext
from circuitlab.engine.engine import Engine
from circuitlab.errors import BadInput
from circuitlab.model.subject import Subject


def written_on(
    engine: Engine,
    subject: Subject,
    n: int,
    sampled: bool,
    seed: int,
    stop: Callable[[int], bool],
    temperature: float = 1.0,
) -> tuple[int, ...]:
    """The prompt's tokens with up to `n` more, fewer if the context ends; drawn from softmax(logits / temperature) or greedy.

    Raises `BadInput` for an empty prompt or a temperature that is not positive.
    """
    if not temperature > 0:
        raise BadInput(
            "The temperature must be positive.",
            expected="more than 0",
            got=str(temperature),
            remedy="Choose a temperature such as 1.",
        )
    model = engine.store.open(subject.model)
    generator = torch.Generator().manual_seed(seed)
    tokens = subject.tokens
    if not tokens:
        raise BadInput("The prompt is empty.", expected="at least one token", got="none", remedy="Type some text.")
    for i in range(min(n, model.opened.weights.config.n_ctx - len(tokens))):
        if stop(i):
            break
        run = engine.run_of(model, replace(subject, tokens=tokens), NullContext())
        logits = run.logits(slice(len(tokens) - 1, None))[0].cpu().double()
        chosen = torch.multinomial((logits / temperature).softmax(0), 1, generator=generator) if sampled else logits.argmax()
        tokens = (*tokens, int(chosen))
    return tokens
