"""Panels of the weights: what stands in their marks is what the analyses gave, and a click means what it points at."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuitlab import api
from circuitlab.analysis.base import TextRef
from circuitlab.analysis.circuits.own_tokens import OwnTokensParams
from circuitlab.analysis.circuits.skip_trigrams import SkipTrigramsParams
from circuitlab.analysis.composition.scores import CompositionParams
from circuitlab.analysis.composition.subspace_overlap import SubspaceOverlapParams
from circuitlab.analysis.spectra.copying_scores import CopyingScoresParams
from circuitlab.analysis.spectra.ov_spectrum import OvSpectrumParams
from circuitlab.analysis.spectra.pair_positivity import PairPositivityParams
from circuitlab.analysis.spectra.positivity_plane import PreviousHeadSpectrumParams
from circuitlab.caption_parts import Essential
from circuitlab.counting import number
from circuitlab.draw.look.theme import DARK, LIGHT
from circuitlab.draw.plots.points import PointsMark
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.errors import Refused
from circuitlab.figures.contracts.panel import Facts, Why, facts_of, find_panel
from circuitlab.figures.contracts.selection_reading import of_weights, token_read
from circuitlab.figures.marks import Edges, Figure, Heatmap, Hit, Lines, Points, Rows
from circuitlab.figures.panels.circuits.panel import CircuitsView
from circuitlab.figures.panels.composition import CompositionView, pairs_of
from circuitlab.figures.panels.head_finder import HeadFinderView
from circuitlab.figures.panels.residual import ResidualView
from circuitlab.figures.panels.spectra.chosen_heads import DECADES, on_log_radius
from circuitlab.figures.panels.spectra.panel import SpectraView
from circuitlab.figures.panels.virtual import VirtualView
from circuitlab.model.subject import Head, ModelRef
from circuitlab.report.render import figure_of
from circuitlab.state.state import State
from tests.figures.drawing import drawn
from tests.models import CONFIGS, directory
from tests.words import norm_on_stream


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    shape = replace(CONFIGS["attention-only"], n_layers=3)
    ref = ModelRef(f"file:{directory(tmp_path_factory.mktemp('m') / 'model', shape)}")
    return State(ref).with_tokens((0, 5, 9, 5, 7)).select(heads=(Head(2, 1),))


def answer(engine: Engine, state: State, name: str, params: Any) -> Any:
    return engine.answer(Request.named(name, params, of_weights(state))).result


def test_pairs_are_all_pairs_strongest_first(engine: Engine, state: State) -> None:
    result = answer(engine, state, "composition", CompositionParams())
    pairs = pairs_of(result, "score")
    assert len(pairs.kind) == 3 * 4 * 4 * 3  # kinds, and of three layers three pairs of layers
    assert (np.diff(pairs.score) <= 0).all()
    assert (pairs.dest_layer > pairs.src_layer).all()
    for i in (0, 17, -1):
        place = tuple(int(column[i]) for column in pairs[:5])
        assert result.scores[place] == pairs.score[i]
        assert result.z[place] == pairs.z[i]


@pytest.mark.parametrize("by", ["score", "minus baseline", "z"])
def test_the_graph_shows_the_strongest_edges_and_says_of_how_many(engine: Engine, state: State, by: Any) -> None:
    result = answer(engine, state, "composition", CompositionParams())
    figure = drawn(engine, state, "composition", CompositionView(by=by, top=10))
    graph = figure.find("composition")
    assert isinstance(graph, Edges)
    assert figure.shown == (len(graph.ends), 144)
    assert f"wider lines: larger {graph.unit}" in figure.caption
    assert len(graph.ends) <= 10
    assert graph.weights.max() == 1
    assert graph.values is not None and graph.edge_ids is not None
    measure = {"score": result.scores, "z": result.z, "minus baseline": result.scores - result.baseline}[by]
    best = np.sort(measure[np.isfinite(measure)])[::-1][: len(graph.ends)]
    np.testing.assert_allclose(np.sort(graph.values)[::-1], best, rtol=1e-6)
    for end, key, value in zip(graph.ends, graph.edge_ids, graph.values, strict=True):
        assert tuple(graph.labels[i] for i in end) == (f"L{key[2]}H{key[3]}", f"L{key[0]}H{key[1]}")
        np.testing.assert_allclose(measure[(key[4], *key[:4])], value, rtol=1e-6)


def test_a_threshold_leaves_weaker_edges_out(engine: Engine, state: State) -> None:
    result = answer(engine, state, "composition", CompositionParams())
    middle = float(np.nanmedian(result.scores))
    figure = drawn(engine, state, "composition", CompositionView(by="score", top=5000, least=middle))
    assert figure.shown is not None
    assert figure.shown[0] == int((result.scores >= middle).sum())


@pytest.mark.parametrize("form", ["graph", "matrix"])
def test_kinds_stand_apart_where_asked(engine: Engine, state: State, form: Any) -> None:
    figure = drawn(engine, state, "composition", CompositionView(form=form, through="apart"))
    assert len(figure.marks()) == 3
    for mark, kind in zip(figure.marks(), range(3), strict=True):
        assert not isinstance(mark, Edges) or set(mark.kinds) <= {kind}
    assert len({m.levels for m in figure.marks() if isinstance(m, Heatmap)}) <= 1


def _head(name: str) -> tuple[int, int]:
    layer, _, head = name.removeprefix("L").partition("H")
    return int(layer), int(head)


@pytest.mark.parametrize("by", ["score", "z"])
def test_cells_and_rows_name_the_pair_whose_number_they_hold(engine: Engine, state: State, by: Any) -> None:
    found, pick = answer(engine, state, "composition", CompositionParams()), find_panel("composition").pick
    measure = {"score": found.scores, "z": found.z}[by]
    chosen = state.with_edge(Head(0, 3), Head(2, 1), "K")
    for i, kind in enumerate("QKV"):
        heat = drawn(engine, chosen, "composition", CompositionView(form="matrix", by=by)).find(kind)
        assert isinstance(heat, Heatmap) and heat.row_ids is not None and heat.col_ids is not None
        for (row, col), value in np.ndenumerate(heat.values):
            dest, source = _head(heat.y.ticks[row]), _head(heat.x.ticks[col])
            np.testing.assert_equal(value, np.float32(measure[(i, *dest, *source)]))
            if dest[0] > source[0]:
                key = (*heat.row_ids[row].tolist(), *heat.col_ids[col].tolist())
                selection = pick(state, Hit(kind, key, "click")).selection
                assert (selection.edge, selection.edge_kind) == ((Head(*source), Head(*dest)), kind)
        cross = None if kind != "K" else ("L2H1", "L0H3")
        assert (heat.row is None) == (cross is None)
        assert cross is None or (heat.y.ticks[heat.row], heat.x.ticks[heat.col]) == cross  # type: ignore[index]
    rows = drawn(engine, state, "composition", CompositionView(form="list", by=by, top=5000)).find("pairs")
    assert isinstance(rows, Rows)
    columns = {c.name: c.values for c in rows.columns}
    for row, key in enumerate(rows.ids.tolist()):
        kind, source, dest = (columns[name][row] for name in ("through", "source", "destination"))
        place = ("QKV".index(kind), *_head(dest), *_head(source))
        assert (columns["score"][row], columns["z"][row]) == (found.scores[place], found.z[place])
        assert columns["− baseline"][row] == pytest.approx(found.scores[place] - found.baseline, abs=1e-7)
        assert pick(state, Hit("pairs", tuple(key), "click")).selection.edge == (Head(*_head(source)), Head(*_head(dest)))


def test_a_click_on_an_edge_chooses_the_pair_and_another_lets_go(state: State) -> None:
    pick = find_panel("composition").pick
    chosen = pick(state, Hit("composition", (1, 2, 3, 0, 1, 0), "click"))
    assert chosen.selection.edge == (Head(0, 1), Head(2, 3))
    assert chosen.selection.edge_kind == "Q"
    assert chosen.selection.heads == (Head(2, 3), Head(0, 1))
    assert pick(chosen, Hit("composition", (1, 2, 3, 0, 1, 0), "click")).selection.edge is None
    assert pick(state, Hit("K", (2, 3, 0, 1), "click")).selection.edge_kind == "K"
    assert pick(state, Hit("K", (0, 1, 2, 3), "click")) is state  # a cell above the diagonal is no pair
    assert pick(state, Hit("composition", (0, 1, 2), "click")).selection.heads == (Head(1, 2),)


def test_a_token_is_the_one_asked_for_else_the_prompts(engine: Engine, state: State) -> None:
    facts = facts_of(engine, state.model)
    assert token_read(state, facts) == 7
    assert token_read(state.select(destination=2), facts) == 9
    assert token_read(state.select(destination=2, token=4), facts) == 4
    assert token_read(state.select(token=10**6), facts) == 7
    assert token_read(state.with_tokens(()), facts) is None


def test_eigenvalues_are_those_of_the_answer_in_the_hues_of_their_heads(engine: Engine, state: State) -> None:
    two = state.select(heads=(Head(2, 1), Head(0, 3)))
    result = answer(engine, two, "ov_spectrum", OvSpectrumParams((Head(2, 1), Head(0, 3))))
    figure = drawn(engine, two, "spectra")
    marks = [figure.find(f"OV {head}") for head in two.selection.heads]
    for i, mark in enumerate(marks):  # a plane a head, on one scale, the origin and the positive half shown
        assert isinstance(mark, Points) and mark.equal and mark.origin
        np.testing.assert_array_equal(mark.x + 1j * mark.y, result.eigenvalues[i])
        assert mark.hues is not None and len(set(mark.hues.tolist())) == 1
    assert marks[0].sight == marks[1].sight and marks[0].hues[0] != marks[1].hues[0]  # type: ignore[union-attr, index]
    raw = drawn(engine, two.select(heads=(Head(0, 3),)), "spectra", SpectraView(raw=True)).find("OV")
    assert isinstance(raw, Points)
    np.testing.assert_array_equal(raw.x + 1j * raw.y, result.eigenvalues_raw[1])
    rings = drawn(engine, two, "spectra", SpectraView(radius="log")).find("OV L2H1")
    assert isinstance(rings, Points) and [radius for radius, _ in rings.rings] == [1, 2, 3, 4]
    picked = find_panel("spectra").pick(two, Hit("QK L0H3", (0, 3, 1), "click"))
    assert picked.selection.heads == (Head(0, 3),)


def test_weights_are_read_after_the_first_mlp_where_asked(engine: Engine, state: State, tmp_path: Path) -> None:
    """Spectra and circuits of every page and the head finder; where there is no MLP the switch does nothing."""
    ref = ModelRef(f"file:{directory(tmp_path / 'm', replace(CONFIGS['gpt2'], n_layers=3))}")
    deep = State(ref).with_tokens((0, 5, 9, 5, 7)).select(heads=(Head(2, 1), Head(0, 0)))
    for page in ("eigenvalues", "singular values", "copying", "plane"):
        figure = drawn(engine, deep, "spectra", SpectraView(page=page, after_mlp=True))
        assert figure.grid and "first MLP" in figure.caption and "the first MLP left out" not in figure.caption
        assert "the first MLP left out" in drawn(engine, deep, "spectra", SpectraView(page=page)).caption
        assert "first MLP" not in drawn(engine, state, "spectra", SpectraView(page=page, after_mlp=True)).caption
    for page in ("tables", "triples", "largest"):
        figure = drawn(engine, deep, "circuits", CircuitsView(page=page, after_mlp=True))
        assert figure.grid and "MLP₀" in figure.caption and "the first MLP left out" not in figure.caption, page
        assert "the first MLP left out" in drawn(engine, deep, "circuits", CircuitsView(page=page)).caption, page
        first = drawn(engine, deep.select(heads=(Head(0, 0),)), "circuits", CircuitsView(page=page, after_mlp=True))
        assert first.grid and "MLP₀" not in first.caption, page
    alone = drawn(engine, deep.select(heads=(Head(0, 0),)), "spectra", SpectraView(after_mlp=True))
    assert alone.grid and "MLP₀" not in alone.caption, "a head of the first layer reads the token itself"
    table = drawn(engine, deep, "head_finder", HeadFinderView(page="table", after_mlp=True)).find("table")
    params = CopyingScoresParams(diagonal="none", embed="after the first MLP")
    result = answer(engine, deep, "copying_scores", params)
    assert isinstance(table, Rows)
    shown = next(c.values for c in table.columns if c.name == "OV copying")
    np.testing.assert_allclose(shown, result.copying[tuple(table.ids.T)])


def test_tables_of_circuits_read_rows_of_w_e_as_the_norm_does_and_as_stored_where_asked(
    engine: Engine, state: State, tmp_path: Path
) -> None:
    """One switch on every page of weights; where no norm comes before attention there is nothing to choose."""
    ref = ModelRef(f"file:{directory(tmp_path / 'm', CONFIGS['llama'])}")
    normed = State(ref).with_tokens((0, 5, 9, 5, 7)).select(heads=(Head(0, 1),), token=9)
    shown = next(f for f in fields(CircuitsView) if f.name == "unnormalised").metadata["only"]
    for page in ("tables", "triples", "largest"):
        plain = drawn(engine, normed, "circuits", CircuitsView(page=page))
        stored = drawn(engine, normed, "circuits", CircuitsView(page=page, unnormalised=True))
        assert "W_E rows as the norm before attention scales them" in plain.caption and "per token" not in plain.caption
        assert "W_E rows unnormalised: up to a scale per token" in stored.caption
        assert "exact up to a positive scale per token" in stored.caption
        one, other = (next(m for m in figure.marks() if isinstance(m, Rows)) for figure in (plain, stored))
        assert not np.array_equal(one.columns[-1].values, other.columns[-1].values)
        alike = [drawn(engine, state, "circuits", CircuitsView(page=page, unnormalised=on)) for on in (False, True)]
        assert alike[0].caption == alike[1].caption and "W_E rows" not in alike[0].caption
    assert shown(facts_of(engine, normed.model)) and not shown(facts_of(engine, state.model))


def test_bugs_are_of_the_text_that_is_chosen_and_sources_in_use_have_their_rank(
    engine: Engine, state: State, tmp_path: Path
) -> None:
    file = tmp_path / "words.txt"
    file.write_text("".join(map(chr, np.random.default_rng(3).integers(33, 126, 3000))), encoding="utf-8")
    with pytest.raises(Refused, match="no bigrams"):
        drawn(engine, state, "circuits", CircuitsView(page="bugs"))
    bugs = drawn(engine, state, "circuits", CircuitsView(page="bugs", corpus=str(file)))
    table = bugs.find("triples")
    assert isinstance(table, Rows) and len(table.ids) and "corpus: words.txt, 3,000 tokens" in bugs.caption
    p = SkipTrigramsParams(Head(2, 1), bugs=True, text=TextRef(str(file)))
    np.testing.assert_array_equal(table.columns[-1].values, answer(engine, state, "skip_trigrams", p).followed)
    assert table.columns[-1].name == "of" and (table.columns[-1].values > 0).all()
    used = drawn(engine, state, "circuits", CircuitsView(page="in text")).find("used")
    assert isinstance(used, Rows)
    ranks = next(column.values for column in used.columns if column.name == "by weights")
    assert ((ranks >= 1) & (ranks <= CONFIGS["attention-only"].d_vocab)).all()


def test_own_tokens_stand_beside_the_copying_score(engine: Engine, state: State) -> None:
    own = answer(engine, state, "own_tokens", OwnTokensParams())
    said = f"{own.top10[state.selection.head]:.1%} of rows"
    for page in ("eigenvalues", "copying"):
        figure = drawn(engine, state, "spectra", SpectraView(page=page))
        assert said in figure.title and "chance" in figure.caption
    strip = drawn(engine, state, "spectra", SpectraView(page="copying")).find("copying")
    assert isinstance(strip, Points)
    for key, tip in zip(strip.ids.tolist(), strip.tips, strict=True):
        assert tip.startswith(str(Head(*key))) and f"{own.top1[tuple(key)]:.1%}" in tip
    copying = answer(engine, state, "copying_scores", CopyingScoresParams()).copying
    assert strip.x.tolist() == sorted(copying.ravel().tolist(), reverse=True)  # the most copying head is named first
    np.testing.assert_array_equal(strip.x, copying[tuple(strip.ids.T)])


@pytest.mark.parametrize("dark", [False, True])
def test_the_positive_half_is_tinted_and_zero_is_a_line(view: Any, dark: bool) -> None:
    """The background right of zero differs from that on the left; the pixels of the zero lines from both."""
    one = np.array([0.5])
    mark = Points("m", one, one, np.zeros((1, 1), np.int64), equal=True, sight=(-1, 1, -1, 1), origin=True)
    view.resize(500, 460)
    view.set_theme(DARK if dark else LIGHT)
    view.show_figure(Figure(((mark,),)))
    (widget,) = view.findChildren(PointsMark)
    widget.grab()  # lays it out
    image = widget.grab().toImage()
    left, right, zero = (widget.to_pixels(np.array([x]), np.array([-0.37]))[0] for x in (-0.63, 0.63, 0.0))
    colour = lambda at: image.pixelColor(round(at[0]), round(at[1])).getRgb()[:3]
    assert colour(left) != colour(right)
    near = [image.pixelColor(round(zero[0]) + dx, round(zero[1])).getRgb()[:3] for dx in (-2, -1, 0, 1, 2)]
    assert any(sum(abs(a - b) for a, b in zip(c, colour(left), strict=True)) > 60 for c in near)


def test_a_log_radius_keeps_angles() -> None:
    values = np.array([[100, 10j, -1, 1e-9, 0, -3 + 4j]])
    found = on_log_radius(values)
    np.testing.assert_allclose(np.abs(found)[0], [DECADES, DECADES - 1, DECADES - 2, 0, 0, DECADES - 2 + np.log10(5)])
    np.testing.assert_allclose(np.angle(found)[0, [0, 1, 2, 5]], np.angle(values)[0, [0, 1, 2, 5]])
    assert not np.isnan(found).any()
    assert np.array_equal(on_log_radius(np.zeros((1, 3), complex)), np.zeros((1, 3)))
    assert on_log_radius(np.full((1, 2), np.nan + 0j)).shape == (1, 2)


def test_the_plane_and_its_pairs(engine: Engine, state: State) -> None:
    result = answer(engine, state, "previous_head_spectrum", PreviousHeadSpectrumParams(p="one"))
    figure = drawn(engine, state, "spectra", SpectraView(page="plane", weighted_by="one"))
    plane, rows = figure.find("plane"), figure.find("earlier")
    assert isinstance(plane, Points) and isinstance(rows, Rows)
    heads = tuple(plane.ids.T)
    np.testing.assert_array_equal(plane.y, result.weighted[heads])
    np.testing.assert_array_equal(plane.x, result.copying[heads])
    assert len(set(plane.labels)) == 12 and [plane.labels[i] for i in plane.chosen] == ["L2H1"]
    assert np.isnan(plane.y[-4:]).all() and (np.diff((plane.x + plane.y)[:-4]) <= 0).all()  # strongest first
    for (layer, head), value in zip(rows.ids.tolist(), rows.columns[1].values, strict=True):
        assert result.pairs[2, 1, layer, head] == value
    picked = find_panel("spectra").pick(state, Hit("earlier", (1, 2), "click"))
    assert picked.selection.edge == (Head(1, 2), Head(2, 1))


def test_copying_is_a_histogram_of_all_heads(engine: Engine, state: State) -> None:
    figure = drawn(engine, state, "spectra", SpectraView(page="copying"))
    curves, strip = figure.find("histogram"), figure.find("copying")
    assert isinstance(curves, Lines) and isinstance(strip, Points)
    assert curves.ys[0][::2].sum() == 12  # every head once
    assert len(strip.x) == 12


@pytest.mark.parametrize("writer", ["embedding", "head"])
@pytest.mark.parametrize("reader", ["QK query", "QK key", "OV", "unembedding"])
def test_virtual_weights_of_a_chosen_pair(engine: Engine, state: State, writer: Any, reader: Any) -> None:
    pair = state.select(heads=(Head(2, 1), Head(0, 3)), edge=(Head(0, 3), Head(2, 1)))
    figure = drawn(engine, pair, "virtual", VirtualView(writer=writer, reader=reader, across=True))
    curve = figure.find("singular values")
    assert isinstance(curve, Lines)
    assert (np.diff(curve.ys[0][np.isfinite(curve.ys[0])]) <= 1e-6).all()


def test_virtual_weights_need_two_layers_or_say_so(engine: Engine, state: State) -> None:
    panel, facts = find_panel("virtual"), facts_of(engine, state.model)
    asked = panel.requests(state.with_view("virtual", VirtualView(reader="QK key")), facts)
    assert isinstance(asked, Why)
    assert "Composition" in asked.text
    two = state.select(heads=(Head(2, 1), Head(0, 3))).with_view("virtual", VirtualView(reader="QK key"))
    wanted = panel.requests(two, facts)
    assert not isinstance(wanted, Why)
    params: Any = wanted["product"].params
    assert (params.writer_head, params.reader_head) == (Head(0, 3), Head(2, 1))


def test_overlap_of_all_heads_with_all(engine: Engine, state: State) -> None:
    figure = drawn(engine, state, "residual", ResidualView(left="writes", right="reads_k"))
    heat = figure.find("overlap")
    assert isinstance(heat, Heatmap)
    result = answer(engine, state, "subspace_overlap", SubspaceOverlapParams("writes", "reads_k", Head(2, 1), Head(2, 1)))
    np.testing.assert_allclose(heat.values[1, 10], result.mean_cos2[0, 1, 2, 2], rtol=1e-6)
    picked = find_panel("residual").pick(state, Hit("overlap", (0, 1, 2, 2), "click"))
    assert picked.selection.edge == (Head(0, 1), Head(2, 2))
    assert find_panel("residual").pick(state, Hit("overlap", (2, 2, 0, 1), "click")).selection.edge is None


@pytest.mark.parametrize("page", ["what spans all", "basis", "rotation"])
def test_other_pages_of_the_stream(engine: Engine, state: State, page: Any) -> None:
    figure = drawn(engine, state, "residual", ResidualView(page=page))
    assert figure.grid
    if page == "what spans all":
        assert "not in this model" in figure.caption


def test_a_graph_of_many_heads_has_those_with_an_edge(engine: Engine, tmp_path: Path) -> None:
    shape = replace(CONFIGS["attention-only"], n_layers=20)
    state = State(ModelRef(f"file:{directory(tmp_path / 'model', shape)}")).select(heads=(Head(19, 3),))
    result = answer(engine, state, "composition", CompositionParams())
    pairs = pairs_of(result, "score").take(np.arange(12))
    view = CompositionView(form="graph", by="score", top=12)
    figure = drawn(engine, state, "composition", view)
    assert "of 80 heads those with an edge, and selected ones" in figure.caption
    graph = figure.find("composition")
    assert isinstance(graph, Edges) and graph.node_ids is not None and graph.edge_ids is not None
    wanted = {*zip(pairs.src_layer.tolist(), pairs.src.tolist(), strict=True)}
    wanted |= {*zip(pairs.dest_layer.tolist(), pairs.dest.tolist(), strict=True)}
    assert set(map(tuple, graph.node_ids.tolist())) == wanted | {(19, 3)}
    assert graph.labels == tuple(str(Head(*node)) for node in graph.node_ids.tolist())
    for (source, dest), edge in zip(graph.ends.tolist(), graph.edge_ids.tolist(), strict=True):
        assert (*graph.node_ids[dest].tolist(), *graph.node_ids[source].tolist()) == tuple(edge[:4])
    assert [text for _, text in graph.rows] == [f"L{layer}" for layer in sorted({layer for layer, _ in wanted} | {19})]
    for (_, y), (layer, _) in zip(graph.xy.tolist(), graph.node_ids.tolist(), strict=True):
        assert (y, f"L{layer}") in graph.rows
    chosen = graph.chosen_nodes
    assert [tuple(graph.node_ids[i].tolist()) for i in chosen] == [(19, 3)]
    assert set(np.flatnonzero(graph.hues >= 0).tolist()) == set(chosen)
    other = drawn(engine, state.select(heads=(Head(*min(wanted)),)), "composition", view).find("composition")
    again = drawn(engine, state.select(heads=(Head(*max(wanted)),)), "composition", view).find("composition")
    assert isinstance(other, Edges) and isinstance(again, Edges)
    assert other.xy is again.xy  # another selection moves nothing
    assert np.flatnonzero(other.hues >= 0).tolist() != np.flatnonzero(again.hues >= 0).tolist()


@pytest.mark.parametrize("name", ["composition", "circuits", "spectra", "bigram", "virtual", "residual"])
def test_a_model_without_an_exact_view_is_refused_in_one_line(tmp_path: Path, engine: Engine, name: str) -> None:
    ref = ModelRef(f"file:{directory(tmp_path / 'm', CONFIGS['post-residual'])}")
    facts: Facts = facts_of(engine, ref)
    asked = find_panel(name).requests(State(ref).with_tokens((1, 2)), facts)
    assert isinstance(asked, Why)
    assert norm_on_stream(asked.text)
    assert "\n" not in asked.text


def test_numbers_beside_heads_say_what_they_are_wherever_they_stand(engine: Engine) -> None:
    shipped = api.open("attn-only-2l", use=engine)
    figure = figure_of(engine, find_panel("composition"), shipped.state("one two one"))
    graph = figure.marks()[0]
    assert isinstance(graph, Edges) and any(graph.badges)
    (words,) = (part for part in figure.brief if "prefix matching" in part)
    assert isinstance(words, Essential)
    assert re.search(r"0\.4, where there is room, on random tokens, on\W10\W×\W25\W×\W4 \(", words)


@pytest.mark.parametrize("form", ["graph", "matrix", "list"])
def test_pairs_by_positivity_are_of_keys_and_have_their_composition_beside_it(engine: Engine, state: State, form: Any) -> None:
    pairs = answer(engine, state, "pair_positivity", PairPositivityParams()).pairs
    scores = answer(engine, state, "composition", CompositionParams()).scores[1]
    view = CompositionView(form=form, by="positivity", through="V", top=9)
    (mark,) = drawn(engine, state, "composition", view).marks()
    best = np.sort(pairs[np.isfinite(pairs)])[::-1][:9]
    if isinstance(mark, Heatmap):
        assert mark.name == "K" and mark.levels == (-1, 1) and mark.colour_bar
        np.testing.assert_array_equal(mark.values, pairs[1:, :, :-1].reshape(8, 8).astype(np.float32))
    elif isinstance(mark, Edges):
        assert mark.values is not None and mark.unit == "positivity" and set(mark.kinds) == {1}
        np.testing.assert_array_equal(np.sort(mark.values)[::-1], best)
    else:
        assert isinstance(mark, Rows)
        columns = {c.name: c.values for c in mark.columns}
        np.testing.assert_array_equal(columns["positivity"], best)
        for row, key in enumerate(mark.ids.tolist()):
            place = tuple(key[:4])
            assert (columns["positivity"][row], columns["K-composition"][row]) == (pairs[place], scores[place])
            assert (columns["destination"][row], columns["source"][row]) == (f"L{key[0]}H{key[1]}", f"L{key[2]}H{key[3]}")


def test_positivity_is_asked_for_only_where_it_is_shown_and_a_part_of_it_says_so(engine: Engine, state: State) -> None:
    panel, facts = find_panel("composition"), facts_of(engine, state.model)
    others = state.with_view("composition", CompositionView(by="z"))
    assert "positivity" not in panel.ask(others, facts).by_role
    shown = state.with_view("composition", CompositionView(by="positivity", form="list")).with_edge(Head(0, 3), Head(2, 1), "K")
    answers: dict[str, Any] = {role: engine.answer(request) for role, request in panel.ask(shown, facts).by_role.items()}
    whole = panel.figure(shown, facts, answers, {})
    value = answers["positivity"].result.pairs[2, 1, 0, 3]
    assert f"positivity {number(value, '.3f')}" in whole.title and "so far" not in whole.caption and whole.shown is None
    result = answers["positivity"].result
    pairs = np.full_like(result.pairs, np.nan)
    pairs[1, 0, 0, :2] = result.pairs[1, 0, 0, :2]
    part = replace(answers["positivity"], result=replace(result, pairs=pairs, done=2 / 48), complete=False)
    figure = panel.figure(shown, facts, {**answers, "positivity": part}, {})
    assert "positivity so far of 2 of 48 pairs, those of high K-composition first" in figure.caption
    assert "positivity not yet computed" in figure.title
    (rows,) = figure.marks()
    assert isinstance(rows, Rows) and len(rows.ids) == int((pairs[1, 0, 0, :2] > 0).sum())


@pytest.mark.parametrize("n_layers", [3, 20])  # with all heads, and with those that have an edge
def test_heads_that_share_keys_are_bracketed_and_lists_name_what_they_share(
    engine: Engine, tmp_path: Path, n_layers: int
) -> None:
    shape = replace(CONFIGS["llama"], n_layers=n_layers)
    assert (shape.n_heads, shape.group) == (4, 2)
    state = State(ModelRef(f"file:{directory(tmp_path / 'model', shape)}")).with_tokens((0, 5, 9, 5, 7))
    graph = drawn(engine, state, "composition", CompositionView(form="graph", top=30))
    edges = graph.find("composition")
    assert (
        isinstance(edges, Edges) and edges.node_ids is not None and "brackets: heads with one key and one value" in graph.caption
    )
    nodes = [tuple(node) for node in edges.node_ids.tolist()]
    held = {tuple(nodes[i] for i in bracket) for bracket in edges.brackets}
    pairs = {((layer, first), (layer, first + 1)) for layer in range(n_layers) for first in (0, 2)}
    assert held == {pair for pair in pairs if set(pair) <= set(nodes)} and held
    rows = drawn(engine, state, "composition", CompositionView(form="list", top=200)).find("pairs")
    assert isinstance(rows, Rows)
    columns = {c.name: c.values for c in rows.columns}
    for through, dest, shared in zip(columns["through"], columns["destination"], columns["shared"], strict=True):
        first = _head(dest)[1] // 2 * 2
        assert shared == ("" if through == "Q" else f"H{first}–H{first + 1}")
    for name in ("overview", "heads"):
        figure = drawn(engine, state, name)
        (heat,) = (mark for mark in figure.marks() if isinstance(mark, Heatmap))
        assert heat.x.brackets == ((0, 2), (2, 4)) and "brackets: heads with one key" in figure.caption


def test_heads_with_keys_of_their_own_have_no_brackets(engine: Engine, state: State) -> None:
    graph = drawn(engine, state, "composition", CompositionView(form="graph"))
    assert not graph.find("composition").brackets and "brackets" not in graph.caption  # type: ignore[union-attr]
    rows = drawn(engine, state, "composition", CompositionView(form="list")).find("pairs")
    assert isinstance(rows, Rows) and "shared" not in [c.name for c in rows.columns]
    assert not drawn(engine, state, "overview").find("heads").x.brackets  # type: ignore[union-attr]


def test_the_form_follows_the_number_of_heads_until_one_is_chosen_and_a_large_matrix_names_layers(
    engine: Engine, state: State, tmp_path: Path
) -> None:
    large = State(ModelRef(f"file:{directory(tmp_path / 'model', replace(CONFIGS['attention-only'], n_layers=17))}"))
    assert isinstance(drawn(engine, state, "composition").marks()[0], Edges)
    assert isinstance(drawn(engine, large, "composition").marks()[0], Rows)  # 68 heads
    assert isinstance(drawn(engine, large, "composition", CompositionView(form="graph")).marks()[0], Edges)
    matrix = CompositionView(form="matrix", through="K")
    (few,), (many,) = (drawn(engine, of, "composition", matrix).marks() for of in (state, large))
    assert isinstance(few, Heatmap) and isinstance(many, Heatmap) and not few.x.spans and not few.y.spans
    assert many.x.spans == tuple((4 * i, 4 * i + 4, f"L{i}") for i in range(16))
    assert many.y.spans == tuple((4 * i, 4 * i + 4, f"L{i + 1}") for i in range(16))
    assert many.y.ticks[0] == "L1H0" and many.x.ticks[-1] == "L15H3"


def test_the_plane_shows_the_pairs_that_were_asked_for_whatever_the_control_says_by_then(engine: Engine, state: State) -> None:
    panel, facts = find_panel("spectra"), facts_of(engine, state.model)
    centred, raw = (state.with_view("spectra", SpectraView(page="plane", weighted_by="one", raw=raw)) for raw in (False, True))
    result = answer(engine, state, "pair_positivity", PairPositivityParams())
    for asked, pairs in ((centred, result.pairs), (raw, result.pairs_raw)):
        answers: dict[str, Any] = {role: engine.answer(request) for role, request in panel.ask(asked, facts).by_role.items()}
        for shown in (centred, raw):
            rows = panel.figure(shown, facts, answers, {}).find("earlier")
            assert isinstance(rows, Rows)
            for (layer, head), value in zip(rows.ids.tolist(), rows.columns[1].values, strict=True):
                assert value == pytest.approx(pairs[2, 1, layer, head], abs=1e-9)
