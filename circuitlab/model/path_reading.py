"""Interventions along paths: the queries, keys and values that read a changed stream.

    q', k' or v' of head h at position p = projection of (x + Σ_s Δ_s),     Δ_s = output of s after the operations − before

The sum runs over all senders s (heads, MLPs) with an intervention along a path to (h, p); several operations on one sender act
on its output one after the other, in the given order. The sum is projected once, through its own norm: ablating two senders is
not the sum of ablating each. Every cell (head, position) is in at most one `Reading`. Senders are recorded with the
interventions of earlier layers, other paths included. `Editor.readings` finds the readings of a layer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from circuitlab.model.config import ModelConfig
from circuitlab.model.intervention import SiteName
from circuitlab.model.weights import Layer, Norm

READS: tuple[SiteName, ...] = ("q", "k", "v")


@dataclass(frozen=True, eq=False)
class Reading:
    """The cells of q, k or v (`name`) that read x + `change` [pos, d_model]; `chosen` bool [head, pos or 1, 1] marks them."""

    name: SiteName
    chosen: Tensor
    change: Tensor

    @property
    def heads(self) -> Tensor:
        """[chosen head]: indices of the heads of `name` with a cell in this reading."""
        return torch.nonzero(self.chosen.flatten(1).any(dim=1))[:, 0]

    def narrowed(self, config: ModelConfig, layer: Layer) -> Layer:
        """The layer with the projections of these heads alone; with all heads where one norm spans them.

        A projection takes at least one head, so the two sites besides `name` keep their first.
        """
        if config.qk_norm != "none" and config.qk_norm_over == "all":
            return layer
        first = torch.zeros(1, dtype=torch.int64, device=self.chosen.device)
        heads = dict.fromkeys(READS, first) | {self.name: self.heads}
        bias = lambda b, name: None if b is None else b[heads[name]]
        norm = lambda qk_norm, name: Norm(_per_head(qk_norm.gain, heads[name]), _per_head(qk_norm.bias, heads[name]))
        return replace(
            layer,
            W_Q=layer.W_Q[heads["q"]],
            W_K=layer.W_K[heads["k"]],
            W_V=layer.W_V[heads["v"]],
            b_Q=bias(layer.b_Q, "q"),
            b_K=bias(layer.b_K, "k"),
            b_V=bias(layer.b_V, "v"),
            smear=bias(layer.smear, "k"),
            q_norm=norm(layer.q_norm, "q"),
            k_norm=norm(layer.k_norm, "k"),
        )

    def merged(self, values: Tensor, changed: Tensor) -> Tensor:
        """`values` [head, pos, d_head] with the chosen cells from `changed`, which holds these heads alone or all heads."""
        heads = self.heads
        changed = changed if len(changed) == len(heads) else changed[heads]
        return values.index_copy(0, heads, torch.where(self.chosen[heads], changed, values[heads]))


def _per_head(x: Tensor | None, heads: Tensor) -> Tensor | None:
    return x if x is None or x.dim() == 1 else x[heads]
