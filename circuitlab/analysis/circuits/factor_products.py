"""Spectra of low-rank products through d_head × d_head matrices: what spectra and composition scores are computed with.

For A = L R of rank d_head, L [n, d_head], R [d_head, m]:

    the non-zero eigenvalues of A are those of R L;     the squared singular values those of (Lᵀ L)(R Rᵀ)

so that the spectra of W_E W_OV W_U [d_vocab, d_vocab] follow from W_O (W_U W_E) W_V, W_Vᵀ (W_Eᵀ W_E) W_V and W_O (W_U W_Uᵀ) W_Oᵀ.
The d_model × d_model products in the middle come from `embedding_products`, `embedding_gram`, `unembedding_gram`. Centring is a
correction of rank one, at d_head × d_head too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Inputs
from circuitlab.analysis.circuits.embedding_products import EmbeddingProductsResult
from circuitlab.analysis.circuits.factors import Heads, heads_of
from circuitlab.analysis.circuits.vocabulary_grams import EmbeddingGramResult
from circuitlab.model.subject import Head

PART_FLOPS = 4e9  # per batch of heads
GRAM_AT_ONCE = 1 << 24  # numbers converted to float64 together; beyond that, one matrix at a time


def reads_centred(inputs: Inputs) -> bool:
    """Whether reading weights are centred over d_model, as the weights that write to the stream are.

    After a folded LayerNorm the stream has no mean over d_model, so that a reading weight's component along the all-ones vector
    has no effect.
    """
    conventions = inputs.subject.conventions
    return conventions.fold_norm and conventions.centres_writes(inputs.weights.config)


def factors_of(inputs: Inputs, layer: int) -> Heads:
    """`heads_of`, with W_Q, W_K, W_V centred over d_model if that changes no result (`reads_centred`)."""
    heads = heads_of(inputs, layer)
    if not reads_centred(inputs):
        return heads
    W_Q, W_K, W_V = (W - W.mean(dim=-2, keepdim=True) for W in (heads.W_Q, heads.W_K, heads.W_V))
    return replace(heads, W_Q=W_Q, W_K=W_K, W_V=W_V)


class ThroughEarlier:
    """Reading weights composed with an earlier head: W_OV^{h1} W for W [head, d_model, d_head]; W itself without one."""

    def __init__(self, inputs: Inputs, earlier: Head | None) -> None:
        self._factors = None
        if earlier is not None:
            heads = factors_of(inputs, earlier.layer)
            self._factors = heads.W_V[earlier.head].clone(), heads.W_O[earlier.head].clone()

    def __call__(self, W: Tensor) -> Tensor:
        """[head, d_model, d_head]: W_OV^{h1} W, or W."""
        return W if self._factors is None else self._factors[0] @ (self._factors[1] @ W)


def reading_words(inputs: Inputs) -> str:
    """Words for the caption if reading weights are centred, else ""."""
    return "reading weights centred over d_model, like the writing weights" if reads_centred(inputs) else ""


def gram(W: Tensor) -> Tensor:
    """[..., n, n] float64: W Wᵀ of W [..., n, m]."""
    if W.dim() < 3 or W.numel() < GRAM_AT_ONCE:
        double = W.double()
        return double @ double.mT
    return torch.stack([gram(one) for one in W])


def root(matrix: Tensor) -> Tensor:
    """[head, n, n]: R with R Rᵀ = `matrix`, which is symmetric and positive semidefinite, perhaps rank-deficient.

    By Cholesky if it succeeds (R Rᵀ is then right to rounding whatever the rank, at a tenth of the cost), else by eigenvalues
    clamped at 0.
    """
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if bool((failed == 0).all()):
        return factor
    values, vectors = torch.linalg.eigh(matrix)
    return vectors * values.clamp(min=0).sqrt().unsqueeze(-2)


def largest_first(values: np.ndarray) -> np.ndarray:
    """[..., n] sorted by modulus; equal moduli by real and imaginary part, so that rounding does not decide the order."""
    moduli = np.abs(values)
    scale = np.maximum(moduli.max(axis=-1, keepdims=True, initial=0), np.finfo(float).tiny)
    order = np.lexsort((-np.imag(values), -np.real(values), -(moduli / scale).round(9)), axis=-1)
    return np.take_along_axis(values, order, axis=-1)


def eigenvalues(small: Tensor) -> np.ndarray:
    """[head, d_head] complex128: eigenvalues of `small` [head, d_head, d_head] in double precision, largest modulus first."""
    return largest_first(torch.linalg.eigvals(small.double()).cpu().numpy())


def singular_values(left: Tensor, right: Tensor) -> np.ndarray:
    """[head, d_head] float64: singular values of L R, largest first, from `left` = Lᵀ L, `right` = R Rᵀ [head, d_head, d_head].

    They are roots of eigenvalues, so those below about 1e-8 of the largest are rounding.
    """
    C = root(left.double())
    squares = torch.linalg.eigvalsh(C.mT @ right.double() @ C)
    return squares.clamp(min=0).sqrt().flip(-1).cpu().numpy()


def rounding_floor(size: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """[head]: up to which sum the moduli of eigenvalues are within rounding (of `dtype`) of 0.

    `size` [head]: the larger Frobenius norm of the centred and the raw matrix.
    """
    return 16 * torch.finfo(dtype).eps * size


def positivity(small: Tensor, values: np.ndarray, floor: np.ndarray) -> np.ndarray:
    """[head]: Σλ / Σ|λ| in [−1, 1], the trace of `small` over the sum of moduli of its eigenvalues; NaN unless above `floor`."""
    trace = small.double().diagonal(dim1=-2, dim2=-1).sum(-1).cpu().numpy()
    moduli = np.abs(values).sum(-1)
    return np.divide(trace, moduli, out=np.full_like(trace, np.nan), where=moduli > floor)


def effective_rank(singular: np.ndarray) -> np.ndarray:
    """[head]: exp of the entropy of s²/Σs² (Roy and Vetterli 2007, on energies): d_head for equal s; NaN for a zero matrix."""
    energy = singular**2
    total = energy.sum(-1, keepdims=True)
    share = np.divide(energy, total, out=np.full_like(energy, np.nan), where=total > 0)
    logs = np.log(share, out=np.zeros_like(share), where=share > 0)
    return np.exp(-(share * logs).sum(-1))


@dataclass(frozen=True)
class Middle:
    """A d_model × d_model product of embeddings between two factors: `product` is centred, product + `left` ⊗ `right` is raw.

    `left`, `right` [d_model] float64, None if there is nothing to centre.
    """

    product: Tensor
    left: Tensor | None = None
    right: Tensor | None = None

    @classmethod
    def unembed_embed(cls, products: EmbeddingProductsResult, dtype: torch.dtype) -> Middle:
        """W_U W_E with W_U centred: the product between W_O and W_V."""
        total = products.n_vocab * products.embed_mean
        return cls(tensor(products.unembed_embed(True), dtype), tensor(products.unembed_mean), tensor(total))

    @classmethod
    def gram(cls, answer: EmbeddingGramResult, dtype: torch.dtype) -> Middle:
        """W_Eᵀ W_E with W_E centred on one side (or both: the same): the product between W_Kᵀ and W_Q."""
        return cls(tensor(answer.gram(True), dtype), tensor(answer.mean), tensor(answer.n_vocab * answer.mean_destination))

    def between(self, L: Tensor, R: Tensor) -> tuple[Tensor, Tensor]:
        """(centred, raw) [head, n, m] float64 of L [head, n, d_model] and R [head, d_model, m].

        The raw product is the centred one plus the mean's part, since subtracting a large mean in float32 would leave rounding.
        Both are the same tensor if there is nothing to centre.
        """
        centred = (L @ (self.product @ R)).double()
        if self.left is None or self.right is None:
            return centred, centred
        column, row = (L @ self.left.to(L.dtype)).double(), (self.right.to(R.dtype) @ R).double()
        return centred, centred + column[..., :, None] * row[..., None, :]


def working_dtype(inputs: Inputs) -> torch.dtype:
    """The precision in which products of factors are computed."""
    return torch.float64 if inputs.subject.conventions.dtype == "float64" else torch.float32


def tensor(array: np.ndarray, dtype: torch.dtype = torch.float64) -> Tensor:
    """A float64 array as a tensor in `dtype`, without any other copy."""
    return torch.as_tensor(array.astype(np.float64 if dtype == torch.float64 else np.float32))


@dataclass(frozen=True)
class Values:
    """Eigenvalues [head, n] complex128 and Σλ/Σ|λ| [head] of a stack of matrices, centred and raw."""

    centred: np.ndarray
    raw: np.ndarray
    score: np.ndarray
    score_raw: np.ndarray

    @classmethod
    def of(cls, small: Tensor, raw: Tensor, dtype: torch.dtype) -> Values:
        """From the d_head × d_head matrices. There is no score for eigenvalues within rounding (of `dtype`) of 0."""
        values = eigenvalues(small)
        values_raw = values if raw is small else eigenvalues(raw)
        size = np.maximum(*(matrix.square().sum((-2, -1)).sqrt().cpu().numpy() for matrix in (small, raw)))
        floor = rounding_floor(size, dtype)
        scores = [positivity(matrix, of, floor) for matrix, of in ((small, values), (raw, values_raw))]
        return cls(values, values_raw, *scores)


def head_batches(heads: Heads, chosen: list[int]) -> Iterator[tuple[Heads, slice]]:
    """The `chosen` heads of a layer in batches small enough to cancel in time, and their indices into `chosen`."""
    _, d_model, d_head = heads.W_Q.shape
    step = max(1, int(PART_FLOPS / (2 * d_model**2 * d_head + 100 * d_head**3)))
    for start in range(0, len(chosen), step):
        index = chosen[start : start + step]
        subset = lambda W, index=index: W if index == list(range(len(W))) else W[index]
        W_Q, W_K, W_V, W_O = map(subset, (heads.W_Q, heads.W_K, heads.W_V, heads.W_O))
        yield Heads(heads.layer, W_Q, W_K, W_V, W_O), slice(start, start + len(index))
