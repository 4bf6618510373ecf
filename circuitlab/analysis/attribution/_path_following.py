"""All paths up to a given order, followed backwards from a target through the layers of a run (`path_terms`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from circuitlab.analysis.attribution._contributions import initial_stream
from circuitlab.analysis.attribution.path_terms import (
    Index,
    Paths,
    add,
    before_interventions,
    mlp_output,
    positions_read,
    recorded_attention,
    start,
    through,
    through_post_norm,
)
from circuitlab.analysis.base import Ctx
from circuitlab.analysis.target import TargetVector, final_scale
from circuitlab.model.run import Run

Levels = list[list[Paths]]  # by order, in batches
Tick = Callable[[], None]


@dataclass(frozen=True, eq=False)
class Followed:
    """`levels`: all paths of order 0, 1, …; `direct` [layer, head]: each head's direct contribution to the target.

    `ends[i]`: the paths of order 1 through layer i, whose `values` hold only what enters at the head itself.
    """

    levels: Levels
    ends: list[Paths]
    direct: Tensor


def follow(run: Run, target: TargetVector, names: tuple[str, ...], order: int, ctx: Ctx) -> Followed:
    """All paths of up to `order` heads from every source (`names`) to a target at one position."""
    c, position = run.weights.config, int(target.positions[0])
    n = positions_read(run, position)
    assert run.final is not None
    D, constant = target.at_scale(run.weights, final_scale(run.weights, run.final[position : position + 1]))
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
    for name, output in initial_stream(run, slice(0, n)).items():
        _sum(levels, index[name], output, tick)
    return Followed(levels, ends[::-1], direct)


def _layer(run: Run, i: int, position: int, levels: Levels, index: Index, tick: Tick) -> tuple[Levels, Paths, Tensor]:
    """(paths as they read the stream before block i, order-1 paths through its heads, its heads' direct contributions [head])."""
    order, n, at_target = len(levels) - 1, levels[0][0].weights.shape[1], slice(position, position + 1)
    attention = recorded_attention(run, i, n)
    tick()
    if not run.weights.config.attention_only:
        _sum(levels, index[f"L{i} MLP"], mlp_output(run, i, n, tick), tick)
    reading = [[through_post_norm(paths, attention, index) for paths in level] for level in levels]
    rows = slice(0, n) if any(reading[1:order]) else at_target  # the target alone reads one destination
    pattern = run.get("pattern", i, (), rows)[..., :n]
    target = reading[0][0]
    direct = run.get("result", i, (), at_target)[:, 0] @ target.direction[0] * target.weights[0, position]
    end = through(target, attention, i, pattern, rows, index)
    ending = Paths(end.heads, end.weights, end.direction, end.values.clone())
    after: Levels = [list(level) for level in levels]
    for k, level in enumerate(reading[:order]):
        for paths in level:
            tick()
            after[k + 1].append(end if k == 0 else through(paths, attention, i, pattern, rows, index))
    return [[before_interventions(paths, attention, index) for paths in level] for level in after], ending, direct


def _sum(levels: Levels, column: int, output: Tensor, tick: Tick) -> None:
    for level in levels:
        for paths in level:
            tick()
            add(paths, column, output)
