"""Heads that a parameter names: all of them for none, and one refusal for those that the model does not have."""

from __future__ import annotations

from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head


def check_heads(config: ModelConfig, *heads: Head) -> None:
    """Raise `BadInput` with those that the model does not have, where there are any."""
    if bad := [h for h in heads if not (0 <= h.layer < config.n_layers and 0 <= h.head < config.n_heads)]:
        last = Head(config.n_layers - 1, config.n_heads - 1)
        raise BadInput("There is no such head.", expected=f"L0H0 … {last}", got=" ".join(map(str, bad)))


def chosen_heads(config: ModelConfig, heads: tuple[Head, ...]) -> tuple[Head, ...]:
    """The heads themselves, layer by layer all of them for `()`. Raises `BadInput` for one that is not there."""
    check_heads(config, *heads)
    return heads or tuple(Head(i, h) for i in range(config.n_layers) for h in range(config.n_heads))
