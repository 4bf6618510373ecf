"""A head as a tensor product: moving between positions and rewriting within one commute, shown on this run's own numbers.

    head(x) = (A ⊗ W_OV) · x:    A (x W_OV) = (A x) W_OV = unvec(kron(A, W_OVᵀ) vec(x))        vec row by row, [pos · d_model]

x is what the head's values read, W_OV = W_V W_O made whole. A value bias adds (A 1) b_V W_O, which is b_V W_O while rows of A sum
to 1. Two heads one after the other (Elhage et al. 2021, "virtual attention heads"):

    A₂ (s ∘ (A₁ x₁ W₁) N) W₂ = (A₂ diag(s) A₁) x₁ (W₁ N W₂)

where s [pos] and N [d_model, d_model] are the norms between the two at their recorded scales (s = 1, N = I without norms, and
the composed pattern is then A₂ A₁). Where an intervention changed a value, a z or a result, what it put there is carried along as
a recorded term, so that the two sides of each identity are the same run.

No mean over a set of prompts: these are rounding errors of identities that hold on every run, of which only the largest counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.attribution._linear_reading import Passage
from circuitlab.analysis.attribution.query_key_parts import read_by_attention
from circuitlab.analysis.base import Column, Ctx, Inputs, Remainder, Result, Table, analysis, over
from circuitlab.analysis.chosen_heads import check_heads
from circuitlab.counting import number_of
from circuitlab.model import block
from circuitlab.model.config import ModelConfig
from circuitlab.model.run import Run
from circuitlab.model.subject import Head

KRON_LIMIT = 4096  # tokens · d_model: the Kronecker matrix has the square of it
TILE_FLOPS = 4e9  # of one product, so that cancelling is answered in time
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
    """The head, and an earlier one to compose it with."""

    head: Head = Head(0, 0)
    earlier: Head | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class TensorIdentityResult(Result):
    """`difference`, `of` float64 [5] in the order of `names`: largest entry of the difference, and of the whole, residual units.

    The first three compare with the forward pass's own `result` of the head; the fourth, the heads' outputs concatenated and
    multiplied once, with their sum; the fifth, the composed head, with the later head applied to what the earlier one wrote in
    the forward pass. NaN where not computed: `reasons` [5] says why, "" otherwise. `formulas` [5].
    """

    difference: np.ndarray = over("identity", unit="residual units")
    of: np.ndarray = over("identity", unit="residual units")
    reasons: tuple[str, ...]
    names: tuple[str, ...] = NAMES
    formulas: tuple[str, ...] = FORMULAS

    def table(self) -> Table:
        """One row an identity."""
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
class _One:
    """One head on this run: x [pos, d_model], A [dest, src], bias b_V W_O [d_model], result [pos, d_model] as recorded.

    `changed` [pos, d_model]: what interventions on v, z and result put into it; 0 without any.
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
        """[pos, d_model]: bias and interventions, what of the result is not linear in x."""
        return self.A.sum(1, keepdim=True) * self.bias + self.changed


def _one(run: Run, head: Head) -> _One:
    i, only, group = head.layer, (head.head,), run.weights.config.kv_head(head.head)
    layer, x, A = run.weights.layer(i, mlp=False), read_by_attention(run, i), run.get("pattern", i, only)[0]
    W_V, W_O = layer.W_V[group].clone(), layer.W_O[head.head].clone()  # nothing of a layer is kept
    b_V = torch.zeros(W_V.shape[1], dtype=W_V.dtype) if layer.b_V is None else layer.b_V[group]
    result, changed = run.get("result", i, only)[0], torch.zeros_like(x)
    if run.editor.touches(i, "v", "z", "result"):
        v, z = run.get("v", i, (group,))[0], run.get("z", i, only)[0]
        changed = (A @ (v - x @ W_V - b_V) + z - A @ v) @ W_O + result - z @ W_O
    return _One(x, A, W_V, W_O, b_V @ W_O, result, changed)


