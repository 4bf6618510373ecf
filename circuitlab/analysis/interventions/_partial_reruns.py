"""Partial reruns: changed versions of a run, in batches, computed from one layer up to the position that is read.

A change at position p leaves every earlier position as it was, and in the end only the position that is read matters. So a batch
holds residual streams from its first changed position on; earlier keys and values are the run's own; the last layer has one
destination. The run's interventions act on each stream as in the forward pass. Shapes: streams [cell, pos, d_model]; queries,
keys, values [cell, head, pos, d_head].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from circuitlab.model import block
from circuitlab.model.block import QKV
from circuitlab.model.config import ModelConfig
from circuitlab.model.run import Run, after_attention, after_mlp, mlp_written, post_norm
from circuitlab.model.weights import Layer

ROWS = 256  # rows per batch: enough to read the weights once for many, few enough to cancel in time
WAVE = 1024  # rows of all batches that pass the layers together: weights on disk are read once per wave

Tick = Callable[[], None]


@dataclass(frozen=True)
class Span:
    """The positions of a rerun: those before `stop`, of which `at` is read.

    `whole`: an intervention uses a mean over this prompt, so that every position is needed.
    """

    at: int
    stop: int
    whole: bool


@dataclass(eq=False)
class Batch:
    """Residual streams x [cell, pos, d_model] of the cells `cells` at positions start, start + 1, …"""

    cells: list[int]
    x: Tensor
    start: int


def span_of(run: Run, at: int) -> Span:
    """The positions that must be recomputed to read position `at` of changed versions of `run`."""
    whole = any(e.depends_on_prompt for e in run.edits)
    # an intervention on scores or patterns may name every source
    wide = whole or any(e.site.name in ("scores", "pattern") for e in run.edits)
    return Span(at, run.n if wide else at + 1, whole)


def batches_of(starts: list[int], span: Span) -> list[list[int]]:
    """Batches of cell indices, sorted by first changed position, of about ROWS rows each."""
    order = sorted(range(len(starts)), key=lambda i: starts[i])
    batches: list[list[int]] = []
    done = 0
    while done < len(order):
        most = max(1, ROWS // max(1, span.stop - (0 if span.whole else starts[order[done]])))
        batches.append(order[done : done + most])
        done += most
    return batches


def waves_of(batches: list[list[int]], starts: list[int], span: Span) -> list[list[list[int]]]:
    """Groups of batches that pass the layers together, of about WAVE rows each."""
    waves: list[list[list[int]]] = []
    rows = WAVE
    for one in batches:
        more = len(one) * (span.stop - (0 if span.whole else starts[one[0]]))
        if rows + more > WAVE:
            waves.append([])
            rows = 0
        waves[-1].append(one)
        rows += more
    return waves


def carried(run: Run, batches: list[Batch], layer: int, span: Span, tick: Tick) -> tuple[list[int], Tensor]:
    """(cells, final streams [cell, d_model] at `span.at`) of batches whose streams enter block `layer`."""
    w = run.weights
    for i in range(layer, w.config.n_layers):
        weights = w.layer(i)
        for batch in batches:
            tick()
            last = i == w.config.n_layers - 1 and not span.whole
            keep = slice(span.at - batch.start, span.at - batch.start + 1) if last else slice(None)
            x = run.editor.apply("resid_pre", i, batch.x, batch.start)
            batch.x = changed_block(run, weights, i, x, batch.start, keep, tick)
            batch.start += keep.start or 0
    cells = [c for batch in batches for c in batch.cells]
    return cells, torch.cat([batch.x[:, span.at - batch.start] for batch in batches])


def changed_block(run: Run, layer: Layer, i: int, x: Tensor, start: int, keep: slice, tick: Tick) -> Tensor:
    """Block i on changed streams x [cell, pos, d_model] from position `start` on; `keep`: the rows to return."""
    config, editor = run.weights.config, run.editor
    qkv = projected(run, layer, i, x, start)
    parts = {name: editor.apply(name, i, part, start) for name, part in qkv._asdict().items()}
    x, first = x[:, keep], start + (keep.start or 0)
    recorded = run.captured[i]
    k, v = block.per_query_head(config, parts["k"]), block.per_query_head(config, parts["v"])
    early = [block.per_query_head(config, t[:, :start]) for t in (recorded.k, recorded.v)]
    z = attended(run, i, QKV(parts["q"][..., keep, :], k, v), QKV(parts["q"], *early), first)
    if editor.touches(i, "result"):
        out = editor.apply("result", i, block.head_results(layer, z), first).sum(-3)
        out = out if layer.b_O is None else out + layer.b_O
    else:
        out = block.write(layer, z)
    mid = after_attention(config, layer, x, post_norm(config, layer, out, "attn"))
    tick()
    return after_mid(run, layer, i, x, mid, first)


def after_mid(run: Run, layer: Layer, i: int, x: Tensor, mid: Tensor, start: int) -> Tensor:
    """The stream after block i, from the stream `mid` after its attention and the stream x before the block."""
    if layer.mlp is None:
        return mid
    config = run.weights.config
    written = mlp_written(config, layer, x if config.parallel else mid)
    return after_mlp(config, layer, mid, run.editor.apply("mlp_out", i, written, start))


def rerun_entries(config: ModelConfig, n: int, n_source: int) -> int:
    """How many numbers the run on another prompt of `n_source` tokens and a wave of reruns of n tokens hold at most."""
    other = n_source * (config.d_model + (config.n_heads + 2 * config.n_kv_heads) * config.d_head) * config.n_layers
    rows = max(ROWS, n)
    batch = rows * (3 * config.n_heads * n + 3 * config.d_mlp + 8 * config.n_heads * config.d_head + 6 * config.d_model)
    batch += rows * config.n_heads * config.d_model  # the output of each head, if an intervention reads it
    return other + batch + 3 * (WAVE + rows) * config.d_model


def read_by_attention(config: ModelConfig, layer: Layer, x: Tensor) -> Tensor:
    """The input of attention: the normalised stream, or the stream itself in post-norm blocks."""
    if config.norm_placement in ("pre", "both"):
        return block.normalise(x, layer.attn_norm, config.norm, config.norm_eps)
    return x


def projected(run: Run, layer: Layer, i: int, x: Tensor, start: int) -> QKV:
    """Queries, keys and values of changed streams, before interventions."""
    config = run.weights.config
    W_pos = run.weights.embed().W_pos if config.positions == "shortformer" else None
    before = None
    if config.smeared_keys and start:
        before = read_by_attention(config, layer, run.captured[i].resid_pre[start - 1 : start])
        before = before.expand(*x.shape[:-2], 1, -1)
    return block.queries_keys_values(config, layer, i, read_by_attention(config, layer, x), start, W_pos, before)


def attended(
    run: Run,
    i: int,
    new: QKV,
    early: QKV,
    first: int,
    heads: tuple[int, ...] | None = None,
    patch: Callable[[Tensor], Tensor] = lambda pattern: pattern,
) -> Tensor:
    """z [cell, head, dest, d_head] of destinations first, first + 1, …, the run's interventions included.

    `early` [head, src, d_head]: the run's keys and values at the positions before those of `new`, which has the same heads in q,
    k and v. `heads`: which heads these are, None for all. `patch` is applied to the pattern after the run's own interventions.
    """
    config, editor = run.weights.config, run.editor
    start = early.k.shape[-2]
    scores = block.scores(config, new.q, new.k)
    if start:
        cells = max(len(new.q), len(new.k))
        ahead = _per_cell(block.scores(config, _over_cells(new.q), early.k), len(new.q)).expand(cells, -1, -1, -1)
        scores = torch.cat([ahead, scores], dim=-1)
    scores = editor.apply("scores", i, block.biased(config, i, scores, first, heads), first, heads)
    mask = block.allowed(scores.shape[-2], scores.shape[-1], first, config.window(i))
    pattern = patch(editor.apply("pattern", i, block.pattern(scores, mask), first, heads))
    z = pattern[..., start:] @ new.v
    if start:
        z = z + _per_cell(_over_cells(pattern[..., :start]) @ early.v, len(pattern))
    return editor.apply("z", i, z, first, heads)


def _over_cells(x: Tensor) -> Tensor:
    """[cell, head, dest, width] -> [head, cell · dest, width]: one product per head, without copies of the run per cell."""
    return x.transpose(0, 1).flatten(1, 2)


def _per_cell(x: Tensor, cells: int) -> Tensor:
    return x.unflatten(1, (cells, -1)).transpose(0, 1)
