"""The rank of each token in its own row of W_E W_OV W_U: whether a head copies the very token it attends to.

    rank of t = 1 + how many other tokens u have (W_E W_OV W_U)[t, u] ≥ (W_E W_OV W_U)[t, t]     (equal ones count against it)
    top1, top10 = share of tokens t whose rank is at most 1, at most 10

The copying score Σλ/Σ|λ| is about mixtures of tokens: a head can have 0.99 and still raise the token itself to the top ten in
only a sixth of the rows. Chance is 1/d_vocab and 10/d_vocab. The order within a row does not depend on what softmax is invariant
to (a vector added to every column of W_U), nor on the gauge, nor on the scale that a norm before attention gives the token. A
row whose entries are all the same, as all are of a head of zeros, gives its token no rank.

Of a large vocabulary a sample of evenly spaced ids is taken: a token and head cost `d_head · d_vocab` operations. Most rows are
decided by a part of them: where more than ten of every 64th entry are no smaller than the token's own, its rank is above ten.
What is left after every 16th and every fourth is ranked among all entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, over
from circuitlab.analysis.chosen_heads import by_layer, chosen_heads
from circuitlab.analysis.circuits.factors import has_bias, heads_of, is_token_map, words
from circuitlab.analysis.circuits.token_readings import Embedding, refuse_table, without_mlp
from circuitlab.analysis.circuits.vocabulary_rows import FLOPS, side_of, tile_rows
from circuitlab.analysis.ordering import head_names, rank_in
from circuitlab.caption_parts import Part, Sense
from circuitlab.counting import number_of
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head

WHOLE, SAMPLE = 8192, 512  # the largest vocabulary that is taken whole; the number of tokens sampled from a larger one
OWN = "own tokens"  # what captions call this analysis
FEW = 10  # the largest rank that counts
PARTS = (64, 16, 4, 1)  # of the columns: those looked at first are every 64th, the last all of them
LEAST = 64  # columns of a part


@dataclass(frozen=True)
class OwnTokensParams:
    """`heads`: `()` means all. `tokens`: of a vocabulary above 8 192, a sample or all. `embed`: what the heads read."""

    heads: tuple[Head, ...] = ()
    tokens: Literal["sample", "all"] = "sample"
    embed: Embedding = "tokens"


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnTokensResult(Result):
    """`top1`, `top10` float64 [layer, head], shares of `n_tokens` tokens; NaN for heads not requested or not computed yet.

    `chance1`, `chance10`: the shares of rows in random order.
    """

    top1: np.ndarray = over("layer", "head", unit="share of tokens")
    top10: np.ndarray = over("layer", "head", unit="share of tokens")
    n_tokens: int
    chance1: float
    chance10: float

    def table(self) -> Table:
        """One row per head."""
        names = head_names(*np.indices(self.top1.shape).reshape(2, -1))
        return Table((Column("head", names), Column("top1", self.top1.ravel()), Column("top10", self.top10.ravel())))


def _refuse(c: ModelConfig, p: OwnTokensParams) -> str | None:
    if reason := refuse_table(c, p.embed, p.heads or tuple(Head(i, 0) for i in range(c.n_layers))):
        return reason
    return None if is_token_map(c) else "input and output vocabulary differ: a row does not have its own token."


def _memory(c: ModelConfig, n: int, p: OwnTokensParams) -> int:
    tokens = c.d_vocab if p.tokens == "all" or c.d_vocab <= WHOLE else SAMPLE
    whole = c.d_vocab * c.d_model if p.embed == "after the first MLP" else 0
    parts = c.d_model * c.d_vocab_out * sum(1 / part for part in PARTS[:-1])
    tiles = 3 * tile_rows(c.d_vocab_out, 4) * c.d_vocab_out
    return 8 * int(whole + 2 * tokens * c.d_model + parts + 2 * c.d_head * c.d_vocab_out + tiles)


def _cost(c: ModelConfig, n: int, p: OwnTokensParams) -> float:
    """Few tokens are ranked among all entries: most are decided by the smallest part of them."""
    tokens = c.d_vocab if p.tokens == "all" or c.d_vocab <= WHOLE else SAMPLE
    ranked = tokens * (4 * c.d_model + c.d_vocab_out / PARTS[0])
    return (len(p.heads) or c.n_layers * c.n_heads) * 2.0 * c.d_head * (c.d_vocab_out * c.d_model + ranked)


@analysis(version=3, needs="weights", of_heads=True, lane="slow", memory=_memory, refuse=_refuse, cost=_cost)
def own_tokens(inputs: Inputs, p: OwnTokensParams, ctx: Ctx) -> OwnTokensResult:
    """OV circuit: the share of tokens that are in the top 1 and the top 10 of their own row, a strict test of copying."""
    c = inputs.weights.config
    chosen = chosen_heads(c, p.heads)
    sampled = p.tokens == "sample" and c.d_vocab > WHOLE
    ids = torch.arange(SAMPLE) * c.d_vocab // SAMPLE if sampled else torch.arange(c.d_vocab)
    top1, top10 = (np.full((c.n_layers, c.n_heads), np.nan) for _ in range(2))
    of = f"{len(ids)} of {number_of(c.d_vocab, 'row')}" if sampled else f"all {number_of(c.d_vocab, 'row')}"
    of += f": ± {50 / np.sqrt(len(ids)):.1f} % at most" if sampled else ""
    sample_words = Part(f"{OWN} of {of}", Sense(quantities=(OWN,), brief=of))
    notes: dict[str, None] = {}
    unscaled: dict[str, None] = {}

    def result(done: float) -> OwnTokensResult:
        return OwnTokensResult(
            top1=top1.copy(),
            top10=top10.copy(),
            n_tokens=len(ids),
            chance1=1 / c.d_vocab_out,
            chance10=min(1.0, FEW / c.d_vocab_out),
            conventions=words(
                inputs, sample_words, "value bias left out" * has_bias(c, "v"), *notes, scores=(), unscaled=tuple(unscaled)
            ),
            done=done,
        )

    finished = 0
    with torch.inference_mode():
        parts = _parts(inputs.weights.unembed().W_U)
        for layer, heads, _ in by_layer(chosen):
            side = side_of(inputs, Head(layer, 0), p.embed, every=p.embed == "after the first MLP")
            lacks = without_mlp(c, p.embed, layer)
            notes |= dict.fromkeys((side.words,) if p.embed == "after the first MLP" else (lacks,) if lacks else ())
            unscaled |= dict.fromkeys(side.unscaled)
            factors, rows = heads_of(inputs, layer), side.rows(tuple(ids.tolist()))
            for head in heads:
                tick = lambda at=finished: ctx.tick(at, len(chosen), "own tokens")
                tick()
                ranks = _ranks(rows @ factors.W_V[head], factors.W_O[head], parts, ids, ctx)
                if np.isnan(ranks).any():
                    notes["rows that are the same for every token out have no rank and are left out"] = None
                if not np.isnan(ranks).all():
                    ranks = ranks[~np.isnan(ranks)]
                    top1[layer, head], top10[layer, head] = (ranks == 1).mean(), (ranks <= FEW).mean()
                finished += 1
            if finished < len(chosen):
                ctx.partial(result(finished / len(chosen)))
    return result(1.0)


def _parts(W_U: Tensor) -> tuple[Tensor, ...]:
    """[d_model, n] each: parts of the columns of W_U, the smallest first, and W_U itself."""
    return tuple(W_U if part == 1 else W_U[:, ::part].contiguous() for part in PARTS if part == 1 or W_U.shape[1] >= LEAST * part)


def _ranks(values: Tensor, W_O: Tensor, parts: tuple[Tensor, ...], ids: Tensor, ctx: Ctx) -> np.ndarray:
    """[token]: the last ranks of the tokens `ids` in their rows: `values` [token, d_head] times W_O [d_head, d_model] times W_U.

    NaN for a row whose entries are all the same; `FEW` + 1 for every rank above `FEW` that a part of W_U decides.
    """
    ranks = torch.full((len(ids),), FEW + 1.0, dtype=torch.float64)
    left, whole = torch.arange(len(ids)), parts[-1]
    for part in parts:
        if not len(left):
            break
        # a few rows are cheaper through d_model than by way of the head's own map to all tokens
        few = len(left) * (part.shape[0] - W_O.shape[0]) < W_O.numel()
        outs = part if few else _through(W_O, part, ctx)
        step, still = tile_rows(part.shape[1], part.element_size()), []
        for some in left.split(step):
            ctx.tick(int(some[0]), len(ids), "own tokens")
            through = values[some] @ W_O
            rows = (through if few else values[some]) @ outs
            same = rows.amax(1) == rows.amin(1)
            if part is whole:
                last: Tensor = rank_in(rows, rows.gather(1, ids[some, None])).last
                ranks[some] = last.double().masked_fill(same, torch.nan)
            else:
                own = (through * whole[:, ids[some]].T).sum(1, keepdim=True)
                undecided = (rows >= own).sum(1) <= FEW  # the token's own entry may be among them
                still.append(some[undecided | same])
        left = torch.cat(still) if still else left
    return ranks.cpu().numpy()


def _through(W_O: Tensor, W_U: Tensor, ctx: Ctx) -> Tensor:
    """[d_head, n]: W_O times W_U [d_model, n], some columns at a time."""
    step = max(1, int(FLOPS / (2 * W_O.numel())))
    outs = W_O.new_empty(len(W_O), W_U.shape[1])
    for start in range(0, W_U.shape[1], step):
        ctx.tick(start, W_U.shape[1], "out tokens")
        outs[:, start : start + step] = W_O @ W_U[:, start : start + step]
    return outs
