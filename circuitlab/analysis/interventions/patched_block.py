"""One block of a run with some of its activations taken from another run, for many choices of activations at once.

A cell of a sweep is a head (or none, for activations that are not of heads) and the positions that are patched:

    resid_pre                        the block is recomputed on the changed stream
    q, k, v, pattern                 the head's attention is recomputed, and its output changes by (z' − z) W_O
    head, attn_out                   the sum of head outputs changes by the difference
    resid_mid, mlp_out               the rest of the block is recomputed

Only rows that can change are computed; the others are the run's own. With grouped keys and values, the head of "k" and "v" is a
key-value head, and all query heads of its group are recomputed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from circuitlab.analysis.interventions._partial_reruns import (
    Batch,
    Span,
    Tick,
    after_mid,
    attended,
    batches_of,
    carried,
    changed_block,
    waves_of,
)
from circuitlab.analysis.interventions._prompt_pair import PromptPair
from circuitlab.analysis.target import TargetVector
from circuitlab.model import block
from circuitlab.model.block import QKV
from circuitlab.model.config import ModelConfig
from circuitlab.model.editor import Editor
from circuitlab.model.intervention import Intervention, Site, SiteName
from circuitlab.model.run import Run, after_attention, after_mlp, post_norm
from circuitlab.model.weights import Layer

What = Literal["resid_pre", "resid_mid", "attn_out", "mlp_out", "head", "pattern", "q", "k", "v"]
BY_HEAD: tuple[str, ...] = ("head", "pattern", "q", "k", "v")
SITES: dict[str, SiteName] = {"attn_out": "result", "head": "result"}


def site_of(what: What) -> SiteName:
    """The site at which an intervention patches this activation; "resid_mid" has none."""
    return SITES.get(what, what)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Cells:
    """What each cell patches: its head (0 if the activation is not of heads), its first position, and all its positions.

    `where(cells)` is bool [cell, pos] up to the span's stop, with at least one position per cell.
    """

    heads: list[int]
    starts: list[int]
    where: Callable[[list[int]], Tensor]


@dataclass(eq=False)
class PatchedBlock:
    """Block `index` of `run` with an activation `here` and its replacement `new`, [(head,) pos, width] up to the span's stop.

    For "attn_out" they are the outputs of all heads, as for "head", and are patched together.
    """

    run: Run
    index: int
    what: What
    here: Tensor
    new: Tensor
    span: Span

    def same(self) -> Tensor:
        """Bool [head or 1, pos]: where the replacement equals the activation."""
        equal = (self.here == self.new).all(-1)
        return equal.all(0)[None] if self.what == "attn_out" else torch.atleast_2d(equal)

    def values(self, cells: Cells, aim: TargetVector, tick: Tick) -> Iterator[tuple[list[int], Tensor]]:
        """(cells, target values [cell]) wave by wave."""
        starts = cells.starts
        for wave in waves_of(batches_of(starts, self.span), starts, self.span):
            batches = []
            layer = self.run.weights.layer(self.index)
            for chosen in wave:
                tick()
                heads = [cells.heads[c] for c in chosen]
                batches.append(self._batch(layer, chosen, heads, cells.where(chosen), tick))
            done, final = carried(self.run, batches, self.index + 1, self.span, tick)
            yield done, aim.measure(self.run.weights, final[:, None])[:, 0]

    def _batch(self, layer: Layer, cells: list[int], heads: list[int], where: Tensor, tick: Tick) -> Batch:
        """The streams after this block, from the first changed position on."""
        rows = self._rows(where)
        if self.what == "resid_pre":
            start = 0 if self.span.whole else int(where.any(0).int().argmax())
            x = torch.where(where[:, start:, None], self.new[start:], self.here[start:])
            keep = slice(rows.start - start, rows.stop - start)
            return Batch(cells, changed_block(self.run, layer, self.index, x, start, keep, tick), rows.start)
        x = self.run.get("resid_pre", self.index, (), rows)
        if self.what == "mlp_out":
            mid = self.run.get("resid_mid", self.index, (), rows)
            post = after_mlp(self.run.weights.config, layer, mid, self._exchanged(where, rows))
        else:
            mid = self._exchanged(where, rows) if self.what == "resid_mid" else self._mid(layer, x, heads, where, rows)
            post = after_mid(self.run, layer, self.index, x, mid, rows.start)
        if rows.stop < self.span.stop:
            own = self.run.get("resid_post", self.index, (), slice(rows.stop, self.span.stop))
            post = torch.cat([post, own.expand(len(cells), -1, -1)], dim=1)
        return Batch(cells, post, rows.start)

    def _rows(self, where: Tensor) -> slice:
        """The positions of this block's output that must be recomputed."""
        if self.span.whole:
            return slice(0, self.span.stop)
        if self.index == self.run.weights.config.n_layers - 1:
            return slice(self.span.at, self.span.at + 1)
        touched = where.any(0).nonzero()[:, 0]
        alone = self.what not in ("resid_pre", "k", "v")
        return slice(int(touched[0]), int(touched[-1]) + 1 if alone else self.span.stop)

    def _exchanged(self, where: Tensor, rows: slice) -> Tensor:
        """[cell, row, d_model]: an activation that is not of heads, patched at `where`."""
        return torch.where(where[:, rows, None], self.new[rows], self.here[rows])

    def _mid(self, layer: Layer, x: Tensor, heads: list[int], where: Tensor, rows: slice) -> Tensor:
        """The stream after attention [cell, row, d_model]."""
        config, run, i = self.run.weights.config, self.run, self.index
        if run.editor.touches(i, "result"):
            out = run.get("result", i, (), rows).sum(0)
            out = out if layer.b_O is None else out + layer.b_O
        else:
            out = block.write(layer, run.get("z", i, (), rows))
        out = out + self._change(layer, heads, where, rows)
        return after_attention(config, layer, x, post_norm(config, layer, out, "attn"))

    def _change(self, layer: Layer, heads: list[int], where: Tensor, rows: slice) -> Tensor:
        """[cell, row, d_model]: the change of the sum of head outputs."""
        if self.what in ("head", "attn_out"):
            change = self.new[:, rows] - self.here[:, rows]
            change = change.sum(0) if self.what == "attn_out" else change[heads]
            return torch.where(where[:, rows, None], change, torch.zeros_like(change))
        changes = [torch.empty(0)] * len(heads)
        for head in sorted(set(heads)):
            cells = [c for c, h in enumerate(heads) if h == head]
            for cell, one in zip(cells, self._attention_change(layer, head, where[cells], rows), strict=True):
                changes[cell] = one
        return torch.stack(changes)

    def _attention_change(self, layer: Layer, head: int, where: Tensor, rows: slice) -> Tensor:
        """[cell, row, d_model]: `_change` for one head whose q, k, v or pattern is patched."""
        config, run, i, stop = self.run.weights.config, self.run, self.index, self.span.stop
        shared = self.what in ("k", "v")
        group = tuple(range(head * config.group, (head + 1) * config.group)) if shared else (head,)
        recorded, kv = run.captured[i], config.kv_head(group[0])
        exchanged = lambda own, r: torch.where(where[:, None, r, None], self.new[head, r], own)
        q = recorded.q[None, list(group), rows]
        k, v = recorded.k[None, None, kv, :stop], recorded.v[None, None, kv, :stop]
        q = exchanged(q, rows) if self.what == "q" else q
        k = exchanged(k, slice(0, stop)) if self.what == "k" else k
        v = exchanged(v, slice(0, stop)) if self.what == "v" else v
        patch = (lambda own: exchanged(own, rows)) if self.what == "pattern" else (lambda own: own)
        nothing = q[0, :, :0]
        z = attended(run, i, QKV(q, k, v), QKV(nothing, nothing, nothing), rows.start, group, patch)
        written = run.editor.apply("result", i, z @ layer.W_O[list(group)], rows.start, group)
        change = (written - run.get("result", i, group, rows)).sum(1)
        return change.expand(len(where), -1, -1)


