"""One block of a run in which some of its values stand as they are in another run, for many choices of which at once.

A cell of a sweep is a head (or none, for what has no heads) and the positions at which the value is exchanged:

    resid_pre                        the block runs again on the changed stream
    q, k, v, pattern                 the head's attention runs again, and what it writes changes by (z' − z) W_O
    head, attn_out                   the sum of what heads write changes by the difference
    resid_mid, mlp_out               the rest of the block

Only rows that can change are computed; the others are the run's own. With grouped keys and values a head is a key-value head in
"k" and "v", and all query heads of its group attend anew.
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
from circuitlab.analysis.interventions._prompt_pair import TwoRuns
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


@dataclass(frozen=True, eq=False)
class Cells:
    """Which values are exchanged, cell by cell: the head (0 for what has none), the first position that changes, and all of them.

    `where(cells)` is bool [cell, pos] up to the span's stop, with at least one position each.
    """

    heads: list[int]
    starts: list[int]
    where: Callable[[list[int]], Tensor]


@dataclass(eq=False)
class PatchedBlock:
    """Block `index` of `run`: a value as it is `here` and as it comes in, `new`, both [(head,) pos, width] up to the span's stop.

    At "attn_out" the values are those of "head", exchanged together: what every head writes.
    """

    run: Run
    index: int
    what: What
    here: Tensor
    new: Tensor
    span: Span

    def same(self) -> Tensor:
        """Bool [head or 1, pos]: where nothing would change."""
        equal = (self.here == self.new).all(-1)
        return equal.all(0)[None] if self.what == "attn_out" else torch.atleast_2d(equal)

    def values(self, cells: Cells, aim: TargetVector, tick: Tick) -> Iterator[tuple[list[int], Tensor]]:
        """(cells, the target's value [cell]) wave by wave."""
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
        """Streams after this block, from the first changed position on."""
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
        """The rows of this block's output that must be computed."""
        if self.span.whole:
            return slice(0, self.span.stop)
        if self.index == self.run.weights.config.n_layers - 1:
            return slice(self.span.at, self.span.at + 1)
        touched = where.any(0).nonzero()[:, 0]
        alone = self.what not in ("resid_pre", "k", "v")
        return slice(int(touched[0]), int(touched[-1]) + 1 if alone else self.span.stop)

    def _exchanged(self, where: Tensor, rows: slice) -> Tensor:
        """[cell, row, d_model] of a value without heads."""
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
        """[cell, row, d_model]: how the sum of what heads write changes."""
        if self.what in ("head", "attn_out"):
            change = self.new[:, rows] - self.here[:, rows]
            change = change.sum(0) if self.what == "attn_out" else change[heads]
            return torch.where(where[:, rows, None], change, torch.zeros_like(change))
        found = [torch.empty(0)] * len(heads)
        for head in sorted(set(heads)):
            cells = [c for c, h in enumerate(heads) if h == head]
            for cell, one in zip(cells, self._attending_anew(layer, head, where[cells], rows), strict=True):
                found[cell] = one
        return torch.stack(found)

    def _attending_anew(self, layer: Layer, head: int, where: Tensor, rows: slice) -> Tensor:
        """[cell, row, d_model]: `_change` where one head's q, k, v or pattern is exchanged."""
        config, run, i, stop = self.run.weights.config, self.run, self.index, self.span.stop
        shared = self.what in ("k", "v")
        group = tuple(range(head * config.group, (head + 1) * config.group)) if shared else (head,)
        kept, kv = run.captured[i], config.kv_head(group[0])
        exchanged = lambda own, r: torch.where(where[:, None, r, None], self.new[head, r], own)
        q = kept.q[None, list(group), rows]
        k, v = kept.k[None, None, kv, :stop], kept.v[None, None, kv, :stop]
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
    """How many positions ahead a value of this layer can act on the last stream."""
    own = what in ("resid_pre", "k", "v")
    layers = range(layer if own else layer + 1, config.n_layers)
    # a smeared key carries its stream one position further
    return sum(config.window(i) - 1 + config.smeared_keys if config.window(i) else math.inf for i in layers)


def patched_block(two: TwoRuns, layer: int, what: What, tick: Tick) -> PatchedBlock:
    """The values of one layer here and, aligned, there."""
    run, there, stop = two.run, two.there, slice(0, two.span.stop)
    if what == "resid_mid":
        here, from_there = run.get("resid_mid", layer, (), stop), there.get("resid_mid", layer)
        rows = torch.as_tensor(two.aligned.align.copy())[stop]
        new = torch.where((rows >= 0)[:, None], from_there[rows.clamp(min=0)], here)
        return PatchedBlock(run, layer, what, here, new, two.span)
    name: SiteName = SITES.get(what, what)  # type: ignore[arg-type]
    edit = Intervention("patch", Site(name, layer), source=two.source, align=two.align)
    editor = Editor((edit,), run.tokens, lambda _: there)
    if name not in ("result", "pattern"):
        here = run.get(name, layer, (), stop)
        return PatchedBlock(run, layer, what, here, editor.operate(edit, edit.site, here, 0, None), two.span)
    pairs = []
    for head in range(run.weights.config.n_heads):  # one at a time: in a long prompt all of them take long
        tick()
        here = run.get(name, layer, (head,), stop)
        here = here[..., stop] if what == "pattern" else here
        pairs.append((here, editor.operate(edit, edit.site, here, 0, (head,))))
    return PatchedBlock(run, layer, what, torch.cat([a for a, _ in pairs]), torch.cat([b for _, b in pairs]), two.span)


def inside_cone(made: PatchedBlock, shared: int) -> Tensor:
    """Bool [head or 1, pos] up to the span's stop: which cells can have an effect; the first `shared` positions cannot.

    A mean over this prompt lets every position act on every other.
    """
    run, span = made.run, made.span
    position = torch.arange(span.stop)
    differs = ~made.same() & (position >= shared)
    if span.whole:
        return differs
    ahead = span.at - position
    return differs & (ahead >= 0) & (ahead <= reach(run.weights.config, made.index, made.what))