def _times(x: Tensor, W: Tensor, tick: Callable[[], None]) -> Tensor:
    """x W, some rows at a time."""
    step = max(1, int(TILE_FLOPS / (2 * W.numel())))
    made = [_ticked(x[i : i + step] @ W, tick) for i in range(0, len(x), step)]
    return torch.cat(made)


def _ticked(x: Tensor, tick: Callable[[], None]) -> Tensor:
    tick()
    return x


def _kronecker(one: _One, W_OV: Tensor) -> Tensor:
    """[pos, d_model]: the head as one matrix on the whole prompt, row by row in one vector."""
    return (torch.kron(one.A, W_OV.T.contiguous()) @ one.x.reshape(-1)).view_as(one.x)


def _concatenated(run: Run, i: int) -> tuple[Tensor, Tensor]:
    """All heads of layer i at once, and the sum over heads, [pos, d_model] each, without the output bias."""
    W_O, z = run.weights.layer(i, mlp=False).W_O, run.get("z", i)
    return block.merge_heads(z) @ block.flat_out(W_O), torch.stack([one @ W for one, W in zip(z, W_O, strict=True)]).sum(0)


def _composed(run: Run, later: _One, p: TensorIdentityParams, tick: Callable[[], None]) -> tuple[Tensor, Tensor]:
    """(the two heads one after the other, the two as one head), [pos, d_model] each."""
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
    if p.earlier is not None and p.earlier.layer >= p.head.layer:
        return f"{p.earlier} does not stand in a layer before {p.head}."
    return None


@analysis(version=1, needs="tokens", of_heads=True, lane="slow", memory=_memory, refuse=_refuse)
def tensor_identity(inputs: Inputs, p: TensorIdentityParams, ctx: Ctx) -> TensorIdentityResult:
    """A head's output as A ⊗ W_OV in its three readings, and two heads as one, against the forward pass's own."""
    run, c = inputs.run(), inputs.weights.config
    check_heads(c, p.head, *([] if p.earlier is None else [p.earlier]))
    small = run.n * c.d_model <= KRON_LIMIT
    tick = lambda: ctx.tick(0, 1, "tensor identity")
    with torch.inference_mode():
        one = _one(run, p.head)
        W_OV = one.W_V @ one.W_O
        tick()
        found: list[tuple[Tensor, Tensor] | None] = [(one.result, _times(one.A, _times(one.x, W_OV, tick), tick) + one.constant)]
        found.append((one.result, _times(_times(one.A, one.x, tick), W_OV, tick) + one.constant))
        found.append((one.result, _kronecker(one, W_OV) + one.constant) if small else None)
        tick()
        found.append(_concatenated(run, p.head.layer))
        found.append(None if p.earlier is None else _composed(run, one, p, tick))
        sizes = np.array([_compared(pair) for pair in found], dtype=np.float64)
    edited = run.editor.touches(p.head.layer, "v", "z", "result")
    said = ("what interventions put into v, z or result is carried along",) if edited else ()
    return TensorIdentityResult(
        difference=sizes[:, 0],
        of=sizes[:, 1],
        reasons=("", "", "" if small else _too_long(run.n, c), "", "no earlier head is chosen" if p.earlier is None else ""),
        remainder=Remainder(*map(float, sizes[np.nanargmax(sizes[:, 0])]), unit="residual units", what="largest entry"),
        conventions=(*inputs.subject.conventions.words(), "largest entry of the difference", "recorded norm scales", *said),
    )


def _too_long(n: int, c: ModelConfig) -> str:
    return f"{number_of(n, 'token')} × {c.d_model} = {number_of(n * c.d_model, 'row')}: the matrix is made up to {KRON_LIMIT:,}"


def _compared(pair: tuple[Tensor, Tensor] | None) -> tuple[float, float]:
    """Largest entry of the difference, and of the first of the two."""
    if pair is None:
        return float("nan"), float("nan")
    return float((pair[0] - pair[1]).abs().max()), float(pair[0].abs().max())
