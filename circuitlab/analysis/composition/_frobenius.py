"""Squared Frobenius norms ‖A_s B_r‖² of all pairs of factors A_s [d_head, d_model] and B_r [d_model, d_head], in two ways.

By blocks     one product of the stacks, then sums of squares of its d_head × d_head blocks:  d_head² d_model flops per pair.
By Grams      ‖A_s B_r‖² = ⟨A_sᵀA_s, B_r B_rᵀ⟩, both symmetric [d_model, d_model]:             d_model² / 2 flops per pair,
              and d_head d_model² / 2 for each Gram. A few of their rows at a time are computed for all heads and multiplied as
              one matrix product over [heads, rows · d_model]; only the upper triangle, whose entries off the diagonal count
              twice.

For factors with little overlap the sum over Grams cancels: if ⟨·,·⟩ is small against the two norms, float32 leaves mostly
rounding. Those pairs are recomputed by blocks (`recompute_small`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

TILE_FLOPS = 4e9  # per product, so that cancelling is noticed in time
GRAM_ROWS = 32
SMALL = 0.01  # cosine of two Grams below which a pair is recomputed: above it rounding is below 1e-5 of the square
PAIRS = 64  # recomputed at a time

Tick = Callable[[], None]


def by_grams_is_cheaper(n_sources: int, n_readers: int, n_pairs: int, d_model: int, d_head: int) -> bool:
    """Whether Grams save at least half of the flops; for less, blocks are faster, as they use the machine better."""
    grams = (n_sources + n_readers) * d_head * d_model**2 / 2 + n_pairs * d_model**2 / 2
    return 2 * grams < n_pairs * d_head**2 * d_model


def by_blocks(left: Tensor, right: Tensor, d_head: int, tick: Tick) -> Tensor:
    """[source, reader] float64 of `left` [source · d_head, d_model] and `right` [d_model, reader · d_head]."""
    n_heads, n_readers = len(left) // d_head, right.shape[1] // d_head
    step = max(1, int(TILE_FLOPS / (2 * d_head * right.numel())))
    squares = torch.empty(n_heads, n_readers, dtype=torch.float64)
    product = torch.empty(min(step, n_heads) * d_head, right.shape[1], dtype=right.dtype)
    for start in range(0, n_heads, step):
        tick()
        rows = left[start * d_head : (start + step) * d_head]
        block = torch.mm(rows, right, out=product[: len(rows)])
        block.mul_(block)
        squares[start : start + step] = block.view(-1, d_head, n_readers, d_head).sum(-1).sum(1)
    return squares


def by_grams(A: Tensor, readers: list[Tensor], n_before: list[int], tick: Tick) -> list[Tensor]:
    """[[source, reader] float64, …] of A [source, d_head, d_model] with each of `readers` [reader, d_model, d_head].

    The first `n_before[i]` sources are paired with `readers[i]`.
    """
    n, d_head, d = A.shape
    squares = [torch.zeros(m, len(B), dtype=torch.float64) for m, B in zip(n_before, readers, strict=True)]
    source_buffer = torch.empty(n * GRAM_ROWS * d, dtype=A.dtype)
    reader_buffer = torch.empty(max(map(len, readers)) * GRAM_ROWS * d, dtype=A.dtype)
    # heads per product, few enough to cancel in time
    step = max(1, int(TILE_FLOPS / (2 * GRAM_ROWS * d * d_head)))
    for at in range(0, d, GRAM_ROWS):
        rows = min(GRAM_ROWS, d - at)
        left = source_buffer[: n * rows * (d - at)].view(n, rows, d - at)
        for start in range(0, n, step):
            tick()
            batch = A[start : start + step]
            torch.bmm(batch[:, :, at : at + rows].mT, batch[:, :, at:], out=left[start : start + step])
        left[:, :, rows:] *= 2  # entries right of the diagonal blocks also stand below them
        for B, m, total in zip(readers, n_before, squares, strict=True):
            tick()
            right = reader_buffer[: len(B) * rows * (d - at)].view(len(B), rows, d - at)
            torch.bmm(B[:, at : at + rows], B[:, at:].mT, out=right)
            total += left[:m].flatten(1) @ right.flatten(1).mT
    return squares


def recompute_small(A: Tensor, B: Tensor, squares: Tensor, small: Tensor, tick: Tick) -> None:
    """Recompute the pairs of `squares` [source, reader] where `small` is true by blocks, in place."""
    source, reader = small.nonzero(as_tuple=True)
    for start in range(0, len(source), PAIRS):
        tick()
        s, r = source[start : start + PAIRS], reader[start : start + PAIRS]
        squares[s, r] = (A[s] @ B[r]).double().square().sum((-2, -1))
