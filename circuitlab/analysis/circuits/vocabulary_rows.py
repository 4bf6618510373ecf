"""Rows of `d_vocab × d_vocab` circuits from their factors, and the tokens at the two ends of each row.

A row is `x W` with x the row of one token, so it costs a vector times an embedding and never a product of embeddings. `Side` is
what a head reads of every token (`token_readings`):

    norm(W_E), W_E, norm(W_E + MLP_0(norm(W_E)))    the token: normalised, as it is stored, or after the first MLP
    x W_OV^{h1}                                     x through an earlier head: a virtual head, both patterns the identity

The k largest entries of a row are exact: they lie in the k blocks of columns with the largest maxima.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Ctx, Inputs
from circuitlab.analysis.chosen_heads import check_heads
from circuitlab.analysis.circuits.effective_embedding import EffectiveEmbeddingParams, effective_embedding, effective_rows
from circuitlab.analysis.circuits.factors import heads_of
from circuitlab.analysis.circuits.token_readings import Embedding, left_unscaled, norm_read, read_as, reads_normed, token_words
from circuitlab.errors import BadInput
from circuitlab.model.block import norm_scale, normalise
from circuitlab.model.config import NormKind
from circuitlab.model.subject import Head
from circuitlab.model.weights import Norm, Weights

BLOCK = 128  # columns per block, whose maximum is compared first
NORMED = 1024  # rows whose norms are taken at once
FLOPS = 4e9  # between two ticks
TILE = 10 * 2**20  # bytes of one tile of rows: near the size of a cache, and small against an analysis' memory


@dataclass(frozen=True)
class OneHead:
    """Factors of one head: W_Q, W_K, W_V [d_model, d_head], W_O [d_head, d_model]; `sigma` of smeared keys.

    b_Q, b_V [d_head], None for no bias and for one that is 0.
    """

    head: Head
    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor
    b_Q: Tensor | None
    b_V: Tensor | None
    sigma: float


def one_head(inputs: Inputs, head: Head) -> OneHead:
    """The factors of one head, copied so that its layer can be freed. Raises `BadInput` for a head the model does not have."""
    check_heads(inputs.weights.config, head)
    layer, h = heads_of(inputs, head.layer), head.head
    sigma = float("nan") if layer.sigma is None else float(layer.sigma[h])
    b_Q, b_V = (None if b is None or not bool(b[h].any()) else b[h].clone() for b in (layer.b_Q, layer.b_V))
    W_Q, W_K, W_V, W_O = (W[h].clone() for W in (layer.W_Q, layer.W_K, layer.W_V, layer.W_O))
    return OneHead(head, W_Q, W_K, W_V, W_O, b_Q, b_V, sigma)


def check_token(token: int, n: int) -> None:
    """Raise `BadInput` for a token outside a vocabulary of n."""
    if not 0 <= token < n:
        raise BadInput(
            "There is no such token.", expected=f"0..{n - 1}", got=str(token), remedy="Choose an id of the vocabulary."
        )


def check_count(k: int) -> None:
    """Raise `BadInput` for a count below 1."""
    if k < 1:
        raise BadInput("No entry is requested.", expected="k ≥ 1", got=str(k), remedy="Ask for one token or more.")


def refuse_pair(head: Head, earlier: Head | None) -> str | None:
    """Why `head` cannot compose with `earlier`, or None if it can."""
    if earlier is not None and earlier.layer >= head.layer:
        return f"{earlier} is not in an earlier layer than {head}, so they do not compose: choose a head of an earlier layer."
    return None


@dataclass(frozen=True)
class Side:
    """What a head reads of every token, [d_vocab, d_model], as factors. `W` is a tensor, or an array of an answer.

    `centred`: each row of `W · scale` is read less its mean over d_model, as a LayerNorm reads it; `norm`, `eps`: and normalised
    so. `unscaled`: of what a norm's scale is left out (`exactness`).
    """

    W: Tensor | np.ndarray
    scale: float
    earlier: OneHead | None
    words: str
    centred: bool = False
    norm: NormKind = "none"
    eps: float = 0.0
    unscaled: tuple[str, ...] = ()

    def row(self, token: int) -> Tensor:
        """[d_model]: the row of one token."""
        return self.rows((token,))[0]

    def rows(self, tokens: tuple[int, ...]) -> Tensor:
        """[len(tokens), d_model]: the rows of some tokens."""
        return self._moved(self._read(torch.as_tensor(self.W[list(tokens)])))

    def mean(self, ctx: Ctx) -> Tensor:
        """[d_model]: the mean of all rows."""
        n, step = len(self.W), max(128, int(FLOPS / (32 * self.W.shape[1])))
        total = torch.zeros(self.W.shape[1], dtype=torch.float64)
        for start in range(0, n, step):
            ctx.tick(start, n)
            for part in self._tile(start, start + step).split(NORMED):
                total += self._read(part).sum(0).double()
        return self._moved((total / n).to(self._tile(0, 1).dtype))

    def times(self, M: Tensor, ctx: Ctx, text: str = "") -> Tensor:
        """[d_vocab, n]: every token's row times M [d_model, n], a tile of tokens at a time."""
        return self.over_all(self.pulled_back(M), ctx, text)

    def pulled_back(self, M: Tensor) -> Tensor:
        """[d_model, n]: the matrix M′ with (norm(W) as this side's) M′ = (every token's row) M.

        Sides with the same W and norm share one pass over it.
        """
        return M if self.earlier is None else self.earlier.W_V @ (self.earlier.W_O @ M)

    def over_all(self, M: Tensor, ctx: Ctx, text: str = "") -> Tensor:
        """[d_vocab, n]: the rows of `W · scale`, normalised, times M, a tile of tokens at a time."""
        n = len(self.W)
        out = torch.empty(n, M.shape[1], dtype=M.dtype)
        M = self.scale * self.met(M)  # the scale of a row goes on its product: no copy of W is made
        # products with few columns are memory-bound: reading a row costs as much as 16 columns of arithmetic
        tile = max(128, int(FLOPS / (2 * M.shape[0] * max(16, M.shape[1]))))
        for start in range(0, n, tile):
            ctx.tick(start, n, text)
            rows, into = self._tile(start, start + tile), out[start : start + tile]
            torch.mm(rows, M, out=into)
            if self.norm != "none":
                into *= torch.cat([norm_scale(part * self.scale, self.norm, self.eps) for part in rows.split(NORMED)])
        return out

    def met(self, M: Tensor) -> Tensor:
        """[d_model, n]: of a matrix M [d_model, n], what rows of `W` meet: without the direction that a LayerNorm takes away."""
        return M - M.mean(0) if self.centred else M

    def _read(self, rows: Tensor) -> Tensor:
        x = rows * self.scale
        return normalise(x - x.mean(1, keepdim=True) if self.centred else x, Norm(), self.norm, self.eps)

    def _moved(self, x: Tensor) -> Tensor:
        return x if self.earlier is None else (x @ self.earlier.W_V) @ self.earlier.W_O

    def _tile(self, start: int, stop: int) -> Tensor:
        part = self.W[start:stop]
        return part if isinstance(part, Tensor) else torch.tensor(part)


