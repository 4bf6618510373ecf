"""The logit lens: the model's prediction if it stopped after each layer.

    p_stage = softmax(cap(norm(x_stage) W_U + b_U)),        x_stage: the stream before each layer, after attention, at the end

The norm is the final one, with each stage's own statistics or with those recorded at the end (the scale that direct attribution
uses). Per stage and position: the top tokens, probability and rank of the actual next token, entropy, and KL(p_final ‖ p_stage).
nostalgebraist 2020, "interpreting GPT: the logit lens"; the divergence as in Belrose et al. 2023.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, at_least, naming, over, read_only, scalar
from circuitlab.analysis.cost import of_logits
from circuitlab.analysis.ordering import rank_in
from circuitlab.analysis.target import TargetVector, final_scale, position_of, target_at
from circuitlab.model import block
from circuitlab.model.config import ModelConfig
from circuitlab.model.recorded_norm import norm_at_scale
from circuitlab.model.run import Run
from circuitlab.model.subject import Target
from circuitlab.model.weights import Weights

ROWS = 32  # positions unembedded at a time: one tile at d_vocab 50 257 takes 6.4 MB, and cancelling waits for one
OWN = "each layer's own"
FINAL = "the final layer's"


@dataclass(frozen=True)
class LogitLensParams:
    """`positions` (first, last), both included, −1 the last; `k` top tokens; `mid`: also between attention and MLP.

    `target` is measured at each stage besides the actual next token; `position` is the one that `across` takes.
    """

    positions: tuple[int, int] = (0, -1)
    k: int = at_least(1, 5)
    mid: bool = False
    statistics: Literal["each layer's own", "the final layer's"] = "each layer's own"
    target: Target = Target()
    position: int = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class LogitLensResult(Result):
    """[stage, pos]: `log_prob` (nats) and `rank` (from 1, −1 for none) of the actual next token, `equal`, how many tokens have
    that log-probability, itself included (−1 for none), `entropy`, `kl` (nats), `value` of the target (logits before a soft
    cap). [stage, pos, k]: `ids` (−1: not computed) and `probs`, the most probable first.

    `positions`, `actual` [pos]: the positions and their actual next tokens (−1 at the end). `stages`: names of the stages; `at`:
    index of the chosen position on the pos axis, −1 if it is not among them.
    """

    ids: np.ndarray = over("stage", "position", "top", unit="token id", none=True)
    probs: np.ndarray = over("stage", "position", "top", unit="probability")
    log_prob: np.ndarray = over("stage", "position", unit="nats")
    rank: np.ndarray = over("stage", "position", unit="rank", none=True)
    entropy: np.ndarray = over("stage", "position", unit="nats")
    kl: np.ndarray = over("stage", "position", unit="nats")
    value: np.ndarray = over("stage", "position", unit="logit")
    equal: np.ndarray = over("stage", "position", unit="tokens", none=True, since=4)
    positions: np.ndarray = over("position", unit="position")
    actual: np.ndarray = over("position", unit="token id", none=True)
    stages: tuple[str, ...] = naming("stage")
    at: int = scalar("index", -1, none=True)

    def table(self) -> Table:
        """One row per stage and position."""
        stage, pos = np.indices(self.entropy.shape).reshape(2, -1)
        units = {"entropy": "nats", "kl": "nats", "value": "logit"}
        columns = [Column("stage", np.array(self.stages)[stage]), Column("position", self.positions[pos], of="position")]
        columns += [Column("follows", self.actual[pos], of="token"), Column("top", self.ids[stage, pos, 0], of="token")]
        columns += [Column("top_probability", self.probs[stage, pos, 0])]
        columns += [Column("log_prob", self.log_prob[stage, pos], "nats"), Column("rank", self.rank[stage, pos], of="count")]
        columns += [Column("equal", self.equal[stage, pos], of="count")]
        return Table((*columns, *(Column(n, getattr(self, n)[stage, pos], unit) for n, unit in units.items())))

    def across(self) -> Mapping[str, np.ndarray]:
        """[stage] each, at the chosen position: the target's value, log-probability of the actual next token, entropy, KL."""
        names = ("value", "log_prob", "entropy", "kl") if self.at >= 0 else ()
        return {name: getattr(self, name)[:, self.at] for name in names}


