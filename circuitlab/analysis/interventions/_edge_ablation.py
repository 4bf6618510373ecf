"""A forward pass with a set of edges ablated: each head reads the residual stream without its ablated senders' outputs.

    q^h, k^h, v^h of layer m = projection of (x_m + Σ_{s ablated for h} Δ_s),    Δ_s = r_s − z_s W_O^s

r_s replaces the sender's output: 0, a mean, or another text's. x_m is the stream of this same pass, in which earlier ablations
have already taken effect. The Δ of senders ablated for every later reader are summed once for all of them, and only the others
are stored one by one; readers with the same ablated senders are projected together. The result equals one `Intervention` along a
path for each ablated edge (`as_interventions`), which is used if the run has interventions along paths of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.interventions.ablation_sweep import Replacement, has_paths
from circuitlab.analysis.interventions.edges import Through
from circuitlab.model.config import ModelConfig
from circuitlab.model.editor import Activations, Editor, SourceRun
from circuitlab.model.forward import rerun_from
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.path_reading import READS, Reading
from circuitlab.model.run import Run

Tick = Callable[[], None]


@dataclass(frozen=True, eq=False)
class Cut:
    """Ablated edges: `reads` bool [kind, dest layer, head, source layer, head], kind Q, K, V (for K and V, key-value heads).

    `logits` bool [layer, head]: ablated for the unembedding. `through`: the kinds of edges that may be ablated.
    """

    reads: Tensor
    logits: Tensor
    through: tuple[Through, ...]
    n_kv_heads: int

    def part(self, kind: int, layers: slice | int) -> Tensor:
        """`reads` of one kind in these layers, for the query or key-value heads that exist."""
        return self.reads[kind, layers][..., : self.reads.shape[2] if kind == 0 else self.n_kv_heads, :, :]

    @property
    def kinds(self) -> list[int]:
        """Indices of Q, K, V among the kinds in `through`."""
        return [i for i, kind in enumerate(("Q", "K", "V")) if kind in self.through]

    @property
    def first(self) -> int:
        """The first layer with an ablated reading; the number of layers if there is none."""
        layers = torch.nonzero(self.reads.flatten(2).any(dim=2).any(dim=0))
        return int(layers[0]) if len(layers) else self.reads.shape[1]

    def senders(self, layer: int) -> tuple[Tensor, Tensor]:
        """Two bool [head] of this layer: ablated for some later reader, and ablated for every later reader."""
        ablated = torch.cat([self.part(kind, slice(layer + 1, None))[..., layer, :].flatten(0, 1) for kind in self.kinds])
        return ablated.any(dim=0), ablated.all(dim=0)


def cut_of(config: ModelConfig, rows: np.ndarray, through: tuple[Through, ...]) -> Cut:
    """The cut of the edges `rows` [edge, 5], as in `edges.Universe`."""
    n_layers, n_heads = config.n_layers, config.n_heads
    reads = torch.zeros(3, n_layers, n_heads, n_layers, n_heads, dtype=torch.bool)
    logits = torch.zeros(n_layers, n_heads, dtype=torch.bool)
    a, b, c, d, kind = torch.as_tensor(np.ascontiguousarray(rows.T, dtype=np.int64))
    to_head = kind < 3
    reader = torch.where(kind == 0, d, d // config.group)
    reads[kind[to_head], c[to_head], reader[to_head], a[to_head], b[to_head]] = True
    logits[a[~to_head], b[~to_head]] = True
    return Cut(reads, logits, through, config.n_kv_heads)


def as_interventions(cut: Cut, replacement: Replacement) -> tuple[Intervention, ...]:
    """The same cut as interventions, without edges to the unembedding; readers with the same senders share one."""
    op, interventions = "patch" if replacement.how == "resample" else replacement.how, []
    for kind, name in enumerate(READS):
        for layer in range(1, cut.reads.shape[1]):
            rows = cut.part(kind, layer)[:, :layer]
            for row, heads in _alike(rows.flatten(1)):
                site = Site(name, layer, tuple(heads.tolist()))
                for at, senders in enumerate(row.reshape(layer, -1)):
                    if bool(senders.any()):
                        sender = Site("result", at, tuple(torch.nonzero(senders)[:, 0].tolist()))
                        interventions.append(Intervention(op, site, source=replacement.source, path_from=sender))
    return tuple(interventions)


def _alike(rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """(row, [reader]) for each distinct row of bool [reader, sender] that ablates anything."""
    kinds, of = torch.unique(rows, dim=0, return_inverse=True)
    for i, row in enumerate(kinds):
        if bool(row.any()):
            yield row, torch.nonzero(of == i)[:, 0]


def _instead(replacement: Replacement, layer: int, heads: tuple[int, ...], written: Tensor) -> Tensor:
    """What replaces the outputs of heads, `written` [head, pos, d_model]."""
    if replacement.how == "zero":
        return torch.zeros_like(written)
    donor = written if replacement.other is None else replacement.other.get("result", layer, heads)
    if replacement.how == "mean":
        return donor.mean(dim=-2, keepdim=True).expand_as(written)
    n = min(donor.shape[-2], written.shape[-2])  # past the end of the other text the output is left unchanged
    return torch.cat([donor[:, :n], written[:, n:]], dim=1)


def _changes(run: Activations, replacement: Replacement, layer: int, chosen: Tensor) -> Tensor:
    """Δ [chosen head, pos, d_model] of the heads of a layer that `chosen` bool [head] marks."""
    heads = tuple(torch.nonzero(chosen)[:, 0].tolist())
    written = run.get("result", layer, heads)
    return _instead(replacement, layer, heads, written) - written


class Cutting(Editor):
    """An editor for one pass: it applies the interventions of `run` and a cut, summing Δ as the senders' layers finish."""

    def __init__(self, run: Run, cut: Cut, replacement: Replacement, source: SourceRun, tick: Tick) -> None:
        self.by_hand = has_paths(run)
        super().__init__((*run.edits, *(as_interventions(cut, replacement) if self.by_hand else ())), run.tokens, source)
        self.cut, self._replacement, self._tick, self._taken = cut, replacement, tick, 0
        self._everyone: Tensor | None = None  # Σ Δ of senders ablated for every later reader
        self._some: list[tuple[int, Tensor, Tensor]] = []  # (layer, heads, Δ) of senders ablated for some readers only
        self.trial: Activations = run

    def readings(self, run: Activations, layer: int) -> list[Reading]:
        """The changed readings of this layer; readers with the same ablated senders together."""
        self.trial = run
        self._tick()
        if self.by_hand:
            return super().readings(run, layer)
        for at in range(self._taken, layer):
            self._take(run, at)
        self._taken = layer
        return [one for kind in self.cut.kinds for one in self._of(kind, layer)]

    def _take(self, run: Activations, layer: int) -> None:
        some, every = self.cut.senders(layer)
        if not bool(some.any()):
            return
        change = _changes(run, self._replacement, layer, some)
        everyone = every[some]
        if bool(everyone.any()):
            total = change[everyone].sum(0)
            self._everyone = total if self._everyone is None else self._everyone + total
        if not bool(everyone.all()):
            self._some.append((layer, torch.nonzero(some & ~every)[:, 0], change[~everyone]))

    def _of(self, kind: int, layer: int) -> list[Reading]:
        reads = self.cut.part(kind, layer)
        alike = list(_alike(reads[:, :layer].flatten(1)))
        if not alike:
            return []
        rows = torch.stack([row for row, _ in alike]).unflatten(1, (layer, -1))
        x = self.trial.get("resid_pre", 0)
        sums = x.new_zeros(len(rows), x.numel())
        for at, heads, change in self._some:
            sums += rows[:, at][:, heads].to(x.dtype) @ change.flatten(1)
        sums = sums.unflatten(1, x.shape)
        sums = sums if self._everyone is None else sums + self._everyone
        at_all = torch.arange(len(reads))
        return [Reading(READS[kind], torch.isin(at_all, h)[:, None, None], s) for (_, h), s in zip(alike, sums, strict=True)]

    def unread(self) -> Tensor | float:
        """[pos, d_model]: the change of what the unembedding reads, available after the pass."""
        layers = torch.nonzero(self.cut.logits.any(dim=1))[:, 0].tolist()
        return sum((_changes(self.trial, self._replacement, i, self.cut.logits[i]).sum(0) for i in layers), 0.0)


def cut_final(run: Run, cut: Cut, replacement: Replacement, source: SourceRun, tick: Tick) -> Tensor:
    """[pos, d_model]: what the unembedding reads with these edges ablated, the interventions of `run` included."""
    assert run.final is not None
    editor = Cutting(run, cut, replacement, source, tick)
    with torch.inference_mode():
        first = cut.first
        final = run.final if first == run.weights.config.n_layers else rerun_from(run, editor.edits, editor, first)
        return final + editor.unread()
