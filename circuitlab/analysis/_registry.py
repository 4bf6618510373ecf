"""The registry of analyses: how they are declared, and found by name."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, get_type_hints

from circuitlab.analysis._contract import Analysis, Ctx, Inputs, P, R, never_refused
from circuitlab.errors import UsageError
from circuitlab.model.config import ModelConfig

Memory = Callable[[ModelConfig, int, Any], int] | Callable[[ModelConfig, int, Any, str], int]


def _of_dtype(memory: Callable[..., int]) -> Callable[[ModelConfig, int, Any, str], int]:
    """A memory estimate that takes a dtype, float32 by default, whether or not it depends on it."""
    if len(inspect.signature(memory).parameters) > 3:
        return lambda config, n, p, dtype="float32": memory(config, n, p, dtype)
    return lambda config, n, p, dtype="float32": memory(config, n, p)


def number_size(dtype: str) -> int:
    """Bytes of one number of a dtype."""
    return 8 if dtype == "float64" else 4


_REGISTRY: dict[str, Analysis[Any, Any]] = {}


NO_HEADS = "this model has no layers, and so no heads."


def _with_heads(refuse: Callable[[ModelConfig, Any], str | None]) -> Callable[[ModelConfig, Any], str | None]:
    """The refusal of an analysis of heads: first of all, a model without layers."""
    return lambda config, p: refuse(config, p) if config.n_layers else NO_HEADS


def analysis(
    *,
    version: int,
    needs: Literal["weights", "tokens"],
    lane: Literal["live", "slow"],
    memory: Memory,
    refuse: Callable[[ModelConfig, Any], str | None] = never_refused,
    doubles: bool = True,
    of_heads: bool = False,
    any_prompt: bool = False,
    derived: bool = False,
) -> Callable[[Callable[[Inputs, P, Ctx], R]], Analysis[P, R]]:
    """Register a function `(inputs, p: Params, ctx) -> Result` as the analysis of its name.

    `of_heads`: it does not apply to models without layers, and refuses them in the words of `NO_HEADS`.
    """

    def register(function: Callable[[Inputs, P, Ctx], R]) -> Analysis[P, R]:
        hints = get_type_hints(function)
        registered = Analysis[P, R](
            name=function.__name__,
            run=function,
            params=hints["p"],
            result=hints["return"],
            version=version,
            needs=needs,
            lane=lane,
            memory=_of_dtype(memory),
            refuse=_with_heads(refuse) if of_heads else refuse,
            doubles=doubles,
            any_prompt=any_prompt,
            derived=derived,
        )
        if registered.name in _REGISTRY:
            raise ValueError(f"two analyses are called {registered.name}")
        _REGISTRY[registered.name] = registered
        return registered

    return register


@cache
def _walk() -> None:
    import circuitlab.analysis as package

    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)


def analyses() -> dict[str, Analysis[Any, Any]]:
    """Every registered analysis by name, found by walking this package."""
    _walk()
    return dict(sorted(_REGISTRY.items()))


def find_analysis(name: str) -> Analysis[Any, Any]:
    """One analysis by name. Raises `UsageError` with the existing names."""
    if name in _REGISTRY:
        return _REGISTRY[name]
    registered = analyses()
    if name not in registered:
        listed = " ".join(name for name, entry in registered.items() if not entry.derived)
        raise UsageError("There is no such analysis.", expected=listed, got=repr(name))
    return registered[name]
