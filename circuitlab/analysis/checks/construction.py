"""Every equation of the constructed induction model, checked in the open model: how far its two sides are apart.

The construction is Wendler's, in row vectors; its rotary positions are those of Su et al. (2021, section 3.4). R(m) turns pair i
of columns by m θ_i, c = (1, 0, 1, 0, …) is the key of every token, o the offset of layer 0:

    W_Q = α W_K R(−o)ᵀ,   k_n = c R(n)ᵀ,   q_m = α c R(m − o)ᵀ,   q_m · k_n = α c R(n − m + o) cᵀ = α Σ_i cos((n − m + o) θ_i)
    h¹ = h⁰ + o⁰,   h² = h¹ + o¹,   logits = h² W_U,   P = softmax(logits)

Left sides are the model's own: its matrices and its forward pass on this prompt, without interventions. Right sides are computed
here from the parameters, in float64. "≈" equations are limits, and their distance is what layer 0 lets stray.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, naming, over
from circuitlab.model.config import ModelConfig
from circuitlab.model.constructed import RopeInduction, closed_forms, parameters_of
from circuitlab.model.constructed.features import code_map, output_features
from circuitlab.model.constructed.matrices import stream
from circuitlab.model.run import Run

MOST = 12  # positions of which all pairs of rotations are compared

Sides = tuple[str, np.ndarray, np.ndarray]  # name of the equation, the model's side, the formula's


@dataclass(frozen=True)
class ConstructionParams:
    """None."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ConstructionResult(Result):
    """`names` of the equations, in the order of the forward pass. `difference` [equation] float64: the largest absolute
    difference of its two sides, NaN where the prompt is too short to have any; `size` [equation]: the largest absolute entry of
    the formula's side.
    """

    names: tuple[str, ...] = naming("equation")
    difference: np.ndarray = over("equation", unit="each equation's own")
    size: np.ndarray = over("equation", unit="each equation's own")

    def table(self) -> Table:
        """One row per equation."""
        unit = "each equation's own"
        names = Column("equation", np.array(self.names))
        return Table((names, Column("difference", self.difference, unit), Column("size", self.size, unit)))


def _memory(config: ModelConfig, n: int, p: ConstructionParams) -> int:
    rotations = (MOST**2 + 4 * n) * config.d_head**2
    return 8 * (rotations + 16 * n * n + n * (6 * config.d_model + 4 * config.d_vocab) + 4 * config.d_model * config.d_vocab)


def _refuse(config: ModelConfig, p: ConstructionParams) -> str | None:
    if parameters_of(config) is None:
        return "this applies to the constructed induction model only: open construct:rope-induction."
    return None


@analysis(version=1, needs="tokens", lane="live", memory=_memory, refuse=_refuse)
def construction(inputs: Inputs, p: ConstructionParams, ctx: Ctx) -> ConstructionResult:
    """Equations of the constructed induction model, from embedding to prediction: how far the two sides of each are apart."""
    parameters = parameters_of(inputs.weights.config)
    assert parameters is not None  # `_refuse`
    model = _Model(parameters, inputs.run(edits=()))
    sides = list[Sides]()
    parts = (_embedding, _rotations, _layer_0, _attention_0, _layer_1, _forward)
    for i, part in enumerate(parts):
        ctx.tick(i, len(parts), "equations")
        sides += part(model)
    difference = [np.abs(left - right).max() if right.size else np.nan for _, left, right in sides]
    size = [np.abs(right).max() if right.size else np.nan for _, _, right in sides]
    return ConstructionResult(
        names=tuple(name for name, _, _ in sides),
        difference=np.array(difference, dtype=np.float64),
        size=np.array(size, dtype=np.float64),
        conventions=(*inputs.convention_words(), str(parameters), "this prompt, no interventions"),
    )


