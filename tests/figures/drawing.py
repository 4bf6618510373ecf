"""A panel's figure where a state stands, with another choice of its own if need be."""

from __future__ import annotations

from typing import Any

from circuitlab.engine.engine import Engine
from circuitlab.figures.contracts.panel import find_panel
from circuitlab.figures.marks import Figure
from circuitlab.report.render import figure_of
from circuitlab.state.state import State


def drawn(engine: Engine, state: State, name: str, view: Any = None) -> Figure:
    return figure_of(engine, find_panel(name), state if view is None else state.with_view(name, view))
