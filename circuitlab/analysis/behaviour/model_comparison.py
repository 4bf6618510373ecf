"""One model's part in a comparison of models on the same tokens: loss and rank of every token, and its own prediction.

    loss_t = −ln p(x_t | x_<t);   predicted_t = argmax p(· | x_≤t)

Losses of two models can be compared token by token only if both read the same tokens. The request gives each token's text in the
other model (`texts`); a model in which they are other texts, or whose context is too short, answers with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, naming, over, read_only
from circuitlab.analysis.behaviour.token_loss import TokenLossParams, token_loss
from circuitlab.counting import number_of
from circuitlab.model.config import ModelConfig
from circuitlab.model.run import ROWS


@dataclass(frozen=True)
class SideBySideParams:
    """`texts`: each token of the prompt as the other model displays it; () for no comparison."""

    texts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class SideBySideResult(Result):
    """`loss` [pos] nats and `rank` [pos] from 1 of the token at that position (NaN and −1 at the first). `equal` [pos]: how many
    tokens have the same logit, itself included.

    `predicted` [pos]: the most probable token after each position, `probability` [pos] its probability, `words` its text.
    `why`: the reason why this model cannot be compared with the other; all arrays are then NaN or −1.
    """

    loss: np.ndarray = over("position", unit="nats")
    rank: np.ndarray = over("position", unit="rank", none=True)
    predicted: np.ndarray = over("position", unit="token id", none=True)
    probability: np.ndarray = over("position", unit="probability")
    tokens: np.ndarray = over("position", unit="token id")
    equal: np.ndarray = over("position", unit="tokens", none=True, since=3)
    words: tuple[str, ...] = naming("position")
    n_layers: int
    why: str = ""

    @property
    def mean(self) -> float:
        """Mean loss of the predicted tokens in nats; NaN without any."""
        return float(np.nanmean(self.loss)) if np.isfinite(self.loss).any() else float("nan")

    def table(self) -> Table:
        """One row per position."""
        return Table(
            (
                Column("position", np.arange(len(self.loss))),
                Column("id", self.tokens, of="token"),
                Column("loss", self.loss, "nats"),
                Column("rank", self.rank, of="count"),
                Column("equal", self.equal, of="count"),
                Column("predicted next", self.predicted, of="token"),
                Column("its probability", self.probability),
            )
        )


def _memory(config: ModelConfig, n: int, p: SideBySideParams) -> int:
    return 5 * 4 * min(n, ROWS) * config.d_vocab_out


def _display(inputs: Inputs, token: int) -> str:
    tokenizer = inputs.weights.tokenizer
    return str(token) if tokenizer is None else tokenizer.display(token)


def _why_not(inputs: Inputs, texts: tuple[str, ...]) -> str:
    """Why this model cannot be compared with one that displays the tokens as `texts`, or ""."""
    config, tokens = inputs.weights.config, inputs.subject.tokens
    if len(tokens) > config.n_ctx:
        return f"it reads {number_of(config.n_ctx, 'token')} at most, and the prompt has {len(tokens):,}"
    if max(tokens) >= config.d_vocab:
        return f"its vocabulary ends at {config.d_vocab - 1:,}, and the prompt has a token {max(tokens):,}"
    if texts and len(texts) != len(tokens):
        return f"the prompt has {number_of(len(tokens), 'token')}, and the other model shows {len(texts):,}"
    if texts:
        for position, (token, text) in enumerate(zip(tokens, texts, strict=True)):
            own_text = _display(inputs, token)
            if own_text != text:
                return f"it has another tokenizer: token {token} at {position} is ‘{own_text}’ to it, not ‘{text}’"
    return ""


def _without(inputs: Inputs, why: str) -> SideBySideResult:
    n = len(inputs.subject.tokens)
    empty = np.full(n, np.nan, inputs.subject.conventions.dtype)
    return SideBySideResult(
        loss=empty,
        rank=np.full(n, -1),
        equal=np.full(n, -1),
        predicted=np.full(n, -1),
        probability=empty.copy(),
        tokens=read_only(np.array(inputs.subject.tokens)),
        words=("",) * n,
        n_layers=inputs.weights.config.n_layers,
        why=why,
        conventions=(*inputs.convention_words(), f"not computed: {why}"),
    )


def _holds(version: int, config: ModelConfig, p: SideBySideParams) -> bool:
    return version == 2  # which counted no equal ones


@analysis(version=3, needs="tokens", lane="live", memory=_memory, doubles=False, any_prompt=True, holds=_holds)
def side_by_side(inputs: Inputs, p: SideBySideParams, ctx: Ctx) -> SideBySideResult:
    """Loss, rank and top prediction at every token, to compare models on the same tokens, or why they cannot be compared."""
    if why := _why_not(inputs, p.texts):
        return _without(inputs, why)
    losses = inputs.answer(token_loss, TokenLossParams())
    n, run = len(inputs.subject.tokens), inputs.run()
    predicted, probability = np.zeros(n, np.int64), np.zeros(n, inputs.subject.conventions.dtype)
    for start in range(0, n, ROWS):
        ctx.tick(start, n, "unembedding")
        stop = min(start + ROWS, n)
        with torch.inference_mode():
            logits = run.logits(slice(start, stop))
            top = logits.max(1)
            predicted[start:stop] = top.indices.cpu().numpy()
            probability[start:stop] = (top.values - logits.logsumexp(1)).exp().cpu().numpy()
    return SideBySideResult(
        loss=losses.loss,
        rank=losses.rank,
        equal=losses.equal,
        predicted=predicted,
        probability=probability,
        tokens=losses.tokens,
        words=tuple(_display(inputs, int(i)) for i in predicted),
        n_layers=inputs.weights.config.n_layers,
        conventions=losses.conventions,
    )
