"""All paths up to an order, followed backwards from a target through the layers of a run (`path_terms`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from circuitlab.analysis.attribution.path_terms import (
    Index,
    Paths,
    add,
    behind_post_norm,
    below,
    mlp_output,
    positions_read,
    recorded,
    start,
    through,
)
from circuitlab.analysis.base import Ctx
from circuitlab.analysis.target import TargetVector, final_scale
from circuitlab.model.positions import sinusoid_table
from circuitlab.model.run import Run

Levels = list[list[Paths]]  # by order, in blocks
Tick = Callable[[], None]


@dataclass(frozen=True, eq=False)
class Followed:
    """`levels`: the paths of order 0, 1, …, complete. `direct` [layer, head]: what each head writes, read at the target.

    `ends[i]`: the paths of order 1 through layer i, with only what enters at the head itself summed in their `values`.
    """

    levels: Levels
    ends: list[Paths]
    direct: Tensor


def follow(run: Run, aim: TargetVector, names: tuple[str, ...], order: int, ctx: Ctx) -> Followed:
    """Paths to a target at one position from every source (`names`), up to `order` heads long."""
    c, position = run.weights.config, int(aim.positions[0])
    n = positions_read(run, position)
    assert run.final is not None
    D, constant = aim.at_scale(run.weights, final_scale(run.weights, run.final[position : position + 1]))
    levels: Levels = [[start(D[0], position, n, len(names))], *([] for _ in range(order))]
    index = {name: i for i, name in enumerate(names)}
    if "final bias" in index:
        levels[0][0].values[0, index["final bias"]] = constant[0]
    ends, direct = [], torch.zeros(c.n_layers, c.n_heads, dtype=D.dtype)
    for i in reversed(range(c.n_layers)):
        tick = lambda i=i: ctx.tick(c.n_layers - 1 - i, 2 * c.n_layers, f"paths through layer {i}")
        levels, end, direct[i] = _layer(run, i, position, levels, index, tick)
        ends.append(end)
    tick = lambda: ctx.tick(c.n_layers, 2 * c.n_layers, "embeddings")
    for name, written in _embeddings(run, n).items():
        _sum(levels, index[name], written, tick)
    return Followed(levels, ends[::-1], direct)


def _layer(run: Run, i: int, position: int, levels: Levels, index: Index, tick: Tick) -> tuple[Levels, Paths, Tensor]:
    """Paths as they read the stream before block i; those that end in its heads, and what its heads add directly [head]."""
    order, n, here = len(levels) - 1, levels[0][0].weights.shape[1], slice(position, position + 1)
    now = recorded(run, i, n)
    tick()
    if not run.weights.config.attention_only:
        _sum(levels, index[f"L{i} MLP"], mlp_output(run, i, n, tick), tick)
    reading = [[behind_post_norm(paths, now, index) for paths in level] for level in levels]
    rows = slice(0, n) if any(reading[1:order]) else here  # the target alone reads one destination
    pattern = run.get("pattern", i, (), rows)[..., :n]
    target = reading[0][0]
    direct = run.get("result", i, (), here)[:, 0] @ target.direction[0] * target.weights[0, position]
    end = through(target, now, i, pattern, rows, index)
    ending = Paths(end.heads, end.weights, end.direction, end.values.clone())
    after: Levels = [list(level) for level in levels]
    for k, level in enumerate(reading[:order]):
        for paths in level:
            tick()
            after[k + 1].append(end if k == 0 else through(paths, now, i, pattern, rows, index))
    return [[below(paths, now, index) for paths in level] for level in after], ending, direct


def _sum(levels: Levels, column: int, written: Tensor, tick: Tick) -> None:
    for level in levels:
        for paths in level:
            tick()
            add(paths, column, written)


def _embeddings(run: Run, n: int) -> dict[str, Tensor]:
    """What is in the stream before the first block, by source, [pos, d_model]."""
    c, embed = run.weights.config, run.weights.embed()
    tokens = torch.tensor(run.tokens[:n])
    found = {"embedding": embed.W_E[tokens] * c.embed_scale}
    if c.positions == "learned" and embed.W_pos is not None:
        found["position"] = embed.W_pos[:n]
    if c.positions == "sinusoidal":
        found["position"] = sinusoid_table(n, c.d_model, embed.W_E.dtype)
    return found
