"""The direct path's top next tokens after one token, W_E W_U, with the bigrams of the training text for comparison.

    logits = x_t W_U + b_U,     x_t: the token's embedding, through the final norm at its own scale if there is one

(Elhage et al. 2021, "Zero-layer transformers"): a model without layers can at best learn log P(next | t) of its training text.
`correlation` is between log softmax(logits) and the text's log P(· | t) over the row, each minus its mean (`corpus_bigrams`
states the smoothing); `correlation_all` and `symmetry` are those of the whole path (`direct_path`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, at_least, over
from circuitlab.analysis.circuits.direct_path import DirectPathParams, correlation, direct_logits, direct_path, direct_words
from circuitlab.analysis.circuits.factors import refuse_inexact, words
from circuitlab.analysis.circuits.vocabulary_rows import check_count, check_token
from circuitlab.analysis.cost import of_logits
from circuitlab.model.config import ModelConfig
from circuitlab.model.records.corpus_bigrams import corpus_of


@dataclass(frozen=True)
class BigramParams:
    """The `k` most probable next tokens after `token`."""

    token: int = 0
    k: int = at_least(1, 20)


@dataclass(frozen=True, kw_only=True, eq=False)
class BigramResult(Result):
    """`ids` int64, `logits` (minus their mean), `probabilities` float64 [k], the largest first.

    `corpus_log_probs` [k] of the same tokens; `correlation` of this row, `correlation_all` of all rows, within rows: NaN without
    a corpus. `symmetry` of W_E W_U, 1 if it is symmetric; NaN if the output vocabulary is not the input vocabulary.
    """

    ids: np.ndarray = over("next token", unit="token id")
    logits: np.ndarray = over("next token", unit="logit")
    probabilities: np.ndarray = over("next token", unit="probability")
    corpus_log_probs: np.ndarray = over("next token", unit="nats")
    correlation: float
    correlation_all: float
    symmetry: float

    def table(self) -> Table:
        """One row per next token, the most probable first."""
        return Table(
            (
                Column("id", self.ids, of="token"),
                Column("logit", self.logits, "logit"),
                Column("probability", self.probabilities),
                Column("corpus_log_prob", self.corpus_log_probs, "nats"),
            )
        )


def _memory(c: ModelConfig, n: int, p: BigramParams) -> int:
    return 8 * (12 * c.d_vocab_out + 4 * c.d_model)


def _cost(c: ModelConfig, n: int, p: BigramParams) -> float:
    return direct_path.cost(c, n, DirectPathParams()) + of_logits(c, 1)


@analysis(version=1, needs="weights", lane="live", memory=_memory, refuse=refuse_inexact, cost=_cost)
def bigram(inputs: Inputs, p: BigramParams, ctx: Ctx) -> BigramResult:
    """Direct path W_E W_U of one token: its most probable next tokens, compared with the training text's bigrams."""
    c = inputs.weights.config
    check_token(p.token, c.d_vocab)
    check_count(p.k)
    whole = inputs.answer(direct_path, DirectPathParams())
    corpus = corpus_of(inputs.subject.model, inputs.weights.config)
    with torch.inference_mode():
        ends, W_E = inputs.weights.unembed(), inputs.weights.embed().W_E
        row = direct_logits(inputs.weights, ends, W_E, [p.token])[0].double()
        top = torch.topk(row, min(p.k, len(row)))
        log_probs = torch.log_softmax(row, 0).cpu().numpy()
        mean = float(row.mean())
    ids = top.indices.cpu().numpy()
    likely = corpus.log_probs(p.token) if corpus else np.full(c.d_vocab_out, np.nan)
    corpus_words = corpus.words() if corpus else "no bigrams of a training text beside the model"
    return BigramResult(
        ids=ids,
        logits=(top.values.cpu().numpy() - mean).astype(inputs.subject.conventions.dtype),
        probabilities=np.exp(log_probs[ids]),
        corpus_log_probs=likely[ids],
        correlation=correlation(row.cpu().numpy(), likely),  # that of the log-probabilities, which differ by a constant
        correlation_all=whole.correlation,
        symmetry=whole.symmetry,
        conventions=words(
            inputs, direct_words(c), "logits minus their vocabulary mean", corpus_words, scores=(), layers=False, ends=False
        ),
    )
