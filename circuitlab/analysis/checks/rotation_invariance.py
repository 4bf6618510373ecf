"""Rotation invariance: whether logits change when the residual stream of the whole model is rotated, and why.

    W_E, W_pos, W_O, W_out, b_O, b_out → · Q          W_Q, W_K, W_V, W_in, W_gate, W_U → Qᵀ ·

Only norms and their gains depend on the basis of the stream (Elhage et al. 2021, "Privileged vs free basis"):

    RMS(x Q) = RMS(x) Q,     but a gain scales each dimension,     and LayerNorm subtracts the mean, the part along all ones.

Gains fold into the weights that read after them, and writing weights can be centred, so that a LayerNorm is an RMSNorm. After
that, no rotation changes a logit. Both are measured: the model as it is, and folded and centred.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, at_least, naming, over, read_only, scalar
from circuitlab.analysis.circuits.factors import check_finite
from circuitlab.analysis.cost import ASSUMED, of_layers, of_logits, of_run
from circuitlab.counting import number_of
from circuitlab.errors import NOT_FINITE, BadModel
from circuitlab.model.block import normalise, soft_cap
from circuitlab.model.config import ModelConfig
from circuitlab.model.forward import forward, positions_in_stream
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.model.weights import NO_NEURONS, Embed, Layer, Norm, Unembed, Weights

FLOPS = 2e9  # between two ticks
BLOCK = 64  # columns orthogonalised at a time
NAMES = ("as it is", "folded and centred")
_STREAM_NORMS = ("attn_norm", "mlp_norm", "attn_post_norm", "mlp_post_norm")

Step = Callable[[], None]


@dataclass(frozen=True)
class RotationCheckParams:
    """`seed` of the rotation."""

    seed: int = at_least(0, 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class RotationCheckResult(Result):
    """`difference` [2]: largest |logit of the rotated model − logit|, of the model as it is and folded and centred (`names`).

    `logit_range`: largest minus smallest logit of the model as it is. `reasons` [2]: what in the model depends on the basis, ""
    if nothing does and the difference is rounding.
    """

    difference: np.ndarray = over("model", unit="logit")
    logit_range: float = scalar("logit")
    names: tuple[str, ...] = naming("model", NAMES)
    reasons: tuple[str, ...] = naming("model", ("", ""), further=True)

    def table(self) -> Table:
        """One row for the model as it is, one for it folded and centred."""
        share = self.difference / self.logit_range if self.logit_range > 0 else np.full_like(self.difference, np.nan)
        return Table(
            (
                Column("model", np.array(self.names)),
                Column("largest_difference", self.difference, "logit"),
                Column("share_of_range", share),
                Column("reason", np.array(self.reasons)),
            )
        )


def random_orthogonal(d: int, seed: int, step: Step) -> Tensor:
    """[d, d] float64: a uniformly random orthogonal matrix (Gram-Schmidt of normal columns), determined by the seed."""
    normal = np.random.default_rng(seed).standard_normal((d, d))
    Q = torch.zeros(d, d, dtype=torch.float64)
    for start in range(0, d, BLOCK):
        step()
        block, done = torch.as_tensor(normal[:, start : start + BLOCK]), Q[:, :start]
        for _ in range(2):  # one pass leaves rounding, a second removes it
            Q_block, R = torch.linalg.qr(block - done @ (done.T @ block))
            block = Q_block * torch.where(R.diagonal() < 0, -1.0, 1.0)
        Q[:, start : start + BLOCK] = block
    return Q


def rotated_rows(x: Tensor, Q: Tensor, step: Step) -> Tensor:
    """x Q for x [..., d_model], a tile of rows at a time."""
    rows, out = x.reshape(-1, x.shape[-1]), torch.empty(x.numel() // x.shape[-1], Q.shape[1], dtype=x.dtype)
    tile = max(1, int(FLOPS / (2 * Q.numel())))
    for start in range(0, len(rows), tile):
        step()
        torch.mm(rows[start : start + tile], Q, out=out[start : start + tile])
    return out.view(*x.shape[:-1], Q.shape[1])


class RotatedWeights:
    """`Weights` of the rotated model. Its embedding has only the rows of `ids`, in that order, which is all a prompt needs."""

    resident = False

    def __init__(self, raw: Weights, Q: Tensor, ids: Tensor, rms: bool, step: Step) -> None:
        self._raw, self._Q, self._ids, self._step = raw, Q, ids, step
        self._embed: Embed | None = None
        self._gained: set[str] = set()
        c = raw.config
        norm = "rms" if rms else c.norm
        # sinusoidal positions are written to the stream too: as a learned table they can be rotated
        self._table = c.positions == "sinusoidal"
        self.config: ModelConfig = replace(c, norm=norm, positions="learned" if self._table else c.positions)

    @property
    def tokenizer(self) -> Tokenizer | None:
        """None: tokens are indices into `ids`."""
        return None

    def _rows(self, W: Tensor) -> Tensor:
        return rotated_rows(W, self._Q, self._step)

    def _reads(self, W: Tensor) -> Tensor:
        """Qᵀ W for W [..., d_model, n]."""
        return self._rows(W.mT).mT

    def embed(self) -> Embed:
        """The rows of `ids`, and the positions."""
        if self._embed is None:
            c, raw = self._raw.config, self._raw.embed()
            pos = positions_in_stream(self._raw.config, raw, 0, c.n_ctx) if self._table else raw.W_pos
            self._embed = Embed(self._rows(raw.W_E[self._ids]), None if pos is None else self._rows(pos))
        return self._embed

    def layer(self, i: int, mlp: bool = True) -> Layer:
        """Block i."""
        raw = self._raw.layer(i, mlp)
        check_finite(raw, i)
        self._gained |= {f"{name} {i}" for name in _STREAM_NORMS if _differs(getattr(raw, name))}
        reads = {name: self._reads(getattr(raw, name)) for name in ("W_Q", "W_K", "W_V")}
        within = raw.mlp
        if within is not None:
            gate = None if within.W_gate is None else self._reads(within.W_gate)
            out = None if within.b_out is None else self._rows(within.b_out)
            within = replace(within, W_in=self._reads(within.W_in), W_gate=gate, W_out=self._rows(within.W_out), b_out=out)
        b_O = None if raw.b_O is None else self._rows(raw.b_O)
        return self._behind_norm(replace(raw, **reads, W_O=self._rows(raw.W_O), b_O=b_O, mlp=within))

    def _behind_norm(self, layer: Layer) -> Layer:
        """The bias of a LayerNorm, not folded before shortformer positions, behind it: an RMSNorm in its place has none."""
        bias = layer.attn_norm.bias
        if bias is None or self.config.norm != "rms":
            return layer
        moved = {}
        for name in "QKV":
            shift, b = torch.einsum("d,hdk->hk", bias, getattr(layer, f"W_{name}")), getattr(layer, f"b_{name}")
            moved[f"b_{name}"] = shift if b is None else b + shift
        return replace(layer, attn_norm=Norm(layer.attn_norm.gain), **moved)

    def unembed(self) -> Unembed:
        """The final norm and the whole W_U."""
        raw = self._raw.unembed()
        return replace(raw, W_U=self._reads(raw.W_U))

    def reason(self) -> str:
        """What in the blocks read so far and at the end sees the basis of the stream, "" for nothing."""
        c = self.config
        if c.norm == "none":
            return ""
        last = int(c.final_norm and _differs(self._raw.unembed().norm))
        reasons = ["LayerNorm subtracts the mean over d_model"] if c.norm == "layer" else []
        n = len(self._gained) + last
        reasons += [f"gains or biases of {number_of(n, 'norm')} act on single dimensions"] if n else []
        return "; ".join(reasons)


def _differs(norm: Norm) -> bool:
    """Whether a norm's gain or bias does not commute with rotations (a gain that is the same for all dimensions does)."""
    gain = norm.gain is not None and bool((norm.gain != norm.gain[0]).any())
    return gain or (norm.bias is not None and bool((norm.bias != 0).any()))