def side_of(inputs: Inputs, reader: Head, embed: Embedding, earlier: Head | None = None, every: bool = True) -> Side:
    """What `reader` reads of every token, through the OV circuit of `earlier` if there is one.

    `every` False: only a few rows are needed, so nothing is computed for the whole vocabulary.
    """
    mover = None if earlier is None else one_head(inputs, earlier)
    first, weights = earlier or reader, inputs.weights
    c, read = weights.config, read_as(embed, first)
    composed = "" if mover is None else f"composed with {earlier}: the virtual head, both patterns the identity"
    said = "; ".join(t for t in (composed, token_words(c, embed, first)) if t)
    unscaled = left_unscaled(c, read, shared=earlier is not None or reader.layer > 0)
    if read == "after the first MLP":
        if not every:
            return _Few(weights.embed().W_E, 1.0, mover, said, unscaled=unscaled, weights=weights)
        values = inputs.answer(effective_embedding, EffectiveEmbeddingParams()).values
        return Side(values, 1.0, mover, said, unscaled=unscaled)
    centred = reads_normed(c) and c.norm == "layer"
    return Side(weights.embed().W_E, c.embed_scale, mover, said, centred, *norm_read(c, read), unscaled)


@dataclass(frozen=True, kw_only=True)
class _Few(Side):
    """A side after the first MLP of which only some rows are needed."""

    weights: Weights

    def rows(self, tokens: tuple[int, ...]) -> Tensor:
        return self._moved(effective_rows(self.weights, torch.tensor(tokens)))


