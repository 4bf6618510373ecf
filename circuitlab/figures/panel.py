"""The contract of a panel: a pair of pure functions, State -> Requests and (State, Answers) -> Figure, and a pick.

A panel is one file in this package that ends in `PANEL = register(Panel(...))`. Menus, docks, shortcuts, controls,
persistence, export, the command line, Explain and the tests follow from that one registration.

Controls come from the fields of the panel's `view` dataclass: `bool` is a check box, `Literal` and `Choice` a drop-down,
`int` and `float` a number field (a slider where `low` and `high` are given), `str` a text field. Use `control(...)`:

    @dataclass(frozen=True)
    class AttentionView:
        show: Literal["pattern", "scores"] = control("pattern", label="Show", tip="…")
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Answer, Request
from circuitlab.errors import UsageError
from circuitlab.figures.marks import Figure, Hit
from circuitlab.model.subject import ModelRef
from circuitlab.session.state import State

Area = Literal["left", "centre", "right", "bottom"]


@dataclass(frozen=True)
class Why:
    """Why a panel asks for nothing: one sentence with what to do next."""

    text: str


@dataclass(frozen=True)
class Facts:
    """What a panel may know of the open model without asking: handed to `requests` and `figure` by whoever runs them.

    `token_text(id)` is the display form of a token (visible spaces and newlines), `config` the model's, `name` its title.
    """

    name: str
    config: Any
    token_text: Callable[[int], str]
    has_tokenizer: bool = True
    has_bos: bool = False
    notes: tuple[str, ...] = ()

    def tokens(self, ids: tuple[int, ...]) -> tuple[str, ...]:
        """Display texts of a prompt."""
        return tuple(map(self.token_text, ids))


def facts_of(engine: Engine, ref: ModelRef) -> Facts:
    """The facts of a model, which is opened if it is not. Raises what opening it raises."""
    opened = engine.store.open(ref).opened
    tokenizer = opened.weights.tokenizer
    return Facts(
        name=ref.name,
        config=opened.weights.config,
        token_text=tokenizer.display if tokenizer is not None else str,
        has_tokenizer=tokenizer is not None,
        has_bos=tokenizer is not None and tokenizer.bos is not None,
        notes=opened.notes,
    )


Requests = Mapping[str, Request]
Answers = Mapping[str, Answer]


@dataclass(frozen=True)
class Panel:
    """A registered panel.

    `requests(state, facts)` gives requests by role, or Why. `figure(state, facts, now, ref)` draws what has been answered so
    far (roles may be missing, results may be partial); `ref` holds the answers on the reference pin, {} without one.
    `pick(state, hit)` is the State after a gesture; it returns the same object where the gesture means nothing.
    `opens` names the panel that a double-click on an item brings to the front: where that item is read closely.
    """

    name: str
    title: str
    view: type[Any]
    equation: str
    source: str
    help: str
    requests: Callable[[State, Facts], Requests | Why]
    figure: Callable[[State, Facts, Answers, Answers], Figure]
    pick: Callable[[State, Hit], State]
    area: Area = "centre"
    shortcut: str = ""
    order: int = 100
    opens: str = ""


def control(
    default: Any,
    *,
    label: str,
    tip: str = "",
    low: float | None = None,
    high: float | None = None,
    hidden: bool = False,
    when: str = "",
) -> Any:
    """A field of a View with what its control needs. `when`: the bool field without which it has nothing to say."""
    said = {"label": label, "tip": tip, "low": low, "high": high, "hidden": hidden, "when": when}
    return field(default=default, metadata=said)


_REGISTRY: dict[str, Panel] = {}


def register(panel: Panel) -> Panel:
    """Add a panel to the registry."""
    if panel.name in _REGISTRY:
        raise ValueError(f"two panels are called {panel.name}")
    _REGISTRY[panel.name] = panel
    return panel


def panels() -> dict[str, Panel]:
    """Every registered panel by name, in their order, found by walking this package."""
    import circuitlab.figures as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return dict(sorted(_REGISTRY.items(), key=lambda item: (item[1].order, item[0])))


def find_panel(name: str) -> Panel:
    """One panel by name. Raises `UsageError` with the names there are."""
    if name in _REGISTRY:
        return _REGISTRY[name]
    known = panels()
    if name not in known:
        raise UsageError("There is no such panel.", expected=" ".join(known), got=repr(name))
    return known[name]
