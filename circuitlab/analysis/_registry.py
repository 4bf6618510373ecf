"""The registry of analyses: how they are declared, and found by name."""

from __future__ import annotations

import copyreg
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, Literal, get_type_hints

from circuitlab.analysis._contract import Analysis, AnyAnalysis, Ctx, Inputs, Need, P, R, never_holds, never_refused, none_wider
from circuitlab.analysis._results import Result
from circuitlab.analysis.cost import one_run
from circuitlab.errors import PluginError, UsageError, quoted
from circuitlab.model.config import ModelConfig
from circuitlab.plugins import adding, declared, guarded, owner
from circuitlab.plugins.registering import load_into

Memory = Callable[[ModelConfig, int, Any], int] | Callable[[ModelConfig, int, Any, str], int]


def _of_dtype(memory: Callable[..., int]) -> Callable[[ModelConfig, int, object, str], int]:
    """A memory estimate that takes a dtype, float32 by default, whether or not it depends on it."""
    if len(inspect.signature(memory).parameters) > 3:
        return lambda config, n, p, dtype="float32": memory(config, n, p, dtype)
    return lambda config, n, p, dtype="float32": memory(config, n, p)


def number_size(dtype: str) -> int:
    """Bytes of one number of a dtype."""
    return 8 if dtype == "float64" else 4


_REGISTRY: dict[str, AnyAnalysis] = {}


NO_HEADS = "this model has no layers, and so no heads."


def _with_heads(refuse: Callable[[ModelConfig, object], str | None]) -> Callable[[ModelConfig, object], str | None]:
    """The refusal of an analysis of heads: first of all, a model without layers."""
    return lambda config, p: refuse(config, p) if config.n_layers else NO_HEADS


def analysis(
    *,
    version: int,
    needs: Need,
    lane: Literal["live", "slow"],
    memory: Memory,
    refuse: Callable[[ModelConfig, Any], str | None] = never_refused,
    doubles: bool = True,
    of_heads: bool = False,
    any_prompt: bool = False,
    holds: Callable[[int, ModelConfig, Any], bool] = never_holds,
    wider: Callable[[Any], tuple[Any, ...]] = none_wider,
    cost: Callable[[ModelConfig, int, Any], float] = one_run,
    derived: bool = False,
) -> Callable[[Callable[[Inputs, P, Ctx], R]], Analysis[P, R]]:
    """Register a function `(inputs, p: Params, ctx) -> Result` as the analysis of its name.

    `of_heads`: it does not apply to models without layers, and refuses them in the words of `NO_HEADS`.
    `holds`: of which models and parameters what an earlier version answered is right as it is; stored answers of those are shown.
    `wider`: the parameters of answers that have all numbers of this one, as where a part of them can be asked for alone.
    `cost`: about how many operations it takes (`analysis/cost.py`); one that takes more than a run over the prompt declares it.
    """

    def register(function: Callable[[Inputs, P, Ctx], R]) -> Analysis[P, R]:
        hints, plugin = get_type_hints(function), owner(function.__module__)
        about = f"the analysis {function.__name__}"
        sure = lambda call, kinds=object: call if plugin is None else guarded(plugin, about, call, kinds)
        if plugin is not None:
            _walk()  # of two analyses of one name CircuitLab's own stays
            if hints["return"].table is Result.table:
                raise TypeError(f"{hints['return'].__name__} has no table()")
        registered = Analysis[P, R](
            name=function.__name__,
            run=sure(function, Result),
            params=hints["p"],
            result=hints["return"],
            version=version,
            needs=needs,
            lane=lane,
            memory=sure(_of_dtype(memory)),
            refuse=sure(_with_heads(refuse) if of_heads else refuse),
            doubles=doubles,
            any_prompt=any_prompt,
            holds=sure(holds),
            wider=sure(wider),
            cost=sure(cost),
            derived=derived,
            plugin=plugin,
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


def _made_in(entry: AnyAnalysis) -> str:
    return entry.run.__module__


def analyses() -> dict[str, AnyAnalysis]:
    """Every registered analysis by name: those of this package, found by walking it, and of plug-ins, which this imports.

    A plug-in that fails is left out, and among `plugins.failures()`.
    """
    _walk()
    for addition in declared("analyses"):
        with suppress(PluginError):
            load_into(_REGISTRY, addition, _made_in)
    return dict(sorted(_REGISTRY.items()))


def find_analysis(name: str) -> AnyAnalysis:
    """One analysis by name, imported from a plug-in where no other has it. Raises `UsageError` with the existing names, and
    `PluginError`.
    """
    if name not in _REGISTRY:
        _walk()
    if name not in _REGISTRY:
        for addition in adding("analyses", name)[:1]:
            load_into(_REGISTRY, addition, _made_in)
    if name not in _REGISTRY:
        names = {one: None for one, entry in sorted(_REGISTRY.items()) if not entry.derived}
        raise UsageError(
            "There is no such analysis.",
            expected=" ".join(sorted(names | {addition.name: None for addition in declared("analyses")})),
            got=quoted(name),
            remedy="Check the spelling; `circuitlab analyses` explains each of them.",
        )
    return _REGISTRY[name]


# one analysis of a name in each process: a request that travels finds its own there
copyreg.pickle(Analysis, lambda analysis: (find_analysis, (analysis.name,)))  # pyright: ignore[reportArgumentType]
