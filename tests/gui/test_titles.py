"""What a title names is what was asked: after every move, pick and command, and while older answers are still on the screen."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from circuitlab.counting import number
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Answer
from circuitlab.errors import CircuitLabError
from circuitlab.figures.contracts.panel import Panel, Why, facts_of, panels
from circuitlab.figures.marks import Edges, Figure, Heatmap, Hit, Mark, Points, Rows
from circuitlab.gui.work.document import Document
from circuitlab.gui.work.state_commands import StateCommands
from circuitlab.model.subject import Head, ModelRef
from circuitlab.state.cuts import offers
from circuitlab.state.state import State
from tests.figures.test_compare import PAGES, on_page
from tests.models import CONFIGS, directory

HEAD = re.compile(r"L(\d+)H(\d+)")
TOKENS = (0, 5, 9, 5, 7, 5, 9)
QUIET = SimpleNamespace(emit=lambda words: None)
# ask for named heads; the others answer for all of them at once
NAMED = {
    "attention", "circuits", "spectra", "why_here", "step_by_step", "induction", "residual", "virtual", "paths", "patching",
    "keep_only", "ablation",
}  # fmt: skip
SHOWN = tuple(page for page in PAGES if page[0] in NAMED)


@pytest.fixture(scope="module")
def start(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> State:
    path = directory(tmp_path_factory.mktemp("m") / "model", CONFIGS["attention-only"])
    return State(ModelRef(f"file:{path}")).with_tokens(TOKENS)


def answers_of(engine: Engine, panel: Panel, state: State) -> dict[str, Answer]:
    wanted = panel.requests(state, facts_of(engine, state.model))
    assert not isinstance(wanted, Why)
    return {role: engine.answer(request) for role, request in wanted.items()}


def heads_in(value: Any) -> Iterator[Head]:
    """Every head that parameters name."""
    if isinstance(value, Head):
        yield value
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from heads_in(getattr(value, field.name))
    elif isinstance(value, tuple):
        for one in value:
            yield from heads_in(one)
    elif isinstance(value, str):
        yield from (Head(int(a), int(b)) for a, b in HEAD.findall(value))


def check(figure: Figure, answers: Mapping[str, Answer], where: str) -> None:
    """Heads in the title are heads of the request, where the request names any, or are cut in it."""
    asked = {head for answer in answers.values() for head in heads_in(answer.request.params)}
    sites = [edit.site for answer in answers.values() for edit in answer.request.subject.edits]
    cut = {Head(site.layer, head) for site in sites for head in site.heads or ()}
    named = set(heads_in(figure.title))
    if asked and figure.grid:
        assert named <= asked | cut, f"{where}: “{figure.title}” over the numbers of {sorted(asked)}"


def items(mark: Mark) -> list[tuple[int, ...]]:
    """A few ids that a click on the mark may give."""
    if isinstance(mark, Rows | Points):
        return [tuple(key) for key in mark.ids[:2].tolist()]
    if isinstance(mark, Heatmap) and mark.row_ids is not None and mark.col_ids is not None:
        return [(*mark.row_ids[-1].tolist(), *mark.col_ids[0].tolist())]
    if isinstance(mark, Edges) and mark.edge_ids is not None and len(mark.edge_ids):
        return [(1, *mark.edge_ids[-1].tolist()), (0, 0, 0)]
    return [(1, 0), (1,)]


def picks(engine: Engine, state: State) -> Iterator[tuple[str, State]]:
    """What clicks in every page lead to."""
    facts = facts_of(engine, state.model)
    for name, page in PAGES:
        panel, shown = panels()[name], on_page(state, name, page)
        if name in ("prompt_sets", "training", "laboratory") or isinstance(panel.requests(shown, facts), Why):
            continue
        try:
            figure = panel.figure(shown, facts, answers_of(engine, panel, shown), {})
        except CircuitLabError:  # the dock shows the reason
            continue
        for mark in figure.marks():
            for item in items(mark):
                for gesture in ("click", "shift-click", "double-click"):
                    picked = panel.pick(shown, Hit(mark.name, item, gesture))  # type: ignore[arg-type]
                    if picked is not shown and picked.model == state.model:
                        yield f"{gesture} {item} in {mark.name} of {name} {page}", picked


def commands(engine: Engine, state: State) -> Iterator[tuple[str, State]]:
    """What the window's commands and menus make of a state."""
    facts = facts_of(engine, state.model)

    def after(act: Any) -> State:
        document = Document(state)
        context = SimpleNamespace(
            document=document,
            apply=document.apply,
            end_preview=document.end_preview,
            facts=lambda ref=None: facts,
            config=lambda ref: facts.config,
            name_parts=lambda ref: (ref.name,),
            readout=QUIET,
            message=QUIET,
        )
        act(StateCommands(context))  # type: ignore[arg-type]
        return document.recorded

    yield "Alt+Right", after(lambda m: m.walk_heads(0, 1))
    yield "Alt+Up", after(lambda m: m.walk_heads(1, 0))
    yield "select layer", after(StateCommands.select_layer)
    yield "Esc", after(StateCommands.release)
    yield "next token", after(lambda m: m.walk_tokens(-1))
    yield "pin", after(StateCommands.pin)
    yield "ablate", after(StateCommands.ablate)
    for offer in offers(state, facts.config)[:2]:
        yield offer.title, offer.state


