"""The registry of panels, and the names that a panel's module imports to declare itself."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any

from circuitlab.analysis.base import Result
from circuitlab.caption_parts import Essential
from circuitlab.engine.request import Answer
from circuitlab.errors import PluginError, Refused, UsageError, quoted
from circuitlab.figures.contracts.about import labelled_figure
from circuitlab.figures.contracts.declaration import Panel, control
from circuitlab.figures.contracts.facts import (
    WITHOUT_HEADS,
    WITHOUT_LAYERS,
    Answers,
    Facts,
    Requests,
    Why,
    as_answered,
    edits_read,
    facts_of,
    under,
)
from circuitlab.figures.contracts.plugin_panels import guarded_panel
from circuitlab.figures.contracts.questions import Question, Questions
from circuitlab.figures.marks import Figure, Heatmap, empty
from circuitlab.plugins import adding, declared, owner
from circuitlab.plugins.registering import load_into
from circuitlab.state.state import State

__all__ = [
    "WITHOUT_HEADS", "WITHOUT_LAYERS", "Answers", "Facts", "Panel", "Requests", "Why", "control", "facts_of", "find_panel",
    "find_panels", "in_contract", "panels", "register", "view_types", "with_plugins",
]  # fmt: skip

_REGISTRY: dict[str, Panel] = {}


def _ask(panel: Panel, state: State, facts: Facts) -> Question:
    """What the panel requests of that which the open model allows, or why this is too little to draw; and what is refused.

    A request that an analysis refuses is dropped where the panel draws without its role; nothing is computed to find out.
    """
    question = partial(Question, state, facts)
    if panel.of_heads and not facts.config.n_layers:
        return question(Why(panel.without_layers))
    if panel.needs_tokens and not state.tokens:
        return question(Why(panel.needs_tokens))
    requests = panel.requests(state, facts)
    if isinstance(requests, Why) or not (reasons := _refusals(requests, state, facts)):
        return question(requests)
    allowed = {role: request for role, request in requests.items() if role not in reasons}
    if panel.draws_with(requests, allowed):
        return question(allowed, tuple(dict.fromkeys(reasons.values())))
    required = (reason for role, reason in reasons.items() if panel.requires(role))
    return question(Why(next(required, next(iter(reasons.values())))))


def _refusals(requests: Requests, state: State, facts: Facts) -> dict[str, str]:
    """By role: why an analysis refuses a request to the open model. Those to other models have another configuration."""
    of_model = {role: request for role, request in requests.items() if request.subject.model == state.model}
    reasons = {role: request.analysis.refuse(facts.config, request.params) for role, request in of_model.items()}
    return {role: Refused(reason).what for role, reason in reasons.items() if reason is not None}


def _requests(panel: Panel, state: State, facts: Facts) -> Requests | Why:
    return _ask(panel, state, facts).requests


def _figure(
    panel: Panel,
    state: State,
    facts: Facts,
    now: Mapping[str, Answer[Result]],
    ref: Mapping[str, Answer[Result]],
    asked: Questions | None = None,
) -> Figure:
    """What the panel draws of its answers, or why there is nothing to draw; answers of another model count as none.

    `asked`: in this State, but for what it is compared with, which no panel asks about.
    """
    answered = as_answered(state, now)
    question = asked.now if asked is not None and answered is state else _ask(panel, answered, facts)
    state, requests = answered, question.requests
    if isinstance(requests, Why):
        return empty(requests.text, panel.title)
    of_model = lambda role: role in now and now[role].request.subject.model == requests[role].subject.model
    answers = Answers({role: now[role] for role in requests if of_model(role)})
    if not panel.draws_with(requests, answers):
        return Figure(title=panel.title)
    figure = _without_empty_maps(panel, facts, panel.draw(under(state, edits_read(answers)), facts, answers))
    return figure.with_caption(*(Essential(f"not computed: {reason}") for reason in question.refused)) if figure.grid else figure


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
    plugin = owner(panel.draw.__module__)
    if plugin is not None:
        _walk()  # of two panels of one name CircuitLab's own stays
        panel = guarded_panel(panel, plugin)
    if panel.name in _REGISTRY:
        raise ValueError(f"two panels are called {panel.name}")
    registered = _REGISTRY[panel.name] = in_contract(panel)
    return registered


def in_contract(panel: Panel) -> Panel:
    """The panel as everybody else has it, with its figure, without a place in the registry."""
    allowed = replace(panel, ask=partial(_ask, panel), requests=partial(_requests, panel), figure=partial(_figure, panel))
    return replace(allowed, figure=partial(labelled_figure, allowed))


@cache
def _walk() -> None:
    import circuitlab.figures.panels as package

    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)


def panels() -> dict[str, Panel]:
    """Every registered panel by name, in their order, found by walking `figures/panels`; of plug-ins those that are imported."""
    _walk()
    return dict(sorted(dict(_REGISTRY).items(), key=lambda item: (item[1].order, item[0])))


def with_plugins(names: Collection[str] | None = None) -> dict[str, Panel]:
    """Every panel, after the import of those of plug-ins with one of these `names`; None: of all.

    A plug-in that fails is left out, and among `plugins.failures()`.
    """
    _walk()
    for addition in declared("panels"):
        if names is None or addition.name in names:
            with suppress(PluginError):
                load_into(_REGISTRY, addition, _made_in)
    return panels()


def _made_in(panel: Panel) -> str:
    return panel.draw.__module__


class _ViewTypes(Mapping[str, type[Any]]):
    """Of the panels that are registered whenever it is asked: one more, once a plug-in is imported."""

    def __getitem__(self, name: str) -> type[object]:
        return panels()[name].view

    def __iter__(self) -> Iterator[str]:
        return iter(panels())

    def __len__(self) -> int:
        return len(panels())


def view_types() -> Mapping[str, type[object]]:
    """The type of each panel's controls, by the panel's name, now and later."""
    return _ViewTypes()


def find_panel(name: str) -> Panel:
    """One panel by name, imported from a plug-in where no other has it. Raises `UsageError` with all names, `PluginError`."""
    if name not in _REGISTRY:
        _walk()
    if name not in _REGISTRY:
        for addition in adding("panels", name)[:1]:
            load_into(_REGISTRY, addition, _made_in)
    if name not in _REGISTRY:
        raise UsageError(
            "There is no such panel.",
            expected=" ".join(dict.fromkeys([*panels(), *(addition.name for addition in declared("panels"))])),
            got=quoted(name),
            remedy="Check the spelling; `circuitlab panels` explains each of them.",
        )
    return _REGISTRY[name]


def find_panels(names: Sequence[str]) -> tuple[Panel, ...]:
    """Panels by name, in this order. Raises `UsageError` for one that there is not, or that is named twice."""
    panels_named = tuple(map(find_panel, names))
    if twice := [name for name in dict.fromkeys(names) if list(names).count(name) > 1]:
        got = " ".join(names)[:200]
        raise UsageError("A panel is named twice.", expected=f"{twice[0]} once", got=got, remedy="Name it once, or another one.")
    return panels_named
