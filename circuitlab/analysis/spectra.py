"""What spectra and composition share: factors ready to be multiplied, spectra of products through d_head × d_head matrices.

For A = L R of rank d_head, L [n, d_head], R [d_head, m]:

    the non-zero eigenvalues of A are those of R L;     the squared singular values those of (Lᵀ L)(R Rᵀ)

so that W_E W_OV W_U [d_vocab, d_vocab] is read from W_O (W_U W_E) W_V, W_Vᵀ (W_Eᵀ W_E) W_V and W_O (W_U W_Uᵀ) W_Oᵀ. The d_model ×
d_model products in the middle come from `embedding_products`. Centring is a correction of rank one, at d_head × d_head too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Inputs
from circuitlab.analysis.weight_view import Heads, heads_of
from circuitlab.model.folding import centres_writes


def reads_centred(inputs: Inputs) -> bool:
    """Whether both sides of the stream are centred over d_model: what is written, and therefore what is read.

    Behind a folded LayerNorm the stream has no mean over d_model, so a reading weight's component along the all-ones
    vector is never read.
    """
    conventions = inputs.subject.conventions
    return conventions.fold_norm and centres_writes(inputs.weights.config, conventions)


def factors_of(inputs: Inputs, layer: int) -> Heads:
    """`heads_of`, with W_Q, W_K, W_V centred over d_model where that changes nothing that is read (`reads_centred`)."""
    heads = heads_of(inputs, layer)
    if not reads_centred(inputs):
        return heads
    W_Q, W_K, W_V = (W - W.mean(dim=-2, keepdim=True) for W in (heads.W_Q, heads.W_K, heads.W_V))
    return replace(heads, W_Q=W_Q, W_K=W_K, W_V=W_V)


def reading_words(inputs: Inputs) -> str:
    """For the caption, "" where reading weights are taken as they are."""
    return "reading weights centred over d_model as what is written is" if reads_centred(inputs) else ""


def gram(W: Tensor) -> Tensor:
    """[..., n, n] float64: W Wᵀ of W [..., n, m]."""
    double = W.double()
    return double @ double.mT


def root(matrix: Tensor) -> Tensor:
    """[head, n, n] R with R Rᵀ = `matrix` (symmetric, not negative; it may lack rank).

    Cholesky where it goes through (its R Rᵀ is then right to rounding, rank or no rank, and it costs a tenth), eigenvalues
    clamped at 0 where it does not.
    """
    made, failed = torch.linalg.cholesky_ex(matrix)
    if bool((failed == 0).all()):
        return made
    values, vectors = torch.linalg.eigh(matrix)
    return vectors * values.clamp(min=0).sqrt().unsqueeze(-2)


def largest_first(values: np.ndarray) -> np.ndarray:
    """[..., n] by modulus; those of equal modulus by real and imaginary part, so that rounding alone decides no order."""
    moduli = np.abs(values)
    scale = np.maximum(moduli.max(axis=-1, keepdims=True, initial=0), np.finfo(float).tiny)
    order = np.lexsort((-np.imag(values), -np.real(values), -(moduli / scale).round(9)), axis=-1)
    return np.take_along_axis(values, order, axis=-1)


def eigenvalues(small: Tensor) -> np.ndarray:
    """[head, d_head] complex128 eigenvalues of `small` [head, d_head, d_head], in float64, largest modulus first."""
    return largest_first(torch.linalg.eigvals(small.double()).numpy())


def singular_values(left: Tensor, right: Tensor) -> np.ndarray:
    """[head, d_head] float64 singular values of L R, largest first, from `left` = Lᵀ L and `right` = R Rᵀ [head, d_head, d_head].

    From squares: those below about 1e-8 of the largest are rounding.
    """
    C = root(left.double())
    squares = torch.linalg.eigvalsh(C.mT @ right.double() @ C)
    return squares.clamp(min=0).sqrt().flip(-1).numpy()


def positivity(small: Tensor, values: np.ndarray) -> np.ndarray:
    """[head] Σλ / Σ|λ| in [−1, 1]: the trace of `small` over the moduli of its eigenvalues; NaN where all of them are 0."""
    trace = small.double().diagonal(dim1=-2, dim2=-1).sum(-1).numpy()
    moduli = np.abs(values).sum(-1)
    return np.divide(trace, moduli, out=np.full_like(trace, np.nan), where=moduli > 0)


def effective_rank(singular: np.ndarray) -> np.ndarray:
    """[head] exp of the entropy of s²/Σs² (Roy and Vetterli 2007, on energies): d_head for equal s; NaN for a matrix of zeros."""
    energy = singular**2
    total = energy.sum(-1, keepdims=True)
    share = np.divide(energy, total, out=np.full_like(energy, np.nan), where=total > 0)
    logs = np.log(share, out=np.zeros_like(share), where=share > 0)
    return np.exp(-(share * logs).sum(-1))