def _memory(c: ModelConfig, n: int, p: RotationCheckParams) -> int:
    layer = c.d_model * (4 * c.n_heads * c.d_head + 3 * c.d_mlp)
    run = n * (c.n_layers + 1) * (c.d_model + 3 * c.n_heads * c.d_head)
    return 8 * (4 * layer + 3 * run + 5 * c.d_model**2 + c.n_ctx * c.d_model + 4 * n * (c.d_model + _columns(c)))


def _columns(c: ModelConfig) -> int:
    """The number of columns of W_U read at a time."""
    return min(c.d_vocab_out, max(16, int(FLOPS / (2 * c.d_model**2))))


def _refuse(c: ModelConfig, p: RotationCheckParams) -> str | None:
    return NO_NEURONS if c.experts is not None else None


def _cost(c: ModelConfig, n: int, p: RotationCheckParams) -> float:
    """Twice: all weights rotated, and the logits of the model and of the rotated one."""
    rotated = of_layers(c, 1) * c.d_model + of_logits(c, c.d_model)
    return 2 * (rotated + 2 * of_run(c, n or ASSUMED)) + 4.0 * c.d_model**3


@analysis(version=2, needs="tokens", lane="slow", memory=_memory, refuse=_refuse, cost=_cost)
def rotation_check(inputs: Inputs, p: RotationCheckParams, ctx: Ctx) -> RotationCheckResult:
    """Rotation invariance: change of this prompt's logits when the model's residual stream is rotated at random, and why."""
    conventions = inputs.subject.conventions
    plain = inputs.presented(replace(conventions, fold_norm=False, centre=False))
    both = replace(conventions, fold_norm=True, centre=True)
    folded, rms = inputs.presented(both), both.centres_writes(plain.config)
    with torch.inference_mode():
        Q = random_orthogonal(plain.config.d_model, p.seed, lambda: ctx.tick(0, 1, "a random rotation"))
        Q = Q.to(plain.embed().W_E.dtype)
        comparisons = [_moved(weights, inputs.subject.tokens, Q, mean, ctx) for weights, mean in ((plain, False), (folded, rms))]
    reasons = comparisons[0].reason, comparisons[1].reason
    return RotationCheckResult(
        difference=read_only([moved.difference for moved in comparisons]),
        logit_range=comparisons[0].range,
        reasons=reasons,
        conventions=(
            conventions.dtype,
            f"random orthogonal matrix, seed {p.seed}",
            *(["RMSNorm instead of each LayerNorm, as the stream has no mean"] if rms else []),
            "no interventions",
            *(f"{name}: {reason or 'nothing depends on the basis'}" for name, reason in zip(NAMES, reasons, strict=True)),
        ),
    )


