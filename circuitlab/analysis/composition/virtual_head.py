"""A virtual head: two heads of different layers one behind the other, as one pattern and one OV circuit (Elhage et al. 2021).

    A^{h2} (A^{h1} x W_OV^{h1}) W_OV^{h2} = (A^{h2} A^{h1}) x (W_OV^{h1} W_OV^{h2})

`pattern` is A^{h2} diag(σ) A^{h1} of this run: how much of what stood at a source reaches a destination through both. σ is the
recorded scale of the norms between the two heads (in front of the later one, behind the earlier one), 1 without: rows sum to
1 without norms and interventions, and do not otherwise. What interventions at the heads' v, z and result and on the stream
between them leave, as a factor, is inside; what they put in place of something is no part of this path.

No mean over a set of prompts: a cell of the composed pattern stands for other tokens in every prompt, and row sums do as well.
What a pair of heads does to a target, averaged, is `path_expansion` and `path_patching`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.attribution.path_terms import Recorded, recorded, refuse_on_stream
from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, over, read_only
from circuitlab.analysis.chosen_heads import check_heads
from circuitlab.model import block
from circuitlab.model.config import ModelConfig
from circuitlab.model.run import Run
from circuitlab.model.subject import Head


@dataclass(frozen=True)
class VirtualHeadParams:
    """The head that is passed first, and one of a later layer."""

    earlier: Head = Head(0, 0)
    later: Head = Head(1, 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class VirtualHeadResult(Result):
    """`pattern` [dest, src], NaN where no path leads; `row_sums` [dest]; `heads` [2, 2] (layer, head), the earlier first.

    `sums_to_one`: whether every row does, to 1e-5.
    """

    pattern: np.ndarray = over("destination", "source", unit="share of attention")
    row_sums: np.ndarray = over("destination", unit="share of attention")
    heads: np.ndarray = over("factor", "(layer, head)", unit="index")
    sums_to_one: bool

    def table(self) -> Table:
        """One row per (destination, source) that a path joins."""
        dest, src = np.nonzero(~np.isnan(self.pattern))
        return Table(
            (
                Column("destination", dest, of="position"),
                Column("source", src, of="position"),
                Column("value", self.pattern[dest, src]),
            )
        )


def _refuse(config: ModelConfig, p: VirtualHeadParams) -> str | None:
    if p.earlier.layer >= p.later.layer:
        return f"{p.earlier} does not stand in an earlier layer than {p.later}; choose two heads of different layers."
    return refuse_on_stream(config)


def _memory(c: ModelConfig, n: int, p: VirtualHeadParams) -> int:
    return 8 * (8 * c.n_heads * n * n + 8 * n * (c.d_model + c.n_heads * c.d_head))


@analysis(version=1, needs="tokens", of_heads=True, lane="slow", memory=_memory, refuse=_refuse)
def virtual_head(inputs: Inputs, p: VirtualHeadParams, ctx: Ctx) -> VirtualHeadResult:
    """The composed pattern of two heads on this run."""
    config, run = inputs.weights.config, inputs.run()
    check_heads(config, p.earlier, p.later)
    with torch.inference_mode():
        ctx.tick(0, 2, "patterns")
        between = _between(run, p)
        first, second = (run.get("pattern", h.layer, (h.head,))[0] for h in (p.earlier, p.later))
        ctx.tick(1, 2, "composing")
        left = _left(recorded(run, p.later.layer, run.n), p.later)
        made = left[:, None] * ((second * between) @ first)
        sums = made.sum(1)
        made = made.masked_fill(~_joined(config, p, run.n) & (made == 0), torch.nan)
    low, high = float(sums.min()), float(sums.max())
    whole = max(abs(low - 1), abs(high - 1)) < 1e-5
    said = "rows sum to 1" if whole else f"rows sum to {low:.3g} … {high:.3g}: scales or interventions between the patterns"
    return VirtualHeadResult(
        pattern=made.cpu().numpy(),
        row_sums=sums.cpu().numpy(),
        heads=read_only(np.array((p.earlier, p.later), dtype=np.int64)),
        sums_to_one=whole,
        conventions=(*inputs.subject.conventions.words(), f"{p.later} ∘ {p.earlier}: patterns and scales as recorded", said),
    )


def _joined(config: ModelConfig, p: VirtualHeadParams, n: int) -> Tensor:
    """[dest, src] bool: whether the two masks let a path through."""
    first, second = (block.allowed(n, n, 0, config.window(h.layer)).float() for h in (p.earlier, p.later))
    return second @ first > 0


def _between(run: Run, p: VirtualHeadParams) -> Tensor:
    """[pos]: what multiplies the stream between the earlier head's z and the later head's value."""
    now = recorded(run, p.earlier.layer, run.n)
    made = _left(now, p.earlier)
    made = made if now.post_scale is None else made * now.post_scale
    for layer in range(p.earlier.layer + 1, p.later.layer + 1):
        now = recorded(run, layer, run.n)
        if now.stream.factor is not None:
            made = made * now.stream.factor[:, 0]
    if now.v.factor is not None:
        made = made * now.v.factor[p.later.head, :, 0]
    return made if now.read_scale is None else made * now.read_scale


def _left(now: Recorded, head: Head) -> Tensor:
    """[pos]: the share of a head's z and result that interventions leave."""
    made = torch.ones(now.n, dtype=now.W_V.dtype)
    for share in (now.z, now.result):
        if share.factor is not None:
            made = made * share.factor[head.head, :, 0]
    return made
