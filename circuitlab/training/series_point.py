"""Measuring a model at one point of its training: the arrays of `model/records/series_measures.py`, one point of each.

    zeroed(h) = mean loss without z_h W_O^h − mean loss,     every attention pattern frozen (Olsson et al. 2022)

on some held-out windows, and on the second block of repeated random tokens without its first token, which cannot be predicted.
Head scores are those of `training/metrics.py`, `copying` that of `analysis/spectra/copying_scores.py`, shares of own tokens those
of `analysis/circuits/own_tokens.py`.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from circuitlab.analysis.base import Analysis, Inputs, NullContext, P, R
from circuitlab.analysis.circuits.own_tokens import OwnTokensParams
from circuitlab.analysis.circuits.own_tokens import own_tokens as own_tokens_of_heads
from circuitlab.analysis.interventions.ablation_sweep import Replacement, ablated_streams
from circuitlab.analysis.spectra.copying_scores import CopyingScoresParams, copying_scores
from circuitlab.counting import number_of
from circuitlab.errors import BadModel
from circuitlab.model.folding import under
from circuitlab.model.forward import embedded, forward, forward_from
from circuitlab.model.records.series_measures import OWN_ARRAYS
from circuitlab.model.run import unembed
from circuitlab.model.subject import Conventions, ModelRef, Subject
from circuitlab.model.weights import Weights
from circuitlab.training.measured_texts import MeasuredTexts
from circuitlab.training.metrics import head_scores, losses

SCORES = ("prefix_matching", "previous_token", "duplicate_token", "first_token")
ROWS = 16  # texts a forward pass


def measure_point(w: Weights, texts: MeasuredTexts) -> dict[str, np.ndarray]:
    """Every array at one point, float32, without the point axis. Raises `BadModel` for a model that lacks some losses."""
    c = w.config
    if c.d_vocab_out < c.d_vocab:
        expected, remedy = number_of(c.d_vocab, "logit"), "Measure a model whose output vocabulary is its input vocabulary."
        raise BadModel(
            "This model cannot predict every token that it reads.", expected=expected, got=str(c.d_vocab_out), remedy=remedy
        )
    held_out, random = losses(w, texts.held_out), losses(w, texts.random).mean(0)
    by_index = held_out.mean(0)
    window = lambda end: held_out[:, texts.protocol[end][0] - 1 : texts.protocol[end][1]].mean(1)
    scores = head_scores(w, texts.random)
    shape = (c.n_layers, c.n_heads)
    block = (texts.random.shape[1] - 1) // 2
    measures = {
        "loss": by_index.mean(),
        "loss_by_index": by_index,
        "repeated_loss_by_index": random,
        "repeated_text_loss_by_index": losses(w, texts.repeated).mean(0),
        "token_loss": last_losses(w, texts.many),
        **{name: np.array(scores[name]).reshape(shape) for name in SCORES},
        "early_by_text": window("early"),
        "late_by_text": window("late"),
        "copying": copying(w),
        **dict(zip(OWN_ARRAYS, own_tokens(w), strict=True)),
        "zeroed_text": zeroed(w, texts.zeroing, 1),
        "zeroed_repeated": zeroed(w, texts.random, 2 + block),
    }
    return {name: np.asarray(value, np.float32) for name, value in measures.items()}


def last_losses(w: Weights, tokens: Tensor) -> Tensor:
    """[text], nats: the loss of the last token of each of `tokens` [text, pos]."""
    inputs, targets = tokens[:, :-1], tokens[:, -1]
    run = forward(w, (int(tokens[0, 0]),))  # any run without interventions
    with torch.inference_mode():
        parts = [
            forward_from(w, run, 0, embedded(w.config, w.embed(), batch, 0), slice(-1, None))[:, 0]
            for batch in inputs.split(ROWS)
        ]
        return F.cross_entropy(torch.cat(parts), targets, reduction="none")


def zeroed(w: Weights, tokens: Tensor, first: int) -> np.ndarray:
    """[layer, head], nats: rise of the mean loss of tokens [text, pos], from position `first` on, without each head."""
    c = w.config
    total = np.zeros((c.n_layers, c.n_heads))
    cuts = torch.eye(c.n_heads, dtype=torch.bool)
    dest = slice(first - 1, tokens.shape[1] - 1)
    for row in tokens:
        run, targets = forward(w, tuple(row.tolist())), row[first:]
        with torch.inference_mode():
            assert run.final is not None
            before = _mean_losses(w, run.final[None, dest], targets)
            for layer in range(c.n_layers):
                cut = torch.zeros(c.n_heads, c.n_layers, c.n_heads, dtype=torch.bool)
                cut[:, layer] = cuts
                final = ablated_streams(run, cut, Replacement("zero"), True, dest, lambda: None)
                total[layer] += (_mean_losses(w, final, targets) - before).numpy()
    return total / len(tokens)


def _mean_losses(w: Weights, final: Tensor, targets: Tensor) -> Tensor:
    """[batch] float64: mean loss of the tokens `targets` [row] at last streams [batch, row, d_model]."""
    ends = w.unembed()
    means = [F.cross_entropy(unembed(w, ends, x), targets, reduction="none").double().mean() for x in final]
    return torch.stack(means)


def copying(w: Weights) -> np.ndarray:
    """[layer, head] Σλ/Σ|λ| of W_E W_OV W_U as the panels show it; NaN where the analysis refuses the model."""
    params = CopyingScoresParams(diagonal="none", qk=False)
    if not w.config.n_layers or copying_scores.refuse(w.config, params):
        return np.full((w.config.n_layers, w.config.n_heads), np.nan)
    return copying_scores.run(cast(Inputs, _OfWeights(w)), params, NullContext()).copying


def own_tokens(w: Weights) -> tuple[np.ndarray, np.ndarray]:
    """([layer, head], [layer, head]): share of OV rows whose own token is first, or among the first ten; NaN where refused."""
    params = OwnTokensParams()
    if not w.config.n_layers or own_tokens_of_heads.refuse(w.config, params):
        nan = np.full((w.config.n_layers, w.config.n_heads), np.nan)
        return nan, nan.copy()
    result = own_tokens_of_heads.run(cast(Inputs, _OfWeights(w)), params, NullContext())
    return result.top1, result.top10


class _OfWeights:
    """The inputs of analyses of weights, for a model that no engine holds."""

    memory = 0

    def __init__(self, w: Weights) -> None:
        self._w = w
        self.subject = Subject(ModelRef(""), ())
        self.weights = self.presented(self.subject.conventions)
        self._answers: dict[tuple[str, Any], Any] = {}

    def presented(self, conventions: Conventions) -> Weights:
        """The weights under these conventions."""
        return under(self._w, conventions)

    def convention_words(self) -> tuple[str, ...]:
        """What the default conventions do to the model."""
        return self.subject.conventions.words(self.weights.config)

    def answer(self, analysis: Analysis[P, R], params: P) -> R:
        """The result of another analysis, computed once."""
        key = analysis.name, params
        if key not in self._answers:
            self._answers[key] = analysis.run(cast(Inputs, self), params, NullContext())
        return self._answers[key]