class _Moved(NamedTuple):
    """For one prompt's logits: the largest |difference|, the range, and what in the model depends on the basis."""

    difference: float
    range: float
    reason: str


def _moved(weights: Weights, tokens: tuple[int, ...], Q: Tensor, rms: bool, ctx: Ctx) -> _Moved:
    """Compare the logits before and after rotation."""
    c = weights.config
    step = lambda: ctx.tick(0, 1, "rotating the model")
    ids, places = np.unique(np.array(tokens), return_inverse=True)
    other = RotatedWeights(weights, Q, torch.as_tensor(ids), rms, step)
    listen = lambda text: lambda i, n: ctx.tick(i, n, text)
    one = forward(weights, tokens, tick=listen("the model")).final
    two = forward(other, tuple(int(i) for i in places), tick=listen("the rotated model")).final
    assert one is not None and two is not None
    ends = weights.unembed()
    if c.final_norm:
        one, two = normalise(one, ends.norm, c.norm, c.norm_eps), normalise(two, ends.norm, other.config.norm, c.norm_eps)
    difference, low, high, width = 0.0, np.inf, -np.inf, _columns(c)
    for start in range(0, c.d_vocab_out, width):
        ctx.tick(start, c.d_vocab_out, "logits")
        W_U = ends.W_U[:, start : start + width]
        bias = 0 if ends.b_U is None else ends.b_U[start : start + width]
        a = soft_cap(one @ W_U + bias, c.logit_soft_cap)
        b = soft_cap(two @ (Q.T @ W_U) + bias, c.logit_soft_cap)
        difference = max(difference, float((a - b).abs().max()))
        if not math.isfinite(float((a - b).sum())):
            raise BadModel(
                "The logits are not finite.", expected="finite weights", got="NaN or infinity in a logit", remedy=NOT_FINITE
            )
        low, high = min(low, float(a.min())), max(high, float(a.max()))
    return _Moved(difference, high - low, other.reason())
