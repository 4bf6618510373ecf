"""A device without room for a training step, in words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from circuitlab.errors import BadMachine
from circuitlab.training.recipe import Recipe

_SAID = ("out of memory", "can't allocate memory", "not enough memory")  # CUDA and Metal, torch on a CPU, torch on Windows


@contextlib.contextmanager
def room_on(device: str, recipe: Recipe) -> Iterator[None]:
    """Where torch finds no memory, a `BadMachine` that says for what; every other error as it is.

    What was saved last stands: a step that broke off in the optimiser may have moved some of the weights.
    """
    try:
        yield
    except RuntimeError as error:  # torch.OutOfMemoryError is one, but only CUDA's is of that class
        if not any(words in str(error) for words in _SAID):
            raise
        most = max(recipe.stages, key=lambda s: s.batch * s.context)
        raise BadMachine(
            "There is not enough memory to train this model.",
            expected=f"room for {most.batch} × {most.context} tokens on {device}",
            got=str(error).splitlines()[0][:160],
            remedy="Free memory, and the same command goes on from what was saved last; or a smaller batch in a recipe of "
            "your own, or another --device.",
        ) from error
