"""The State that a window, or a new session in it, starts with."""

from __future__ import annotations

import logging
import math
from typing import Any

from circuitlab.engine.store import ModelStore, OpenModel
from circuitlab.errors import CircuitLabError, reason
from circuitlab.gui.docks.prompt import samples
from circuitlab.model.config import ModelConfig
from circuitlab.model.files.strict_json import read_object
from circuitlab.model.subject import Head, ModelRef
from circuitlab.session_files.work import Work
from circuitlab.state.model_change import state_on
from circuitlab.state.state import State

log = logging.getLogger("circuitlab.main")


def first_state(ref: ModelRef, text: str | None) -> State:
    """The State a window starts with."""
    return State(ref, text=samples()[0][1] if text is None else text)


def fresh_state(model: OpenModel, text: str | None = None) -> State:
    """The first State on an open model: the sample text, or `text`, and an induction head where one is known."""
    return looking_at_induction(model, state_on(model, first_state(model.ref, text), None))


def fresh_work(store: ModelStore, ref: ModelRef) -> Work:
    """The work of a new session. Opens the model where it is closed."""
    return Work(fresh_state(store.open(ref)))


def looking_at_induction(model: OpenModel, state: State) -> State:
    """The first State with an induction head selected: the head of the highest stored prefix-matching score, at a repeat."""
    file = model.path / "metrics.json"
    if not file.is_file():
        return state
    try:
        head = _best_head(read_object(file), model.opened.weights.config)
    except (CircuitLabError, LookupError, TypeError, ValueError) as error:
        log.warning("%s is not used: %s", file, reason(error))
        return state
    if head is None:  # without layers there are no heads
        return state
    last = len(state.tokens) - 1
    return state.select(heads=(head,), destination=last if last > 0 else None, locked=last > 0)


def _best_head(metrics: dict[str, Any], config: ModelConfig) -> Head | None:
    """The head of the largest finite prefix-matching score, None where there are none. Raises `LookupError` for absent heads."""
    scores = metrics["heads"]["prefix_matching"]
    if len(scores) != config.n_layers or any(len(row) != config.n_heads for row in scores):
        raise LookupError(f"scores of heads that are not the model's {config.n_layers} × {config.n_heads}")
    ranked = [(float(v), Head(i, h)) for i, row in enumerate(scores) for h, v in enumerate(row) if math.isfinite(v)]
    return max(ranked)[1] if ranked else None