class _Model:
    """The open model as float64 arrays: W_Q, W_K, W_V, W_O of layers 0 and 1, and values of the run by name and layer."""

    def __init__(self, p: RopeInduction, run: Run) -> None:
        self.p, self.run, self.tokens = p, run, list(run.tokens)
        self.positions = np.arange(run.n)
        c, d_head = np.zeros(run.weights.config.d_head), p.d_head
        c[0:d_head:2] = 1
        self.c = c

    def W(self, name: str, layer: int) -> np.ndarray:
        """A matrix of the only head of a layer."""
        return _float64(getattr(self.run.weights.layer(layer), name)[0])

    def got(self, name: str, layer: int) -> np.ndarray:
        """A value of the run: of the only head where it has one."""
        value = _float64(self.run.get(name, layer))
        return value[0] if value.ndim == 3 else value

    def R(self, steps: np.ndarray) -> np.ndarray:
        """[step, d_head, d_head]: rotations of column vectors by so many positions; columns beyond the hands stay."""
        out = np.tile(np.eye(len(self.c)), (len(steps), 1, 1))
        angle = np.asarray(steps, dtype=np.float64)[:, None] * np.array(self.p.theta())
        a = np.arange(0, self.p.d_head, 2)
        out[:, a, a], out[:, a, a + 1] = np.cos(angle), -np.sin(angle)
        out[:, a + 1, a], out[:, a + 1, a + 1] = np.sin(angle), np.cos(angle)
        return out


def _float64(x: torch.Tensor) -> np.ndarray:
    return x.detach().double().cpu().numpy()


def _embedding(m: _Model) -> Iterator[Sides]:
    ends, at = m.run.weights.embed(), stream(m.p)
    W_E = _float64(ends.W_E)
    yield "token embedding", m.got("resid_pre", 0), W_E[m.tokens]
    tok = np.eye(m.p.d_vocab)
    if m.p.variant != "one-hot":
        letter, j = np.arange(m.p.letters)[:, None], np.arange(at["tok"].stop - at["tok"].start)
        tok = np.vstack([np.zeros(len(j)), 0.5 * np.sin(letter * np.pi / 13 + 0.1 * j)])
    yield "embedding of this model", W_E[:, at["tok"]], tok


