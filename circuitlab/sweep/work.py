"""Answering the cells of a sweep: the same function in this process, in others, and on a cluster.

A worker has one engine, and so opens the weights of a model once. Orders go to it and outcomes come back; what is written, the
parent writes. Every answer is computed in all its parts and reuses no other prompt's prefix, so that it is the same bit for bit
whatever was asked before and wherever; the analyses of one prompt share its forward pass, which is the same for each of them.
"""

from __future__ import annotations

import os
import platform
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from circuitlab.analysis.base import Ctx, NullContext, Result
from circuitlab.disk.json_types import JsonDict
from circuitlab.engine.cache import Cache
from circuitlab.engine.codec import to_json
from circuitlab.engine.engine import Engine, use_threads
from circuitlab.engine.export_data import export_of, npz_bytes
from circuitlab.engine.request import Answer, Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, BadMachine, BadModel, Cancelled, CircuitLabError, OverBudget, Refused, UsageError
from circuitlab.errors import reason as in_a_line
from circuitlab.sweep.measures import measured, to_line
from circuitlab.sweep.shelf import within_reach

DONE, REFUSED, FAILED = "done", "refused", "failed"
_REFUSALS = (Refused, BadInput, UsageError, OverBudget, BadModel)


@dataclass(frozen=True, eq=False)
class Order:
    """One cell to be answered. `weights`: the sha256 that its model was planned with; `metrics`, `arrays`: what is kept."""

    key: str
    request: Request[Result]
    weights: str
    metrics: tuple[str, ...] = ()
    arrays: bool = False


@dataclass(frozen=True, eq=False)
class Outcome:
    """A finished cell. `line`: as the journal has it; `arrays`: the answer as an NPZ file, b"" where it is not kept."""

    line: JsonDict = field(default_factory=dict)
    arrays: bytes = b""


@dataclass(frozen=True)
class Machine:
    """What a worker computes with: its share of the memory budget in bytes, the device, the threads; `shelf`: a folder of models
    by their weights, for what it does not have itself (`shelf.py`).
    """

    memory: int
    device: str = "cpu"
    threads: int = 1
    shelf: Path | None = None

    def engine(self) -> Engine:
        """An engine of its own. Raises `BadMachine` for the device."""
        use_threads(self.threads)
        return Engine(ModelStore(), self.memory, self.device)


def outcomes(engine: Engine, orders: Iterable[Order], ctx: Ctx | None = None, shelf: Path | None = None) -> Iterator[Outcome]:
    """The outcome of each order, in turn; an error is the outcome of its own order alone. Raises `Cancelled`."""
    cache = Cache(engine.memory // 4)  # of these orders alone: in the engine's own, passes begin from other prompts' prefixes
    for order in orders:
        request = within_reach(order.request, order.weights, shelf, engine.store)
        yield outcome(engine, cache, replace(order, request=request), ctx or NullContext())


def outcome(engine: Engine, cache: Cache, order: Order, ctx: Ctx) -> Outcome:
    """One cell answered. Raises `Cancelled`, `KeyboardInterrupt`, and `BadMachine`, which would befall every other one, too."""
    head = {"cell": order.key, "analysis": order.request.analysis.name}
    try:
        answer = engine.identified(engine.answer_in(cache, order.request, ctx))
        _same_weights(order, answer)
        config = engine.store.open(order.request.subject.model).opened.weights.config
        measures = measured(order.request.analysis.name, answer.result, config, order.metrics)
        arrays = npz_bytes(export_of(engine, answer)) if order.arrays else b""
    except (Cancelled, BadMachine):
        raise
    except _REFUSALS as error:
        return Outcome({**head, **refusal(error)})
    except Exception as error:
        return Outcome({**head, **_failure(error)})
    line = {**head, "status": DONE, "metrics": [to_line(one) for one in measures], **_about(answer)}
    return Outcome(line, arrays)


def _same_weights(order: Order, answer: Answer[Result]) -> None:
    if order.weights and answer.provenance.weights != order.weights:
        raise BadModel(
            "The model's weights have changed since this sweep was begun.",
            expected=f"sha256 {order.weights[:12]}…",
            got=f"{answer.provenance.weights[:12]}…",
            remedy="Run the same command again: it asks of the model as it is now.",
        )


def _about(answer: Answer[Result]) -> JsonDict:
    """What is said of an answer beside its numbers."""
    origin, result = answer.provenance, answer.result
    weight = getattr(result, "weight", None)
    return {
        "weight": None if weight is None else float(weight),
        "conventions": [str(word) for word in result.conventions],
        "remainder": None if result.remainder is None else to_json(result.remainder),
        "seconds": round(origin.seconds, 6),
        "versions": [list(pair) for pair in origin.versions],
        "threads": origin.threads,
        "device": origin.device,
        "worker": f"{platform.node()}:{os.getpid()}",
    }


def refusal(error: CircuitLabError) -> JsonDict:
    """What a line says of a cell that cannot be answered: the sentence, what was expected and what came."""
    but = f" (expected {error.expected}, got {error.got})" if error.expected and error.got else ""
    return {"status": REFUSED, "error": f"{error.what.rstrip('.')}{but}."}


def _failure(error: Exception) -> JsonDict:
    """What a line says of a cell in which the program went wrong: with where, for whoever mends it."""
    where = traceback.format_tb(error.__traceback__)[-1].strip().splitlines()[0] if error.__traceback__ else ""
    return {"status": FAILED, "error": in_a_line(error), "where": where.rpartition(os.sep)[2]}


# -- in a process of its own ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _engine_of(machine: Machine) -> Engine:
    return machine.engine()


def work(machine: Machine, orders: tuple[Order, ...]) -> list[Outcome]:
    """The outcomes of these orders, by the engine of this process, which is made at the first call."""
    return list(outcomes(_engine_of(machine), orders, shelf=machine.shelf))
