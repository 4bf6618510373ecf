"""What analyses say that they cost beside what they do: the operations of matrix products and of spectra, counted as they run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from circuitlab.analysis.base import AnyAnalysis, analyses
from circuitlab.analysis.cost import EIGENVALUES, SPECTRUM, one_run
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.model.subject import ModelRef, Subject

MODELS = ("attn-only-2l", "gpt-mini")
TOKENS = (*range(5, 29), 7, 8, 9)
OTHER = (TOKENS[0], 99, *TOKENS[2:])
MOST = 3.0  # times, in either direction
# Of which file, analysis or prompt, a person says: what is counted is one way of asking.
ASKED: dict[str, dict[str, Any]] = {"patching": {"source": OTHER}, "path_patching": {"source": OTHER}}


class InTurn:
    """A pool of threads that works where it is asked, so that what it does is counted."""

    def __init__(self, n: int) -> None: ...

    def __enter__(self) -> InTurn:
        return self

    def __exit__(self, *of: object) -> None: ...

    def submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(*args))
        return done


def _solving(times: float) -> Callable[..., int]:
    """Of matrices [..., m, n]: `times` the operations n³ of each."""
    return lambda shape, *args, **more: int(times * torch.Size(shape[:-2]).numel() * max(shape[-2:]) * min(shape[-2:]) ** 2)


SOLVED = {
    torch.ops.aten.linalg_eigvals: _solving(EIGENVALUES),
    torch.ops.aten._linalg_eigh: _solving(SPECTRUM),
    torch.ops.aten._linalg_svd: _solving(2 * SPECTRUM),
}


def counted(engine: Engine, request: Request, monkeypatch: pytest.MonkeyPatch) -> float:
    """Operations of answering it, with all that it asks of others."""
    monkeypatch.setattr("circuitlab.analysis.spectra.pair_positivity.ThreadPoolExecutor", InTurn)
    with FlopCounterMode(display=False, custom_mapping=SOLVED) as counter:
        engine.answer(request)
    return float(counter.get_total_flops())


def own() -> list[AnyAnalysis]:
    return [one for one in analyses().values() if one.plugin is None]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("one", [pytest.param(one, id=one.name) for one in own()])
def test_what_it_costs_is_what_is_counted_within_a_factor_of_three(
    one: AnyAnalysis, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that declares nothing takes at most about the run that is estimated for it."""
    engine, ref = Engine(ModelStore()), ModelRef(f"builtin:{model}")
    config = engine.store.open(ref).opened.weights.config
    params = replace(one.params(), **ASKED.get(one.name, {}))
    if one.refuse(config, params) is not None:
        return
    said = one.cost(config, len(TOKENS), params)
    done = counted(engine, Request.named(one.name, params, Subject(ref, TOKENS)), monkeypatch)
    assert done <= said * MOST, f"{one.name} says {said:.2g} and does {done:.2g}: {said / done:.2f} of it"
    assert said <= done * MOST or one.cost is one_run, f"{one.name} says {said:.2g} and does {done:.2g}: {said / done:.2f} of it"
