"""How long the stream is after each stage, how much each part adds, and whether it adds along the stream or across it.

    ‖x_stage‖,        ‖a‖ of every addition a,        cos(a, x) = a · x / (‖a‖ ‖x‖),   x the stream that a is added to

x is the stream before attention for what attention adds, and the one between for what the MLP adds (before the block in parallel
blocks). Where writing weights are centred, so is the stream, and norms are those of the centred one. Heimersheim and
Turner 2023 for the growth of the norm with depth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.attribution._contributions import entering, replaced
from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, over, read_only
from circuitlab.analysis.target import position_of
from circuitlab.counting import number_of
from circuitlab.model.config import ModelConfig
from circuitlab.model.run import Run, after_attention, mlp_written

ROWS = 64  # positions at a time


@dataclass(frozen=True)
class ResidualNormsParams:
    """`position` is the one that `across` reads, −1 the last."""

    position: int = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class ResidualNormsResult(Result):
    """`stream` [stage, pos]: norms of the stream; `added`, `cosine` [component, pos]: of what each part adds to it.

    `stages`, `components` name the rows, in the order of the model. The cosine is NaN for what begins the stream and for what has
    no length.
    """

    stream: np.ndarray = over("stage", "position", unit="residual units")
    added: np.ndarray = over("component", "position", unit="residual units")
    cosine: np.ndarray = over("component", "position", unit="dimensionless")
    tokens: np.ndarray = over("position", unit="token id")
    stages: tuple[str, ...]
    components: tuple[str, ...]
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


Step = tuple[str, Tensor | None, Tensor]  # name, what it is added to, what is added


def layer_steps(run: Run, layer: int, dest: slice) -> tuple[list[tuple[str, Tensor]], list[Step]]:
    """The stages that begin and divide block `layer`, and what is added in it, for positions `dest`."""
    c, x, weights = run.weights.config, run.get("resid_pre", layer, (), dest), run.weights.layer(layer)
    stages, steps = [(f"L{layer} in", x)], list[Step]()
    change = replaced(run, layer, dest)
    if change is not None:
        steps.append((f"intervention L{layer}", x - change, change))
    attention = run.get("attn_out", layer, (), dest)
    steps.append((f"attention L{layer}", x, attention))
    if not c.attention_only:
        mid = x if c.parallel else after_attention(c, weights, x, attention)
        stages += [] if c.parallel else [(f"L{layer} mid", mid)]
        cut = run.editor.touches(layer, "mlp_out")
        steps.append((f"MLP L{layer}", mid, run.get("mlp_out", layer, (), dest) if cut else mlp_written(c, weights, mid)))
    return stages, steps


@dataclass(eq=False)
class _Rows:
    """What one tile of positions gives, row by row."""

    stages: list[str] = field(default_factory=list[str])
    components: list[str] = field(default_factory=list[str])
    stream: list[Tensor] = field(default_factory=list[Tensor])
    added: list[Tensor] = field(default_factory=list[Tensor])
    cosine: list[Tensor] = field(default_factory=list[Tensor])

    def put(self, stages: list[tuple[str, Tensor]], steps: list[Step]) -> None:
        self.stages += [name for name, _ in stages]
        self.components += [name for name, *_ in steps]
        self.stream += [x.norm(dim=-1) for _, x in stages]
        self.added += [a.norm(dim=-1) for _, _, a in steps]
        self.cosine += [cosine(a, x) for _, x, a in steps]


def tile_rows(run: Run, dest: slice, ctx: Ctx, done: int, total: int) -> _Rows:
    """Every stage and every part at the positions `dest`; `done` of `total` layers of all tiles lie behind."""
    rows, begins = _Rows(), list(entering(run, dest).items())
    rows.put([], [(name, begins[0][1] if i else None, x) for i, (name, x) in enumerate(begins)])
    for layer in range(run.weights.config.n_layers):
        ctx.tick(done + layer, total, f"position {dest.start}, layer {layer}")
        rows.put(*layer_steps(run, layer, dest))
    assert run.final is not None
    rows.put([("final", run.final[dest])], [])
    return rows


def cosine(a: Tensor, x: Tensor | None) -> Tensor:
    """[pos]; NaN where there is no x, or where a or x has no length."""
    if x is None:
        return torch.full(a.shape[:-1], torch.nan, dtype=a.dtype)
    return (a * x).sum(-1) / (a.norm(dim=-1) * x.norm(dim=-1))


def _memory(config: ModelConfig, n: int, p: ResidualNormsParams) -> int:
    rows, carried = min(n, ROWS), 2 * n * config.n_heads * config.d_head
    return 8 * (rows * (12 * config.d_model + 3 * config.d_mlp + 3 * config.n_heads * n) + carried + 16 * config.n_layers * n)


@analysis(version=1, needs="tokens", lane="slow", memory=_memory)
def residual_norms(inputs: Inputs, p: ResidualNormsParams, ctx: Ctx) -> ResidualNormsResult:
    """Norm of the stream after each stage, of what each part adds, and its cosine with the stream."""
    run, n_layers = inputs.run(), inputs.weights.config.n_layers
    starts, found = range(0, run.n, ROWS), ctx.previous
    made = found if isinstance(found, ResidualNormsResult) else None
    with torch.inference_mode():
        for i, start in enumerate(starts):
            dest = slice(start, min(start + ROWS, run.n))
            if made is not None and not np.isnan(made.stream[:, dest]).any():
                continue
            rows = tile_rows(run, dest, ctx, i * n_layers, len(starts) * n_layers)
            made = _with(inputs, p, made, rows, dest, run)
            if made.done < 1:
                ctx.partial(made)
    assert made is not None
    return made


def _with(inputs: Inputs, p: ResidualNormsParams, made: ResidualNormsResult | None, rows: _Rows, dest: slice, run: Run) -> Any:
    """The result so far with the positions `dest`: arrays of its own, so that what was shown stays as it was."""
    arrays: dict[str, Any] = {}
    for name in ("stream", "added", "cosine"):
        tile = torch.stack(getattr(rows, name)).cpu().numpy()
        arrays[name] = np.full((len(tile), run.n), np.nan, tile.dtype) if made is None else getattr(made, name).copy()
        arrays[name][:, dest] = tile
    return ResidualNormsResult(
        **arrays,
        tokens=read_only(np.array(run.tokens)),
        stages=tuple(rows.stages),
        components=tuple(rows.components),
        position=position_of(run.n, p.position),
        conventions=(*inputs.subject.conventions.words(), number_of(run.n, "position")),
        done=float((~np.isnan(arrays["stream"]).any(axis=0)).mean()),
    )
