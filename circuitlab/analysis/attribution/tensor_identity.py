"""An attention head as a tensor product A ⊗ W_OV: moving information and transforming it commute, checked on this run.

    head(x) = (A ⊗ W_OV) · x:    A (x W_OV) = (A x) W_OV = unvec(kron(A, W_OVᵀ) vec(x))        vec row by row, [pos · d_model]

x is the input of the head's values and W_OV = W_V W_O. A value bias adds (A 1) b_V W_O, which is b_V W_O if the rows of A sum
to 1. Two heads in sequence (Elhage et al. 2021, "virtual attention heads"):

    A₂ (s ∘ (A₁ x₁ W₁) N) W₂ = (A₂ diag(s) A₁) x₁ (W₁ N W₂)

where s [pos] and N [d_model, d_model] are the norms between the two at their recorded scales (without norms s = 1 and N = I, and
the composed pattern is A₂ A₁). Changes that interventions make to v, z or result enter as recorded terms, so that both sides of
each identity describe the same run.

Nothing is averaged over prompts: these are rounding errors of identities that hold on every run, and only the largest counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.attribution._linear_reading import Passage
from circuitlab.analysis.attribution._recorded_words import recorded_scales
from circuitlab.analysis.attribution.query_key_parts import read_by_attention
from circuitlab.analysis.base import Column, Ctx, Inputs, Remainder, Result, Table, analysis, naming, over
from circuitlab.analysis.chosen_heads import check_heads
from circuitlab.analysis.circuits.vocabulary_rows import refuse_pair
from circuitlab.counting import number_of
from circuitlab.model import block
from circuitlab.model.config import ModelConfig
from circuitlab.model.run import Run
from circuitlab.model.subject import Head

KRON_LIMIT = 4096  # tokens · d_model, the number of rows and columns of the Kronecker matrix
TILE_FLOPS = 4e9  # per product, so that cancelling is noticed in time
NAMES = ("rewrite, then move", "move, then rewrite", "Kronecker form", "concatenated z W_O", "composed heads")
FORMULAS = (
    "A (x W_OV)",
    "(A x) W_OV",
    "kron(A, W_OVᵀ) vec(x)",
    "[z¹ … zᴴ] W_O − Σ z W_O",
    "(A₂ A₁) x (W₁ W₂)",
)


@dataclass(frozen=True)
class TensorIdentityParams:
    """The head, and an earlier one that it composes with."""

    head: Head = Head(0, 0)
    earlier: Head | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class TensorIdentityResult(Result):
    """`difference`, `of` float64 [5] in the order of `names`: largest entry of the difference, and of the whole, residual units.

    The first three compare with the forward pass's own `result` of the head; the fourth compares all heads' z concatenated and
    multiplied once with the sum of head outputs; the fifth compares the composed head with the later head applied to the earlier
    one's recorded output. NaN if not computed: `reasons` [5] says why, "" otherwise. `formulas` [5].
    """

    difference: np.ndarray = over("identity", unit="residual units")
    of: np.ndarray = over("identity", unit="residual units")
    reasons: tuple[str, ...] = naming("identity", further=True)
    names: tuple[str, ...] = naming("identity", NAMES)
    formulas: tuple[str, ...] = naming("identity", FORMULAS, further=True)

    def table(self) -> Table:
        """One row per identity."""
        return Table(
            (
                Column("identity", np.array(self.names)),
                Column("formula", np.array(self.formulas)),
                Column("difference", self.difference, "residual units"),
                Column("of", self.of, "residual units"),
                Column("not computed because", np.array(self.reasons)),
            )
        )


@dataclass(frozen=True, eq=False)
class _HeadRun:
    """One head of this run: x [pos, d_model], A [dest, src], bias b_V W_O [d_model], result [pos, d_model] as recorded.

    `changed` [pos, d_model]: the change that interventions on v, z and result make to the result; 0 without any.
    """

    x: Tensor
    A: Tensor
    W_V: Tensor
    W_O: Tensor
    bias: Tensor
    result: Tensor
    changed: Tensor

    @property
    def constant(self) -> Tensor:
        """[pos, d_model]: the part of the result that is not linear in x: biases and interventions."""
        return self.A.sum(1, keepdim=True) * self.bias + self.changed


def _one(run: Run, head: Head) -> _HeadRun:
    i, only, group = head.layer, (head.head,), run.weights.config.kv_head(head.head)
    layer, x, A = run.weights.layer(i, mlp=False), read_by_attention(run, i), run.get("pattern", i, only)[0]
    W_V, W_O = layer.W_V[group].clone(), layer.W_O[head.head].clone()  # copies, so that the layer can be freed
    b_V = torch.zeros(W_V.shape[1], dtype=W_V.dtype) if layer.b_V is None else layer.b_V[group]
    result, changed = run.get("result", i, only)[0], torch.zeros_like(x)
    if run.editor.touches(i, "v", "z", "result"):
        v, z = run.get("v", i, (group,))[0], run.get("z", i, only)[0]
        changed = (A @ (v - x @ W_V - b_V) + z - A @ v) @ W_O + result - z @ W_O
    return _HeadRun(x, A, W_V, W_O, b_V @ W_O, result, changed)


def _times(x: Tensor, W: Tensor, tick: Callable[[], None]) -> Tensor:
    """x W, computed in tiles of rows."""
    step = max(1, int(TILE_FLOPS / (2 * W.numel())))
    products = [_ticked(x[i : i + step] @ W, tick) for i in range(0, len(x), step)]
    return torch.cat(products)


def _ticked(x: Tensor, tick: Callable[[], None]) -> Tensor:
    tick()
    return x


def _kronecker(one: _HeadRun, W_OV: Tensor) -> Tensor:
    """[pos, d_model]: kron(A, W_OVᵀ) vec(x), the head as one matrix acting on the whole prompt."""
    return (torch.kron(one.A, W_OV.T.contiguous()) @ one.x.reshape(-1)).view_as(one.x)


def _concatenated(run: Run, i: int) -> tuple[Tensor, Tensor]:
    """(concatenated z times W_O, Σ_h z_h W_O^h) of layer i, [pos, d_model] each, without the output bias."""
    W_O, z = run.weights.layer(i, mlp=False).W_O, run.get("z", i)
    return block.merge_heads(z) @ block.flat_out(W_O), torch.stack([one @ W for one, W in zip(z, W_O, strict=True)]).sum(0)


def _composed(run: Run, later: _HeadRun, p: TensorIdentityParams, tick: Callable[[], None]) -> tuple[Tensor, Tensor]:
    """(the two heads in sequence, the two as one composed head), [pos, d_model] each."""
    assert p.earlier is not None
    earlier, between = _one(run, p.earlier), Passage(run, p.earlier.layer, p.head.layer)
    tick()
    moved = later.A @ (between.scale * between.apply(earlier.result) @ later.W_V) @ later.W_O
    A = _times(later.A, between.scale * earlier.A, tick)
    W = earlier.W_V @ (between.apply(earlier.W_O) @ later.W_V) @ later.W_O
    tick()
    constant = later.A @ (between.scale * (between.apply(earlier.constant) @ later.W_V)) @ later.W_O
    return moved, _times(A, _times(earlier.x, W, tick), tick) + constant


def _memory(c: ModelConfig, n: int, p: TensorIdentityParams) -> int:
    kron = (n * c.d_model) ** 2 if n * c.d_model <= KRON_LIMIT else 0
    patterns = 3 * c.n_heads * n * (n + c.d_head)
    return 8 * (kron + 3 * c.d_model**2 + c.n_heads * c.d_head * c.d_model + (c.n_heads + 12) * n * c.d_model + patterns)


def _refuse(c: ModelConfig, p: TensorIdentityParams) -> str | None:
    return refuse_pair(p.head, p.earlier)


@analysis(version=1, needs="tokens", of_heads=True, lane="slow", memory=_memory, refuse=_refuse)
def tensor_identity(inputs: Inputs, p: TensorIdentityParams, ctx: Ctx) -> TensorIdentityResult:
    """A head as the tensor product A ⊗ W_OV, in three forms, and two heads composed, compared with the forward pass."""
    run, c = inputs.run(), inputs.weights.config
    check_heads(c, p.head, *([] if p.earlier is None else [p.earlier]))
    small = run.n * c.d_model <= KRON_LIMIT
    tick = lambda: ctx.tick(0, 1, "tensor identity")
    with torch.inference_mode():
        one = _one(run, p.head)
        W_OV = one.W_V @ one.W_O
        tick()
        pairs: list[tuple[Tensor, Tensor] | None] = [(one.result, _times(one.A, _times(one.x, W_OV, tick), tick) + one.constant)]
        pairs.append((one.result, _times(_times(one.A, one.x, tick), W_OV, tick) + one.constant))
        pairs.append((one.result, _kronecker(one, W_OV) + one.constant) if small else None)
        tick()
        pairs.append(_concatenated(run, p.head.layer))
        pairs.append(None if p.earlier is None else _composed(run, one, p, tick))
        sizes = np.array([_compared(pair) for pair in pairs], dtype=np.float64)
    edited = run.editor.touches(p.head.layer, "v", "z", "result")
    scale_words = (f"recorded {recorded_scales(c)}",) if recorded_scales(c) else ()
    edit_words = ("changes by interventions on v, z or result are included",) if edited else ()
    return TensorIdentityResult(
        difference=sizes[:, 0],
        of=sizes[:, 1],
        reasons=("", "", "" if small else _too_long(run.n, c), "", "no earlier head is chosen" if p.earlier is None else ""),
        remainder=Remainder(*map(float, sizes[np.nanargmax(sizes[:, 0])]), unit="residual units", what="largest entry"),
        conventions=(*inputs.convention_words(), "largest entry of the difference", *scale_words, *edit_words),
    )


def _too_long(n: int, c: ModelConfig) -> str:
    return f"{number_of(n, 'token')} × {c.d_model} = {number_of(n * c.d_model, 'row')}: the matrix has {KRON_LIMIT:,} at most"


def _compared(pair: tuple[Tensor, Tensor] | None) -> tuple[float, float]:
    """(largest entry of the difference, largest entry of the first of the two)."""
    if pair is None:
        return float("nan"), float("nan")
    return float((pair[0] - pair[1]).abs().max()), float(pair[0].abs().max())
