"""Attention from the place that predicts an answer to what the answer follows from: which heads look where it stands.

    to_source[l, h] = Σ_{s ∈ S} A[d, s],     S: given positions, else those before d that hold the target's first token
    to_other[l, h] = the same for the token that is subtracted,     even share: |S| / (d + 1)

In literal copying S is the answer's own earlier place, as for an induction head; in translation a word of the other language, in
few-shot tasks the earlier examples of the same class: Olsson et al. 2022, Argument 4, where heads that match prefixes do more
than copy. Attention says where a head looks, not what it does there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, over, scalar
from circuitlab.analysis.ordering import head_names
from circuitlab.analysis.target import position_of, target_at
from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Target

NOWHERE = "the answer stands nowhere before"


@dataclass(frozen=True)
class AnswerAttentionParams:
    """`target` at `position`, −1 the last; `sources`: positions that the answer follows from, () for its own earlier ones."""

    target: Target = Target()
    position: int = -1
    sources: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class AnswerAttentionResult(Result):
    """`to_source`, `to_other` [layer, head]: attention to the sources, and to earlier places of the token that is subtracted; NaN
    where there is none. `sources` int64 [source]; `even`: what a head that attends to all positions alike gives the sources.
    """

    to_source: np.ndarray = over("layer", "head", unit="share of attention")
    to_other: np.ndarray = over("layer", "head", unit="share of attention")
    sources: np.ndarray = over("source", unit="position")
    even: float = scalar("share of attention")
    ACROSS: ClassVar = {"attention": "share of attention", "other": "share of attention"}

    def table(self) -> Table:
        """One row per head."""
        names = head_names(*np.indices(self.to_source.shape).reshape(2, -1))
        columns = [Column("head", names), Column("to the answer", self.to_source.ravel(), "share of attention")]
        if not np.isnan(self.to_other).all():
            columns.append(Column("to the other answer", self.to_other.ravel(), "share of attention"))
        return Table(tuple(columns))

    def across(self) -> Mapping[str, np.ndarray]:
        """`attention` and `other` [layer, head]."""
        return {"attention": self.to_source, "other": self.to_other}


def _memory(config: ModelConfig, n: int, p: AnswerAttentionParams) -> int:
    return 8 * (config.n_heads * n * (n if config.whole_scores else 1) + 2 * config.n_layers * config.n_heads)


@analysis(version=1, needs="tokens", of_heads=True, lane="live", memory=_memory)
def answer_attention(inputs: Inputs, p: AnswerAttentionParams, ctx: Ctx) -> AnswerAttentionResult:
    """Attention from the place that predicts an answer to where it stands in the prompt, or to what it follows from."""
    run = inputs.run()
    config, at = run.weights.config, position_of(run.n, p.position)
    ids = target_at(inputs, p.target, [at], run).ids[0].tolist()
    sources, others = (tuple(i for i in range(at) if run.tokens[i] == token) for token in ids)
    if p.sources:
        sources = tuple(sorted(set(p.sources)))
        if sources[0] < 0 or sources[-1] > at:
            raise BadInput(
                "A source is not a position before the answer.",
                expected=f"0..{at}",
                got=" ".join(map(str, p.sources)),
                remedy="Name positions of the prompt, up to the one that predicts the answer.",
            )
    weights = np.full((2, config.n_layers, config.n_heads), np.nan)
    for layer in range(config.n_layers):
        ctx.tick(layer, config.n_layers, "patterns")
        row = run.get("pattern", layer, (), slice(at, at + 1))[:, 0]
        for into, places in zip(weights, (sources, others), strict=True):
            if places:
                into[layer] = row[:, list(places)].double().sum(-1).cpu().numpy()
    where = "the given positions" if p.sources else "earlier places of the answer"
    return AnswerAttentionResult(
        to_source=weights[0],
        to_other=weights[1],
        sources=np.array(sources, dtype=np.int64),
        even=len(sources) / (at + 1) if sources else float("nan"),
        conventions=(*inputs.convention_words(), f"attention to {where}" if sources else NOWHERE),
    )
