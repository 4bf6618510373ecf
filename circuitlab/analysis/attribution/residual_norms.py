"""Norms of the residual stream: its size after each stage, the size of each component's output, and the cosine of the two.

    ‖x_stage‖,        ‖a‖ of every output a,        cos(a, x) = a · x / (‖a‖ ‖x‖),   x: the stream that a is added to

x is the stream before attention for attention's output, and the stream after attention for the MLP's (in parallel blocks, before
the block). With centred writing weights the norms are those of the centred stream. On the growth of the norm with depth see
Heimersheim and Turner 2023.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.attribution._contributions import initial_stream, stream_intervention
from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, naming, over, read_only
from circuitlab.analysis.target import position_of
from circuitlab.counting import number_of
from circuitlab.model.config import ModelConfig
from circuitlab.model.run import Run, after_attention, mlp_written

ROWS = 64  # positions at a time


@dataclass(frozen=True)
class ResidualNormsParams:
    """`position` is the one that `across` takes, −1 the last."""

    position: int = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class ResidualNormsResult(Result):
    """`stream` [stage, pos]: norms of the stream; `added`, `cosine` [component, pos]: norm and cosine of each output.

    `stages`, `components` name the rows, in the order of the model. The cosine is NaN for the first part of the stream and for
    outputs of length 0.
    """

    stream: np.ndarray = over("stage", "position", unit="residual units")
    added: np.ndarray = over("component", "position", unit="residual units")
    cosine: np.ndarray = over("component", "position", unit="dimensionless")
    tokens: np.ndarray = over("position", unit="token id")
    stages: tuple[str, ...] = naming("stage")
    components: tuple[str, ...] = naming("component")
    position: int = -1

    def table(self) -> Table:
        """One row per stage or component and position."""
        rows = np.concatenate([self.stream, self.added])
        cosine = np.concatenate([np.full_like(self.stream, np.nan), self.cosine])
        names = np.array([*self.stages, *self.components])
        row, pos = np.indices(rows.shape).reshape(2, -1)
        kind = np.where(row < len(self.stages), "stream", "added")
        columns = (Column("position", pos, of="position"), Column("what", names[row]), Column("kind", kind))
        return Table((*columns, Column("norm", rows.ravel(), "residual units"), Column("cosine", cosine.ravel())))

    def across(self) -> Mapping[str, np.ndarray]:
        """At the chosen position: `stream` [stage], `added` and `cosine` [component]."""
        return {name: getattr(self, name)[:, self.position] for name in ("stream", "added", "cosine")}


Step = tuple[str, Tensor | None, Tensor]  # name, the stream before it, the output added


def layer_steps(run: Run, layer: int, dest: slice) -> tuple[list[tuple[str, Tensor]], list[Step]]:
    """The stages of block `layer` (before it, after attention) and the outputs added in it, at positions `dest`."""
    c, x, weights = run.weights.config, run.get("resid_pre", layer, (), dest), run.weights.layer(layer)
    stages, steps = [(f"L{layer} in", x)], list[Step]()
    change = stream_intervention(run, layer, dest)
    if change is not None:
        steps.append((f"intervention L{layer}", x - change, change))
    attention = run.get("attn_out", layer, (), dest)
    steps.append((f"attention L{layer}", x, attention))
    if not c.attention_only:
        mid = x if c.parallel else after_attention(c, weights, x, attention)
        stages += [] if c.parallel else [(f"L{layer} mid", mid)]
        edited = run.editor.touches(layer, "mlp_out")
        steps.append((f"MLP L{layer}", mid, run.get("mlp_out", layer, (), dest) if edited else mlp_written(c, weights, mid)))
    return stages, steps


@dataclass(eq=False)
class _Rows:
    """The rows of the result for one tile of positions."""

    stages: list[str] = field(default_factory=list[str])
    components: list[str] = field(default_factory=list[str])
    stream: list[Tensor] = field(default_factory=list[Tensor])
    added: list[Tensor] = field(default_factory=list[Tensor])
    cosine: list[Tensor] = field(default_factory=list[Tensor])

    def append(self, stages: list[tuple[str, Tensor]], steps: list[Step]) -> None:
        self.stages += [name for name, _ in stages]
        self.components += [name for name, *_ in steps]
        self.stream += [x.norm(dim=-1) for _, x in stages]
        self.added += [a.norm(dim=-1) for _, _, a in steps]
        self.cosine += [cosine(a, x) for _, x, a in steps]


def tile_rows(run: Run, dest: slice, ctx: Ctx, done: int, total: int) -> _Rows:
    """Every stage and output at the positions `dest`; `done` of `total` layers of all tiles are finished."""
    rows, initial = _Rows(), list(initial_stream(run, dest).items())
    rows.append([], [(name, initial[0][1] if i else None, x) for i, (name, x) in enumerate(initial)])
    for layer in range(run.weights.config.n_layers):
        ctx.tick(done + layer, total, f"position {dest.start}, layer {layer}")
        rows.append(*layer_steps(run, layer, dest))
    assert run.final is not None
    rows.append([("final", run.final[dest])], [])
    return rows


def cosine(a: Tensor, x: Tensor | None) -> Tensor:
    """[pos]: cos(a, x); NaN without x, or if a or x has length 0."""
    if x is None:
        return torch.full(a.shape[:-1], torch.nan, dtype=a.dtype)
    return (a * x).sum(-1) / (a.norm(dim=-1) * x.norm(dim=-1))


def _memory(config: ModelConfig, n: int, p: ResidualNormsParams) -> int:
    rows, carried = min(n, ROWS), 2 * n * config.n_heads * config.d_head
    return 8 * (rows * (12 * config.d_model + 3 * config.d_mlp + 3 * config.n_heads * n) + carried + 16 * config.n_layers * n)


@analysis(version=2, needs="tokens", lane="slow", memory=_memory)
def residual_norms(inputs: Inputs, p: ResidualNormsParams, ctx: Ctx) -> ResidualNormsResult:
    """Norms of the residual stream after each stage and of each component's output, and its cosine with the stream."""
    run, n_layers = inputs.run(), inputs.weights.config.n_layers
    starts, previous = range(0, run.n, ROWS), ctx.previous
    partial = previous if isinstance(previous, ResidualNormsResult) else None
    with torch.inference_mode():
        for i, start in enumerate(starts):
            dest = slice(start, min(start + ROWS, run.n))
            if partial is not None and not np.isnan(partial.stream[:, dest]).any():
                continue
            rows = tile_rows(run, dest, ctx, i * n_layers, len(starts) * n_layers)
            partial = _with(inputs, p, partial, rows, dest, run)
            if partial.done < 1:
                ctx.partial(partial)
    assert partial is not None
    return partial


def _with(inputs: Inputs, p: ResidualNormsParams, partial: ResidualNormsResult | None, rows: _Rows, dest: slice, run: Run) -> Any:
    """The partial result with the positions `dest` filled in, in arrays of its own: results already shown stay unchanged."""
    arrays: dict[str, Any] = {}
    for name in ("stream", "added", "cosine"):
        tile = torch.stack(getattr(rows, name)).cpu().numpy()
        arrays[name] = np.full((len(tile), run.n), np.nan, tile.dtype) if partial is None else getattr(partial, name).copy()
        arrays[name][:, dest] = tile
    return ResidualNormsResult(
        **arrays,
        tokens=read_only(np.array(run.tokens)),
        stages=tuple(rows.stages),
        components=tuple(rows.components),
        position=position_of(run.n, p.position),
        conventions=(*inputs.convention_words(), number_of(run.n, "position")),
        done=float((~np.isnan(arrays["stream"]).any(axis=0)).mean()),
    )
