"""A State may be newer than the answers that are drawn: what a figure says is then still what was computed."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, get_args

import numpy as np
import pytest

from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Answer
from circuitlab.errors import CircuitLabError
from circuitlab.figures.contracts.panel import Panel, Why, facts_of, panels
from circuitlab.figures.marks import Axis, Figure, Rows
from circuitlab.model.subject import Head, Target
from circuitlab.state.cuts import ablation, with_edits
from circuitlab.state.state import UNCUT, Pin, State
from tests.figures.test_compare import PAGES, model_for, models_in, on_page

Models = tuple[Engine, dict[str, State]]
MOVED = (3, 2, 4, 1)  # no token of the prompts that are computed, but for the letters of the laboratory
PINNED = (0, 5, 9, 6, 7, 5, 9)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return models_in(tmp_path_factory.mktemp("models"))


def computed(models: Models, name: str, page: str) -> tuple[Panel, State, dict[str, Answer]]:
    """A page's panel, a State on that page and the answers to its requests; skips nothing, {} where it asks for nothing."""
    engine, states = models
    state = on_page(model_for(states, name, page), name, page)
    if name == "patching":
        state = replace(state.with_heads(Head(0, 1), Head(1, 2)), pins=(Pin("before", replace(state.subject, tokens=PINNED)),))
    panel = panels()[name]
    requests = panel.requests(state, facts_of(engine, state.model))
    if isinstance(requests, Why):
        return panel, state, {}
    answers = dict[str, Answer]()
    for role, request in requests.items():
        try:
            answers[role] = engine.answer(request)
        except CircuitLabError:  # a model that cannot be opened beside this one
            continue
    return panel, state, answers


def written(value: Any) -> list[Any]:
    """Every text in a figure, a mark, an axis or a table, in its order."""
    if isinstance(value, Figure):
        return [value.title, value.about, value.caption_parts, *map(written, value.marks())]
    if isinstance(value, Axis):
        return [value.label, value.ticks]
    if isinstance(value, Rows):
        cells = [c.values.tolist() for c in value.columns if c.values.dtype.kind == "O"]
        return [value.name, value.heading, [(c.name, c.tip, c.unit) for c in value.columns], cells]
    texts = [v for v in vars(value).values() if isinstance(v, str) or (isinstance(v, tuple) and v and isinstance(v[0], str))]
    return [*texts, *(written(v) for v in vars(value).values() if isinstance(v, Axis))]


@pytest.mark.parametrize(("name", "page"), [page for page in PAGES if page[0] != "model"])  # which tells the memory needed now
def test_a_newer_prompt_and_newer_interventions_change_no_word_of_a_figure(models: Models, name: str, page: str) -> None:
    panel, state, answers = computed(models, name, page)
    facts = facts_of(models[0], state.model)
    newer = with_edits(state.with_tokens(MOVED), ablation(Head(1, 0)))
    figure, later = (panel.figure(s, facts, answers, {}) for s in (state, newer))
    assert written(later) == written(figure)
    for mark, late in zip(figure.marks(), later.marks(), strict=True):
        for value, other in ((v, vars(late)[k]) for k, v in vars(mark).items() if isinstance(v, np.ndarray)):
            assert np.array_equal(value, other, equal_nan=value.dtype.kind == "f"), mark.name


def changes(state: State, panel: Panel) -> Iterator[tuple[str, State]]:
    """The State with another selection, and with each of the panel's controls at each of its other choices."""
    yield "other heads", state.with_heads(Head(0, 3), Head(1, 0))
    yield "an edge", state.with_edge(Head(0, 0), Head(1, 3), "Q")
    yield "a cell", state.select(destination=3, source=1, locked=True)
    yield "a token", state.select(token=2)
    yield "a target", state.select(target=Target((3, 4)))
    hints, view = typing.get_type_hints(panel.view), state.view(panel.name, panel.view)
    for field in fields(panel.view):
        value = getattr(view, field.name)
        others = get_args(hints[field.name]) if isinstance(value, str) else (not value,) if isinstance(value, bool) else ()
        others = (value + 1,) if isinstance(value, int) and not isinstance(value, bool) else others
        for other in others:
            yield f"{field.name} = {other}", state.with_view(panel.name, replace(view, **{field.name: other}))


