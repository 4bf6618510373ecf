"""What the model predicts after one position: top tokens, and where the token that really follows stands.

p = softmax(logits);   rank of a token = number of tokens with a larger logit + 1
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, at_least, over, read_only, scalar
from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig


@dataclass(frozen=True)
class PredictionsParams:
    """`position`: the destination that predicts, -1 the last; `k`: how many tokens."""

    position: int = -1
    k: int = at_least(1, 20)


@dataclass(frozen=True, kw_only=True, eq=False)
class PredictionsResult(Result):
    """`ids`, `logits`, `log_probs` [k], the most probable first; entropy in nats.

    `actual` is the token that follows in the prompt, -1 after the last position; its rank counts from 1, 0 for none.
    """

    ids: np.ndarray = over("next token")
    logits: np.ndarray = over("next token", unit="logit")
    log_probs: np.ndarray = over("next token", unit="nats")
    position: int
    entropy: float = scalar("nats")
    n_vocab: int
    actual: int = -1
    actual_rank: int = 0
    actual_log_prob: float = scalar("nats", float("nan"))
    actual_logit: float = scalar("logit", float("nan"))

    def table(self) -> Table:
        """One row a token, the most probable first."""
        return Table(
            (
                Column("rank", np.arange(1, len(self.ids) + 1)),
                Column("id", self.ids, of="token"),
                Column("probability", np.exp(self.log_probs)),
                Column("log_prob", self.log_probs, "nats"),
                Column("logit", self.logits),
            )
        )


def _memory(config: ModelConfig, n: int, p: PredictionsParams) -> int:
    return 4 * 6 * config.d_vocab_out


@analysis(version=1, needs="tokens", lane="live", memory=_memory)
def predictions(inputs: Inputs, p: PredictionsParams, ctx: Ctx) -> PredictionsResult:
    """The most probable next tokens at one position, and rank and probability of the actual one."""
    tokens = inputs.subject.tokens
    position = p.position if p.position >= 0 else len(tokens) + p.position
    if not 0 <= position < len(tokens):
        raise BadInput("There is no such position.", expected=f"0..{len(tokens) - 1}", got=str(p.position))
    logits = inputs.run().logits(slice(position, position + 1))[0]
    with torch.inference_mode():
        log_probs = torch.log_softmax(logits.double(), dim=0)
        top = torch.topk(logits, min(max(1, p.k), len(logits)))
        entropy = float(-(log_probs.exp() * log_probs).nan_to_num(0.0).sum())
        actual = tokens[position + 1] if position + 1 < len(tokens) else -1
        found = {}
        if 0 <= actual < len(logits):
            found = {
                "actual": actual,
                "actual_rank": int((logits > logits[actual]).sum()) + 1,
                "actual_log_prob": float(log_probs[actual]),
                "actual_logit": float(logits[actual]),
            }
    centred = "logits minus their vocabulary mean" if inputs.subject.conventions.centre else "raw logits"
    return PredictionsResult(
        ids=read_only(top.indices.cpu().numpy()),
        logits=read_only(top.values.cpu().numpy()),
        log_probs=read_only(log_probs[top.indices].cpu().numpy(), np.float64),
        position=position,
        entropy=entropy,
        n_vocab=len(logits),
        conventions=(*inputs.subject.conventions.words(), centred),
        **found,
    )
