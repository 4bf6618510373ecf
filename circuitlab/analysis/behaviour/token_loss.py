"""The loss of every token of the prompt, −ln p(token | earlier tokens) in nats, and its rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, over, read_only
from circuitlab.analysis.ordering import rank_in
from circuitlab.counting import number_of
from circuitlab.model.config import ModelConfig
from circuitlab.model.run import ROWS


@dataclass(frozen=True)
class TokenLossParams:
    """There is nothing to choose."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenLossResult(Result):
    """`loss` [pos] nats and `rank` [pos] from 1, each of the token at that position; NaN and −1 at the first. `equal` [pos]: how
    many tokens have the same logit, itself included.

    NaN and −1 also for tokens that the model reads but cannot predict (ids from d_vocab_out on).
    """

    loss: np.ndarray = over("position", unit="nats")
    rank: np.ndarray = over("position", unit="rank", none=True)
    tokens: np.ndarray = over("position", unit="token id")
    equal: np.ndarray = over("position", unit="tokens", none=True, since=3)

    ACROSS: ClassVar[Mapping[str, str]] = {"mean_loss": "nats"}

    @property
    def mean(self) -> float:
        """Mean loss of the predicted tokens in nats; NaN without any."""
        return float(np.nanmean(self.loss)) if self.n_predicted else float("nan")

    @property
    def n_predicted(self) -> int:
        """The number of tokens that have a loss."""
        return int(np.isfinite(self.loss).sum())

    @property
    def weight(self) -> int:
        """How much it counts in a mean over prompts, which is then one over their tokens."""
        return self.n_predicted

    def across(self) -> Mapping[str, np.ndarray]:
        """The mean loss of the prompt's tokens."""
        return {"mean_loss": np.array(self.mean)}

    def table(self) -> Table:
        """One row per position."""
        return Table(
            (
                Column("position", np.arange(len(self.loss))),
                Column("id", self.tokens, of="token"),
                Column("loss", self.loss, "nats"),
                Column("probability", np.exp(-self.loss)),
                Column("rank", self.rank, of="count"),
                Column("equal", self.equal, of="count"),
            )
        )


def _memory(config: ModelConfig, n: int, p: TokenLossParams) -> int:
    return 4 * 4 * min(n, ROWS) * config.d_vocab_out


def _holds(version: int, config: ModelConfig, p: TokenLossParams) -> bool:
    return version == 2  # which counted no equal ones


@analysis(version=3, needs="tokens", lane="live", memory=_memory, doubles=False, holds=_holds)
def token_loss(inputs: Inputs, p: TokenLossParams, ctx: Ctx) -> TokenLossResult:
    """Loss (negative log-probability, in nats) and rank of every token of the prompt."""
    tokens, run = inputs.subject.tokens, inputs.run()
    n = len(tokens)
    loss, rank, equal = np.full(n, np.nan, inputs.subject.conventions.dtype), np.full(n, -1), np.full(n, -1)
    for start in range(0, n - 1, ROWS):
        ctx.tick(start, n, "unembedding")
        stop = min(start + ROWS, n - 1)
        with torch.inference_mode():
            logits = run.logits(slice(start, stop))
            targets = torch.tensor(tokens[start + 1 : stop + 1])[:, None]
            predictable = targets < inputs.weights.config.d_vocab_out
            own = logits.gather(1, targets * predictable)
            tile_losses = (logits.logsumexp(1, keepdim=True) - own).masked_fill(~predictable, torch.nan)
            loss[start + 1 : stop + 1] = tile_losses[:, 0].cpu().numpy()
            for array, values in zip((rank, equal), rank_in(logits, own), strict=True):
                array[start + 1 : stop + 1] = values.masked_fill(~predictable[:, 0], -1).cpu().numpy()
    without = sum(t >= inputs.weights.config.d_vocab_out for t in tokens[1:])
    tokens_have = number_of(without, "token that the model cannot predict has", "tokens that the model cannot predict have")
    without_words = (f"{tokens_have} no loss",) if without else ()
    return TokenLossResult(
        loss=loss,
        rank=rank,
        equal=equal,
        tokens=read_only(np.array(tokens)),
        conventions=(*inputs.convention_words(), number_of(max(0, n - 1 - without), "predicted token"), *without_words),
    )
