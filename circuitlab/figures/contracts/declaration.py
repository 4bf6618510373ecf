"""The contract of a panel: a pair of pure functions, State -> Requests and (State, Answers) -> Figure, and a pick.

A panel is one file in `figures/panels` that ends in `PANEL = register(Panel(...))`. Menus, docks, shortcuts, controls,
persistence, export, the command line, Explain and the tests follow from that one registration. Why a panel is empty is drawn
here: `draw` is called only with answers, and reads each by its role and its analysis, which gives the result its type:

    def requests(state: State, facts: Facts) -> Requests | Why:
        return {"loss": Request(token_loss, TokenLossParams(), state.subject)}
    def draw(state: State, facts: Facts, answers: Answers) -> Figure:
        answer = answers.of("loss", token_loss)      # Answer[TokenLossResult]

What is drawn is of the answers, and the State may be newer than they are. Hence one rule for titles, axes, tips and headings:

- What was an input of the computation (a head that was asked for, a position, a target, the kind of activation) is taken from
  `answer.request` or the result, never from the State.
- The prompt and the interventions of the State that `draw` is given are those of its answers (`as_answered`), and the facts are
  of their model: answers of another model are not passed on. `state.tokens` and `destination(state)` may be named.
- What only points at a part of an answer (the head whose entry is read out of an answer to all heads, the row that is ringed)
  is taken from the State's selection and from the panel's controls, by the title and by the drawing alike.

Controls come from the fields of the panel's `view` dataclass: `bool` is a check box, `Literal` and `Choice` a drop-down,
`int` and `float` a number field, `str` a text field. Use `control(...)`:

    @dataclass(frozen=True)
    class AttentionView:
        show: Literal["pattern", "scores"] = control("pattern", label="Show", tip="…")
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NoReturn, Protocol

import numpy as np

from circuitlab.analysis.base import Result, Table
from circuitlab.engine.request import Answer, TableOf
from circuitlab.figures.contracts.facts import WITHOUT_LAYERS, Answers, Facts, Requests, Why
from circuitlab.figures.contracts.questions import Question, Questions
from circuitlab.figures.marks import Figure, Hit
from circuitlab.plugins import Plugin
from circuitlab.state.state import State

Area = Literal["left", "centre", "right", "bottom"]


class Drawing(Protocol):
    """How a registered panel draws: `now` and `ref` are answers by role, `asked` the questions that they answer."""

    def __call__(
        self,
        state: State,
        facts: Facts,
        now: Mapping[str, Answer[Result]],
        ref: Mapping[str, Answer[Result]],
        asked: Questions | None = None,
    ) -> Figure: ...


def _unregistered(*_: object, **__: object) -> NoReturn:
    raise NotImplementedError


@dataclass(frozen=True)
class Panel:
    """A registered panel.

    `requests(state, facts)` gives requests by role, or Why. `draw(state, facts, answers)` draws the answers (results may be
    partial) and is called once each role has one. `optional` names the roles it can draw without, "all" where any one answer
    is enough. `needs_tokens`: why it is empty where there is no text, "" where it asks something without one.
    `ask(state, facts)` is what everybody else calls: the registered panel's requests that the model allows, as one value; and
    `figure(state, facts, now, ref, asked)`: its figure beside its reference, or why it is empty. `ref` holds the answers on the
    reference pin, {} without one; `asked` saves asking again who has asked already.
    `pick(state, hit)` is the State after a gesture; it returns the same object where the gesture means nothing.
    `why_not(state, hit)` says why a gesture leads nowhere, or not as far as it was meant to; "" where there is nothing to say.
    `searches_tokens`: the panel has a search line for tokens, which picks one as `Hit("search", (id,))`.
    `opens_sweeps`: what it shows is what a sweep tabulates, and its menu opens the tables of one.
    `of_heads`: it has nothing to show on a model without layers; `lacks` then names what is missing, `instead` where to look.
    `opens` names the panel that a double-click on an item brings to the front, for a closer look at that item; a function where
    that depends on which item is chosen in the State.
    `table(state, answer)`: the numbers of an answer that are drawn, where it has those of other pages too; None for its own
    table. `leading(state, table)`: the rows of an answer's table of which a report shows some, by index, those that are drawn
    first.
    `reads`, `writes`: for controls that edit another part of the State than `views` (the parameters of a constructed model): the
    values they show, and the State after a change; `writes` raises `CircuitLabError` for impossible values.
    `plugin`: the plug-in that adds it, which its registration finds; None for one of CircuitLab's own.
    """

    name: str
    title: str
    view: type[Any]
    equation: str
    source: str
    help: str
    requests: Callable[[State, Facts], Requests | Why]
    pick: Callable[[State, Hit], State]
    draw: Callable[[State, Facts, Answers], Figure]
    ask: Callable[[State, Facts], Question] = _unregistered
    figure: Drawing = _unregistered
    why_not: Callable[[State, Hit], str] = lambda state, hit: ""
    optional: tuple[str, ...] | Literal["all"] = ()
    needs_tokens: str = ""
    area: Area = "centre"
    shortcut: str = ""
    order: int = 100
    opens: str | Callable[[State], str] = ""
    searches_tokens: bool = False
    opens_sweeps: bool = False
    of_heads: bool = False
    lacks: str = "heads"
    instead: str = "Bigram has the table of what follows each token"
    table: Callable[[State, Answer], Table | None] | None = None
    leading: Callable[[State, Table], np.ndarray] | None = None
    reads: Callable[[State], object] | None = None
    writes: Callable[[State, Any], State] | None = None
    plugin: Plugin | None = None

    @property
    def without_layers(self) -> str:
        """Why it is empty on a model without layers, and where to look."""
        return f"{WITHOUT_LAYERS} {self.lacks}: {self.instead}."

    def draws_with(self, requests: Collection[str], roles: Collection[str]) -> bool:
        """Whether it can draw with answers in these `roles` of those that it requests."""
        return all(role in roles or not self.requires(role) for role in requests) and (not requests or len(roles) > 0)

    def requires(self, role: str) -> bool:
        """Whether it draws nothing without an answer in this role."""
        return self.optional != "all" and role not in self.optional

    def drawn_table(self, state: State) -> TableOf | None:
        """The table of an answer of which it draws a part; None where answers' own tables are drawn."""
        return None if self.table is None else partial(self.table, state)

    def leads_to(self, state: State) -> str:
        """The panel that a double-click on an item brings to the front; "" for none."""
        return self.opens if isinstance(self.opens, str) else self.opens(state)

    def controls(self, state: State) -> Any:
        """What the controls show."""
        return state.view(self.name, self.view) if self.reads is None else self.reads(state)

    def controlled(self, state: State, view: object) -> State:
        """The State after a change of the controls. Raises `CircuitLabError` for impossible values."""
        return state.with_view(self.name, view) if self.writes is None else self.writes(state, view)


def control(
    default: object,
    *,
    label: str,
    tip: str = "",
    low: float | None = None,
    high: float | None = None,
    hidden: bool = False,
    when: str = "",
    values: tuple[object, ...] = (),
    kind: Literal["", "slider", "tabs", "file", "models"] = "",
    only: Callable[[Facts], bool] | None = None,
    also: Callable[[Any], bool] | None = None,
    step: float | None = None,
    typed: tuple[float, float] | None = None,
) -> Any:
    """A field of a View with the metadata of its control.

    `when` names another field on which this one depends: it is shown where that is true, or one of `values`; `also` tests the
    whole view. `kind`: a number with a slider, choices as a row of buttons, a text that names a file, one that lists models.
    `only`: the models for which it is shown. `step`: between the values of a slider; `typed`: the limits of a number typed beside
    it.
    """
    metadata = {"label": label, "tip": tip, "low": low, "high": high, "step": step, "typed": typed, "kind": kind}
    metadata |= {"hidden": hidden, "when": when, "values": values, "only": only, "also": also}
    return field(default=default, metadata=metadata)