def _rotations(m: _Model) -> Iterator[Sides]:
    p, few = m.p, m.positions[:MOST]
    pairs = np.arange(p.d_head // 2)
    theta = np.full(len(pairs), 2 * np.pi / p.period) if p.frequencies == "equal" else p.base ** (-2 * pairs / p.d_head)
    key = m.got("resid_pre", 0) @ m.W("W_K", 0)
    turned = m.got("k", 0)
    # the angle by which the model turns each pair from one position to the next, from its own keys
    z = turned[:, 0 : p.d_head : 2] + 1j * turned[:, 1 : p.d_head : 2]
    still = key[:, 0 : p.d_head : 2] + 1j * key[:, 1 : p.d_head : 2]
    step = np.angle(z[1:2] * still[:1] * np.conj(still[1:2] * z[:1]))
    yield "frequencies", step % (2 * np.pi), np.broadcast_to(theta % (2 * np.pi), step.shape)
    yield "rotation", turned, np.einsum("nij,nj->ni", m.R(m.positions), key)
    yield "rotations keep lengths", np.linalg.norm(turned, axis=1), np.linalg.norm(key, axis=1)
    a, b = (x.ravel() for x in np.meshgrid(few, few))
    yield "rotations add up", m.R(a) @ m.R(b), m.R(a + b)
    yield "rotations at two positions", np.swapaxes(m.R(a), 1, 2) @ m.R(b), m.R(b - a)


def _layer_0(m: _Model) -> Iterator[Sides]:
    p, n, W_K = m.p, m.run.n, m.W("W_K", 0)
    yield "constant key", _float64(m.run.weights.embed().W_E) @ W_K, np.tile(m.c, (p.d_vocab, 1))
    yield "keys", m.got("k", 0), m.R(m.positions) @ m.c
    yield "query matrix", m.W("W_Q", 0), p.alpha * W_K @ m.R(np.array([-p.offset]))[0].T
    yield "queries", m.got("q", 0), p.alpha * m.R(m.positions - p.offset) @ m.c
    delta = m.positions[None] - m.positions[:, None] + p.offset
    by_delta = p.alpha * m.R(np.arange(p.offset + 1 - n, p.offset + n)) @ m.c @ m.c
    visible = np.tril(np.ones((n, n), dtype=bool))
    scores = m.got("scores", 0)
    yield "scores", scores[visible], by_delta[delta + n - 1 - p.offset][visible]
    yield "scores as cosines", scores[visible], p.alpha * closed_forms.sum_of_cosines(p, delta[visible])


def _attention_0(m: _Model) -> Iterator[Sides]:
    p, n, pattern = m.p, m.run.n, m.got("pattern", 0)
    delta = m.positions[None] - m.positions[:, None] + p.offset
    scores = np.where(delta <= p.offset, p.alpha * closed_forms.sum_of_cosines(p, delta.ravel()).reshape(n, n), -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    yield "attention of layer 0", pattern, weights / weights.sum(axis=1, keepdims=True)
    rows = m.positions[p.offset :]
    yield "attention on m − o", pattern[rows, rows - p.offset], np.ones(len(rows))
    values = m.got("v", 0) @ m.W("W_O", 0)
    yield "output of layer 0", m.got("result", 0), pattern @ values
    yield "value of m − o", m.got("result", 0)[rows], values[rows - p.offset]


def _layer_1(m: _Model) -> Iterator[Sides]:
    p, before = m.p, m.got("resid_post", 0)
    singular = np.linalg.svd(m.W("W_Q", 1) @ m.W("W_K", 1).T, compute_uv=False)
    rank = code_map(p).shape[1] + (p.variant != "rank-one" and p.sigma > 0)
    yield "rank of layer 1", singular, np.where(np.arange(len(singular)) < rank, singular, 0.0)
    yield "keys of layer 1", m.got("k", 1), before @ m.W("W_K", 1)
    yield "queries of layer 1", m.got("q", 1), before @ m.W("W_Q", 1)
    visible = np.tril(np.ones((m.run.n, m.run.n), dtype=bool))
    yield "scores of layer 1", m.got("scores", 1)[visible], closed_forms.scores_1(p, m.tokens)[visible]
    yield "attention of layer 1", m.got("pattern", 1), closed_forms.attention_1(p, m.tokens)
    right, n = _right(m)
    yield "induction", np.full(min(n, 1), float(right)), np.full(min(n, 1), float(n))


def _right(m: _Model) -> tuple[int, int]:
    """(k, n): at k of n positions with a continuation the most probable letter is one that has followed most often, as are all
    that are equally probable."""
    logits = _float64(m.run.logits())
    followed = closed_forms.targets(m.p, m.tokens).astype(np.int64) @ np.eye(m.p.d_vocab, dtype=np.int64)[m.tokens]
    rows = followed.any(axis=1)
    best = followed[rows] == followed[rows].max(axis=1, keepdims=True)
    first = logits[rows] == logits[rows].max(axis=1, keepdims=True)
    return int((best | ~first).all(axis=1).sum()), int(rows.sum())


def _forward(m: _Model) -> Iterator[Sides]:
    assert m.run.final is not None
    W_U, logits = _float64(m.run.weights.unembed().W_U), _float64(m.run.logits())
    final = _float64(m.run.final)
    yield "stream after layer 0", m.got("resid_post", 0), m.got("resid_pre", 0) + m.got("result", 0)
    yield "output of layer 1", m.got("result", 1), m.got("pattern", 1) @ m.got("v", 1) @ m.W("W_O", 1)
    yield "stream after layer 1", final, m.got("resid_post", 0) + m.got("result", 1)
    yield "logits", logits, final @ W_U
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    yield "probabilities", np.exp(_float64(m.run.log_probs())), weights / weights.sum(axis=1, keepdims=True)
    value = output_features(m.p)
    expected = m.p.gamma * closed_forms.attention_1(m.p, m.tokens) @ value[m.tokens] @ value.T
    yield "prediction", logits - logits.mean(1, keepdims=True), expected - expected.mean(1, keepdims=True)
