"""Term importance analysis: the loss reduction by the path expansion's terms of each order, at recorded attention patterns.

Elhage et al. (2021), “Term Importance Analysis”. One pass records the patterns; then, frozen (`_frozen_attention_pass`),

    pass 0   no head writes to the stream                                         -> loss of the direct path
    pass k   every head writes its output on the stream of pass k − 1             -> loss with terms of order ≤ k

    reduction of order k = loss(k − 1) − loss(k),        of order 0 = ln d_vocab − loss(0), against uniform predictions

Terms of order k pass k heads in k different layers: there are C(L, k) H^k of them. Order L is the whole model, and must reproduce
its recorded loss: the remainder. With MLPs or norms, MLP outputs and norm scales are frozen at their recorded values, and order 0
is the embedding with the recorded MLPs and the output biases.

Single layers and heads are measured by their terms of order 1: over the direct path only, and over the direct path with the
order-1 terms of all other layers (heads). A reduction depends on the other terms present, so these do not add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.attribution._frozen_attention_pass import FrozenAttentionPass, HeadOutputs
from circuitlab.analysis.attribution._recorded_words import recorded_parts
from circuitlab.analysis.base import (
    Column,
    Ctx,
    Inputs,
    Need,
    Remainder,
    Result,
    Table,
    TextRef,
    analysis,
    at_least,
    over,
    scalar,
)
from circuitlab.analysis.behaviour.samples import check_counts, losses_of, needs_of, refuse_loss, run_on, text_pieces
from circuitlab.analysis.cost import of_layers, of_logits
from circuitlab.model.config import ModelConfig
from circuitlab.model.run import ROWS
from circuitlab.model.subject import Head

Index = tuple[int, ...]
BESIDE = ("over the direct path", "over all others")


@dataclass(frozen=True)
class TermImportanceParams:
    """On the prompt, or on `texts` pieces of `length` tokens (0: the model's context) of the file `text`, drawn with `seed`.

    `orders`: up to this order there is one row per order; the rest is one row. `heads`: each head's own reduction as well (two
    unembeddings per head). `edited`: run the file with the subject's interventions (the prompt always has them).
    """

    text: TextRef | None = None
    texts: int = at_least(1, 8)
    length: int = at_least(0, 0)
    seed: int = at_least(0, 0)
    orders: int = at_least(1, 4)
    heads: bool = False
    edited: bool = False

    @property
    def needs(self) -> Need:
        """A file needs no prompt, so that its measurement stays cached while the prompt changes."""
        return needs_of(self.text is not None, self.edited)


@dataclass(frozen=True, kw_only=True, eq=False)
class TermImportanceResult(Result):
    """Losses in nats, NaN: not computed. `tokens` int [text]: how many predicted tokens a loss is the mean of. `orders`, `terms`
    [order]: the order and its number of terms, the last row with all higher orders; `losses` [text, order]: with terms up to that
    order; `layers` [text, beside, layer] and `heads` [text, beside, layer, head]: with it alone over the direct path, and with
    all order-1 terms but it; `whole` [text]: the model's own.

    `reduction`, `error` (standard error over texts) [order]; `layer_reduction`, `layer_error` [beside, layer];
    `head_reduction`, `head_error` [beside, layer, head].
    """

    tokens: np.ndarray = over("text", unit="tokens")
    orders: np.ndarray = over("order", unit="order")
    terms: np.ndarray = over("order", unit="terms")
    losses: np.ndarray = over("text", "order", unit="nats")
    layers: np.ndarray = over("text", "beside", "layer", unit="nats")
    heads: np.ndarray = over("text", "beside", "layer", "head", unit="nats")
    whole: np.ndarray = over("text", unit="nats")
    reduction: np.ndarray = over("order", unit="nats")
    error: np.ndarray = over("order", unit="nats")
    layer_reduction: np.ndarray = over("beside", "layer", unit="nats")
    layer_error: np.ndarray = over("beside", "layer", unit="nats")
    head_reduction: np.ndarray = over("beside", "layer", "head", unit="nats")
    head_error: np.ndarray = over("beside", "layer", "head", unit="nats")
    uniform: float = scalar("nats")

    @property
    def loss(self) -> np.ndarray:
        """[order] nats: mean loss with terms up to that order, over the texts that are complete."""
        return _mean(self.losses)

    def entries_along(self, axis: str) -> list[str] | None:
        return [self.name(i) for i in range(len(self.orders))] if axis == "order" else None

    def name(self, i: int) -> str:
        """The name of row i of the orders."""
        before = int(self.orders[i - 1]) + 1 if i else 0
        order = int(self.orders[i])
        return f"order {order}" if before == order else f"orders {before}–{order}"

    ENTRIES: ClassVar[Mapping[str, Sequence[str]]] = {"beside": BESIDE}

    def table(self) -> Table:
        """One row per order, per layer and, if they were measured, per head."""
        names = [self.name(i) for i in range(len(self.orders))]
        beside = ["uniform predictions", *("all lower orders" for _ in names[1:])]
        n, heads = self.layers.shape[2], self.heads.shape[3]
        has_heads = not np.isnan(self.head_reduction).all()
        parts = [f"layer {i}, order 1" for i in range(n)], [f"{Head(i, h)}, order 1" for i in range(n) for h in range(heads)]
        values, errors, terms = [self.reduction], [self.error], [self.terms]
        for i, words in enumerate(BESIDE):
            names += parts[0] + (parts[1] if has_heads else [])
            beside += [words] * (n + (n * heads if has_heads else 0))
            values += [self.layer_reduction[i], self.head_reduction[i].ravel()][: 1 + has_heads]
            errors += [self.layer_error[i], self.head_error[i].ravel()][: 1 + has_heads]
            terms += [np.full(n, float(heads)), np.ones(n * heads)][: 1 + has_heads]
        reduction, count = np.concatenate(values), np.concatenate(terms)
        return Table(
            (
                Column("terms of", np.array(names)),
                Column("beside", np.array(beside)),
                Column("terms", count),
                Column("loss reduction", reduction, "nats"),
                Column("standard error", np.concatenate(errors), "nats"),
                Column("per term", reduction / np.maximum(count, 1), "nats"),
            )
        )

    def across(self) -> Mapping[str, np.ndarray]:
        """Mean loss reductions by order, layer and head; prompts are weighted by their numbers of predicted tokens."""
        return {"reduction": self.reduction, "layers": self.layer_reduction, "heads": self.head_reduction}

    @property
    def weight(self) -> float:
        """The number of predicted tokens that the losses are means of."""
        return float(self.tokens.sum())


def listed_orders(config: ModelConfig, most: int) -> tuple[list[int], list[float]]:
    """(orders that have a row, the last being n_layers; number of terms of each row)."""
    n = config.n_layers
    orders = [*range(min(most, n) + 1), *([n] if most < n else [])]
    count = [float(math.comb(n, k) * config.n_heads**k) for k in range(n + 1)]
    edges = [-1, *orders]
    return orders, [sum(count[a + 1 : b + 1]) for a, b in pairwise(edges)]


def _refuse(config: ModelConfig, p: TermImportanceParams) -> str | None:
    return refuse_loss(config)


def _memory(config: ModelConfig, n: int, p: TermImportanceParams) -> int:
    length = n if p.text is None else min(p.length or config.n_ctx, config.n_ctx)
    width = config.d_model + 3 * config.n_heads * config.d_head
    # the run, a stream and an MLP output per layer, and head outputs of two passes
    per_token = config.n_layers * (3 * width + config.d_model) + 12 * config.d_model + 4 * config.d_mlp
    pattern = 3 * config.n_heads * length if config.whole_scores else 0
    losses = p.texts * (config.n_layers * (2 + 2 * config.n_heads) + config.n_layers + 3)
    return 8 * (length * (per_token + pattern) + 3 * min(ROWS, length) * config.d_vocab_out + 4 * losses)


@dataclass(frozen=True, eq=False)
class _Losses:
    """Losses while they are computed: `orders` [text, order], `layers`, `heads`, `whole`, `tokens` as in the result."""

    tokens: np.ndarray
    orders: np.ndarray
    layers: np.ndarray
    heads: np.ndarray
    whole: np.ndarray


def _cost(config: ModelConfig, n: int, p: TermImportanceParams) -> float:
    length, texts = (n, 1) if p.text is None else (p.length or config.n_ctx, p.texts)
    losses = p.orders + 2 + 2 * config.n_layers * (1 + p.heads * config.n_heads)
    return texts * (of_layers(config, length) * (1 + config.n_layers / 4) + losses * of_logits(config, length))


@analysis(version=2, needs="tokens", of_heads=True, lane="slow", memory=_memory, refuse=_refuse, cost=_cost)
def term_importance(inputs: Inputs, p: TermImportanceParams, ctx: Ctx) -> TermImportanceResult:
    """Term importance: marginal loss reduction by the terms of each order, layer and head, with attention patterns frozen."""
    check_counts(texts=p.texts, orders=p.orders)
    texts, sample_words = text_pieces(inputs, p.text, p.length, p.texts, p.seed, p.edited)
    partial = _empty_or_previous(inputs.weights.config, p, texts, ctx)
    show = lambda: ctx.partial(_result(inputs, p, partial, sample_words))
    for i, tokens in enumerate(texts):
        ctx.tick(i, len(texts), f"text {i + 1} of {len(texts)}")
        if not np.isnan(partial.whole[i]) or len(tokens) < 2:
            continue
        run = run_on(inputs, tokens, p.text is None, p.edited, ctx)
        _measure(FrozenAttentionPass(run, ctx), p, partial, i, show)
        partial.whole[i] = losses_of(run, ctx).mean()
        show()
    return replace(_result(inputs, p, partial, sample_words), done=1.0)


def _empty_or_previous(config: ModelConfig, p: TermImportanceParams, texts: Sequence[tuple[int, ...]], ctx: Ctx) -> _Losses:
    """Empty losses, or those of a cancelled attempt."""
    n, orders, count = config.n_layers, listed_orders(config, p.orders)[0], len(texts)
    tokens = np.array([len(text) - 1 for text in texts])
    shapes = (count, len(orders)), (count, 2, n), (count, 2, n, config.n_heads), (count,)
    earlier = ctx.previous
    if isinstance(earlier, TermImportanceResult) and earlier.losses.shape == shapes[0]:
        return _Losses(tokens, earlier.losses.copy(), earlier.layers.copy(), earlier.heads.copy(), earlier.whole.copy())
    return _Losses(tokens, *(np.full(shape, np.nan) for shape in shapes))


def _measure(frozen: FrozenAttentionPass, p: TermImportanceParams, partial: _Losses, text: int, show: Callable[[], None]) -> None:
    """Compute all missing losses of one text. `show` is called after each order, layer and head."""
    n, orders = frozen.config.n_layers, listed_orders(frozen.config, p.orders)[0]
    added: list[HeadOutputs] = [None] * n
    first = added
    for k in range(n + 1):
        streams = frozen.streams(added)
        if k in orders:
            _fill(partial.orders, (text, orders.index(k)), frozen, streams[-1])
            show()
        # a layer's input is final after as many passes as there are layers before it
        added = [frozen.heads(i, streams[i]) if i >= k else added[i] for i in range(n)]
        first = added if k == 0 else first
    for i in range(n):
        _single(frozen, first, i, None, partial.layers, (text,), (i,))
        show()
        for head in range(frozen.config.n_heads if p.heads else 0):
            _single(frozen, first, i, head, partial.heads, (text,), (i, head))
            show()


def _single(
    frozen: FrozenAttentionPass,
    first: list[HeadOutputs],
    layer: int,
    head: int | None,
    losses: np.ndarray,
    before: Index,
    after: Index,
) -> None:
    """Losses with the order-1 terms of one layer (or one of its heads) alone, and with all order-1 terms but those."""
    outputs = first[layer]
    assert outputs is not None
    z, every = outputs
    one = every.clone() if head is None else torch.zeros_like(every)
    if head is not None:
        one[head] = 1
    rest = every - one
    alone: list[HeadOutputs] = [(z, one) if i == layer else None for i in range(len(first))]
    others: list[HeadOutputs] = [(z, rest) if i == layer else other for i, other in enumerate(first)]
    for beside, added in enumerate((alone, others)):
        at = (*before, beside, *after)
        if np.isnan(losses[at]):
            _fill(losses, at, frozen, frozen.streams(added)[-1])


def _fill(losses: np.ndarray, at: Index, frozen: FrozenAttentionPass, x: Tensor) -> None:
    if np.isnan(losses[at]):
        losses[at] = frozen.loss(x)


def _result(inputs: Inputs, p: TermImportanceParams, partial: _Losses, sample_words: tuple[str, ...]) -> TermImportanceResult:
    """The result of the losses computed so far."""
    config = inputs.weights.config
    orders, terms = listed_orders(config, p.orders)
    uniform = math.log(config.d_vocab_out)
    losses, layers, heads, whole = partial.orders.copy(), partial.layers.copy(), partial.heads.copy(), partial.whole.copy()
    before = np.concatenate([np.full((len(losses), 1), uniform), losses[:, :-1]], axis=1)
    first = losses[:, min(1, config.n_layers)]
    by_layer = np.stack([losses[:, :1] - layers[:, 0], layers[:, 1] - first[:, None]], axis=1)
    by_head = np.stack([losses[:, :1, None] - heads[:, 0], heads[:, 1] - first[:, None, None]], axis=1)
    arrays = [losses, layers, *([heads] if p.heads else []), whole]
    share_done = sum(int((~np.isnan(x)).sum()) for x in arrays) / sum(x.size for x in arrays)
    off = np.abs(losses[:, -1] - whole)
    off = off[~np.isnan(off)]
    return TermImportanceResult(
        tokens=partial.tokens,
        orders=np.array(orders),
        terms=np.array(terms),
        losses=losses,
        layers=layers,
        heads=heads,
        whole=whole,
        reduction=_mean(before - losses),
        error=_error(before - losses),
        layer_reduction=_mean(by_layer),
        layer_error=_error(by_layer),
        head_reduction=_mean(by_head),
        head_error=_error(by_head),
        uniform=uniform,
        conventions=(*inputs.convention_words(), *sample_words, *_held_words(config)),
        remainder=Remainder(float(off.max()), uniform, "nats", "loss of uniform predictions") if off.size else None,
        done=min(share_done, 0.99),
    )


def _held_words(config: ModelConfig) -> tuple[str, ...]:
    zero = "order 0: direct path" if config.attention_only else "order 0: direct path and recorded MLPs"
    return (f"{recorded_parts(config)} held as recorded", zero)


def _mean(x: np.ndarray) -> np.ndarray:
    """The mean over texts, without those not computed yet."""
    count = (~np.isnan(x)).sum(axis=0)
    return np.where(count > 0, np.nansum(x, axis=0) / np.maximum(count, 1), np.nan)


def _error(x: np.ndarray) -> np.ndarray:
    """Standard error of that mean; NaN for fewer than two texts."""
    count = (~np.isnan(x)).sum(axis=0)
    square = np.nansum((x - _mean(x)) ** 2, axis=0) / np.maximum(count - 1, 1)
    return np.where(count > 1, np.sqrt(square / np.maximum(count, 1)), np.nan)
