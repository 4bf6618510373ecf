"""A device that is none: tensors that hold their numbers in main memory and behave as those of another device do.

Inside `Elsewhere`, tensors made on "meta" keep real numbers; mixing them with tensors of the CPU, reading them as arrays, or (of
a device without it) float64 raise as a real device would. So the whole program runs "on a GPU" on a machine that has none.
What it does not show: what a device's own kernels compute, and operations that they lack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

NAME = "meta"  # the only device type besides the CPU's that every build of torch knows
PRODUCTS = (torch.matmul, Tensor.matmul, Tensor.__matmul__)  # with a vector: reshaped in place, which a wrapper cannot follow
FROM_DATA = (torch.tensor, torch.as_tensor, torch.asarray)


class Far(Tensor):
    """A tensor of that device; `near` holds its numbers."""

    near: Tensor

    @staticmethod
    def __new__(cls, near: Tensor) -> Far:
        made = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            near.size(),
            strides=near.stride(),
            storage_offset=near.storage_offset(),
            dtype=near.dtype,
            device=torch.device(NAME),
        )
        made.near = near
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} outside of the device's time")


class Elsewhere:
    """A context in which the device "meta" is a real one. `doubles` False: one without float64."""

    def __init__(self, doubles: bool = True) -> None:
        self._modes = _Functions(), _Dispatch(doubles)

    def __enter__(self) -> Elsewhere:
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*error)


class _Functions(TorchFunctionMode):
    """What torch does with a device's tensors before it dispatches."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (Tensor.numpy, Tensor.__array__) and isinstance(args[0], Far):
            raise TypeError("can't convert a device tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.")
        if func is Tensor.tolist and isinstance(args[0], Far):
            return args[0].near.tolist()
        if func in (Tensor.__getitem__, Tensor.__setitem__) and isinstance(args[0], Far):
            args = (args[0], _indices(args[1]), *args[2:])
        if func in PRODUCTS and all(isinstance(x, Far) for x in args[:2]) and 1 in (args[0].dim(), args[1].dim()):
            return Far(func(args[0].near, args[1].near))
        if func in FROM_DATA and isinstance(args[0], Far):
            return args[0]
        if func in FROM_DATA and _far(kwargs.get("device")):
            return func(*args, **(kwargs | {"device": "cpu"})).to(NAME)
        return func(*args, **kwargs)


def _indices(index: Any) -> Any:
    """An index whose lists are tensors: torch would make them on the device, where this one has no numbers."""
    if isinstance(index, tuple):
        return tuple(map(_indices, index))
    return torch.tensor(index, device="cpu") if isinstance(index, list) else index


def _far(device: Any) -> bool:
    return device is not None and torch.device(device).type == NAME


class _Dispatch(TorchDispatchMode):
    """Every operation: on the numbers in main memory, with the device's rules."""

    def __init__(self, doubles: bool) -> None:
        super().__init__()
        self._doubles = doubles

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        device = kwargs.pop("device", None)
        given = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
        moves = func.overloadpacket in (torch.ops.aten._to_copy, torch.ops.aten.to, torch.ops.aten.copy_)
        far = [x for x in given if isinstance(x, Far)]
        if far and not moves:
            self._check(func, args, given)
        if lost := [x for x in given if x.device.type == NAME and not isinstance(x, Far)]:
            raise AssertionError(f"{func}: a tensor of {tuple(lost[0].shape)} without numbers")
        known = {id(x.near): x for x in far}
        near = lambda x: x.near if isinstance(x, Far) else x
        if moves and device is not None:
            kwargs["device"] = "cpu"
        made = func(*tree_map(near, args), **tree_map(near, kwargs))
        if _far(device) or (far and device is None):
            return tree_map(lambda x: self._wrapped(x, known) if isinstance(x, Tensor) else x, made)
        return made

    def _wrapped(self, x: Tensor, known: dict[int, Far]) -> Tensor:
        if not self._doubles and x.dtype in (torch.float64, torch.complex128):
            raise TypeError("Cannot convert a tensor to float64 dtype as the device doesn't support float64.")
        return known[id(x)] if id(x) in known else Far(x)

    @staticmethod
    def _check(func: Any, args: Any, given: list[Tensor]) -> None:
        indexing = func.overloadpacket in (torch.ops.aten.index, torch.ops.aten.index_put_, torch.ops.aten.index_put)
        held = [x for x in tree_flatten(args[0])[0] if isinstance(x, Tensor)] if indexing else given
        if any(not isinstance(x, Far) and x.dim() > 0 for x in held):
            raise RuntimeError(f"{func}: Expected all tensors to be on the same device, but found two devices, {NAME} and cpu")
