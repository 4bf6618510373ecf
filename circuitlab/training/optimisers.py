"""The optimisers of a run: AdamW for every tensor, or Muon for the matrices of the layers and AdamW for the rest.

Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon; the length of its step as in Liu et al. 2025, arXiv 2502.16982):

    m ← μ m + (1 − μ) g;   u = μ m + (1 − μ) g;   W ← (1 − η λ) W − η · 0.2 √max(a, b) · orth(u)      W [a, b], rate η, decay λ

where orth(u) is U Vᵀ of u = U S Vᵀ, approximated by five Newton–Schulz steps. W_Q, W_K, W_V and W_O are matrices of a head each:
every head moves as far as every other, whatever its gradient, so that none stays behind as it does where a few have the gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from circuitlab.training.recipe import Optimiser

_QUINTIC = (3.4445, -4.7750, 2.0315)  # Jordan's: steepest at 0; singular values end between about 0.7 and 1.2
_STEPS = 5


def optimisers_of(o: Optimiser, tensors: Mapping[str, Tensor]) -> dict[str, torch.optim.Optimizer]:
    """The optimisers of named tensors, by the name under which their state is saved; together they have each tensor once."""
    matrices = {name for name in tensors if o.method == "muon" and is_matrix(name)}
    rest = [value for name, value in tensors.items() if name not in matrices]
    adam = torch.optim.AdamW(rest, lr=o.rate, betas=o.betas, weight_decay=o.weight_decay, foreach=True)
    if not matrices:
        return {"adam": adam}
    return {"adam": adam, "muon": Muon([tensors[name] for name in tensors if name in matrices], o)}


def is_matrix(name: str) -> bool:
    """Whether a canonical tensor is a matrix of a layer, or one of each head."""
    return name.startswith("layers.") and name.rpartition(".")[2].startswith("W_")


class Muon(torch.optim.Optimizer):
    """Orthogonalised momentum for parameters [rows, columns] or [head, rows, columns]; the module has the equations."""

    def __init__(self, parameters: Iterable[Tensor], o: Optimiser) -> None:
        super().__init__(parameters, {"lr": o.matrix_rate, "momentum": o.momentum, "weight_decay": o.matrix_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step on the gradients of all parameters that have one."""
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            for p, direction in zip(moved, orthogonalised([self._momentum(p, group["momentum"]) for p in moved]), strict=True):
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(direction, alpha=-group["lr"] * 0.2 * max(p.shape[-2:]) ** 0.5)

    def _momentum(self, p: Tensor, share: float) -> Tensor:
        """Nesterov's look ahead: the momentum after this gradient, moved once more towards it."""
        assert p.grad is not None
        state = self.state[p]
        if not state:
            state["momentum"] = torch.zeros_like(p)
        state["momentum"].lerp_(p.grad, 1 - share)
        return p.grad.lerp(state["momentum"], share)


def orthogonalised(matrices: list[Tensor]) -> list[Tensor]:
    """orth(u) of each [..., rows, columns]; those of the same shape, or of that of a transpose, in one product."""
    wide = [u.mT if u.shape[-2] > u.shape[-1] else u for u in matrices]
    stacks: dict[torch.Size, list[int]] = {}
    for i, u in enumerate(wide):
        stacks.setdefault(u.shape[-2:], []).append(i)
    results = list(wide)
    for shape, members in stacks.items():
        flat = [wide[i].reshape(-1, *shape) for i in members]
        parts = _newton_schulz(torch.cat(flat)).split([len(x) for x in flat])
        for i, part in zip(members, parts, strict=True):
            whole = part.reshape(wide[i].shape)
            results[i] = whole.mT if wide[i] is not matrices[i] else whole
    return results


def _newton_schulz(x: Tensor) -> Tensor:
    """[n, short, long]: X ← aX + (b XXᵀ + c (XXᵀ)²) X, from X of Frobenius norm 1."""
    a, b, c = _QUINTIC
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x
