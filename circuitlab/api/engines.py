"""The engine of this process, and the one that has a model open."""

from __future__ import annotations

from weakref import WeakValueDictionary

from circuitlab.analysis.base import Result
from circuitlab.engine.engine import GIB, Engine
from circuitlab.engine.request import Answer
from circuitlab.engine.store import ModelStore
from circuitlab.model.subject import ModelRef

_ENGINE: Engine | None = None
_USED: WeakValueDictionary[ModelRef, Engine] = WeakValueDictionary()  # the engine that opened a model last


def engine() -> Engine:
    """The engine of this process, created on first use."""
    global _ENGINE
    if _ENGINE is None:
        _ENGINE = Engine(ModelStore(), 4 * GIB)
    return _ENGINE


def remember_engine(ref: ModelRef, host: Engine) -> None:
    """Answers about a model are exported with this engine from now on."""
    _USED[ref] = host


def engine_of(answer: Answer[Result]) -> Engine:
    """An engine that already has the answer's model open."""
    return _USED.get(answer.request.subject.model) or engine()