def reach(config: ModelConfig, layer: int, what: What) -> float:
    """How many positions ahead an activation of this layer can affect the final stream."""
    own = what in ("resid_pre", "k", "v")
    layers = range(layer if own else layer + 1, config.n_layers)
    # a smeared key carries its stream one position further
    return sum(config.window(i) - 1 + config.smeared_keys if config.window(i) else math.inf for i in layers)


def patched_block(pair: PromptPair, layer: int, what: What, tick: Tick) -> PatchedBlock:
    """One layer's activations in this run, and their aligned replacements from the other run."""
    run, other_run, stop = pair.run, pair.other_run, slice(0, pair.span.stop)
    if what == "resid_mid":
        here, theirs = run.get("resid_mid", layer, (), stop), other_run.get("resid_mid", layer)
        rows = torch.as_tensor(pair.aligned.align.copy())[stop]
        new = torch.where((rows >= 0)[:, None], theirs[rows.clamp(min=0)], here)
        return PatchedBlock(run, layer, what, here, new, pair.span)
    name = site_of(what)
    edit = Intervention("patch", Site(name, layer), source=pair.source, align=pair.align)
    editor = Editor((edit,), run.tokens, lambda _: other_run)
    if name not in ("result", "pattern"):
        here = run.get(name, layer, (), stop)
        return PatchedBlock(run, layer, what, here, editor.operate(edit, edit.site, here, 0, None), pair.span)
    pairs = []
    for head in range(run.weights.config.n_heads):  # one at a time, so that long prompts can be cancelled in time
        tick()
        here = run.get(name, layer, (head,), stop)
        here = here[..., stop] if what == "pattern" else here
        pairs.append((here, editor.operate(edit, edit.site, here, 0, (head,))))
    return PatchedBlock(run, layer, what, torch.cat([a for a, _ in pairs]), torch.cat([b for _, b in pairs]), pair.span)


def inside_cone(patched: PatchedBlock, shared: int) -> Tensor:
    """Bool [head or 1, pos] up to the span's stop: the causal cone, cells that can have an effect.

    The first `shared` positions, which are the same in both runs, cannot. With a mean over this prompt every position can affect
    every other.
    """
    run, span = patched.run, patched.span
    position = torch.arange(span.stop)
    differs = ~patched.same() & (position >= shared)
    if span.whole:
        return differs
    ahead = span.at - position
    return differs & (ahead >= 0) & (ahead <= reach(run.weights.config, patched.index, patched.what))
