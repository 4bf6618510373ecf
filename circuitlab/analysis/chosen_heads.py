"""Heads named by a parameter: `()` means all, heads that the model does not have are refused, and layers are read once."""

from __future__ import annotations

from collections.abc import Iterator

from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head


def check_heads(config: ModelConfig, *heads: Head) -> None:
    """Raise `BadInput` for heads that the model does not have."""
    if bad := [h for h in heads if not (0 <= h.layer < config.n_layers and 0 <= h.head < config.n_heads)]:
        last = Head(config.n_layers - 1, config.n_heads - 1)
        raise BadInput(
            "There is no such head.",
            expected=f"L0H0 … {last}",
            got=" ".join(map(str, bad)),
            remedy="Name a head that the model has, layer and head counted from 0.",
        )


def chosen_heads(config: ModelConfig, heads: tuple[Head, ...]) -> tuple[Head, ...]:
    """The heads, or for `()` all heads layer by layer. Raises `BadInput` for heads that the model does not have."""
    check_heads(config, *heads)
    return heads or tuple(Head(i, h) for i in range(config.n_layers) for h in range(config.n_heads))


def by_layer(heads: tuple[Head, ...]) -> Iterator[tuple[int, list[int], list[int]]]:
    """(layer, its heads, their indices into `heads`), layer by layer, so that each layer is read once."""
    for layer in sorted({h.layer for h in heads}):
        places = [i for i, h in enumerate(heads) if h.layer == layer]
        yield layer, [heads[i].head for i in places], places
