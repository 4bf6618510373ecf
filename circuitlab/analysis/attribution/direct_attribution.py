"""Direct logit attribution: the direct contribution of every head and other component to a target.

    value = x_L · D' + constant,     x_L = embedding + position + Σ_l (Σ_h z_h W_O^h + b_O + MLP_l)
    head  = z_h W_O^h · D' = <z_h, W_O^h D'>

D' is the target's direction with the final norm's gain, centring and recorded scale folded in (`target`), so that a head costs
one product with its z and no array [head, pos, d_model]. Direct: effects through later layers are not counted. A norm after the
sublayer enters at its recorded scale (`_contributions`). Elhage et al. 2021, "Logit contributions".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.attribution._contributions import (
    PARTS_SUM,
    Directions,
    directions,
    directions_at_heads,
    head_contributions,
    initial_stream,
    refuse_norm_on_stream,
    stream_intervention,
    z_of,
)
from circuitlab.analysis.attribution._recorded_words import at_final_scale
from circuitlab.analysis.base import Column, Ctx, Inputs, Remainder, Result, Table, analysis, naming, over, read_only
from circuitlab.analysis.circuits.factors import has_bias
from circuitlab.analysis.target import TargetVector, position_of, target_at
from circuitlab.model.config import ModelConfig
from circuitlab.model.run import Run
from circuitlab.model.subject import Head, Target


def constant_name(c: ModelConfig) -> str:
    """The name of what adds to the target wherever the stream points: the biases that this model has after it."""
    of_norm = c.norm == "layer" and c.final_norm
    parts = ["final norm bias"] * of_norm + ["b_U"] * (of_norm or "unembed" in c.biases)
    return " + ".join(parts) or "constant"


@dataclass(frozen=True)
class DirectAttributionParams:
    """The target is measured at `position`, −1 the last; with `positions` "all", every position has its own target."""

    target: Target = Target()
    positions: Literal["one", "all"] = "one"
    position: int = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class DirectAttributionResult(Result):
    """`heads` [layer, head, pos], `others` [component, pos] named `names`, `total` [pos], all in logits; `positions` [pos].

    `ids` [pos, 2]: the target and the token subtracted from it, −1 for none. `at`: index of the chosen position on the pos axis.
    """

    heads: np.ndarray = over("layer", "head", "position", unit="logit")
    others: np.ndarray = over("component", "position", unit="logit")
    total: np.ndarray = over("position", unit="logit")
    positions: np.ndarray = over("position", unit="position")
    ids: np.ndarray = over("position", "target and other", unit="token id", none=True)
    names: tuple[str, ...] = naming("component")
    at: int = 0

    def table(self) -> Table:
        """One row per component and position, components in the order of the model."""
        layers, heads, n = self.heads.shape
        names = [str(Head(i, h)) for i in range(layers) for h in range(heads)] + list(self.names)
        values = np.concatenate([self.heads.reshape(-1, n), self.others])
        part, pos = np.indices(values.shape).reshape(2, -1)
        return Table(
            (
                Column("position", self.positions[pos], of="position"),
                Column("part", np.array(names)[part]),
                Column("contribution", values.ravel(), "logit"),
                Column("total", self.total[pos], "logit"),
            )
        )

    def across(self) -> Mapping[str, np.ndarray]:
        """`heads` [layer, head] and `others` [component] at the chosen position."""
        return {"heads": self.heads[:, :, self.at], "others": self.others[:, self.at]}


def component_names(run: Run) -> tuple[str, ...]:
    """The components that are not heads, in the order in which they enter the stream; the constant last."""
    c = run.weights.config
    names = list(initial_stream(run, slice(0, 1)))
    behind = c.norm == "layer" and c.norm_placement in ("post_sublayer", "both")
    for i in range(c.n_layers):
        names += [f"intervention L{i}"] if run.editor.touches(i, "resid_pre") else []
        names += [f"attention bias L{i}"] if "o" in c.biases or behind else []
        names += [] if c.attention_only else [f"MLP L{i}"]
    return (*names, constant_name(c))


@dataclass(frozen=True, eq=False)
class _Sweep:
    """The result's arrays, filled in place layer by layer."""

    run: Run
    vector: TargetVector
    D: Directions
    dest: slice
    at: int
    computed: bool
    names: tuple[str, ...]
    heads: np.ndarray
    others: np.ndarray

    def fill(self, name: str, values: Tensor) -> None:
        if name in self.names:
            self.others[self.names.index(name)] = values.cpu().numpy()

    def begin(self, constant: Tensor) -> None:
        for name, x in initial_stream(self.run, self.dest).items():
            self.fill(name, self.D.of(x))
        self.fill(self.names[-1], constant)

    def layer(self, i: int) -> None:
        run, dest, D = self.run, self.dest, self.D
        change = stream_intervention(run, i, dest)
        if change is not None:
            self.fill(f"intervention L{i}", D.of(change))
        weights = run.weights.layer(i, mlp=False)
        z = z_of(run, i, dest)
        E, constant = directions_at_heads(run, i, weights, D, z, dest)
        heads = head_contributions(run, i, weights, E, z, dest)
        bias = constant if weights.b_O is None else constant + E.of(weights.b_O.expand(len(heads[0]), -1))
        self.fill(f"attention bias L{i}", bias)
        if not run.weights.config.attention_only:
            self.fill(f"MLP L{i}", self._mlp(i, heads.sum(0) + bias))
        self.heads[i] = heads.cpu().numpy()

    def _mlp(self, i: int, attention: Tensor) -> Tensor:
        """[pos]: the MLP's contribution: computed for one position; for all, what the recorded stream gains beyond attention."""
        if self.computed:
            return self.D.of(self.run.get("mlp_out", i, (), self.dest))
        gained = self.run.get("resid_post", i, (), self.dest) - self.run.get("resid_pre", i, (), self.dest)
        return self.D.of(gained) - attention


