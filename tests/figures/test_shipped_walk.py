"""Every panel of every shipped model, page by page, with gestures and pins: a figure or a reason, never an exception."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from PySide6.QtCore import QSize

from circuitlab.disk.paths import shipped
from circuitlab.draw.export.pictures import render
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.errors import CircuitLabError
from circuitlab.figures.contracts.panel import Panel, Why, facts_of, panels
from circuitlab.figures.marks import Figure, Gesture, Heatmap, Hit, Mark, Points, Rows
from circuitlab.model.subject import Head, ModelRef
from circuitlab.report.render import figure_of
from circuitlab.state.state import Pin, State
from tests.models import TINY, directory

MODELS = tuple(sorted(path.name for path in shipped("models").iterdir() if (path / "config.json").exists()))
# an MLP, and nothing at all are walked each time
AT_ONCE = ("gpt-mini", "no layers")
WALKED = [pytest.param(n, marks=() if n in AT_ONCE else pytest.mark.slow) for n in (*MODELS, "no layers")]
TOKENS = (0, 5, 9, 5, 7, 5, 9)
PAGES = ("page", "of", "what", "on", "show", "kind", "how")  # controls that choose what is drawn, not how


def views(panel: Panel) -> Iterator[Any]:
    """The panel's controls at their defaults, and with each choice of what is drawn."""
    hints = get_type_hints(panel.view)
    yield panel.view()
    for field in fields(panel.view):
        if field.name in PAGES and get_origin(hints[field.name]) is Literal:
            yield from (replace(panel.view(), **{field.name: c}) for c in get_args(hints[field.name]) if c != field.default)


def drawn(engine: Engine, panel: Panel, state: State) -> Figure:
    """The figure, or the one that says why there is none; only what a person can read is a reason."""
    facts = facts_of(engine, state.model)
    if isinstance(panel.requests(state, facts), Why):
        return panel.figure(state, facts, {}, {})
    try:
        return figure_of(engine, panel, state)
    except CircuitLabError as error:  # a text that is missing, a vocabulary without a training text: the dock shows the reason
        return Figure(title=panel.title, why_empty=error.what)


def hits(mark: Mark) -> Iterator[tuple[int, ...]]:
    """What the first and the last drawn item of a mark give to a gesture, and nothing at all."""
    if isinstance(mark, Rows | Points) and len(mark.ids):
        yield from (tuple(mark.ids[0].tolist()), tuple(mark.ids[-1].tolist()))
    elif isinstance(mark, Heatmap) and mark.tiles is None and mark.row_ids is None:
        yield from ((0, 0), (mark.values.shape[0] - 1, mark.values.shape[1] - 1))
    yield ()


def sound(figure: Figure, config: Any) -> None:
    assert figure.grid or figure.why_empty, figure.title
    words = f"{figure.title} {figure.why_empty}"
    assert not re.search(r"\b[a-z]+_[a-z_]+: ", words), f"an identifier in a sentence: {words}"
    if not config.n_layers:
        assert not re.search("in All heads|[Rr]epeat a word|one[ -]layer|L0H0", words), words


@pytest.mark.parametrize("name", WALKED)
def test_every_panel_of_a_model_draws_or_says_why(name: str, tmp_path: Any) -> None:
    engine = Engine(ModelStore())
    bare = lambda: f"file:{directory(tmp_path / 'bare', TINY, n_layers=0)}"
    state = State(ModelRef(bare() if name == "no layers" else f"builtin:{name}")).with_tokens(TOKENS)
    other = State(ModelRef(f"builtin:{'attn-only-2l' if name != 'attn-only-2l' else 'attn-only-0l'}")).with_tokens(TOKENS)
    facts = facts_of(engine, state.model)
    for panel in panels().values():
        for i, view in enumerate(views(panel)):
            figure = drawn(engine, panel, state.with_view(panel.name, view))
            sound(figure, facts.config)
            if i == 0:
                render(figure, QSize(400, 300))
                _gestures(panel, state, figure, facts)
        for where, pin in ((state, other), (other, state)):
            against = replace(where, pins=(Pin("pin", pin.subject),), compare="difference")
            sound(drawn(engine, panel, against), facts_of(engine, where.model).config)


def _gestures(panel: Panel, state: State, figure: Figure, facts: Any) -> None:
    for mark in figure.marks():
        for gesture in get_args(Gesture):
            for hit in hits(mark):
                picked = panel.pick(state, Hit(mark.name, hit, gesture))
                assert isinstance(picked, State)
                if picked.model == state.model:
                    panel.requests(picked, facts)


@pytest.mark.parametrize("name", ["attn-only-0l", "attn-only-1l"])
def test_a_head_that_the_model_has_not_is_said_in_every_panel(name: str) -> None:
    engine = Engine(ModelStore())
    state = State(ModelRef(f"builtin:{name}")).with_tokens(TOKENS).select(heads=(Head(7, 3),), edge=(Head(6, 0), Head(7, 3)))
    for panel in panels().values():
        figure = drawn(engine, panel, state)
        sound(figure, facts_of(engine, state.model).config)
        render(figure, QSize(400, 300))
