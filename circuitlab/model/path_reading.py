"""Interventions along paths: which queries, keys and values read another stream, and what that stream is.

    q', k' or v' of head h at position p = projection of (x + Σ_s Δ_s),     Δ_s = what s writes after the operations − before

The sum runs over all senders s (heads, MLPs) with an intervention along a path that chooses (h, p); several operations on one
sender act on its output one after the other, in the given order. The sum is projected once, through its own norm: ablating two
senders is not the sum of ablating each. Every cell (head, position) is in at most one `Reading`. Senders are recorded with the
interventions of earlier layers, other paths included.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from circuitlab.model.config import ModelConfig
from circuitlab.model.intervention import Intervention, Site, SiteName
from circuitlab.model.weights import Layer, Norm

if TYPE_CHECKING:
    from circuitlab.model.editor import Editor
    from circuitlab.model.run import Run

READS: tuple[SiteName, ...] = ("q", "k", "v")
Cells = tuple[SiteName, Tensor, list[Intervention]]


@dataclass(frozen=True, eq=False)
class Reading:
    """The cells of q, k or v (`name`) that read x + `change` [pos, d_model]: `chosen` bool [head, pos or 1, 1]."""

    name: SiteName
    chosen: Tensor
    change: Tensor

    @property
    def heads(self) -> Tensor:
        """[chosen head] of `name`: those with a cell here."""
        return torch.nonzero(self.chosen.flatten(1).any(dim=1))[:, 0]

    def narrowed(self, config: ModelConfig, layer: Layer) -> Layer:
        """The layer with these heads' projections, and one head of the others; all heads where one norm is over all of them."""
        one = torch.zeros(
            1, dtype=torch.int64, device=self.chosen.device
        )  # the least that a projection takes, for heads that are not needed
        heads = dict.fromkeys(READS, one) | {self.name: self.heads}
        if config.qk_norm != "none" and config.qk_norm_over == "all":
            return layer
        of = lambda x, name: None if x is None else x[heads[name]]
        gained = lambda norm, name: Norm(_per_head(norm.gain, heads[name]), _per_head(norm.bias, heads[name]))
        return replace(
            layer,
            W_Q=layer.W_Q[heads["q"]],
            W_K=layer.W_K[heads["k"]],
            W_V=layer.W_V[heads["v"]],
            b_Q=of(layer.b_Q, "q"),
            b_K=of(layer.b_K, "k"),
            b_V=of(layer.b_V, "v"),
            smear=of(layer.smear, "k"),
            q_norm=gained(layer.q_norm, "q"),
            k_norm=gained(layer.k_norm, "k"),
        )

    def merged(self, old: Tensor, again: Tensor) -> Tensor:
        """`old` [head, pos, d_head] with the chosen cells from `again`, which holds these heads alone or all of them."""
        heads = self.heads
        again = again if len(again) == len(heads) else again[heads]
        return old.index_copy(0, heads, torch.where(self.chosen[heads], again, old[heads]))


def _per_head(x: Tensor | None, heads: Tensor) -> Tensor | None:
    return x if x is None or x.dim() == 1 else x[heads]


def readings_of(editor: Editor, run: Run, layer: int) -> list[Reading]:
    """The readings of changed streams in `layer`. Each sender's output is computed once, for all its readers."""
    cells = [one for name in READS for one in _cells(editor, run, layer, name)]
    senders = sorted({(e.path_from.layer, e.path_from.name) for _, _, edits in cells for e in edits if e.path_from})
    changes = [torch.zeros_like(run.captured[0].resid_pre) for _ in cells]
    for at, name in senders:
        written = run.get(name, at)
        for i, (_, _, edits) in enumerate(cells):
            acting = [e for e in edits if e.path_from and (e.path_from.layer, e.path_from.name) == (at, name)]
            if acting:
                changes[i] += _change(editor, acting, written)
    return [Reading(name, chosen, change) for (name, chosen, _), change in zip(cells, changes, strict=True)]


def _cells(editor: Editor, run: Run, layer: int, name: SiteName) -> list[Cells]:
    """Cells of one site that the same interventions along paths choose, with these interventions in their order."""
    edits = editor.paths(layer, name)
    if not edits:
        return []
    config = run.weights.config
    n_heads, n = config.n_heads if name == "q" else config.n_kv_heads, run.n if any(e.site.positions for e in edits) else 1
    like = torch.empty(n_heads, n, 1, device=run.captured[0].resid_pre.device)
    member = torch.stack([editor.where(e.site, like, 0, None).expand(n_heads, n, 1).flatten() for e in edits])
    kinds, of = torch.unique(member, dim=1, return_inverse=True)
    cells = []
    for i, acting in enumerate(kinds.T):
        if bool(acting.any()):
            chosen = (of == i).reshape(n_heads, n, 1)
            cells.append((name, chosen, [e for e, on in zip(edits, acting.tolist(), strict=True) if on]))
    return cells


def _change(editor: Editor, edits: list[Intervention], written: Tensor) -> Tensor:
    """[pos, d_model]: what one layer's heads, or its MLP, write after the operations, less what they write."""
    changed = written.clone()
    for edit in edits:
        sender: Site = edit.path_from  # type: ignore[assignment]
        if sender.heads:
            some = list(sender.heads)
            changed[some] = editor.operate(edit, sender, changed[some], 0, sender.heads)
        else:
            changed = editor.operate(edit, sender, changed, 0, None)
    change = changed - written
    return change.sum(0) if change.dim() == 3 else change
