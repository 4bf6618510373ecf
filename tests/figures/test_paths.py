"""The Paths panel: its rows add up, stand for what the analyses gave, and a click means what it points at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuitlab.analysis.attribution.path_expansion import PathExpansionParams, PathExpansionResult, path_expansion
from circuitlab.analysis.composition.virtual_head import VirtualHeadParams
from circuitlab.analysis.interventions.ablation import AblationParams
from circuitlab.analysis.spectra.copying_scores import CopyingScoresParams
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.figures.contracts.panel import Why, facts_of, find_panel
from circuitlab.figures.marks import Bars, Figure, Heatmap, Hit, Rows, Tokens
from circuitlab.figures.marks.texts import ALONE
from circuitlab.figures.panels.paths.panel import PathsView
from circuitlab.figures.panels.paths.tables import groups, term_rows
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Head, ModelRef, Target
from circuitlab.report.render import figure_of
from circuitlab.state.state import Pin, State
from tests.figures.figure_words import rows_counted
from tests.models import CONFIGS, directory
from tests.words import asks_for_text

PANEL = find_panel("paths")


def state_of(path: Path, name: str, **changes: Any) -> State:
    ref = ModelRef(f"file:{directory(path / 'model', replace(CONFIGS[name], **changes))}")
    return State(ref).with_tokens((0, 5, 9, 5, 7)).select(heads=(Head(0, 1),))


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    return state_of(tmp_path_factory.mktemp("a"), "attention-only")


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> State:
    return state_of(tmp_path_factory.mktemp("b"), "gpt2", n_layers=6)


def drawn(engine: Engine, state: State, **view: Any) -> Figure:
    return figure_of(engine, PANEL, state.with_view("paths", PathsView(**view)))


def answer(engine: Engine, state: State, name: str, params: Any) -> Any:
    return engine.answer(Request.named(name, params, state.subject)).result


def table(figure: Figure, name: str = "terms") -> tuple[Rows, dict[str, np.ndarray]]:
    mark = figure.find(name)
    assert isinstance(mark, Rows)
    return mark, {c.name: c.values for c in mark.columns}


@pytest.mark.parametrize(
    "view", [{}, {"top": 3}, {"measure": "log_prob"}, {"sort": "order"}, {"sort": "raising first", "top": 9}]
)
@pytest.mark.parametrize("which", ["state", "deep"])
def test_the_rows_add_up_to_the_number_in_the_title(engine: Engine, request: Any, which: str, view: Any) -> None:
    chosen = request.getfixturevalue(which)
    figure = drawn(engine, chosen, **view)
    result = answer(engine, chosen, "path_expansion", PathExpansionParams(position=4, measure=view.get("measure", "logit")))
    rows, columns = table(figure)
    assert columns["adds"].sum() == pytest.approx(result.whole, abs=1e-4)
    assert f"{result.whole:.2f}".replace("-", "−") in figure.title
    assert "remainder" in figure.caption
    n_listed, total = rows_counted(figure)
    assert n_listed == min(view.get("top", 40), total)
    bars = figure.find("orders")
    assert isinstance(bars, Bars)
    assert bars.values.sum() == pytest.approx(result.whole, abs=1e-4)
    assert len(bars.values) <= 5 and len(bars.labels) == len(bars.values)
    assert len(rows.ids) == len(columns["adds"])


@pytest.mark.parametrize("order", ["0 direct", "1 head", "2 pairs"])
def test_one_order_lists_its_own_paths_and_their_sum(engine: Engine, deep: State, order: Any) -> None:
    result = answer(engine, deep, "path_expansion", PathExpansionParams(position=4))
    k = int(order[0])
    figure = drawn(engine, deep, order=order, top=10)
    rows, columns = table(figure)
    assert columns["adds"].sum() == pytest.approx(result.orders[k], abs=1e-5)
    assert set(rows.ids[:, 0]) <= {k, ALONE}
    bars = figure.find("orders")
    assert isinstance(bars, Bars) and bars.chosen == (k,)
    assert rows_counted(figure) == (min(10, (result.order == k).sum()), (result.order == k).sum())


def test_sorting_puts_first_what_it_says(engine: Engine, state: State) -> None:
    listed = lambda sort: table(drawn(engine, state, sort=sort, top=1000))[1]["adds"]
    size, raising = listed("size"), listed("raising first")
    assert (np.diff(np.abs(size)) <= 1e-12).all()
    assert (np.diff(raising) <= 1e-12).all()
    assert (np.diff(table(drawn(engine, state, sort="order", top=1000))[0].ids[:, 0]) >= 0).all()


def test_each_row_is_its_own_path_and_its_sources(engine: Engine, deep: State) -> None:
    result = answer(engine, deep, "path_expansion", PathExpansionParams(position=4))
    rows, columns = table(drawn(engine, deep, top=1000))
    names = result.names().tolist()
    for i in (0, 5, 40, 200):
        term = names.index(columns["path"][i])
        assert columns["adds"][i] == result.value[term]
        kind, *places = rows.ids[i].tolist()
        assert kind == result.order[term]
        if kind:
            assert [Head(*h) for h in result.heads[term, :kind].tolist()] == [Head(*places[:2]), Head(*places[2:])][:kind]
            split = [columns[name][i] for name in ("embed", "pos", "MLPs", "biases")]
            assert np.sum(split) == pytest.approx(columns["adds"][i], abs=1e-9)


def test_theory_and_measurement_stand_in_one_row(engine: Engine, state: State) -> None:
    figure = drawn(engine, state, page="heads")
    rows, columns = table(figure, "heads")
    result = answer(engine, state, "path_expansion", PathExpansionParams(position=4))
    copying = answer(engine, state, "copying_scores", CopyingScoresParams(diagonal="none", qk=False))
    cut = answer(engine, state, "ablation", AblationParams(effect="target", position=4))
    for i, head in enumerate(rows.ids.tolist()):
        at = tuple(head)
        assert columns["head"][i] == str(Head(*at))
        assert columns["adds"][i] == result.head_total[at]
        assert columns["copying"][i] == copying.copying[at]
        assert columns["ablated"][i] == cut.effect[at]
    largest = np.abs(columns["adds"]).max()
    np.testing.assert_allclose(columns["order 1"] + columns["deeper"], columns["adds"], rtol=1e-5, atol=1e-5 * largest)
    last = rows.ids[:, 0] == 1  # without a final norm a last-layer head is missed by exactly what it adds
    np.testing.assert_allclose(columns["ablated"][last], -columns["adds"][last], atol=1e-4)
    assert (np.diff(np.abs(columns["adds"])) <= 0).all()
    assert [tuple(rows.ids[i]) for i in rows.chosen] == [(0, 1)]


def test_a_composed_pattern_is_drawn_for_the_chosen_pair(engine: Engine, state: State) -> None:
    pair = state.select(edge=(Head(0, 2), Head(1, 3)), edge_kind="V")
    figure = drawn(engine, pair, page="pair")
    result = answer(engine, state, "virtual_head", VirtualHeadParams(Head(0, 2), Head(1, 3)))
    heat, text = figure.find("pattern"), figure.find("text")
    assert isinstance(heat, Heatmap) and isinstance(text, Tokens)
    np.testing.assert_allclose(heat.values, result.pattern, rtol=1e-6)
    np.testing.assert_array_equal(text.values, heat.values[4])
    value = answer(engine, state, "path_expansion", PathExpansionParams(position=4))
    here = (value.heads == [[0, 2], [1, 3]]).all((1, 2))
    assert f"{value.value[here][0]:.2f}".replace("-", "−") in figure.title
    why = PANEL.requests(state.with_view("paths", PathsView(page="pair")), facts_of(engine, state.model))
    assert isinstance(why, Why) and "Click a pair" in why.text
    facts, open_page = facts_of(engine, state.model), pair.with_view("paths", PathsView(page="pair"))
    asked = PANEL.requests(open_page, facts)
    assert not isinstance(asked, Why)
    now = {role: engine.answer(request) for role, request in asked.items()}
    longer = open_page.with_tokens((0, 5, 9, 5, 7, 8, 8, 8))
    assert PANEL.figure(longer, facts, now, {}).find("pattern") is not None
    two = state.select(heads=(Head(1, 3), Head(0, 2)))
    assert drawn(engine, two, page="pair").find("pattern") is not None


def test_a_click_chooses_heads_pairs_and_orders(state: State) -> None:
    pick = PANEL.pick
    head = pick(state, Hit("terms", (1, 1, 2, -1, -1)))
    assert head.selection.heads == (Head(1, 2),)
    pair = pick(state, Hit("terms", (2, 0, 1, 1, 2)))
    assert pair.selection.edge == (Head(0, 1), Head(1, 2)) and pair.selection.edge_kind == "V"
    assert pick(pair, Hit("terms", (2, 0, 1, 1, 2))).selection.edge is None
    opened = pick(state, Hit("terms", (2, 0, 1, 1, 2), "double-click"))
    assert opened.view("paths", PathsView).page == "pair"
    assert pick(state, Hit("terms", (0, 3, -1, -1, -1))) is state
    assert pick(state, Hit("terms", (3, -1, -1, -1, -1))) is state
    assert pick(state, Hit("terms", (1, 1, 2, -1, -1), "hover")) is state
    one = pick(state, Hit("orders", (1,)))
    assert one.view("paths", PathsView).order == "1 head"
    assert pick(one, Hit("orders", (1,))).view("paths", PathsView).order == "all"
    assert pick(state, Hit("orders", (3,))) is state
    assert pick(state, Hit("heads", (1, 0))).selection.heads == (Head(1, 0),)
    cell = pick(state, Hit("pattern", (3, 1))).selection
    assert (cell.destination, cell.source, cell.locked) == (3, 1, True)


def test_chosen_rows_are_those_of_the_selection(engine: Engine, state: State) -> None:
    rows, columns = table(drawn(engine, state))
    assert [columns["path"][i] for i in rows.chosen] == ["L0H1"]
    rows, columns = table(drawn(engine, state.select(edge=(Head(0, 2), Head(1, 3)), edge_kind="V")))
    assert [columns["path"][i] for i in rows.chosen] == ["L0H2 → L1H3"]


def test_it_follows_the_target_and_the_position(engine: Engine, state: State) -> None:
    chosen = state.select(destination=2, locked=True, target=Target((3, 8)))
    result = answer(engine, state, "path_expansion", PathExpansionParams(Target((3, 8)), 2))
    figure = drawn(engine, chosen)
    assert table(figure)[1]["adds"].sum() == pytest.approx(result.whole, abs=1e-4)
    assert "−" in figure.title and "after 2" in figure.title
    direction = state.select(target=Target(direction=(1.0,) * 24))
    assert "direction" in drawn(engine, direction, measure="log_prob").title


def test_a_pinned_run_stands_beside(engine: Engine, state: State) -> None:
    cut = (Intervention("zero", Site("z", 0, (1,))), True)
    result: PathExpansionResult = answer(engine, state, "path_expansion", PathExpansionParams(position=4))
    state = state.select(target=Target((int(result.target_ids[0]),)))
    pinned = replace(state, edits=(cut,), pins=(Pin("clean", state.subject),), compare="difference")
    columns = table(drawn(engine, pinned, top=1000))[1]
    i = columns["path"].tolist().index("L0H1")
    assert columns["adds"][i] == 0
    clean = answer(engine, state, "path_expansion", PathExpansionParams(state.selection.target, 4))
    assert columns["in clean"][i] == clean.value[clean.names().tolist().index("L0H1")]
    assert columns["Δ"][i] == -columns["in clean"][i]
    # the largest of either side are listed, each with what it is there, and rows still add up
    few = table(drawn(engine, pinned, top=3))[1]
    known = dict(zip(clean.names().tolist(), clean.value.tolist(), strict=True))
    largest = [clean.names()[i] for i in np.argsort(-np.abs(clean.value))[:3]]
    assert set(largest) <= set(few["path"])
    listed = [name for name in few["path"] if name in known]
    assert len(listed) > 3 and few["in clean"][: len(listed)].tolist() == [known[name] for name in listed]
    assert (np.diff(np.abs(few["Δ"][: len(listed)])) <= 0).all()
    assert few["adds"].sum() == pytest.approx(
        answer(engine, replace(pinned, pins=()), "path_expansion", PathExpansionParams(state.selection.target, 4)).whole, abs=1e-4
    )
    (rest,) = [i for i, name in enumerate(few["path"]) if "smaller" in name]
    assert np.isnan(few["Δ"][rest]), "sums of other terms are no change"
    there = table(drawn(engine, replace(pinned, compare="reference"), top=1000))[1]
    assert there["adds"].sum() == pytest.approx(clean.whole, abs=1e-4)


def test_reasons_where_there_is_nothing(engine: Engine, state: State, tmp_path: Path) -> None:
    facts = facts_of(engine, state.model)
    nothing = PANEL.requests(state.with_tokens(()), facts)
    assert isinstance(nothing, Why) and asks_for_text(nothing.text)
    on_stream = state_of(tmp_path / "a", "post-residual")
    refused = PANEL.requests(on_stream, facts_of(engine, on_stream.model))
    assert isinstance(refused, Why) and "stream itself" in refused.text
    one = state_of(tmp_path / "b", "attention-only", n_layers=1)
    assert drawn(engine, one, order="2 pairs").why_empty
    assert table(drawn(engine, one))[1]["adds"].size
    single = drawn(engine, state.with_tokens((3,)))
    assert not single.why_empty
    unread = state_of(tmp_path / "c", "post-sublayer")
    assert "adds" in table(drawn(engine, unread, page="heads"), "heads")[1]


def test_deeper_orders_are_empty_until_they_are_there(engine: Engine, deep: State) -> None:
    result: PathExpansionResult = answer(engine, deep, "path_expansion", PathExpansionParams(position=4))
    orders = result.orders.copy()
    orders[3:] = np.nan
    partial = replace(result, orders=orders, done=0.5, remainder=None)
    made = term_rows(partial, None, "size", 10)
    assert "3–6" in made.columns[0].values[-1]
    assert np.isnan(made.columns[1].values[-1])
    assert [name for name, _ in groups(result)] == ["embedding", "position", "MLPs", "biases"]
    assert path_expansion.lane == "slow"