def stages_of(config: ModelConfig, mid: bool) -> tuple[tuple[str, str, int], ...]:
    """(name, site of the run, layer) of every stage but the last, in order."""
    stages = []
    for i in range(config.n_layers):
        stages.append((f"L{i} in", "resid_pre", i))
        # after attention: without an MLP this is the next stage; in a parallel block there is no such stage
        if mid and not config.attention_only and not config.parallel:
            stages.append((f"L{i} mid", "resid_mid", i))
    return tuple(stages)


def normalised(weights: Weights, x: Tensor, scale: Tensor | None) -> Tensor:
    """x [pos, d_model] through the final norm, at its own statistics or at a recorded `scale` [pos, 1]."""
    c, norm = weights.config, weights.unembed().norm
    if not c.final_norm or c.norm == "none":
        return x
    if scale is None:
        return block.normalise(x, norm, c.norm, c.norm_eps)
    return norm_at_scale(x, norm, c.norm, scale)


def log_probs(weights: Weights, normed: Tensor) -> Tensor:
    """[pos, d_vocab_out]: log-probabilities of normalised streams: unembedding, soft cap, log-softmax."""
    ends = weights.unembed()
    logits = normed @ ends.W_U
    logits = logits if ends.b_U is None else logits.add_(ends.b_U)
    return torch.log_softmax(block.soft_cap(logits, weights.config.logit_soft_cap), dim=-1)


@dataclass(eq=False)
class _Lens:
    """The result's arrays, filled one tile of positions at a time."""

    inputs: Inputs
    p: LogitLensParams
    run: Run
    stages: tuple[tuple[str, str, int], ...]
    positions: np.ndarray
    actual: np.ndarray
    arrays: dict[str, np.ndarray]

    def tile(self, start: int, ctx: Ctx, vector: TargetVector) -> None:
        """Compute every stage at entries [start, start + ROWS) of `positions`, from the last stage to the first."""
        weights, run, n = self.inputs.weights, self.run, len(self.positions)
        rows = slice(start, min(start + ROWS, n))
        dest = slice(int(self.positions[rows][0]), int(self.positions[rows][-1]) + 1)
        assert run.final is not None
        final, total = run.final[dest], n * (len(self.stages) + 1)
        scale = final_scale(weights, final) if self.p.statistics == FINAL else None
        last = None
        for i, (_, name, layer) in reversed([*enumerate((*self.stages, ("final", "", 0)))]):
            done = start * (len(self.stages) + 1) + (rows.stop - start) * (len(self.stages) - i)
            ctx.tick(done, total, f"position {dest.start}")
            normed = normalised(weights, run.get(name, layer, (), dest) if name else final, scale)
            stage_log_probs = log_probs(weights, normed)
            last = stage_log_probs if last is None else last
            self.fill(i, rows, stage_log_probs, last)
            self.arrays["value"][i, rows] = ((normed * vector.D[rows]).sum(-1) + vector.offset[rows]).cpu().numpy()
            if done + rows.stop - start < total:
                ctx.partial(self.result((done + rows.stop - start) / total, vector.words))

    def fill(self, stage: int, rows: slice, stage_log_probs: Tensor, last: Tensor) -> None:
        """Fill in one stage from its log-probabilities and the last stage's, [row, d_vocab_out] each."""
        a, k = self.arrays, self.arrays["ids"].shape[2]
        top = torch.topk(stage_log_probs, k, dim=1)
        a["ids"][stage, rows], a["probs"][stage, rows] = top.indices.cpu().numpy(), top.values.exp().cpu().numpy()
        p = stage_log_probs.exp()
        a["entropy"][stage, rows] = -torch.nan_to_num(p * stage_log_probs, nan=0.0).sum(1).cpu().numpy()
        gap = torch.exp(last, out=p) * (last - stage_log_probs)
        a["kl"][stage, rows] = torch.nan_to_num(gap, nan=0.0).sum(1).clamp(min=0.0).cpu().numpy()
        follows = torch.tensor(self.actual[rows])
        has_next = follows >= 0
        own = stage_log_probs.gather(1, follows.clamp(min=0)[:, None])
        a["log_prob"][stage, rows] = own[:, 0].masked_fill(~has_next, torch.nan).cpu().numpy()
        for name, values in rank_in(stage_log_probs, own)._asdict().items():
            a[name][stage, rows] = values.masked_fill(~has_next, -1).cpu().numpy()

    def result(self, done: float, words: str) -> LogitLensResult:
        """A snapshot of the result."""
        c = self.inputs.weights.config
        statistics = f"final norm with {self.p.statistics} statistics" if c.final_norm else "no final norm"
        norm_words = (statistics,) if c.norm != "none" else ()
        copies: dict[str, Any] = {name: array.copy() for name, array in self.arrays.items()}
        where = np.flatnonzero(self.positions == position_of(self.run.n, self.p.position))
        return LogitLensResult(
            **copies,
            positions=read_only(self.positions),
            actual=read_only(self.actual),
            stages=(*(s[0] for s in self.stages), "final"),
            at=int(where[0]) if where.size else -1,
            conventions=(*self.inputs.convention_words(), *norm_words, f"target: {words}"),
            done=done,
        )


