"""A plug-in of pytest that pretends another processor: what torch computes differs in its last places.

`pytest -p tests.processors.plugin`, with `CIRCUITLAB_OTHER_PROCESSOR=1` and so on for further ones. Two processors, or two builds
of a library, add the terms of a product in another order and round exponentials another way. Here each result of such a function
is changed by up to two units in its last place: the same for the same result and the same shapes of operands, so that the same
call twice still gives the same bits. A test that fails with it and not without rests on the rounding of one machine.

What it does not change: whole numbers (products and sums of whole numbers are exact on every processor), sums of one term, what
numpy computes, what torch computes backward, in other threads and in other processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

PRODUCTS = "matmul __matmul__ __rmatmul__ mm bmm mv addmm addmv baddbmm dot outer tensordot einsum linear"
SUMS = "sum mean var softmax log_softmax logsumexp layer_norm cross_entropy"
FUNCTIONS = "exp log sin cos sqrt rsqrt tanh sigmoid gelu silu"
FACTORS = "svd svdvals eig eigvals eigh eigvalsh qr"
NORMS = "norm vector_norm matrix_norm"
ROUNDED = frozenset(
    [*f"{PRODUCTS} {SUMS} {FUNCTIONS} {FACTORS} {NORMS}".split(), *(f"linalg_{name}" for name in f"{FACTORS} {NORMS}".split())]
)

NUMBER = "CIRCUITLAB_OTHER_PROCESSOR"
LARGEST = 3_000_000  # entries; what is larger is left as it is, as noise on it would take most of the time


def noisy(x: Tensor, seed: int) -> Tensor:
    """`x` with up to two units in the last place added, by the bits of each entry and `seed`; gradients pass."""
    if x.is_complex():
        return torch.view_as_complex(noisy(torch.view_as_real(x.resolve_conj()), seed))
    if x.dtype not in (torch.float32, torch.float64) or x.device.type != "cpu" or not 0 < x.numel() <= LARGEST:
        return x
    if x.is_inference() and not torch.is_inference_mode_enabled():
        return x
    values = x.detach()
    bits = values.contiguous().view(torch.int32 if x.dtype == torch.float32 else torch.int64).to(torch.int64)
    drawn = (((bits ^ (bits >> 32)) * 2654435761 + seed * 40503) >> 13) % 3
    steps = (drawn - 1).to(x.dtype)
    whole = ~values.isfinite() | (values == values.round())
    return x * (1 + torch.finfo(x.dtype).eps * steps.masked_fill(whole, 0))


def seed_of(args: Any, seed: int) -> int:
    """A number that follows from `seed` and from the shapes of the tensors among `args`."""
    for arg in args:
        for each in arg if isinstance(arg, (tuple, list)) else (arg,):
            if isinstance(each, Tensor):
                for size in each.shape:
                    seed = (seed * 31 + size) & 0xFFFF
    return seed


class OtherProcessor(TorchFunctionMode):
    """A context, of the thread that enters it, in which the functions of `ROUNDED` round otherwise, by its `number`."""

    def __init__(self, number: int = 0) -> None:
        super().__init__()
        self._number = number

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found, name = func(*args, **(kwargs or {})), getattr(func, "__name__", "")
        if name not in ROUNDED or (kwargs or {}).get("out") is not None:
            return found
        with torch._C.DisableTorchFunction():
            if isinstance(found, tuple) and all(isinstance(each, Tensor) for each in found):
                return type(found)([noisy(each, seed_of(args, self._number)) for each in found])
            of_one_term = name in ("sum", "mean") and found.numel() == args[0].numel()
            return found if of_one_term or not isinstance(found, Tensor) else noisy(found, seed_of(args, self._number))


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop() -> Iterator[None]:
    """All tests of the run are on the other processor."""
    with OtherProcessor(int(os.environ.get(NUMBER, "0"))):
        return (yield)
