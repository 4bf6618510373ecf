"""Attribution, logit lens and neurons: marks hold what the analyses gave, sums stand beside wholes, clicks mean what they hit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import QSize

from circuitlab.analysis.attribution.direct_attribution import DirectAttributionParams
from circuitlab.analysis.attribution.logit_lens import LogitLensParams
from circuitlab.analysis.attribution.neurons import NeuronsParams
from circuitlab.analysis.attribution.residual_norms import ResidualNormsParams
from circuitlab.analysis.attribution.token_attribution import TokenAttributionParams
from circuitlab.analysis.base import NullContext
from circuitlab.draw.export.pictures import render
from circuitlab.draw.heatmap._texts import shortened
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.draw.view.settling import settle
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.figures.contracts.panel import Why, facts_of, find_panel
from circuitlab.figures.marks import Axis, Figure, Heatmap, Hit, Lines, Rows, Tokens
from circuitlab.figures.panels.attribution import AttributionView
from circuitlab.figures.panels.logit_lens import LogitLensView, window
from circuitlab.figures.panels.neurons import NeuronsView
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Head, ModelRef, Target
from circuitlab.report.render import figure_of
from circuitlab.state.state import Pin, State
from tests.figures.drawing import drawn
from tests.figures.figure_words import rows_counted
from tests.models import CONFIGS, directory

TOKENS = (0, 5, 9, 5, 7, 9, 5)


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> dict[str, State]:
    folder = tmp_path_factory.mktemp("models")
    return {
        name: State(ModelRef(f"file:{directory(folder / name, CONFIGS[name])}")).with_tokens(TOKENS).select(heads=(Head(1, 2),))
        for name in ("attention-only", "gpt2", "post-residual")
    }


def answer(engine: Engine, state: State, name: str, params: Any) -> Any:
    return engine.answer(Request.named(name, params, state.subject)).result


def column(rows: Any, name: str) -> np.ndarray:
    assert isinstance(rows, Rows)
    return next(c.values for c in rows.columns if c.name == name)


@pytest.mark.parametrize("name", ["attention-only", "gpt2"])
def test_the_map_and_the_rows_add_up_to_the_target(engine: Engine, states: dict[str, State], name: str) -> None:
    state = states[name].select(destination=4, locked=True, target=Target((5, 7)))
    found = answer(engine, state, "direct_attribution", DirectAttributionParams(Target((5, 7)), "one", 4))
    figure = drawn(engine, state, "attribution")
    heat, rows = figure.find("map"), figure.find("others")
    assert isinstance(heat, Heatmap)
    np.testing.assert_array_equal(heat.values, found.heads[:, :, 0])
    assert (heat.row, heat.col) == (1, 2)
    parts = dict(zip(column(rows, "part"), column(rows, "logit"), strict=True))
    whole, total = parts.pop("target"), parts.pop("sum of parts")
    assert total == pytest.approx(sum(parts.values()), abs=1e-5) == whole
    assert whole == pytest.approx(float(found.total[0]), abs=1e-6)
    assert parts["heads L1"] == pytest.approx(float(found.heads[1].sum()), abs=1e-6)
    names = list(parts)
    assert names[0] == "embedding" and names[-1] == "constant"
    if name == "gpt2":
        assert names.index("heads L0") < names.index("MLP L0") < names.index("heads L1") < names.index("MLP L1")
    assert "remainder" in figure.caption
    assert f"{found.heads[1, 2, 0]:+.2f}" in figure.title


def test_an_intervention_has_a_row_of_its_own(engine: Engine, states: dict[str, State]) -> None:
    state = replace(states["gpt2"], edits=((Intervention("scale", Site("resid_pre", 1), (0.5,)), True),))
    rows = drawn(engine, state, "attribution").find("others")
    names = list(column(rows, "part"))
    assert names.index("MLP L0") < names.index("intervention L1") < names.index("heads L1")
    assert column(rows, "logit")[0] == pytest.approx(column(rows, "logit")[1], abs=1e-5)


def test_the_map_shows_a_difference_to_the_pin(engine: Engine, states: dict[str, State]) -> None:
    now = states["gpt2"].select(target=Target((5, 7)))
    cut = replace(now, edits=((Intervention("zero", Site("result", 1, (2,))), True),), pins=(Pin("free", now.subject),))
    free, zero = (drawn(engine, s, "attribution").find("map") for s in (now, replace(cut, compare="now")))
    change = figure_of(engine, find_panel("attribution"), replace(cut, compare="difference"))
    there = figure_of(engine, find_panel("attribution"), replace(cut, compare="reference"))
    assert isinstance(free, Heatmap) and isinstance(zero, Heatmap)
    assert zero.values[1, 2] == 0
    for figure, wanted in ((change, zero.values - free.values), (there, free.values)):
        heat = figure.find("map")
        assert isinstance(heat, Heatmap)
        np.testing.assert_allclose(heat.values, wanted, atol=1e-6)
        assert "free" in figure.caption


@pytest.mark.parametrize("heads", [(Head(1, 2),), (Head(1, 2), Head(0, 1))])
def test_text_and_rows_hold_what_each_source_sent(engine: Engine, states: dict[str, State], heads: Any) -> None:
    state = states["gpt2"].select(heads=heads, destination=5, locked=True)
    found = answer(engine, state, "token_attribution", TokenAttributionParams(position=5))
    figure = drawn(engine, state, "attribution", AttributionView("tokens"))
    text, rows = figure.find("text"), figure.find("positions")
    assert isinstance(text, Tokens) and isinstance(rows, Rows)
    wanted = found.values[[4 * h.layer + h.head for h in heads]].sum(0)
    np.testing.assert_allclose(text.values, wanted, atol=1e-6)
    assert text.row == 5 and rows_counted(figure) == (6, 7)
    order = rows.ids[:, 0]
    assert (np.diff(np.abs(wanted[order])) <= 1e-9).all()
    np.testing.assert_allclose(column(rows, "all heads"), found.summed[order], atol=1e-6)
    np.testing.assert_allclose(column(rows, str(heads[0])), found.values[6, order], atol=1e-6)
    assert "everything else" in figure.caption and f"target {found.total:+.3f}" in figure.caption
    every = drawn(engine, state, "attribution", AttributionView("tokens", through="all heads")).find("text")
    assert isinstance(every, Tokens)
    np.testing.assert_allclose(every.values, found.summed, atol=1e-6)


def test_a_source_is_followed_to_every_destination(engine: Engine, states: dict[str, State]) -> None:
    state = states["gpt2"].select(destination=5, source=2, locked=True)
    view = AttributionView("tokens", "what this token raised")
    found = answer(engine, state, "token_attribution", TokenAttributionParams(position=2, direction="destinations"))
    figure = drawn(engine, state, "attribution", view)
    text, rows = figure.find("text"), figure.find("positions")
    assert isinstance(text, Tokens) and isinstance(rows, Rows)
    np.testing.assert_allclose(text.values, found.values[6], atol=1e-6)
    facts = facts_of(engine, state.model)
    raised = dict(zip(rows.ids[:, 0].tolist(), column(rows, "raised"), strict=True))
    assert [raised[d] for d in range(2, 6)] == [facts.token_text(t) for t in TOKENS[3:]]
    panel, read = find_panel("attribution"), state.with_view("attribution", view)
    assert panel.pick(read, Hit("text", (4,))).selection.source == 4
    picked = panel.pick(read, Hit("positions", (6,))).selection
    assert (picked.source, picked.destination, picked.locked) == (2, 6, True)


def test_clicks_choose_heads_positions_and_sources(states: dict[str, State]) -> None:
    panel, state = find_panel("attribution"), states["gpt2"]
    assert panel.pick(state, Hit("map", (0, 3))).selection.heads == (Head(0, 3),)
    assert panel.pick(state, Hit("map", (0, 3), "shift-click")).selection.heads == (Head(1, 2), Head(0, 3))
    tokens = state.with_view("attribution", AttributionView("tokens"))
    assert panel.pick(tokens, Hit("text", (3,), "hover")).selection.destination == 3
    picked = panel.pick(tokens, Hit("positions", (1,))).selection
    assert (picked.source, picked.destination, picked.locked) == (1, 6, True)
    assert panel.pick(state, Hit("others", (1,))) is state


@pytest.mark.parametrize("colour", ["probability", "rank", "entropy", "divergence"])
def test_the_grid_is_the_lens_with_the_end_on_top(engine: Engine, states: dict[str, State], colour: Any) -> None:
    state = states["gpt2"].select(destination=3, locked=True)
    found = answer(engine, state, "logit_lens", LogitLensParams((0, 3), mid=True))
    figure = drawn(engine, state, "logit_lens", LogitLensView(colour=colour, positions=4, between=True))
    heat, rows = figure.find("lens"), figure.find("stages")
    assert isinstance(heat, Heatmap) and isinstance(rows, Rows)
    kinds = {"entropy": found.entropy, "divergence": found.kl, "probability": np.exp(found.log_prob)}
    wanted = {**kinds, "rank": np.log10(found.rank)}[colour]
    np.testing.assert_allclose(heat.values, wanted[::-1], rtol=1e-5)
    assert heat.y.ticks == ("final", "L1 mid", "L1 in", "L0 mid", "L0 in") and heat.col == 3
    facts = facts_of(engine, state.model)
    assert heat.texts is not None
    assert heat.texts[0, 2] == facts.token_text(int(found.ids[-1, 2, 0]))
    assert column(rows, "most probable")[0].startswith(facts.token_text(int(found.ids[-1, 3, 0])))
    np.testing.assert_array_equal(column(rows, "rank"), found.rank[::-1, 3])
    assert figure.shown == (4, 7)


def test_a_page_of_positions_holds_the_selected_one(engine: Engine, states: dict[str, State]) -> None:
    state = states["gpt2"]
    for at in range(7):
        first, last = window(state.select(destination=at, locked=True), 3)
        assert first <= at <= last and last - first == 2 and last < 7
    assert window(state, 100) == (0, 6)
    figure = drawn(engine, state.select(destination=4, locked=True), "logit_lens", LogitLensView(positions=3))
    heat = figure.find("lens")
    assert isinstance(heat, Heatmap) and heat.col_ids is not None and heat.row_ids is not None
    assert heat.col_ids[:, 0].tolist() == [3, 4, 5]
    assert heat.x.ticks[1].startswith("4 ")
    panel = find_panel("logit_lens")
    assert panel.pick(state, Hit("lens", (2, 5))).selection.destination == 5
    assert panel.pick(state, Hit("lens", (2, 5), "hover")).selection.locked is False


def test_the_end_of_the_prompt_says_that_nothing_follows(engine: Engine, states: dict[str, State]) -> None:
    figure = drawn(engine, states["gpt2"], "logit_lens", LogitLensView())
    assert "nothing follows" in figure.title
    rows = figure.find("stages")
    assert np.isnan(column(rows, "rank")).all() and not np.isnan(column(rows, "entropy")).any()


def test_norms_are_those_of_the_selected_position(engine: Engine, states: dict[str, State]) -> None:
    state = states["gpt2"].select(destination=2, locked=True)
    found = answer(engine, state, "residual_norms", ResidualNormsParams())
    figure = drawn(engine, state, "logit_lens", LogitLensView("norms"))
    lines, rows = figure.find("stream"), figure.find("added")
    assert isinstance(lines, Lines)
    np.testing.assert_allclose(lines.ys[0], found.stream[:, 2], rtol=1e-6)
    np.testing.assert_allclose(column(rows, "length"), found.added[:, 2], rtol=1e-6)
    np.testing.assert_allclose(column(rows, "cosine")[1:], found.cosine[1:, 2], rtol=1e-6)


def test_neurons_are_listed_with_what_they_write(engine: Engine, states: dict[str, State]) -> None:
    state = states["gpt2"].select(destination=3, locked=True)
    found = answer(engine, state, "neurons", NeuronsParams(position=3, k=6, tokens=4))
    figure = drawn(engine, state, "neurons", NeuronsView(k=6))
    rows = figure.find("neurons")
    assert isinstance(rows, Rows)
    assert list(column(rows, "neuron")) == [f"L{a}N{b}" for a, b in zip(found.layer, found.neuron, strict=True)]
    np.testing.assert_array_equal(column(rows, "effect"), found.effect)
    facts = facts_of(engine, state.model)
    assert column(rows, "writes towards")[0].startswith(facts.token_text(int(found.top_ids[0, 0])))
    assert rows_counted(figure) == (6, 80)
    picked = find_panel("neurons").pick(state, Hit("neurons", tuple(map(int, rows.ids[0]))))
    assert picked.selection.token == found.top_ids[0, 0]
    layers = drawn(engine, state, "neurons", NeuronsView("layers")).find("layers")
    sums = column(layers, "neurons") + column(layers, "bias")
    np.testing.assert_allclose(sums, column(layers, "MLP"), atol=1e-5)


@pytest.mark.parametrize(
    ("panel", "model", "says"),
    [
        ("neurons", "attention-only", "no MLP neurons"),
        ("neurons", "post-residual", "residual stream itself"),
        ("attribution", "post-residual", "residual stream itself"),
    ],
)
def test_what_does_not_apply_is_said_in_one_line(
    engine: Engine, states: dict[str, State], panel: str, model: str, says: str
) -> None:
    state = states[model]
    found, facts = find_panel(panel), facts_of(engine, state.model)
    asked = found.requests(state, facts)
    assert isinstance(asked, Why)
    assert says in asked.text and "\n" not in asked.text
    assert found.figure(state, facts, {}, {}).why_empty == asked.text


@pytest.mark.parametrize("panel", ["attribution", "logit_lens", "neurons"])
def test_without_a_text_a_panel_says_what_to_do(engine: Engine, states: dict[str, State], panel: str) -> None:
    state = states["gpt2"].with_tokens(())
    asked = find_panel(panel).requests(state, facts_of(engine, state.model))
    assert isinstance(asked, Why) and "Prompt" in asked.text


@pytest.mark.parametrize("panel", ["attribution", "logit_lens", "neurons"])
def test_one_token_is_enough(engine: Engine, states: dict[str, State], panel: str) -> None:
    figure = drawn(engine, states["gpt2"].with_tokens((5,)), panel)
    assert figure.grid and figure.title and figure.caption


@pytest.mark.parametrize(
    ("text", "most", "shown"), [("·the", 4, "·the"), ("·theatre", 4, "·the"), ("·theatre", 6, "·thea…"), ("a", 0, "")]
)
def test_a_cell_holds_as_much_of_a_token_as_fits(text: str, most: int, shown: str) -> None:
    assert shortened(text, most) == shown


@pytest.mark.parametrize(("width", "written"), [(900, True), (120, False)])
def test_texts_are_written_where_they_fit(qtbot: Any, width: int, written: bool) -> None:
    texts = np.array([["ab", "cd"], ["ef", "gh"]] * 2, dtype=object)
    plain = Heatmap("m", np.zeros((4, 2), np.float32), (0.0, 1.0), square=False, y=Axis("s", ("L0 in",) * 4))
    figures = [Figure(((mark,),), "t") for mark in (plain, replace(plain, texts=texts))]
    view = FigureView()
    qtbot.addWidget(view)
    view.resize(width, 300)
    view.show_figure(figures[1])
    settle(view)
    assert ("texts of cells" in view.whole_caption) != written
    if written:
        assert render(figures[0], QSize(width, 300)) != render(figures[1], QSize(width, 300))


@pytest.mark.parametrize(("panel", "view"), [("attribution", AttributionView()), ("logit_lens", LogitLensView())])
def test_what_is_not_there_yet_is_left_empty(engine: Engine, states: dict[str, State], panel: str, view: Any) -> None:
    state, shown = states["gpt2"].select(destination=2, locked=True).with_view(panel, view), list[Any]()

    class Shown(NullContext):
        def partial(self, result: Any) -> None:
            shown.append(result)

    found, facts = find_panel(panel), facts_of(engine, state.model)
    asked = found.requests(state, facts)
    assert not isinstance(asked, Why)
    ((role, request),) = asked.items()
    whole = Engine(engine.store).answer(request, Shown())
    figure = found.figure(state, facts, {role: replace(whole, result=shown[0], complete=False)}, {})
    heat = figure.find("map" if panel == "attribution" else "lens")
    assert isinstance(heat, Heatmap)
    assert np.isnan(heat.values).any() and not np.isnan(heat.values).all()
    assert "nan" not in figure.title and "never" not in figure.title and "so far" in figure.caption


def test_a_sum_is_set_in_bold_and_has_not_the_look_of_what_is_selected(
    view: Any, engine: Engine, states: dict[str, State]
) -> None:
    state = states["attention-only"]
    parts = drawn(engine, state, "attribution").find("others")
    assert isinstance(parts, Rows)
    assert parts.chosen == () and parts.strong == (0, 1), "the target and the sum of its parts"
    view.show_figure(Figure(((parts,),), "t"))
    table = view.widget("others").table
    assert not table.selectionModel().selectedRows()
    delegate = table.itemDelegate()
    assert delegate._faces[False, True][0].bold() and not delegate._faces[False, False][0].bold()