def _lens(inputs: Inputs, p: LogitLensParams, previous: Result | None) -> _Lens:
    run, c = inputs.run(), inputs.weights.config
    first, last = (position_of(run.n, i) for i in p.positions)
    positions = np.arange(min(first, last), max(first, last) + 1)
    following = np.array([*run.tokens[1:], -1])[positions]
    stages = stages_of(c, p.mid)
    dtype = inputs.subject.conventions.dtype
    shape, k = (len(stages) + 1, len(positions)), min(max(1, p.k), c.d_vocab_out)
    arrays: dict[str, np.ndarray] = {name: np.full(shape, np.nan, dtype) for name in ("log_prob", "entropy", "kl", "value")}
    arrays |= {"ids": np.full((*shape, k), -1, np.int64), "probs": np.full((*shape, k), np.nan, dtype)}
    arrays |= {name: np.full(shape, -1, np.int64) for name in ("rank", "equal")}
    if isinstance(previous, LogitLensResult):
        arrays = {name: getattr(previous, name).copy() for name in arrays}
    return _Lens(inputs, p, run, stages, positions, np.where(following < c.d_vocab_out, following, -1), arrays)


def _memory(config: ModelConfig, n: int, p: LogitLensParams) -> int:
    stages = config.n_layers * (1 + p.mid) + 1
    attention = 3 * config.n_heads * ROWS * n if p.mid else 0
    return 8 * (
        6 * min(n, ROWS) * config.d_vocab_out + stages * n * (5 + 2 * max(1, p.k)) * 2 + attention + 2 * n * config.d_model
    )


def _holds(version: int, config: ModelConfig, p: LogitLensParams) -> bool:
    return version == 3  # which counted no equal ones


def _cost(config: ModelConfig, n: int, p: LogitLensParams) -> float:
    return 2 * config.n_layers * (1 + p.mid) * of_logits(config, n)


@analysis(version=4, needs="tokens", lane="slow", memory=_memory, holds=_holds, cost=_cost)
def logit_lens(inputs: Inputs, p: LogitLensParams, ctx: Ctx) -> LogitLensResult:
    """The logit lens: the model's prediction from the residual stream at every layer and position."""
    with torch.inference_mode():
        lens = _lens(inputs, p, ctx.previous)
        vector, n = target_at(inputs, p.target, lens.positions.tolist()), len(lens.positions)
        for start in range(0, n, ROWS):
            if np.isnan(lens.arrays["entropy"][:, start : start + ROWS]).any():
                lens.tile(start, ctx, vector)
        return lens.result(1.0, vector.words)
