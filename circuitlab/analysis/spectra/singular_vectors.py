"""Singular vectors of a head's bare circuits, W_OV = W_V W_O or W_QK = W_Q W_Kᵀ [d_model, d_model].

    W = U diag(S) Vᵀ,    W = L R with L [d_model, d_head], R [d_head, d_model]:
    L = Q_L R_L and Rᵀ = Q_R R_R by QR,   R_L R_Rᵀ = u diag(S) vᵀ,   U = Q_L u,   V = Q_R v

so that no matrix of d_model² is decomposed. Row vectors: W_OV reads a stream along the columns of U and writes along those of V;
W_QK compares the destination's stream along U with the source's along V. Pairs of vectors are made definite by their sign: the
largest entry of each column of U is positive. (Elhage et al. 2021; Millidge and Black 2022 for reading single vectors.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, at_least, over, read_only
from circuitlab.analysis.chosen_heads import check_heads
from circuitlab.analysis.circuits.factor_products import factors_of, reading_words
from circuitlab.analysis.circuits.factors import BEFORE_SMEARING, rotated, words
from circuitlab.analysis.circuits.rounding import below, rounding_of
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head


@dataclass(frozen=True)
class SingularVectorsParams:
    """`head` and which of its circuits; `distance` from source to destination (QK of rotary models), 0 is position-free."""

    head: Head = Head(0, 0)
    matrix: Literal["OV", "QK"] = "OV"
    distance: int = at_least(0, 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class SingularVectorsResult(Result):
    """`U`, `V` [d_model, index], orthonormal columns; `S` [index], the largest first: W = U diag(S) Vᵀ. float64.

    Singular values under `rounding` of the largest are rounding of the weights, and their vectors no directions of the head.
    """

    U: np.ndarray = over("d_model", "index", unit="dimensionless")
    S: np.ndarray = over("index", unit="weight units")
    V: np.ndarray = over("d_model", "index", unit="dimensionless")
    rounding: float

    def table(self) -> Table:
        """One row per singular value."""
        marked = np.where(below(self.S, self.rounding), "rounding", "")
        values = Column("singular value", self.S, "weight units")
        return Table((Column("index", np.arange(len(self.S))), values, Column("rounding", marked)))


def _memory(c: ModelConfig, n: int, p: SingularVectorsParams) -> int:
    return 8 * (8 * c.d_model * c.d_head + 6 * c.d_head**2) + 4 * 8 * c.n_heads * c.d_model * c.d_head


@analysis(version=3, needs="weights", of_heads=True, lane="slow", memory=_memory)
def singular_vectors(inputs: Inputs, p: SingularVectorsParams, ctx: Ctx) -> SingularVectorsResult:
    """All singular vectors of a head's bare OV or QK circuit, with their singular values."""
    c = inputs.weights.config
    check_heads(c, p.head)
    factors = factors_of(inputs, p.head.layer)
    with torch.inference_mode():
        if p.matrix == "OV":
            left, right = factors.W_V[p.head.head].double(), factors.W_O[p.head.head].double()
        else:
            W_Q = rotated(factors.W_Q, c, p.head.layer, p.distance)
            left, right = W_Q[p.head.head].double(), factors.W_K[p.head.head].double().T
        Q_L, R_L = torch.linalg.qr(left)
        Q_R, R_R = torch.linalg.qr(right.T)
        u, S, vT = torch.linalg.svd(R_L @ R_R.T)
        U, V = Q_L @ u, Q_R @ vT.T
        sign = torch.sign(U.gather(0, U.abs().argmax(0, keepdim=True)))
        sign[sign == 0] = 1
        U, V = U * sign, V * sign
    rounding = rounding_of(inputs, (p.head.layer,))
    smeared = BEFORE_SMEARING if p.matrix == "QK" and factors.sigma is not None else ""
    scores = (p.head.layer,) if p.matrix == "QK" else ()
    at = f"distance {p.distance}" if scores and c.rotation(p.head.layer) is not None else ""
    return SingularVectorsResult(
        U=read_only(U.cpu().numpy()),
        S=read_only(S.cpu().numpy()),
        V=read_only(V.cpu().numpy()),
        rounding=rounding.share,
        conventions=words(
            inputs,
            f"bare W_{p.matrix} of {p.head}",
            reading_words(inputs),
            at,
            smeared,
            rounding.of_these(S.cpu().numpy()),
            scores=scores,
            ends=False,
        ),
    )
