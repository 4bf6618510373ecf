"""A virtual attention head: two heads composed into one pattern and one OV circuit (Elhage et al. 2021).

    A^{h2} (A^{h1} x W_OV^{h1}) W_OV^{h2} = (A^{h2} A^{h1}) x (W_OV^{h1} W_OV^{h2})

`pattern` is A^{h2} diag(σ) A^{h1} of this run: how much of a source's stream reaches a destination through both heads. σ is the
recorded scale of the norms between them (before the later head, after the earlier one), 1 without norms. Without norms and
interventions rows sum to 1. The factors that interventions at the heads' v, z and result and on the stream between them leave are
included; what interventions put in is not part of this path.

It is not averaged over prompts, whose positions hold other tokens. For a pair of heads' mean effect on a target see
`path_expansion` and `path_patching`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.attribution.path_terms import RecordedAttention, recorded_attention, refuse_on_stream
from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, over, read_only
from circuitlab.analysis.chosen_heads import check_heads
from circuitlab.analysis.circuits.vocabulary_rows import refuse_pair
from circuitlab.caption_parts import Part, Sense
from circuitlab.model import block
from circuitlab.model.config import ModelConfig
from circuitlab.model.run import Run
from circuitlab.model.subject import Head


@dataclass(frozen=True)
class VirtualHeadParams:
    """Two heads of different layers."""

    earlier: Head = Head(0, 0)
    later: Head = Head(1, 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class VirtualHeadResult(Result):
    """`pattern` [dest, src], NaN where no path exists; `row_sums` [dest]; `heads` [2, 2] (layer, head), the earlier first.

    `sums_to_one`: whether every row does, within 1e-5.
    """

    pattern: np.ndarray = over("destination", "source", unit="share of attention")
    row_sums: np.ndarray = over("destination", unit="share of attention")
    heads: np.ndarray = over("factor", "(layer, head)", unit="index")
    sums_to_one: bool

    def table(self) -> Table:
        """One row per (destination, source) that a path connects."""
        dest, src = np.nonzero(~np.isnan(self.pattern))
        return Table(
            (
                Column("destination", dest, of="position"),
                Column("source", src, of="position"),
                Column("value", self.pattern[dest, src], "share of attention"),
            )
        )


def _refuse(config: ModelConfig, p: VirtualHeadParams) -> str | None:
    return refuse_pair(p.later, p.earlier) or refuse_on_stream(config)


def _memory(c: ModelConfig, n: int, p: VirtualHeadParams) -> int:
    return 8 * (8 * c.n_heads * n * n + 8 * n * (c.d_model + c.n_heads * c.d_head))


@analysis(version=1, needs="tokens", of_heads=True, lane="slow", memory=_memory, refuse=_refuse)
def virtual_head(inputs: Inputs, p: VirtualHeadParams, ctx: Ctx) -> VirtualHeadResult:
    """Virtual attention head: the composed pattern of two heads on this run."""
    config, run = inputs.weights.config, inputs.run()
    check_heads(config, p.earlier, p.later)
    with torch.inference_mode():
        ctx.tick(0, 2, "patterns")
        between = _between(run, p)
        first, second = (run.get("pattern", h.layer, (h.head,))[0] for h in (p.earlier, p.later))
        ctx.tick(1, 2, "composing")
        left = _remaining_factor(recorded_attention(run, p.later.layer, run.n), p.later)
        pattern = left[:, None] * ((second * between) @ first)
        sums = pattern.sum(1)
        pattern = pattern.masked_fill(~_joined(config, p, run.n) & (pattern == 0), torch.nan)
    low, high = float(sums.min()), float(sums.max())
    whole = max(abs(low - 1), abs(high - 1)) < 1e-5
    row_words = "rows sum to 1" if whole else f"rows sum to {low:.3g} … {high:.3g}: scales or interventions between the patterns"
    row_words = Part(row_words, Sense(of_differences=""))
    return VirtualHeadResult(
        pattern=pattern.cpu().numpy(),
        row_sums=sums.cpu().numpy(),
        heads=read_only(np.array((p.earlier, p.later), dtype=np.int64)),
        sums_to_one=whole,
        conventions=(*inputs.convention_words(), f"{p.later} ∘ {p.earlier}: patterns and scales as recorded", row_words),
    )


def _joined(config: ModelConfig, p: VirtualHeadParams, n: int) -> Tensor:
    """[dest, src] bool: whether the two masks allow a path."""
    first, second = (block.allowed(n, n, 0, config.window(h.layer)).float() for h in (p.earlier, p.later))
    return second @ first > 0


def _between(run: Run, p: VirtualHeadParams) -> Tensor:
    """[pos]: the factor between the earlier head's z and the later head's value."""
    attention = recorded_attention(run, p.earlier.layer, run.n)
    factor = _remaining_factor(attention, p.earlier)
    factor = factor if attention.post_scale is None else factor * attention.post_scale
    for layer in range(p.earlier.layer + 1, p.later.layer + 1):
        attention = recorded_attention(run, layer, run.n)
        if attention.stream.factor is not None:
            factor = factor * attention.stream.factor[:, 0]
    if attention.v.factor is not None:
        factor = factor * attention.v.factor[p.later.head, :, 0]
    return factor if attention.read_scale is None else factor * attention.read_scale


def _remaining_factor(attention: RecordedAttention, head: Head) -> Tensor:
    """[pos]: the factor that interventions leave of a head's z and result."""
    factor = torch.ones(attention.n, dtype=attention.W_V.dtype)
    for share in (attention.z, attention.result):
        if share.factor is not None:
            factor = factor * share.factor[head.head, :, 0]
    return factor
