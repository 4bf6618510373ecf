"""Path expansion: a target at one position as the sum over all paths from the embedding through attention heads.

    x_0 W_U + Σ_h A^h x_0 W_OV^h W_U + Σ_{h1 < h2} A^{h2} A^{h1} x_0 W_OV^{h1} W_OV^{h2} W_U + …        (Elhage et al. 2021)

at the recorded patterns and norm scales of this run, its interventions included; a norm between two heads puts its scale between
their patterns, A^{h2} diag(σ) A^{h1}. The order of a path is its number of heads. Where a path starts is its source:

    embedding, position (learned or sinusoidal), the output of each MLP as recorded (edited or not)
    value bias     b_V, and the bias of the norm before attention, moved by the head: the path starts in that head
    output bias    b_O, and the bias of a norm after attention;   final bias    b_U, and the bias of the final norm
    intervention   what interventions on the stream, v, z or a head's result put in place of the computed value; none where
                   all of them leave the positions that the target reads as they are
    −logsumexp     of a log-probability only: what is subtracted from the logit (and what a soft cap changes), as recorded

"zero" and "scale" interventions are linear and act on the paths themselves; a replaced value ends the paths through it and is a
source. The terms of order 0 are the sources read directly; those of order 1 pass through one head; those of order 2 through two,
a virtual head. All terms add up to the target, and `remainder` is what is missing. A head's direct contribution is the sum of all
paths that end in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.attribution._path_following import Followed, follow
from circuitlab.analysis.attribution._path_orders import contributions_by_order
from circuitlab.analysis.attribution._recorded_words import recorded_parts
from circuitlab.analysis.attribution.path_terms import refuse_on_stream
from circuitlab.analysis.base import Column, Ctx, Inputs, Remainder, Result, Table, analysis, at_least, over, read_only, scalar
from circuitlab.analysis.ordering import descending
from circuitlab.analysis.target import TargetVector, position_of, target_at
from circuitlab.counting import number_of
from circuitlab.model import block
from circuitlab.model.config import ModelConfig
from circuitlab.model.run import Run
from circuitlab.model.subject import Head, Target

Measure = Literal["logit", "log_prob"]
BIASES = {"value bias": "v", "output bias": "o", "final bias": "unembed"}  # sources, by the configuration's names of them
NORMALISATION = "−logsumexp"  # the source of what is subtracted from a logit


@dataclass(frozen=True)
class PathExpansionParams:
    """`order`: the highest order whose paths are listed one by one; higher orders are one sum each.

    `most`: how many paths of an order (from order 2 on) are listed, the largest first; 0 lists all. `measure`: a log-probability
    has one term more than a logit; of a pair of tokens it is the difference of the two.
    """

    target: Target = Target()
    position: int = -1
    order: int = at_least(0, 2)
    measure: Measure = "logit"
    most: int = at_least(0, 1000)


@dataclass(frozen=True, kw_only=True, eq=False)
class PathExpansionResult(Result):
    """Paths and their contributions to the target, in logits (nats for a log-probability); sources and orders: see the module.

    Terms: `order` [term] int64; `heads` int64 [term, order, 2] (layer, head), earliest first, −1 for none; `by_source`
    [term, source] and their sums `value` [term]. Terms of order 0 come first, one per source; then by order and size.
    `sources` [source] str. `orders` [order], 0 … n_layers: the sum of each order, listed or not; `left_out` [order]: the sum of
    the `n_left_out` [order] paths that `most` leaves out. `head_total` [layer, head]: the direct contribution of each head;
    `head_orders` [layer, head, order]: its split by order. NaN in higher orders: not computed yet. `whole`: the target's value,
    `target_ids` int64 [2] its tokens (−1: none), at `position`.
    """

    order: np.ndarray = over("term", unit="order")
    heads: np.ndarray = over("term", "step", "(layer, head)", unit="index", none=True)
    by_source: np.ndarray = over("term", "source", unit="{unit}")
    value: np.ndarray = over("term", unit="{unit}")
    sources: np.ndarray = over("source", unit="text")
    orders: np.ndarray = over("order", unit="{unit}")
    left_out: np.ndarray = over("order", unit="{unit}")
    n_left_out: np.ndarray = over("order", unit="paths")
    head_total: np.ndarray = over("layer", "head", unit="{unit}")
    head_orders: np.ndarray = over("layer", "head", "order", unit="{unit}")
    target_ids: np.ndarray = over("target and other", unit="token id", none=True)
    whole: float = scalar("{unit}")
    unit: str = "logit"
    position: int

    def names(self) -> np.ndarray:
        """[term] str: a source, a head, or a chain of heads in forward order."""
        path = lambda row: " → ".join(str(Head(int(a), int(b))) for a, b in row if a >= 0)
        names = [str(self.sources[i]) if k == 0 else path(self.heads[i]) for i, k in enumerate(self.order)]
        return np.array(names, dtype=object)

    def entries_along(self, axis: str) -> np.ndarray | None:
        return self.names() if axis == "term" else None

    def table(self) -> Table:
        """One row per term, then the sums: paths left out, and higher orders."""
        listed = int(self.order.max(initial=0))
        more = [(number_of(n, "other path"), k, self.left_out[k]) for k, n in enumerate(self.n_left_out) if n]
        more += [("all paths", k, v) for k, v in enumerate(self.orders) if k > listed]
        blank = np.full((len(more), len(self.sources)), np.nan)
        by_source = np.concatenate([self.by_source, blank])
        return Table(
            (
                Column("path", np.array([*self.names(), *(name for name, _, _ in more)], dtype=object)),
                Column("order", np.array([*self.order, *(k for _, k, _ in more)], dtype=np.int64)),
                Column("contribution", np.array([*self.value, *(v for _, _, v in more)]), self.unit),
                *(Column(f"from {name}", by_source[:, i], self.unit) for i, name in enumerate(self.sources)),
            )
        )

    def across(self) -> dict[str, np.ndarray]:
        """`head_total` [layer, head] and `orders` [order]."""
        return {"head_total": self.head_total, "orders": self.orders}


def mlp_source(layer: int) -> str:
    """The source that is what the MLP of a layer writes."""
    return f"L{layer} MLP"


def sources_of(config: ModelConfig, edited: bool, measure: Measure) -> tuple[str, ...]:
    """The sources that paths of this model can have, in the order of the `source` axis."""
    norm_bias = config.norm == "layer"
    ends = {"position": config.positions in ("learned", "sinusoidal")}
    ends |= {mlp_source(i): not config.attention_only for i in range(config.n_layers)}
    ends |= {source: bias in config.biases or norm_bias for source, bias in BIASES.items()}
    ends |= {"intervention": edited, NORMALISATION: measure == "log_prob"}
    return ("embedding", *(name for name, present in ends.items() if present))


def _refuse(config: ModelConfig, p: PathExpansionParams) -> str | None:
    if p.order < 0 or p.most < 0:
        return "an order and a number of paths cannot be negative."
    if p.measure == "log_prob" and p.target.direction:
        return "a direction has no log-probability: measure the logit."
    return refuse_on_stream(config)


def _memory(c: ModelConfig, n: int, p: PathExpansionParams) -> int:
    listed = [math.comb(c.n_layers, k) * c.n_heads**k for k in range(min(max(p.order, 1), c.n_layers) + 1)]
    paths = 3 * sum(listed) * (n + c.d_model + c.n_layers + 8)
    streams = (c.n_layers + 4) * n * (2 * c.d_model + 3 * c.n_heads * c.d_head)
    return 8 * (paths + streams + 4 * c.n_heads * n * n + 4 * c.d_vocab_out)


@analysis(version=3, needs="tokens", lane="slow", memory=_memory, refuse=_refuse)
def path_expansion(inputs: Inputs, p: PathExpansionParams, ctx: Ctx) -> PathExpansionResult:
    """Path expansion of a target: the direct path, every head, every virtual head, and higher orders, which add up to it."""
    run, c = inputs.run(), inputs.weights.config
    position = position_of(run.n, p.position)
    with torch.inference_mode():
        ctx.tick(0, 2 * c.n_layers, "the target")
        vector = target_at(inputs, p.target, (position,), run)
        names = sources_of(c, any(edit.acts_before(position + 1, run.n) for edit in run.edits), p.measure)
        whole, normalisation, span = _whole(run, vector, position, p.measure)
        followed = follow(run, vector, names, min(p.order, c.n_layers), ctx)
        if p.measure == "log_prob":
            followed.levels[0][0].values[0, names.index(NORMALISATION)] = normalisation
        result = replace(
            _listed(followed, c, p, names),
            whole=whole,
            position=position,
            target_ids=read_only(vector.ids[0].cpu().numpy()),
            unit="nats" if p.measure == "log_prob" else "logit",
        )
        result = replace(result, conventions=(*inputs.convention_words(), *_words(result, vector, p, run)))
        if c.n_layers > p.order:
            ctx.partial(result)
            tick = lambda i: ctx.tick(c.n_layers + i, 2 * c.n_layers, f"deeper orders, layer {i}")
            result = _with_deeper(result, contributions_by_order(run, followed.ends, tick), p.order)
        unit = "nats" if p.measure == "log_prob" else "logits"
        remainder = Remainder(abs(whole - float(result.orders.sum())), span, unit, "range of all logits")
        return replace(result, remainder=remainder, done=1.0)


def _whole(run: Run, vector: TargetVector, position: int, measure: Measure) -> tuple[float, float, float]:
    """(target value, what a log-probability adds to its logit, range of all logits or log-probabilities)."""
    assert run.final is not None
    x = run.final[position : position + 1]
    value = float(vector.measure(run.weights, x))
    first, second = vector.ids[0].tolist()
    if first < 0:
        c, norm = run.weights.config, run.weights.unembed().norm
        x = block.normalise(x, norm, c.norm, c.norm_eps) if c.final_norm else x
        return value, 0.0, 2 * float(vector.D.norm() * x.norm())
    logits = run.logits(slice(position, position + 1))[0]
    span = float(logits.max() - logits.min())
    if measure == "logit":
        return value, 0.0, span
    log_probs = torch.log_softmax(logits, dim=-1)
    capped = logits[first] if second < 0 else logits[first] - logits[second]
    normalisation = float(capped) - value - (float(logits.logsumexp(-1)) if second < 0 else 0.0)
    return float(log_probs[first] if second < 0 else log_probs[first] - log_probs[second]), normalisation, span


def _listed(followed: Followed, c: ModelConfig, p: PathExpansionParams, names: tuple[str, ...]) -> PathExpansionResult:
    """The result with the paths that are followed one by one; higher orders are NaN."""
    orders = np.full(c.n_layers + 1, np.nan)
    by_head = np.full((c.n_layers, c.n_heads, c.n_layers + 1), np.nan)
    by_head[..., 0] = 0
    left_out, n_left_out = np.zeros(len(orders)), np.zeros(len(orders), np.int64)
    width, rows = max(1, min(p.order, c.n_layers)), []
    for k, level in enumerate(followed.levels[: c.n_layers + 1]):
        values = np.concatenate([paths.values.double().cpu().numpy() for paths in level])
        heads = np.concatenate([paths.heads.cpu().numpy() for paths in level])
        orders[k] = values.sum()
        if k:
            by_head[..., k] = 0
            np.add.at(by_head[..., k], (heads[:, -1, 0], heads[:, -1, 1]), values.sum(1))
            best = descending(values.sum(1), by_size=True)
            listed = best if k == 1 or not p.most else best[: p.most]
            left_out[k], n_left_out[k] = values[best[len(listed) :]].sum(), len(best) - len(listed)
            values, heads = values[listed], heads[listed]
        else:
            values, heads = np.diag(values[0]), np.zeros((len(names), 0, 2), np.int64)
        pad = np.full((len(heads), width - k, 2), -1)
        rows.append((np.full(len(heads), k), np.concatenate([heads, pad], axis=1), values))
    order, heads, values = (np.concatenate(part) for part in zip(*rows, strict=True))
    return PathExpansionResult(
        order=order,
        heads=heads,
        by_source=values,
        value=values.sum(1),
        sources=np.array(names),
        orders=orders,
        left_out=left_out,
        n_left_out=n_left_out,
        head_total=followed.direct.double().cpu().numpy(),
        head_orders=by_head,
        target_ids=np.full(2, -1),
        whole=math.nan,
        position=0,
        done=0.5,
    )


def _with_deeper(result: PathExpansionResult, by_order: Tensor, order: int) -> PathExpansionResult:
    """The result with the sums of the orders that are not followed one by one."""
    deeper = slice(order + 1, None)
    by_head, orders = result.head_orders.copy(), result.orders.copy()
    by_head[..., deeper] = by_order[..., deeper].double().cpu().numpy()
    orders[deeper] = by_head[..., deeper].sum((0, 1))
    return replace(result, head_orders=by_head, orders=orders)


def _words(result: PathExpansionResult, vector: TargetVector, p: PathExpansionParams, run: Run) -> list[str]:
    measured = f"log-probability {vector.of}" if p.measure == "log_prob" else vector.words
    words = [f"{measured}, position {result.position}", f"{recorded_parts(run.weights.config)} as recorded"]
    if run.edits:
        words.append(number_of(len(run.edits), "intervention"))
    words += [f"{number_of(n, 'smaller path')} of order {k} summed" for k, n in enumerate(result.n_left_out) if n]
    if run.weights.config.n_layers > p.order:
        words.append(f"orders above {p.order} as sums only")
    return words
