"""Every panel drawn from stored results on a machine without the model: the same marks, and it says that they are stored."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from circuitlab.engine.engine import Engine
from circuitlab.engine.ghost import ghost, ghost_members
from circuitlab.engine.request import STORED_WORDS, Answer
from circuitlab.engine.store import ModelStore
from circuitlab.engine.stored_answer import read_stored, stored_bytes
from circuitlab.errors import BadInput
from circuitlab.figures.contracts.panel import Why, facts_of, panels
from circuitlab.figures.marks import Figure, Rows
from circuitlab.figures.panels.prompt_sets.panel import PromptSetsView
from circuitlab.model.subject import Head, ModelRef
from circuitlab.report.render import figure_of
from circuitlab.state.state import Compare, Pin, State
from tests.figures.test_shipped_walk import views
from tests.figures.test_training_panel import measures
from tests.models import FULL, directory
from tests.same import check_same
from tests.series_files import lay_beside

TOKENS = (0, 98, 99, 98, 100, 98, 99)
ASK_NOTHING = ("laboratory", "patching")  # of a trained model; without a pin
MACHINE = "memory"  # the group of rows that tell of this machine


class Asked(Engine):
    """An engine that keeps what it has answered."""

    def __init__(self) -> None:
        super().__init__(ModelStore())
        self.answers: list[Answer] = []

    def answer(self, request: Any, ctx: Any = None, fresh: bool = False) -> Any:
        self.answers.append(super().answer(request, ctx, fresh))
        return self.answers[-1]


@dataclass
class Machines:
    """One with the model, whose figures were drawn, and one without it, where its answers are read from bytes."""

    live: Asked
    state: State


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Machines:
    folder = directory(tmp_path_factory.mktemp("here") / "toy", FULL, n_ctx=128)
    lay_beside(folder, measures(), weights=True)
    state = State(ModelRef(f"file:{folder}")).with_tokens(TOKENS).select(heads=(Head(1, 1),), destination=5)
    prompts = folder.parent / "prompts.tsv"
    prompts.write_text("ab ab\ta\tb\nba ba\tb\ta\n", encoding="utf-8")
    return Machines(Asked(), state.with_view("prompt_sets", PromptSetsView(prompts="a file", file=str(prompts))))


def without_model(machines: Machines) -> tuple[Engine, ModelRef]:
    """An engine on another machine, which holds what the other one has answered since."""
    ref, elsewhere = machines.state.model, ModelRef("file:/not/there/toy")
    model, engine = machines.live.store.open(ref), Engine(ModelStore())
    engine.store.place(ghost(elsewhere, ghost_members(model), machines.live.store.sha256(ref)))
    data = [stored_bytes(machines.live.identified(answer), {ref: "toy"}) for answer in machines.live.answers]
    engine.hold([read_stored(one, lambda name: {"toy": elsewhere}[name]) for one in data])
    return engine, elsewhere


def drawn(engine: Engine, name: str, state: State) -> Figure:
    panel = panels()[name]
    if isinstance(panel.requests(state, facts := facts_of(engine, state.model)), Why):
        return panel.figure(state, facts, {}, {})
    return figure_of(engine, panel, state)


def of_the_model(figure: Figure) -> Figure:
    """The figure without the rows that tell of the machine that it is drawn on."""
    ((mark,),) = figure.grid
    assert isinstance(mark, Rows)
    names = mark.columns[0].values.tolist()
    start = names.index(MACHINE)
    stop = next(i for i in range(start + 1, len(names)) if names[i] and not names[i][0].isspace())
    keep = np.array([i for i in range(len(names)) if not start <= i < stop])
    columns = tuple(replace(c, values=c.values[keep]) for c in mark.columns)
    return replace(figure, grid=((replace(mark, columns=columns, ids=np.arange(len(keep))[:, None]),),))


def check_figures(name: str, live: Figure, other: Figure, answered: bool) -> None:
    if name == "model":
        live, other = of_the_model(live), of_the_model(other)
    check_same(other.grid, live.grid, name)
    assert (other.title, other.about, other.why_empty) == (live.title, live.about, live.why_empty)
    said = [part for part in other.caption_parts if re.fullmatch(rf"(partly )?{STORED_WORDS}", part)]
    assert len(said) == answered
    assert [part for part in other.caption_parts if part not in said] == list(live.caption_parts)


@pytest.mark.parametrize("name", panels())
def test_a_panel_draws_the_same_marks_without_the_model(machines: Machines, name: str) -> None:
    """On every page; where a page says why it is empty, it says the same."""
    own = machines.state.view(name, panels()[name].view)
    for view in dict.fromkeys((own, *views(panels()[name]))):
        state = machines.state.with_view(name, view)
        machines.live.answers.clear()
        try:
            live = drawn(machines.live, name, state)
        except BadInput:  # no file is chosen, a text does not fit this model
            continue
        assert machines.live.answers or name in ASK_NOTHING or live.why_empty
        engine, elsewhere = without_model(machines)
        check_figures(name, live, drawn(engine, name, replace(state, model=elsewhere)), bool(machines.live.answers))
        assert view != own or machines.live.answers or name in ASK_NOTHING


@pytest.mark.parametrize("compare", ["difference", "now"])
@pytest.mark.parametrize("name", ["attention", "predictions", "composition", "patching"])
def test_a_comparison_is_drawn_the_same(machines: Machines, name: str, compare: Compare) -> None:
    def pinned(ref: ModelRef) -> State:
        pin = Pin("before", replace(machines.state.subject, model=ref, tokens=(0, 98, 99, 98, 100, 99, 99)))
        return replace(machines.state, model=ref, pins=(pin,), compare=compare)

    machines.live.answers.clear()
    live = drawn(machines.live, name, pinned(machines.state.model))
    engine, elsewhere = without_model(machines)
    check_figures(name, live, drawn(engine, name, pinned(elsewhere)), True)


def test_a_figure_that_is_stored_in_part_says_so(machines: Machines) -> None:
    panel, facts = panels()["attention"], facts_of(machines.live, machines.state.model)
    live: Any = {role: machines.live.answer(request) for role, request in panel.requests(machines.state, facts).items()}  # type: ignore[union-attr]
    held = {role: replace(answer, provenance=replace(answer.provenance, stored=True)) for role, answer in live.items()}
    parts = lambda now, ref: panel.figure(machines.state, facts, now, ref).caption_parts
    assert STORED_WORDS in parts(held, {}) and STORED_WORDS in parts(held, held) and f"partly {STORED_WORDS}" in parts(live, held)
    assert not any(STORED_WORDS in part for part in parts(live, live))
