"""The registry of panels, and the names that a panel's module imports to declare itself."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

from circuitlab.caption_parts import Essential
from circuitlab.engine.request import Answer
from circuitlab.errors import Refused, UsageError
from circuitlab.figures.contracts.about import labelled_figure
from circuitlab.figures.contracts.declaration import Panel, control
from circuitlab.figures.contracts.facts import WITHOUT_HEADS, WITHOUT_LAYERS, Answers, Facts, Requests, Why, as_answered, facts_of
from circuitlab.figures.marks import Figure, Heatmap, empty
from circuitlab.session.state import State

__all__ = [
    "WITHOUT_HEADS", "WITHOUT_LAYERS", "Answers", "Facts", "Panel", "Requests", "Why", "control", "facts_of", "find_panel",
    "panels", "register",
]  # fmt: skip

_REGISTRY: dict[str, Panel] = {}


def _allowed(panel: Panel, state: State, facts: Facts) -> tuple[Requests | Why, tuple[str, ...]]:
    """What the panel requests of that which the open model allows, or why this is too little to draw; and what is refused.

    A request that an analysis refuses is dropped where the panel draws without its role; nothing is computed to find out.
    """
    if panel.of_heads and not facts.config.n_layers:
        return Why(panel.without_layers), ()
    requests = panel.requests(state, facts)
    if isinstance(requests, Why) or not (reasons := _refusals(requests, state, facts)):
        return requests, ()
    allowed = {role: request for role, request in requests.items() if role not in reasons}
    if panel.draws_with(requests, allowed):
        return allowed, tuple(dict.fromkeys(reasons.values()))
    required = (reason for role, reason in reasons.items() if panel.requires(role))
    return Why(next(required, next(iter(reasons.values())))), ()


def _refusals(requests: Requests, state: State, facts: Facts) -> dict[str, str]:
    """By role: why an analysis refuses a request to the open model. Those to other models have another configuration."""
    of_model = {role: request for role, request in requests.items() if request.subject.model == state.model}
    reasons = {role: request.analysis.refuse(facts.config, request.params) for role, request in of_model.items()}
    return {role: Refused(reason).what for role, reason in reasons.items() if reason is not None}


def _requests(panel: Panel, state: State, facts: Facts) -> Requests | Why:
    return _allowed(panel, state, facts)[0]


def _figure(panel: Panel, state: State, facts: Facts, now: Mapping[str, Answer[Any]], ref: Mapping[str, Answer[Any]]) -> Figure:
    """What the panel draws of its answers, or why there is nothing to draw; answers of another model count as none."""
    state = as_answered(state, now)
    requests, refused = _allowed(panel, state, facts)
    if isinstance(requests, Why):
        return empty(requests.text, panel.title)
    of_model = lambda role: role in now and now[role].request.subject.model == requests[role].subject.model
    answers = Answers({role: now[role] for role in requests if of_model(role)})
    if not panel.draws_with(requests, answers):
        return Figure(title=panel.title)
    figure = _without_empty_maps(panel, facts, panel.draw(state, facts, answers))
    return figure.with_caption(*(Essential(f"not computed: {reason}") for reason in refused)) if figure.grid else figure


def _without_empty_maps(panel: Panel, facts: Facts, figure: Figure) -> Figure:
    """The figure without empty heatmaps, those of a model without layers, which cannot be drawn."""
    drawable = tuple(tuple(m for m in row if not (isinstance(m, Heatmap) and m.values.size == 0)) for row in figure.grid)
    if drawable == figure.grid:
        return figure
    rows = tuple(i for i, row in enumerate(drawable) if row)
    if not rows:
        return empty(panel.without_layers if not facts.config.n_layers else "There is nothing to draw here.", panel.title)
    weights = tuple(figure.weights[i] for i in rows) if figure.weights else ()
    return replace(figure, grid=tuple(drawable[i] for i in rows), weights=weights)


def register(panel: Panel) -> Panel:
    """Add a panel to the registry.

    The registered panel's figure is drawn beside the reference pin where there is one and names what it is of; where an analysis
    refuses a request, the panel draws without it and its caption gives the reason, or is empty for that reason.
    """
    if panel.name in _REGISTRY:
        raise ValueError(f"two panels are called {panel.name}")
    allowed = replace(panel, requests=partial(_requests, panel), figure=partial(_figure, panel))
    registered = replace(allowed, figure=partial(labelled_figure, allowed))
    _REGISTRY[panel.name] = registered
    return registered


@cache
def _walk() -> None:
    import circuitlab.figures.panels as package

    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)


def panels() -> dict[str, Panel]:
    """Every registered panel by name, in their order, found by walking `figures/panels`."""
    _walk()
    return dict(sorted(_REGISTRY.items(), key=lambda item: (item[1].order, item[0])))


def find_panel(name: str) -> Panel:
    """One panel by name. Raises `UsageError` with all names."""
    if name in _REGISTRY:
        return _REGISTRY[name]
    every = panels()
    if name not in every:
        raise UsageError("There is no such panel.", expected=" ".join(every), got=repr(name))
    return every[name]