@pytest.mark.parametrize(("name", "page"), PAGES)
def test_a_title_and_axes_name_what_was_asked_until_the_next_answer(models: Models, name: str, page: str) -> None:
    panel, state, answers = computed(models, name, page)
    facts = facts_of(models[0], state.model)
    figure = panel.figure(state, facts, answers, {})
    axes = lambda f: {m.name: [a.label for a in vars(m).values() if isinstance(a, Axis)] for m in f.marks()}
    for words, newer in changes(state, panel):
        requests = panel.requests(newer, facts)
        if isinstance(requests, Why) or not any(r in answers and answers[r].request.asked != q for r, q in requests.items()):
            continue  # nothing to be confused with: the answers are those of the newer State too, or nothing is drawn
        later = panel.figure(newer, facts, answers, {})
        if not later.grid:
            continue
        assert set(later.title.split(" · ")) <= set(figure.title.split(" · ")), f"{words}: “{later.title}”, not “{figure.title}”"
        same = {mark: labels for mark, labels in axes(later).items() if mark in axes(figure)}
        assert same.items() <= axes(figure).items(), words


@pytest.mark.parametrize(("name", "page"), [page for page in PAGES if page[0] not in ("laboratory", "side_by_side")])
def test_answers_of_another_model_are_not_drawn(models: Models, name: str, page: str) -> None:
    panel, state, answers = computed(models, name, page)
    other = replace(state, model=models[1]["odd"].model)
    assert not panel.figure(other, facts_of(models[0], other.model), answers, {}).grid


def test_a_page_of_the_laboratory_is_not_drawn_with_the_parameters_of_another_model(models: Models) -> None:
    panel, state, answers = computed(models, "laboratory", "layer 0")
    other = replace(state, model=models[1]["rank one"].model)
    assert panel.figure(state, facts_of(models[0], state.model), answers, {}).grid
    assert not panel.figure(other, facts_of(models[0], other.model), answers, {}).grid


def test_patching_names_the_run_that_its_activations_come_from(models: Models) -> None:
    panel, state, _ = computed(models, "patching", "grid")
    facts = facts_of(models[0], state.model)
    cut = with_edits(replace(state, pins=()), ablation(Head(0, 1)))
    answers = {role: models[0].answer(request) for role, request in panel.requests(cut, facts).items()}  # type: ignore[union-attr]
    titles = {panel.figure(newer, facts, answers, {}).title for newer in (cut, replace(cut, pins=state.pins))}
    assert len(titles) == 1 and UNCUT in titles.pop()


def test_how_many_chosen_heads_are_drawn_is_told_of_the_same_heads(models: Models) -> None:
    panel, state, answers = computed(models, "spectra", "eigenvalues")
    facts = facts_of(models[0], state.model)
    every = tuple(Head(layer, head) for layer in range(facts.config.n_layers) for head in range(facts.config.n_heads))
    longer, others = (*state.selection.heads, *(h for h in every if h not in state.selection.heads)), every[:3]
    shown = [panel.figure(state.with_heads(*heads), facts, answers, {}).shown for heads in (longer, others)]
    assert shown == [(2, len(every)), None]


def test_the_mean_of_several_heads_is_not_named_over_the_first_one(models: Models) -> None:
    engine, states = models
    state = states["attention-only"]
    panel, facts = panels()["attention"], facts_of(engine, state.model)
    view = state.view("attention", panel.view)
    averaged, leading = (state.with_view("attention", replace(view, several=several)) for several in ("average", "leading"))
    answers = {role: engine.answer(request) for role, request in panel.requests(averaged, facts).items()}  # type: ignore[union-attr]
    assert panel.figure(averaged, facts, answers, {}).title == "mean of L1H2 L0H1 · pattern"
    assert panel.figure(leading, facts, answers, {}).title == "L1H2 · pattern"  # whose values are drawn
