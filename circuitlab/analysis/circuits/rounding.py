"""Down to which share of the largest one singular values say something.

Below it there is rounding: of the weights, in the file or since they were read, or of what is computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch

from circuitlab.analysis.base import Inputs
from circuitlab.analysis.circuits.factor_products import working_dtype
from circuitlab.counting import number, number_of
from circuitlab.model.folding import stored_dtype

# of the largest singular value of a product of two matrices, by the dtype to which their numbers are known
SHARES = {torch.bfloat16: 8e-3, torch.float16: 1e-3, torch.float32: 1e-6, torch.float64: 1e-10}


class Rounding(NamedTuple):
    """`share` of the largest singular value, below which one is rounding, and of what in words."""

    share: float
    what: str

    def words(self) -> str:
        """For captions: `1e−06 of the largest (weights known to float32)`."""
        return f"{number(self.share, '.0e')} of the largest ({self.what})"

    def of_these(self, values: np.ndarray) -> str:
        """For captions: how many of singular values [..., n], the largest first, are rounding; "" where none is."""
        n = int(below(values, self.share).sum())
        verb = "is" if n == 1 else "are"
        return f"{number_of(n, 'singular value')} under {self.words()} {verb} rounding" if n else ""


def rounding_of(inputs: Inputs, layers: Iterable[int], computed: float = 0.0) -> Rounding:
    """That of singular values of products of these layers' attention weights. `computed`: what their computation adds."""
    name = lambda dtype: str(dtype).removeprefix("torch.")
    stored = {stored_dtype(inputs.weights, layer) for layer in layers}
    working = working_dtype(inputs)
    result = [Rounding(SHARES[dtype], f"weights known to {name(dtype)}") for dtype in stored]
    return max([*result, Rounding(max(SHARES[working], computed), f"computed in {name(working)}")], key=lambda one: one.share)


def of_squares(dtype: torch.dtype) -> float:
    """The share of the largest below which roots of eigenvalues of matrices in `dtype` are rounding."""
    return 2 * math.sqrt(torch.finfo(dtype).eps)


def below(values: np.ndarray, share: float | np.ndarray) -> np.ndarray:
    """Bool: which of singular values [..., n], the largest first, are under that share [...] of the largest; NaN is not."""
    return values < np.asarray(share)[..., None] * values[..., :1]
