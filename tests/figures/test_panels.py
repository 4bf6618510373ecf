"""Every panel, from the registry: with one token, a long prompt, a pin, half of its answers; and what a click does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from PySide6.QtCore import QSize

from circuitlab import testing
from circuitlab.analysis.attention.head_scores import HeadScoresParams, head_scores
from circuitlab.analysis.attention.pattern import attention
from circuitlab.analysis.behaviour.token_loss import TokenLossParams, token_loss
from circuitlab.analysis.ordering import all_ranks
from circuitlab.draw.export.pictures import render
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, Refused
from circuitlab.figures.contracts.common import pick_position
from circuitlab.figures.contracts.panel import Answers, Panel, Why, facts_of, panels
from circuitlab.figures.marks import Figure, Heatmap, Hit, empty
from circuitlab.model.subject import Conventions, Head, ModelRef
from circuitlab.report.render import figure_of
from circuitlab.state.state import Compare, Pin, State
from circuitlab.testing import check_explained, check_figure, check_gestures, check_same_arrays
from tests.models import CONFIGS, directory
from tests.words import asks_for_text, lacks_series

NAMES = tuple(panels())
TOKENS = (0, 5, 9, 5, 7, 5, 9)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> tuple[Engine, State]:
    ref = ModelRef(f"file:{directory(tmp_path_factory.mktemp('m') / 'model')}")
    return Engine(ModelStore()), State(ref).with_tokens(TOKENS)


def drawn(engine: Engine, panel: Panel, state: State) -> Figure:
    """The figure of what the panel asks for, or of why it asks for nothing, or cannot be answered, on this model."""
    try:
        return testing.drawn(engine, panel, state)
    except BadInput as error:  # a prompt set that is longer than this model's context: the dock shows the reason
        assert panel.name == "prompt_sets"
        return empty(error.what, panel.title)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tokens", [(1,), (0, 3), TOKENS, tuple([4] * 48)])
def test_a_panel_draws_short_and_long_prompts(bench: tuple[Engine, State], name: str, tokens: Any) -> None:
    engine, state = bench
    figure = drawn(engine, panels()[name], state.with_tokens(tokens))
    check_figure(figure)
    assert figure.caption or figure.why_empty
    image = render(figure, QSize(800, 700))
    assert (image.width(), image.height()) == (800, 700)


@pytest.mark.parametrize("name", NAMES)
def test_a_panel_draws_what_is_computed_in_double_precision(bench: tuple[Engine, State], name: str) -> None:
    engine, state = bench
    figure = drawn(engine, panels()[name], replace(state, conventions=Conventions(dtype="float64")))
    check_figure(figure)
    render(figure, QSize(600, 400))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("compare", get_args(Compare))
@pytest.mark.parametrize("tokens", [(0, 5, 9, 6, 7, 5, 9), (1, 2)])
def test_a_panel_draws_with_a_pin(bench: tuple[Engine, State], name: str, compare: Compare, tokens: Any) -> None:
    engine, state = bench
    pin = Pin("before", state.subject)
    check_figure(drawn(engine, panels()[name], replace(state.with_tokens(tokens), pins=(pin,), compare=compare)))


@pytest.mark.parametrize("name", NAMES)
def test_a_panel_draws_only_with_answers_and_without_the_optional_ones(bench: tuple[Engine, State], name: str) -> None:
    engine, state = bench
    panel, facts = panels()[name], facts_of(engine, state.model)
    asked = panel.requests(state, facts)
    if isinstance(asked, Why) or not asked:
        return
    nothing = panel.figure(state, facts, {}, {})
    assert not nothing.grid and not nothing.why_empty and nothing.title == panel.title
    if len(asked) == 1:
        return
    answers = {role: engine.answer(request) for role, request in asked.items()}
    for role in asked:
        others = {other: answer for other, answer in answers.items() if other != role}
        figure = panel.figure(state, facts, others, {})
        if panel.optional == "all":
            assert panel.draws_with(asked, others) and not figure.why_empty
        else:
            assert bool(figure.grid) == panel.draws_with(asked, others) == (role in panel.optional)


def test_a_refused_request_is_dropped_where_the_panel_draws_without_it(tmp_path: Path) -> None:
    engine = Engine(ModelStore())
    state = State(ModelRef(f"file:{directory(tmp_path / 'm', replace(CONFIGS['attention-only'], n_ctx=4))}"))
    facts, panel = facts_of(engine, state.model), panels()["composition"]
    reason = head_scores.refuse(facts.config, HeadScoresParams())
    assert reason is not None
    requests = panel.requests(state, facts)
    assert isinstance(requests, Mapping)
    assert set(requests) == {"composition"}
    figure = figure_of(engine, panel, state)
    assert figure.grid
    assert Refused(reason).what in figure.caption
    heads = panels()["heads"].requests(state, facts)  # draws nothing else: the reason is its own
    assert heads == Why(Refused(reason).what)


def test_an_answer_is_read_as_what_was_asked(bench: tuple[Engine, State]) -> None:
    engine, state = bench
    answers = Answers(loss=engine.answer(Request(token_loss, TokenLossParams(), state.subject)))
    assert answers.of("loss", token_loss).result.loss.shape == (len(TOKENS),)
    assert answers.find("other", token_loss) is None
    with pytest.raises(TypeError, match="token_loss, not by attention"):
        answers.of("loss", attention)
    with pytest.raises(KeyError):
        answers.of("other", token_loss)


@pytest.mark.parametrize("name", NAMES)
def test_a_panel_without_answers_or_without_text_says_so(bench: tuple[Engine, State], name: str) -> None:
    engine, state = bench
    panel, facts = panels()[name], facts_of(engine, state.model)
    assert panel.figure(state, facts, {}, {}).title
    asked = panel.requests(state.with_tokens(()), facts)
    if isinstance(asked, Why):
        assert asks_for_text(asked.text) or lacks_series(asked.text)
        assert panel.figure(state.with_tokens(()), facts, {}, {}).why_empty == asked.text


@pytest.mark.parametrize("name", NAMES)
def test_the_same_answers_give_the_same_arrays(bench: tuple[Engine, State], name: str) -> None:
    """What is drawn incrementally is told apart by identity: a hover must not make new arrays of old answers."""
    check_same_arrays(bench[0], panels()[name], bench[1], drawn)


@pytest.mark.parametrize("name", NAMES)
def test_a_panel_explains_itself(name: str) -> None:
    check_explained(panels()[name])


@pytest.mark.parametrize("name", NAMES)
def test_a_gesture_that_means_nothing_changes_nothing(bench: tuple[Engine, State], name: str) -> None:
    check_gestures(panels()[name], bench[1])


def test_positions_are_previewed_locked_and_released(bench: tuple[Engine, State]) -> None:
    state = bench[1]
    hovered = pick_position(state, Hit("text", (3,), "hover"))
    assert (hovered.selection.destination, hovered.selection.locked) == (3, False)
    locked = pick_position(state, Hit("text", (3,)))
    assert locked.selection.locked
    assert pick_position(locked, Hit("text", (5,), "hover")) is locked
    assert pick_position(locked, Hit("text", (5,))).selection.destination == 5
    assert pick_position(locked, Hit("text", (3,))).selection.destination is None
    assert pick_position(hovered, Hit("text", (), "leave")).selection.destination is None


def test_the_text_is_coloured_by_the_selected_row_or_column(bench: tuple[Engine, State]) -> None:
    engine, state = bench
    panel = panels()["attention"]
    state = state.select(heads=(Head(1, 2),), destination=4)
    heat, text = figure_of(engine, panel, state).marks()
    np.testing.assert_array_equal(text.values, heat.values[4])  # type: ignore[union-attr]
    view = replace(panel.view(), direction="src → dest")
    heat, text = figure_of(engine, panel, state.with_view("attention", view)).marks()
    np.testing.assert_array_equal(text.values, heat.values[:, 4])  # type: ignore[union-attr]


def test_the_scale_can_be_locked_and_bos_left_out_of_it(bench: tuple[Engine, State]) -> None:
    engine, state = bench
    panel = panels()["attention"]
    locked = replace(panel.view(), lock_range=True, high=0.25)
    assert figure_of(engine, panel, state.with_view("attention", locked)).marks()[0].levels == (0.0, 0.25)  # type: ignore[union-attr]
    without = replace(panel.view(), leave_out_bos=True)
    heat = figure_of(engine, panel, state.with_view("attention", without)).marks()[0]
    assert isinstance(heat, Heatmap)
    assert heat.levels[1] == pytest.approx(float(np.nanmax(heat.values[:, 1:])))


def test_ranks_count_from_one_and_what_is_not_computed_has_none() -> None:
    np.testing.assert_array_equal(all_ranks(np.array([[0.2, np.nan], [0.9, 0.1]])).rank, [[2, -1], [1, 3]])


def test_panels_read_no_files(bench: tuple[Engine, State], monkeypatch: pytest.MonkeyPatch) -> None:
    engine, state = bench
    facts = facts_of(engine, state.model)
    monkeypatch.setattr(Path, "read_text", lambda *a, **k: pytest.fail("a panel read a file"))
    for panel in panels().values():
        panel.requests(state, facts)