def _sweep(inputs: Inputs, p: DirectAttributionParams, ctx: Ctx) -> tuple[_Sweep, Tensor, Tensor]:
    """(arrays, constant [pos], total [pos]); the arrays hold what a cancelled attempt computed."""
    run, weights = inputs.run(), inputs.weights
    position = position_of(run.n, p.position)
    dest = slice(position, position + 1) if p.positions == "one" else slice(0, run.n)
    vector = target_at(inputs, p.target, range(run.n)[dest])
    assert run.final is not None
    shared = bool(p.target.tokens or p.target.direction)
    D, constant = directions(weights, vector, run.final[dest], shared)
    names, n = component_names(run), len(D.scale)
    c, dtype = weights.config, np.float64 if D.scale.dtype == torch.float64 else np.float32
    heads, others = np.full((c.n_layers, c.n_heads, n), np.nan, dtype), np.full((len(names), n), np.nan, dtype)
    if isinstance(ctx.previous, DirectAttributionResult):
        heads, others = ctx.previous.heads.copy(), ctx.previous.others.copy()
    at = 0 if p.positions == "one" else position
    sweep = _Sweep(run, vector, D, dest, at, p.positions == "one", names, heads, others)
    return sweep, constant, vector.measure(weights, run.final[dest])


def _memory(config: ModelConfig, n: int, p: DirectAttributionParams) -> int:
    rows = n if p.positions == "all" else 1
    width = 8 * config.d_model + 4 * config.n_heads * config.d_head + config.n_layers * (config.n_heads + 3)
    carried = 2 * n * config.n_heads * config.d_head
    return 8 * (rows * width + carried + config.d_vocab_out) + 8 * config.n_heads * rows * (n if config.whole_scores else 64)


def _refuse(config: ModelConfig, p: DirectAttributionParams) -> str | None:
    return refuse_norm_on_stream(config)


@analysis(version=2, needs="tokens", lane="live", memory=_memory, refuse=_refuse)
def direct_attribution(inputs: Inputs, p: DirectAttributionParams, ctx: Ctx) -> DirectAttributionResult:
    """Direct logit attribution: what each head and other component adds to a target, at one position or at all."""
    with torch.inference_mode():
        sweep, constant, total = _sweep(inputs, p, ctx)
        sweep.begin(constant)
        n_layers = inputs.weights.config.n_layers
        for i in (i for i in range(n_layers) if np.isnan(sweep.heads[i]).any()):
            ctx.tick(i, n_layers, f"layer {i}")
            sweep.layer(i)
            if i + 1 < n_layers:
                ctx.partial(_result(inputs, p, sweep, total, (i + 1) / n_layers))
        return _result(inputs, p, sweep, total, 1.0)


def _result(inputs: Inputs, p: DirectAttributionParams, s: _Sweep, total: Tensor, done: float) -> DirectAttributionResult:
    remainder, whole = None, total.cpu().numpy()
    if done == 1.0:
        left = np.abs(s.heads.sum((0, 1)) + s.others.sum(0) - whole).max()
        size = (np.abs(s.heads).sum((0, 1)) + np.abs(s.others).sum(0)).max()
        remainder = Remainder(float(left), float(size), "logits", PARTS_SUM)
    words = [s.vector.words, f"direct effects only, not those through later layers{at_final_scale(inputs.weights.config)}"]
    if has_bias(inputs.weights.config, "v"):
        words.append("the value bias counts with the heads that carry it")
    if p.positions == "all" and not inputs.weights.config.attention_only:
        words.append("MLP outputs: what the recorded stream gains beyond attention")
    return DirectAttributionResult(
        heads=s.heads.copy(),
        others=s.others.copy(),
        total=read_only(whole),
        positions=read_only(s.vector.positions.cpu().numpy()),
        ids=read_only(s.vector.ids.cpu().numpy()),
        names=s.names,
        at=s.at,
        conventions=(*inputs.convention_words(), *words),
        remainder=remainder,
        done=done,
    )