def unembed_mean(inputs: Inputs) -> Tensor | None:
    """[d_model]: the mean of W_U over the vocabulary; None if W_U is centred already."""
    if inputs.subject.conventions.centre and inputs.weights.config.logit_soft_cap == 0:
        return None
    return inputs.weights.unembed().W_U.mean(1)


def tile_rows(n: int, size: int) -> int:
    """How many rows of n numbers of `size` bytes fit in a tile."""
    return max(1, min(1024, TILE // (size * n)))


def out_factor(inputs: Inputs, W_O: Tensor, ctx: Ctx) -> tuple[Tensor, int]:
    """(W_O W_U [d_head, whole blocks], number n of its columns): minus the mean of those columns, 0 in the padding."""
    W_U = inputs.weights.unembed().W_U
    n, step = W_U.shape[1], max(BLOCK, min(8192, int(FLOPS / (2 * W_O.numel()))))
    out = torch.zeros(len(W_O), n + -n % BLOCK, dtype=W_O.dtype)
    for start in range(0, n, step):
        ctx.tick(start, n, "out tokens")
        out[:, start : min(start + step, n)] = W_O @ W_U[:, start : start + step]
    out[:, :n] -= out[:, :n].mean(1, keepdim=True)
    return out, n


class Ends(NamedTuple):
    """The k largest and the k smallest of a row: ids int64 [k], values [k]."""

    top_ids: np.ndarray
    top: np.ndarray
    bottom_ids: np.ndarray
    bottom: np.ndarray


def ends_of(row: Tensor, k: int) -> Ends:
    """The two ends of a row [n]; fewer than k entries if the row is shorter."""
    k = min(max(1, k), len(row))
    top, bottom = torch.topk(row, k), torch.topk(row, k, largest=False)
    return Ends(top.indices.cpu().numpy(), top.values.cpu().numpy(), bottom.indices.cpu().numpy(), bottom.values.cpu().numpy())


def padded(P: Tensor) -> Tensor:
    """P [d_head, n] with zero columns up to a whole number of blocks."""
    extra = -P.shape[1] % BLOCK
    return torch.nn.functional.pad(P, (0, extra)) if extra else P


def top_of_rows(rows: Tensor, n: int, k: int) -> tuple[Tensor, Tensor]:
    """(values, ids) [row, k], the largest first, of the first n columns of rows [row, whole blocks]; overwrites the padding.

    Exact: each of the k largest entries lies in a block whose maximum is one of the k largest maxima.
    """
    rows[:, n:] = float("-inf")
    blocks = rows.unflatten(1, (-1, BLOCK))
    if blocks.shape[1] <= k:
        return torch.topk(rows, k, dim=1)  # type: ignore[return-value]
    best = torch.topk(blocks.amax(-1), k, dim=1, sorted=False).indices
    candidates = torch.gather(blocks, 1, best[:, :, None].expand(-1, -1, BLOCK)).flatten(1)
    top = torch.topk(candidates, k, dim=1)
    ids = torch.gather(best, 1, top.indices // BLOCK) * BLOCK + top.indices % BLOCK
    return top.values, ids
