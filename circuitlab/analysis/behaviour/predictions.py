"""The model's prediction after one position: top tokens, and the rank of the actual next token.

p = softmax(logits);   rank of a token = number of tokens with a larger logit + 1, the same for tokens with equal logits
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, at_least, over, read_only, scalar
from circuitlab.analysis.ordering import all_ranks, rank_in
from circuitlab.analysis.target import position_of
from circuitlab.model.config import ModelConfig


@dataclass(frozen=True)
class PredictionsParams:
    """`position`: the position that predicts, −1 the last; `k` tokens; `whole`: the logits of all other tokens too."""

    position: int = -1
    k: int = at_least(1, 20)
    whole: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class PredictionsResult(Result):
    """`ids`, `logits`, `log_probs` [k], the most probable first; entropy in nats.

    `actual`: the next token in the prompt, `actual_rank` from 1, `actual_equal`: how many tokens have its logit, itself included;
    all −1 after the last position and for a token that the model cannot predict. `all_logits` [d_vocab] by id with `whole`, else
    empty.
    """

    ids: np.ndarray = over("next token", unit="token id")
    logits: np.ndarray = over("next token", unit="logit")
    log_probs: np.ndarray = over("next token", unit="nats")
    position: int
    entropy: float = scalar("nats")
    n_vocab: int
    actual: int = scalar("token id", -1, none=True)
    actual_rank: int = scalar("rank", -1, none=True)
    actual_log_prob: float = scalar("nats", float("nan"))
    actual_logit: float = scalar("logit", float("nan"))
    all_logits: np.ndarray = over("token", unit="logit")
    actual_equal: int = scalar("tokens", -1, none=True, since=3)

    ACROSS: ClassVar[Mapping[str, str]] = {"largest_log_prob": "nats"}

    def across(self) -> Mapping[str, np.ndarray]:
        """Entropy, the log-probability of the most probable token, and that, the logit and the rank of the actual next one."""
        rank = float("nan") if self.actual_rank < 0 else float(self.actual_rank)
        numbers = {"entropy": self.entropy, "largest_log_prob": self.log_probs[0], "actual_log_prob": self.actual_log_prob}
        numbers |= {"actual_logit": self.actual_logit, "actual_rank": rank}
        return {name: np.array(value, np.float64) for name, value in numbers.items()}

    @property
    def ranks(self) -> np.ndarray:
        """[k]: the ranks of the most probable tokens, from 1."""
        return all_ranks(self.logits).rank

    def listed(self, k: int, also: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(ids, ranks, logits, probabilities) of the `k` most probable tokens, then of `also` if all logits are known."""
        k = min(k, len(self.ids))
        more = also[~np.isin(also, self.ids[:k]) & (also < len(self.all_logits))]
        ranks = np.array([rank_in(self.all_logits, self.all_logits[i]).rank for i in more.tolist()], dtype=np.int64)
        join = lambda a, b: np.concatenate([a[:k], b])
        logits = join(self.logits, self.all_logits[more])
        # p = exp(logit − logsumexp), which is the same for all
        p = np.exp(logits.astype(np.float64) - (float(self.logits[0]) - self.log_probs[0]))
        return join(self.ids, more), join(self.ranks, ranks), logits, p

    def table(self) -> Table:
        """One row per token, the most probable first."""
        return Table(
            (
                Column("rank", self.ranks, of="count"),
                Column("id", self.ids, of="token"),
                Column("probability", np.exp(self.log_probs)),
                Column("log_prob", self.log_probs, "nats"),
                Column("logit", self.logits, "logit"),
            )
        )

    def table_beside(self, other: Result) -> Table:
        """`table`, then the tokens that the other lists, where all logits are known."""
        own = self.table()
        if not isinstance(other, PredictionsResult) or not len(self.ids):
            return own
        k = len(self.ids)
        ids, ranks, logits, p = (values[k:] for values in self.listed(k, other.ids))
        values = (ranks, ids, p, logits.astype(np.float64) - (float(self.logits[0]) - float(self.log_probs[0])), logits)
        return own.with_rows(values)


def _memory(config: ModelConfig, n: int, p: PredictionsParams) -> int:
    return 4 * 6 * config.d_vocab_out


def _holds(version: int, config: ModelConfig, p: PredictionsParams) -> bool:
    return version == 2  # which counted no equal ones


@analysis(version=3, needs="tokens", lane="live", memory=_memory, holds=_holds)
def predictions(inputs: Inputs, p: PredictionsParams, ctx: Ctx) -> PredictionsResult:
    """Next-token predictions at one position: the most probable tokens, and rank and probability of the actual one."""
    tokens = inputs.subject.tokens
    position = position_of(len(tokens), p.position)
    logits = inputs.run().logits(slice(position, position + 1))[0]
    with torch.inference_mode():
        log_probs = torch.log_softmax(logits.double(), dim=0)
        top = torch.topk(logits, min(max(1, p.k), len(logits)))
        entropy = float(-(log_probs.exp() * log_probs).nan_to_num(0.0).sum())
        actual = tokens[position + 1] if position + 1 < len(tokens) else -1
        next_token = {}
        if 0 <= actual < len(logits):
            rank, equal = rank_in(logits, logits[actual])
            next_token = {
                "actual": actual,
                "actual_rank": int(rank),
                "actual_equal": int(equal),
                "actual_log_prob": float(log_probs[actual]),
                "actual_logit": float(logits[actual]),
            }
    centred = inputs.subject.conventions.centre and not inputs.weights.config.logit_soft_cap
    logit_words = "logits minus their mean over the vocabulary" if centred else "raw logits"
    return PredictionsResult(
        ids=read_only(top.indices.cpu().numpy()),
        logits=read_only(top.values.cpu().numpy()),
        log_probs=read_only(log_probs[top.indices].cpu().numpy(), np.float64),
        all_logits=read_only((logits if p.whole else logits[:0]).cpu().numpy()),
        position=position,
        entropy=entropy,
        n_vocab=len(logits),
        conventions=(*inputs.convention_words(), logit_words),
        **next_token,
    )