def every_state(engine: Engine, start: State) -> dict[tuple[Any, ...], tuple[str, State]]:
    """One of each selection that two steps from the start lead to."""
    edge = start.with_edge(Head(0, 1), Head(1, 1), "K").select(destination=4, source=1, locked=True)
    result: dict[tuple[Any, ...], tuple[str, State]] = {}
    for before, state in (("", start), ("an edge, then ", edge)):
        for words, after in (("nothing", state), *commands(engine, state), *picks(engine, state)):
            chosen = after.selection
            result.setdefault((chosen.heads, chosen.edge, chosen.edge_kind, bool(after.edits)), (f"{before}{words}", after))
    return result


def test_titles_name_the_heads_of_their_numbers_after_every_move(engine: Engine, start: State) -> None:
    states = list(every_state(engine, start).values())
    assert len(states) > 15
    assert any(state.selection.edge is not None for _, state in states)
    facts = facts_of(engine, start.model)
    for name, page in SHOWN:
        panel, older = panels()[name], dict[str, Answer]()
        for words, state in states:
            shown, where = on_page(state, name, page), f"{name} {page}, after {words}"
            if isinstance(asked := panel.requests(shown, facts), Why) or not asked:
                continue
            try:
                answers = answers_of(engine, panel, shown)
            except CircuitLabError:
                continue
            check(panel.figure(shown, facts, answers, {}), answers, where)
            if older.keys() == answers.keys() and all(older[r].request.subject == a.request.subject for r, a in answers.items()):
                check(panel.figure(shown, facts, older, {}), older, f"{where}, before its answer")
            older = answers


def test_esc_releases_an_edge(engine: Engine, start: State) -> None:
    edge = start.with_edge(Head(0, 1), Head(1, 1), "K").select(destination=4, source=1, locked=True)
    chosen = dict(commands(engine, edge))["Esc"].selection
    assert (chosen.edge, chosen.heads, chosen.destination, chosen.locked) == (None, (Head(1, 1),), None, False)


def test_a_model_without_heads_has_none_to_walk(tmp_path: Path, engine: Engine) -> None:
    ref = ModelRef(f"file:{directory(tmp_path / 'm', replace(CONFIGS['attention-only'], n_layers=0))}")
    state = State(ref).with_tokens(TOKENS)
    assert dict(commands(engine, state))["Alt+Right"] == state


@pytest.mark.parametrize("name", ["attention", "overview"])
def test_a_title_names_what_its_cells_hold_while_another_choice_is_computed(engine: Engine, start: State, name: str) -> None:
    facts, panel = facts_of(engine, start.model), panels()[name]
    answers = answers_of(engine, panel, start)
    scores = start.with_view(name, replace(start.view(name, panel.view), show="scores"))
    before, after = (panel.figure(state, facts, answers, {}) for state in (start, scores))
    assert "pattern" in before.title
    assert after.title == before.title
    assert [m.unit for m in after.marks()] == [m.unit for m in before.marks()]  # type: ignore[union-attr]


def test_a_score_in_a_title_is_that_of_the_heads_it_names(engine: Engine, start: State) -> None:
    facts = facts_of(engine, start.model)
    asked = {name: answers_of(engine, panels()[name], start) for name in ("ablation", "composition")}
    effect, scores = asked["ablation"]["each"].result.effect, asked["composition"]["composition"].result
    for source, dest in ((Head(0, 1), Head(1, 2)), (Head(0, 0), Head(1, 1))):
        for kind in ("Q", "K", "V"):
            moved = start.with_edge(source, dest, kind)
            titles = {name: panels()[name].figure(moved, facts, answers, {}).title for name, answers in asked.items()}
            assert f"without {dest}: " in titles["ablation"]
            assert number(effect[dest], "+.3f") in titles["ablation"]
            assert (
                f"{kind}-composition {source} → {dest}: {scores.scores[(scores.kinds.index(kind), *dest, *source)]:.3f}"
                in (titles["composition"])
            )
