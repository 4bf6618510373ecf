"""Panels of plug-ins: what stands before their functions, and what stands in for one that is not imported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from circuitlab.analysis.base import Table
from circuitlab.figures.contracts.declaration import Panel
from circuitlab.figures.contracts.facts import Why
from circuitlab.figures.marks import Figure
from circuitlab.plugins import Plugin, guarded
from circuitlab.state.state import State

SECONDS = 5.0  # that a panel may take to ask, to draw or to answer a gesture: the window waits for it


@dataclass(frozen=True)
class NoView:
    """The controls of a panel that is not imported: none."""


def guarded_panel(panel: Panel, plugin: Plugin) -> Panel:
    """The panel of a plug-in, whose faults name it, and which is given up once it keeps the window waiting."""
    sure: Callable[..., Any] = lambda call, kinds=object: guarded(plugin, f"the panel {panel.name}", call, kinds, SECONDS)
    optional: dict[str, object] = {name: sure(call) for name in ("leading", "reads", "writes") if (call := getattr(panel, name))}
    return replace(
        panel,
        requests=sure(panel.requests, (dict, Why)),
        draw=sure(panel.draw, Figure),
        pick=sure(panel.pick, State),
        why_not=sure(panel.why_not, str),
        opens=panel.opens if isinstance(panel.opens, str) else sure(panel.opens, str),
        table=None if panel.table is None else sure(panel.table, (Table, type(None))),
        plugin=plugin,
        **optional,
    )


def stand_in(name: str, plugin: str, why: str) -> Panel:
    """In the place of a plug-in's panel: it draws `why` it is not there. `plugin`: the name and version of that plug-in."""
    return Panel(
        name=name,
        title=name.replace("_", " ").capitalize(),
        view=NoView,
        equation="",
        source=plugin,
        help=why,
        requests=lambda state, facts: Why(why),
        draw=lambda state, facts, answers: Figure(),
        pick=lambda state, hit: state,
        area="centre",
        order=1000,
    )


def absent(plugin: str) -> str:
    """Why a session's panel is not there. `plugin`: the name and version that the session says."""
    do = "Install it, or name its file with --plugin, and start the window anew; its settings stay in the session."
    return f"This panel is of the plug-in {plugin}, which is not here. {do}"
