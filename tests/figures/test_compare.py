"""The pin: every panel and page beside an uncut run, another text, another model; and what a difference is made of."""

from __future__ import annotations

import re
import typing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from circuitlab.caption_parts import Essential, Part, Sense
from circuitlab.draw.heatmap.heatmap import cell_words
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import needs
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, CircuitLabError
from circuitlab.figures.contracts.compare import ROUNDING, _conventions, _titles
from circuitlab.figures.contracts.compare_marks import difference
from circuitlab.figures.contracts.held_scales import HeldScales
from circuitlab.figures.contracts.panel import Panel, facts_of, panels
from circuitlab.figures.contracts.pinned import Pinned
from circuitlab.figures.contracts.shared_scales import colours
from circuitlab.figures.marks import Axis, Bars, Edges, Figure, Heatmap, Lines, Points, RowColumn, Rows, Tokens, ids, joined
from circuitlab.figures.panels.heads import HeadsView
from circuitlab.figures.panels.predictions import PredictionsView
from circuitlab.figures.panels.prompt_sets.panel import PromptSetsView
from circuitlab.model.forward import forward
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.records.corpus_bigrams import FILE
from circuitlab.model.saving import random_tensors, save_directory
from circuitlab.model.subject import Head, ModelRef, Target
from circuitlab.report.render import figure_of
from circuitlab.state.cuts import ablation, edit_words, heads_of, short_words, with_edits
from circuitlab.state.state import Compare, Pin, State
from circuitlab.training.bigrams import count_bigrams, write
from circuitlab.training.corpus import Stream
from tests.figures.figure_words import rows_counted
from tests.gui.training import measures
from tests.models import CONFIGS, byte_tokenizer, directory
from tests.rounding import check_listed
from tests.series_files import keep_scaled
from tests.words import but_for_rounding, explained, is_difference, minus, not_compared, same_in, sums_to_one

TOKENS = (0, 5, 9, 5, 7, 5, 9)
LETTERS = "one two one\tt\to\tone six one\nab ac ab\ta\tb\tab zc ab\n"  # prompts as long as these models read


def pages_of(panel: Panel) -> tuple[tuple[str, str], ...]:
    """(panel, page) for each choice of the row of buttons, or of a field called page."""
    hints = typing.get_type_hints(panel.view)
    name = page_field(panel)
    return tuple((panel.name, page) for page in (get_args(hints[name]) if name else ("",)))


def page_field(panel: Panel) -> str:
    result = (f.name for f in fields(panel.view) if f.name == "page" or f.metadata.get("kind") == "tabs")
    return next(result, "")


PAGES = tuple(page for panel in panels().values() for page in pages_of(panel))


def on_page(state: State, name: str, page: str) -> State:
    panel = panels()[name]
    more = {"edges": "L0H1->L1H2:K"} if (name, page) == ("keep_only", "edges") else {}
    return state.with_view(name, replace(state.view(name, panel.view), **{page_field(panel): page}, **more)) if page else state


def models_in(path: Path) -> tuple[Engine, dict[str, State]]:
    """An engine, and a State on a model of each kind that a page may need; files are written to `path`."""
    (path / "letters.tsv").write_text(LETTERS, encoding="utf-8")
    prompts = PromptSetsView(prompts="a file", file=str(path / "letters.tsv"))
    of = lambda name: State(ModelRef(f"file:{directory(path / name, CONFIGS[name])}")).with_tokens(TOKENS)
    heads = (Head(1, 2), Head(0, 1))
    states = {n: of(n).select(heads=heads).with_view("prompt_sets", prompts) for n in ("attention-only", "gpt2", "odd")}
    states["trained"] = State(ModelRef(f"file:{directory(path / 'trained', n_ctx=64)}")).with_tokens(TOKENS).select(heads=heads)
    keep_scaled(path / "trained", {100: 0.5, 200: 0.8})
    letters = lambda more: State(ModelRef(f"construct:rope-induction{more}")).with_tokens((0, 1, 2, 3, 1, 2))
    states |= {"laboratory": letters(""), "rank one": letters("?variant=rank-one")}
    measures(path / "attention-only", (0, 100, 200, 300), 400, fall=1)
    n = CONFIGS["attention-only"].d_vocab
    text = Stream("random", 1.0, np.random.default_rng(0).integers(0, n, 20_000).astype(np.uint16), np.zeros(0, np.uint16))
    write(path / "attention-only" / FILE, count_bigrams((text,), n), "random")  # bigrams, among which bugs are looked for
    return Engine(ModelStore()), states


def model_for(states: dict[str, State], name: str, page: str) -> State:
    """The State on a model that the page can show."""
    if (name, page) == ("theory", "training"):
        return states["trained"]
    return states[
        "gpt2" if name == "neurons" else page if page == "rank one" else name if name == "laboratory" else "attention-only"
    ]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> tuple[Engine, dict[str, State]]:
    return models_in(tmp_path_factory.mktemp("models"))


def signature(figure: Figure) -> list[Any]:
    """What is drawn, as values that can be compared."""
    flat = lambda v: v.tobytes() if v.dtype.kind in "fiu" else tuple(map(str, v.ravel()))
    plain = lambda v: (v.shape, flat(v)) if isinstance(v, np.ndarray) else v
    result: list[Any] = []
    for mark in figure.marks():
        if isinstance(mark, Rows):
            result += [(mark.name, c.name, plain(c.values)) for c in mark.columns]
        else:
            result += [(mark.name, k, plain(v)) for k, v in vars(mark).items() if k not in ("x_axis", "y_axis", "x", "y")]
            result += [(mark.name, k, plain(vars(mark)[k])) for k in ("x", "y") if isinstance(vars(mark).get(k), np.ndarray)]
    return result


def drawn(engine: Engine, name: str, state: State, compare: Compare) -> Figure:
    return figure_of(engine, panels()[name], replace(state, compare=compare))


def answers(engine: Engine, state: State, name: str, page: str) -> bool:
    """Whether the page has something to show on this model."""
    try:
        return bool(drawn(engine, name, on_page(state, name, page), "now").grid)
    except CircuitLabError:
        return False


@pytest.mark.parametrize(("name", "page"), PAGES)
def test_every_page_shows_the_uncut_run_beside_the_cut_one(bench: tuple[Engine, dict[str, State]], name: str, page: str) -> None:
    engine, states = bench
    constructed, state = name == "laboratory", model_for(states, name, page)
    heads = (Head(0, 1), Head(1, 2))[:: 1 if name == "patching" else -1]  # a path starts at an early head
    if constructed:
        heads = (Head(1, 0), Head(0, 0))
    cut = on_page(with_edits(state.select(heads=heads), ablation(heads[-1] if constructed else Head(0, 1))), name, page)
    assert answers(engine, cut, name, page)
    now, change, before = (drawn(engine, name, cut, c) for c in ("now", "difference", "reference"))
    moved = signature(change) != signature(now)
    reason = not_compared(change.caption) or same_in("uncut") in change.caption
    if name != "patching":  # whose run to patch from is the reference; elsewhere the word is that of the reference alone
        assert "uncut" not in now.title + now.caption.split(" · on one scale with reference: uncut")[0]
    assert "uncut" in change.caption
    assert moved or reason, change.caption
    assert "uncut" in before.title or reason
    changes = [
        c for mark in change.marks() if isinstance(mark, Rows) for c in mark.columns if c.name.startswith("Δ ") or c.name == "Δ"
    ]
    units = [mark.unit for mark in change.marks() if isinstance(mark, Heatmap | Tokens | Bars) and mark.unit.startswith("Δ")]
    stays = " · ".join((change.title, *(part for part in change.caption_parts if isinstance(part, Essential))))
    if any(c.tip.startswith("now minus") for c in changes) or units:
        assert "now − uncut" in change.title or "Δ now minus it" in stays, "which way round, also where there is little room"
    assert all("now − uncut" in c.copied_name for c in changes if c.tip.startswith("now minus"))
    assert not (is_difference(change.title, "uncut") and sums_to_one(change.caption))
    if not moved and not explained(change.caption):
        assert same_in("uncut") in change.title or page in ("curves", "index", "plane", "zeroed", "heads"), change.title
    assert name == "patching" or "itself sets" not in change.caption


@pytest.mark.parametrize(("name", "page"), [("heads", ""), ("theory", "heads"), ("composition", "")])
def test_the_reference_alone_is_uncut_also_where_its_numbers_are_those_of_now(
    bench: tuple[Engine, dict[str, State]], name: str, page: str
) -> None:
    engine, states = bench
    cut = on_page(with_edits(states["trained"].select(heads=(Head(1, 2),)), ablation(Head(0, 1))), name, page)
    before, change = (drawn(engine, name, cut, compare) for compare in ("reference", "difference"))
    alone = drawn(engine, name, replace(cut, edits=()), "now")
    assert before.title == f"uncut · {alone.title}" and signature(before) == signature(alone)
    assert "the same now: nothing here depends on the cut" in before.caption and "zeroed" not in before.caption
    assert not any("zeroed" in words for words in before.about) and before.title != change.title


@pytest.mark.parametrize(
    ("ours", "theirs", "both"),
    [
        (
            "ρ\N{NO-BREAK SPACE}0.83 (95\N{NO-BREAK SPACE}%: 0.18 to 0.98), 8 heads",
            "ρ\N{NO-BREAK SPACE}0.69 (95\N{NO-BREAK SPACE}%: −0.13 to 0.95), 8 heads",
            "ρ\N{NO-BREAK SPACE}now 0.83 (95\N{NO-BREAK SPACE}%: 0.18 to 0.98), "
            "other 0.69 (95\N{NO-BREAK SPACE}%: −0.13 to 0.95), 8 heads",
        ),
        ("L1H2 (rank 3 of 8), A", "L1H2 (rank 5 of 8), A", "L1H2 (rank now 3, other 5 of 8), A"),
        ("L1H2 (3 of 9), A", "L1H2 (5 of 8), A", "L1H2 now (3 of 9), other (5 of 8), A"),
        ("mean 0.83 (sd 0.2) here", "mean 0.7 (sd 0.2) here", "mean now 0.83, other 0.7 (sd 0.2) here"),
        ("mean 1 (of 2)", "median 1 (of 3)", "now: mean 1 (of 2)"),
        ("control 0.00 to 0.03 here", "control 0.01 to 0.05 here", "control now 0.00 to 0.03, other 0.01 to 0.05 here"),
        ("change at 7.6–9.7 M tokens", "change at 6.1–9.2 M tokens", "change at now 7.6–9.7, other 6.1–9.2 M tokens"),
    ],
)
def test_a_parenthesis_stays_with_its_number(ours: str, theirs: str, both: str) -> None:
    assert _titles(ours, theirs, "other")[0] == both


def test_a_caption_says_what_each_of_the_two_is_wherever_they_differ() -> None:
    ours = ("centred", "10 samples, seed 0", "heads named by hand", "exact")
    theirs = ("centred", "drawn from text", "20 samples, seed 0", Essential("estimated"), "exact")
    parts = _conventions(ours, theirs, "other", False)
    both = "now 10, other 20 samples, seed 0"
    assert parts == ("centred", both, "heads named by hand (now)", "other: drawn from text", "other: estimated", "exact")
    assert [part for part in parts if isinstance(part, Essential)] == ["other: estimated"]
    assert _conventions(("a word",), ("another",), "other", False) == ("a word (now)", "other: another")
    assert _conventions(("a word",), (), "other", False) == ("a word (now)",)


def test_what_holds_for_values_alone_is_not_said_of_their_differences() -> None:
    rows = Part("pattern: rows sum to 1", Sense(of_differences="pattern"))
    sums = [Part(f"rows sum to 0.{n} … 1", Sense(of_differences="")) for n in (8, 9)]
    both = _conventions(("exact", rows, sums[0]), ("exact", rows, sums[1]), "other", True)
    assert both == ("exact", "pattern") and _conventions((rows,), (rows,), "other", False) == (rows,)
    assert _conventions((rows,), ("pattern × ‖v‖",), "other", True) == ("pattern (now)", "other: pattern × ‖v‖")
    plain = ("pattern: rows sum to 1",)
    assert _conventions(plain, plain, "other", True) == plain, "words alone decide nothing"


def test_a_title_says_of_both_what_its_numbers_are(bench: tuple[Engine, dict[str, State]]) -> None:
    engine, states = bench
    state = states["attention-only"]
    cut = on_page(with_edits(state, ablation(Head(0, 1))), "ablation", "heads")
    now, whole, change = (
        drawn(engine, "ablation", s, c) for s, c in ((cut, "now"), (replace(cut, edits=()), "now"), (cut, "difference"))
    )
    ours, theirs = (re.search(r": (\S+) nats", figure.title) for figure in (now, whole))
    assert ours and theirs and ours[1] != theirs[1]
    assert is_difference(change.title, "uncut") and "L1H2" in change.title
    assert ours[1] in change.title and theirs[1] in change.title
    # of other words the title says that it is now's, and the caption has the reference's
    change = drawn(engine, "model", replace(state, pins=(Pin("elsewhere", states["odd"].subject),)), "difference")
    assert "attention-only" in change.title and "elsewhere" in change.title and "odd" in change.caption


def test_every_token_of_a_circuit_that_either_side_lists_has_both_values(tmp_path: Path) -> None:
    config, engine = CONFIGS["attention-only"], Engine(ModelStore())
    for seed in (0, 1):
        save_directory(tmp_path / str(seed), config, random_tensors(config, seed, 0.35), byte_tokenizer())
    refs = [ModelRef(f"file:{tmp_path / str(seed)}") for seed in (0, 1)]
    here, there = (State(ref).with_tokens(TOKENS).select(heads=(Head(1, 2),), token=7) for ref in refs)
    state = replace(here, pins=(Pin("other", there.subject),))
    alone = [drawn(engine, "circuits", s, "now") for s in (here, there)]
    change = drawn(engine, "circuits", state, "difference")
    for name in ("raises", "attends", "raised", "attended"):
        marks = [figure.find(name) for figure in (change, *alone)]
        assert all(isinstance(mark, Rows) for mark in marks)
        rows, ours, theirs = marks
        assert set(rows.ids[:, 0]) == {*ours.ids[:, 0], *theirs.ids[:, 0]}  # type: ignore[union-attr]
        by = {c.name: c.values for c in rows.columns}  # type: ignore[union-attr]
        now = by["logit" if name.startswith("raise") else "score"]
        assert all(np.isfinite(by[n]).all() for n in ("Δ", "in other"))
        np.testing.assert_allclose(by["Δ"], now - by["in other"], atol=1e-6)
        for mark, values in ((ours, now), (theirs, by["in other"])):
            known = dict(zip(mark.ids[:, 0].tolist(), mark.columns[1].values, strict=True))  # type: ignore[union-attr]
            for key, value in zip(rows.ids[:, 0].tolist(), values, strict=True):  # type: ignore[union-attr]
                assert key not in known or value == pytest.approx(known[key], abs=1e-6)


@pytest.mark.parametrize("name", ["paths", "attribution"])
def test_logits_of_two_tokens_are_not_subtracted(bench: tuple[Engine, dict[str, State]], name: str) -> None:
    engine, states = bench
    state = states["attention-only"]
    weights = engine.store.open(state.model).opened.weights
    most = lambda tokens: int(forward(weights, tokens).logits()[-1].argmax())
    last = next(t for t in range(1, 60) if most((*TOKENS, t)) != most(TOKENS))
    longer = replace(state, pins=(Pin("longer", state.with_tokens((*TOKENS, last)).subject),))
    alone, change = drawn(engine, name, replace(longer, pins=()), "now"), drawn(engine, name, longer, "difference")
    assert signature(alone) == signature(change) and not is_difference(change.title, "longer")
    assert not_compared(change.caption)
    same = drawn(engine, name, longer.select(target=Target((7,))), "difference")
    assert not not_compared(same.caption) and is_difference(same.title, "longer")


def test_a_head_that_the_reference_lacks_has_no_other_one_in_its_place(tmp_path: Path) -> None:
    config = CONFIGS["attention-only"]
    for n in (1, 2):
        small = replace(config, n_layers=n)
        save_directory(tmp_path / str(n), small, random_tensors(small, 0, 0.35), byte_tokenizer())
    one, two = (State(ModelRef(f"file:{tmp_path / str(n)}")).with_tokens(TOKENS) for n in (1, 2))
    state = replace(two.select(heads=(Head(1, 2),)), pins=(Pin("one layer", one.subject),))
    change = drawn(Engine(ModelStore()), "attention", state, "difference")
    assert "not compared" in change.caption and "no L1H2" in change.caption and "one layer" not in change.title
    shared = drawn(Engine(ModelStore()), "attention", state.select(heads=(Head(0, 2),)), "difference")
    assert "not compared" not in shared.caption


@pytest.mark.parametrize("beside", ["a cut", "a text", "a model"])
def test_every_token_that_either_side_lists_has_both_probabilities(
    bench: tuple[Engine, dict[str, State]], tmp_path: Path, beside: str
) -> None:
    engine, states = bench
    state = states["attention-only"].with_view("predictions", PredictionsView(k=5))
    if beside == "a cut":
        state = with_edits(state, ablation(Head(1, 2)), ablation(Head(0, 1)))
    else:
        other = state.with_tokens((0, 5, 9, 6, 7, 5, 3))
        if beside == "a model":
            save_directory(
                tmp_path / "m", CONFIGS["attention-only"], random_tensors(CONFIGS["attention-only"], 7, 0.35), byte_tokenizer()
            )
            other = replace(state, model=ModelRef(f"file:{tmp_path / 'm'}"))
        state = replace(state, pins=(Pin("other", other.subject),))
    pin = state.reference
    assert pin is not None
    probabilities = []
    for subject in (state.subject, pin.subject):
        weights = engine.store.open(subject.model).opened.weights
        logits = forward(weights, subject.tokens, subject.edits).logits()[-1].double().numpy()
        probabilities.append(np.exp(logits) / np.exp(logits).sum())
    now, then = probabilities
    change = drawn(engine, "predictions", state, "difference")
    rows = change.marks()[0]
    assert isinstance(rows, Rows)
    by = {c.name: c.values for c in rows.columns}
    listed = rows.ids[:, 0]
    check_listed(listed, 5, now, then, rtol=1e-4)
    np.testing.assert_allclose(by["p"], now[listed], rtol=1e-4)
    np.testing.assert_allclose(by[f"in {pin.label}"], then[listed], rtol=1e-4)
    np.testing.assert_allclose(by["Δ"], (now - then)[listed], atol=1e-5)
    assert (np.diff(np.abs(by["Δ"])) <= 0).all()
    assert by["#"].tolist() == [int((now > now[i]).sum()) + 1 for i in listed]
    assert rows_counted(change) == (len(listed), len(now))


def cut_words(figure: Figure) -> set[str]:
    """Where a figure says or shows that L0H1 is cut."""
    said = {"title": figure.title, "cut": figure.cut, "about": joined(*figure.about), "caption": figure.caption}
    places = {place for place, words in said.items() if "L0H1 zeroed" in words}
    marks = [mark for mark in figure.marks() if getattr(mark, "struck", ())]
    return places | {f"cross in {mark.name}" for mark in marks}


@pytest.mark.parametrize(("name", "page"), PAGES)
def test_a_figure_names_the_cut_exactly_where_its_numbers_are_under_it(
    bench: tuple[Engine, dict[str, State]], name: str, page: str
) -> None:
    """Under every choice of a switch, as it may decide whether interventions are read."""
    engine, states = bench
    state = on_page(model_for(states, name, page), name, page).with_heads(Head(1, 0), Head(0, 0))
    cut, panel = with_edits(state, ablation(Head(0, 1))), panels()[name]
    view, facts = state.view(name, panel.view), facts_of(engine, state.model)
    switches = [f.name for f in fields(panel.view) if isinstance(getattr(view, f.name), bool)]
    for on in (None, *switches):
        changed = view if on is None else replace(view, **{on: not getattr(view, on)})
        question = panel.ask(cut.with_view(name, changed), facts)
        if not question.by_role:
            continue
        try:
            here, whole = (drawn(engine, name, one.with_view(name, changed), "now") for one in (cut, state))
        except CircuitLabError:
            continue  # nothing to draw on this model
        under = any(needs(r.analysis, r.params) != "weights" and r.subject.edits for r in question.by_role.values())
        assert ({"title", "about"} <= cut_words(here)) is under and (under or not cut_words(here)), (on, here.title, here.about)
        assert not cut_words(whole)
        if signature(here) != signature(whole):
            assert under, on


@pytest.mark.parametrize(("name", "page"), [("heads", ""), ("induction", "heads"), ("induction", "stripe")])
def test_the_switch_of_a_measurement_on_its_own_texts_decides_whether_the_cut_is_named(
    bench: tuple[Engine, dict[str, State]], name: str, page: str
) -> None:
    engine, states = bench
    state = with_edits(on_page(states["attention-only"], name, page), ablation(Head(0, 1)))
    off = state.view(name, panels()[name].view)
    without, within = (drawn(engine, name, state.with_view(name, replace(off, edited=on)), "now") for on in (False, True))
    assert not cut_words(without) and {"title", "about"} <= cut_words(within)


@pytest.mark.parametrize("name", ["overview", "heads"])
@pytest.mark.parametrize("compare", ["now", "difference"])
def test_the_head_that_is_cut_is_crossed_and_named_not_the_one_that_is_chosen(
    bench: tuple[Engine, dict[str, State]], name: str, compare: Compare
) -> None:
    engine, states = bench
    state = states["attention-only"].with_heads(Head(1, 1))
    state = state if name == "overview" else state.with_view("heads", HeadsView(on="text"))
    cut = with_edits(state, ablation(Head(0, 2)), Intervention("mean", Site("z", 0, (3,))))
    figure = drawn(engine, name, cut, compare)
    mark = figure.marks()[0]
    assert isinstance(mark, Heatmap)
    crossed, said = mark.struck, [mark.hints[place] for place in mark.struck]
    assert crossed == ((0, 2), (0, 3))
    assert "zero z of L0H2" in said[0] and "mean" in said[1] and "L0H3" in said[1]
    assert "✕ L0H2 zeroed +1" in figure.title
    assert not any(getattr(m, "struck", ()) for m in drawn(engine, name, state, "now").marks())


def test_what_is_zeroed_whole_is_named_in_one_way_and_what_is_not_says_where() -> None:
    whole = ablation(Head(0, 2))
    assert edit_words((whole,)) == [short_words((whole,))] == ["L0H2 zeroed"]
    for site in (Site("z", 0, (2,), positions=(3,)), Site("k", 0, (2,)), Site("z", 0)):
        (part,) = edit_words((Intervention("zero", site),))
        assert part != short_words((Intervention("zero", site),)) and site.name in part
    assert "3" in edit_words((Intervention("zero", Site("z", 0, (2,), positions=(3,))),))[0]


def test_a_key_that_a_group_shares_is_cut_in_all_heads_of_the_group() -> None:
    grouped = replace(CONFIGS["attention-only"], n_heads=4, n_kv_heads=2)
    heads = lambda site: [str(h) for h in heads_of(Intervention("zero", site), grouped)]
    assert heads(Site("k", 1, (1,))) == ["L1H2", "L1H3"]
    assert heads(Site("q", 1, (1,))) == ["L1H1"]
    assert heads(Site("z", 0)) == ["L0H0", "L0H1", "L0H2", "L0H3"]
    assert heads(Site("mlp_out", 0)) == []


@pytest.mark.parametrize(("name", "page"), [p for p in PAGES if p[0] in ("attention", "induction", "paths", "laboratory")])
def test_a_cell_that_no_destination_sees_is_masked_not_empty(
    bench: tuple[Engine, dict[str, State]], name: str, page: str
) -> None:
    engine, states = bench
    state = states["laboratory" if name == "laboratory" else "attention-only"]
    maps = [m for m in drawn(engine, name, on_page(state, name, page), "now").marks() if isinstance(m, Heatmap)]
    seen = [m for m in maps if m.y.label == "destination" and m.x.label.startswith("source")]
    assert name != "attention" or np.isnan(seen[0].values).any()
    for mark in seen:
        for row, col in np.argwhere(np.isnan(mark.values)).tolist():
            assert "masked" in cell_words(mark, row, col) and "empty" not in cell_words(mark, row, col)


def test_a_difference_in_which_nothing_differs_says_so_in_its_title(bench: tuple[Engine, dict[str, State]]) -> None:
    engine, states = bench
    cut = with_edits(states["attention-only"], ablation(Head(1, 2)))  # its own pattern was made before its output is cut
    change = drawn(engine, "attention", cut, "difference")
    assert f"L1H2 zeroed · {same_in('uncut')}" in change.title and sums_to_one(change.caption)
    assert change.title.count("zeroed") == 1 and change.cut == "L1H2 zeroed"
    change = drawn(engine, "attention", with_edits(cut, ablation(Head(0, 1))), "difference")
    assert is_difference(change.title, "uncut") and "L1H2" in change.title and not sums_to_one(change.caption)
    # of another prompt a panel of weights has nothing to say, and one of the series is about the point that its title names
    pin = Pin("elsewhere", states["attention-only"].with_tokens((0, 5)).subject)
    change = drawn(engine, "composition", replace(states["attention-only"], pins=(pin,)), "difference")
    assert same_in("elsewhere") in change.title


@pytest.mark.parametrize("name", ["attention", "overview"])
def test_a_head_whose_output_is_zeroed_says_it_where_its_inner_work_is_shown(
    bench: tuple[Engine, dict[str, State]], name: str
) -> None:
    engine, states = bench

    def said(state: State, compare: Compare = "now") -> list[tuple[str, ...]]:
        figure = drawn(engine, name, state, compare)
        return re.findall(r"zeroed: (\S+) writes|✕ (\S+) zeroed", f"{figure.title} · {figure.caption}")

    state = states["attention-only"]
    assert said(state) == []
    cut = with_edits(state, ablation(Head(1, 2)))
    assert [*map("".join, said(cut))] == [*map("".join, said(cut, "difference"))] == ["L1H2"]
    assert name == "overview" or not said(cut, "reference")
    assert len(said(with_edits(state, ablation(Head(0, 0))))) == (name == "overview")
    sender = Site("result", 0, (1,))
    for elsewhere in (Site("z", 1, (2,), positions=(3,)), Site("v", 1, (2,))):  # at one position, along one path: not all of it
        edit = Intervention("zero", elsewhere, path_from=sender if elsewhere.name == "v" else None)
        assert "writes nothing" not in drawn(engine, name, with_edits(state, edit), "now").caption


def test_what_differs_in_a_caption_is_said_of_both(bench: tuple[Engine, dict[str, State]]) -> None:
    engine, states = bench
    cut = with_edits(states["attention-only"], ablation(Head(0, 1)))
    now, before, change = (drawn(engine, "predictions", cut, c) for c in get_args(Compare))
    ours, theirs = (re.search(r"entropy (\S+) nats", f.caption) for f in (now, before))
    assert ours and theirs and f"entropy now {ours[1]}, uncut {theirs[1]} nats" in change.caption
    assert change.title.endswith(" · L0H1 zeroed · beside uncut") and now.title.endswith(" · L0H1 zeroed")
    assert "zeroed" not in before.title, "the reference is without it"


@pytest.mark.parametrize("name", ["attention", "paths"])
def test_a_map_and_the_text_under_it_stay_on_one_scale(bench: tuple[Engine, dict[str, State]], name: str) -> None:
    engine, states = bench
    cut = with_edits(on_page(states["attention-only"], name, "pair" if name == "paths" else ""), ablation(Head(0, 2)))
    cut = cut.select(destination=3)
    change = drawn(engine, name, cut, "difference")
    heat, text = change.marks()
    assert isinstance(heat, Heatmap) and isinstance(text, Tokens)
    top = max(float(np.nanmax(np.abs(mark.values))) for mark in (heat, text))
    assert heat.levels == text.levels == (-top, top)
    assert f"{minus('uncut')}, ± {top:.2g} weight" in change.caption
    # what had a scale of its own keeps it, and says it
    change = drawn(engine, "ablation", cut, "difference")
    heat, text = change.find("map"), change.find("text")
    assert isinstance(heat, Heatmap) and isinstance(text, Tokens) and heat.levels != text.levels
    assert f"{minus('uncut')}, ± {text.levels[1]:.2g} nats" in change.caption


def test_another_text_is_read_where_the_same_token_stands_or_not_at_all(bench: tuple[Engine, dict[str, State]]) -> None:
    engine, states = bench
    state = states["attention-only"]
    there = state.with_tokens((0, 5, 3, 9, 5, 7, 5, 9))  # one token more in front of the second one
    state = replace(state, pins=(Pin("longer", there.subject),))
    for name in ("predictions", "attention", "why_here"):
        change = drawn(engine, name, state.select(destination=4, source=2, locked=True), "difference")
        before = drawn(engine, name, replace(state, pins=()).with_tokens(there.tokens).select(destination=5, source=3), "now")
        mark, was = change.marks()[0], before.marks()[0]
        if isinstance(mark, Rows) and isinstance(was, Rows):
            column = "in longer"
            known = dict(zip(map(tuple, was.ids.tolist()), was.columns[2 if name == "predictions" else 1].values, strict=True))
            said = next(c.values for c in mark.columns if c.name == column)
            pairs = [(v, known[tuple(key)]) for key, v in zip(mark.ids.tolist(), said, strict=True) if tuple(key) in known]
            assert len(pairs) > 3
            np.testing.assert_allclose(*zip(*pairs, strict=True), rtol=1e-5)
        else:
            text, whole = change.find("text"), before.find("text")
            now = drawn(engine, name, replace(state, pins=()).select(destination=4), "now").find("text")
            assert isinstance(text, Tokens) and isinstance(whole, Tokens) and isinstance(now, Tokens)
            kept = [0, 1, 3, 4, 5, 6, 7]
            np.testing.assert_allclose(text.values[:5], (now.values - whole.values[kept])[:5], atol=1e-6)
    shorter = replace(state, pins=(Pin("shorter", state.with_tokens((0, 5, 5, 7, 5, 9)).subject),))
    refused = drawn(engine, "predictions", shorter.select(destination=2, locked=True), "difference")
    assert not_compared(refused.caption) and "shorter" in refused.caption and "at 2" in refused.caption


def test_patching_from_the_uncut_run_does_not_call_it_pinned(bench: tuple[Engine, dict[str, State]]) -> None:
    engine, states = bench
    cut = with_edits(states["attention-only"], ablation(Head(0, 1)))
    figure = drawn(engine, "patching", cut, "now")
    assert "uncut run" in figure.title and "pinned" not in figure.title + figure.caption
    pinned = replace(cut, pins=(Pin("mine", replace(cut.subject, edits=())),))
    assert "pinned run" in drawn(engine, "patching", pinned, "now").title


@pytest.mark.parametrize(("name", "page"), PAGES)
def test_no_two_columns_of_a_difference_are_called_alike(bench: tuple[Engine, dict[str, State]], name: str, page: str) -> None:
    engine, states = bench
    cut = on_page(with_edits(states["attention-only"], ablation(Head(0, 1))), name, page)
    if not answers(engine, cut, name, page):
        return
    for mark in drawn(engine, name, cut, "difference").marks():
        names = [c.name for c in mark.columns] if isinstance(mark, Rows) else []
        assert len(set(names)) == len(names), names


def test_a_panel_without_a_question_says_nothing_of_a_reference(bench: tuple[Engine, dict[str, State]]) -> None:
    engine, states = bench
    cut = with_edits(states["attention-only"], ablation(Head(0, 1)))
    assert "uncut" not in drawn(engine, "laboratory", cut, "difference").caption


@pytest.mark.parametrize(("name", "page"), PAGES)
@pytest.mark.parametrize("there", ["attention-only", "odd"])
def test_every_page_stands_beside_another_text_or_another_model(
    bench: tuple[Engine, dict[str, State]], name: str, page: str, there: str
) -> None:
    engine, states = bench
    state = on_page(states["attention-only"], name, page)
    other = states[there].with_tokens((0, 5, 6, 1, 5) if there == "odd" else (0, 5, 9, 6, 7, 5, 9, 3, 5))
    label = "a long name of what was pinned"
    state = replace(state, pins=(Pin(label, other.subject),))
    if not answers(engine, state, name, page):
        return
    for compare in ("difference", "reference"):
        try:
            figure = drawn(engine, name, state, compare)
        except BadInput as error:  # the dock shows the reason
            assert error.what
            continue
        assert label in figure.caption or not panels()[name].requests(state, facts_of(engine, state.model))
        assert not re.search(r"(^|[\s·])pin([\s:,]|$)", f"{figure.title} {figure.caption}"), "a reference has a name"
        if "now minus" in figure.caption or "beside now" in figure.caption:
            named = re.search(r"now minus ([^·,]+)|columns: ([^·,]+?) beside now", figure.caption)
            assert named and (named[1] or named[2]).strip() in figure.title, "on paper the title stays whatever the caption holds"
        assert all(len(c.name) < 32 for m in figure.marks() if isinstance(m, Rows) for c in m.columns)


def test_the_weights_of_another_model_of_this_shape_stand_beside_ours(tmp_path: Path) -> None:
    config = CONFIGS["attention-only"]
    for seed in (0, 1):
        save_directory(tmp_path / str(seed), config, random_tensors(config, seed, 0.35), byte_tokenizer())
    refs = [ModelRef(f"file:{tmp_path / str(seed)}") for seed in (0, 1)]
    here, there = (State(ref).with_tokens(TOKENS).select(heads=(Head(1, 2),)) for ref in refs)
    engine, state = Engine(ModelStore()), replace(here, pins=(Pin("other", there.subject),))
    for name, page in (
        ("composition", "matrix"),
        ("composition", "graph"),
        ("composition", "list"),
        ("spectra", "copying"),
        ("residual", "overlap"),
    ):
        shown = on_page(state, name, page)
        now, change = drawn(engine, name, shown, "now"), drawn(engine, name, shown, "difference")
        assert signature(now) != signature(change)
        assert "other" in change.caption
    matrix = on_page(state, "composition", "matrix")
    alone = [drawn(engine, "composition", on_page(s, "composition", "matrix"), "now").marks() for s in (here, there)]
    for mark, a, b in zip(drawn(engine, "composition", matrix, "difference").marks(), *alone, strict=True):
        assert isinstance(mark, Heatmap)
        np.testing.assert_array_equal(mark.values, a.values - b.values)  # type: ignore[union-attr]
        assert mark.levels[0] == -mark.levels[1]
    for mark, a, b in zip(drawn(engine, "composition", matrix, "now").marks(), *alone, strict=True):
        assert mark.levels == (min(a.levels[0], b.levels[0]), max(a.levels[1], b.levels[1]))  # type: ignore[union-attr]


def test_nothing_is_drawn_again_while_the_pointer_moves(bench: tuple[Engine, dict[str, State]]) -> None:
    engine, states = bench
    cut = with_edits(on_page(states["attention-only"], "logit_lens", "grid"), ablation(Head(0, 1)))
    first, second = (drawn(engine, "logit_lens", cut.select(source=i), "difference").marks()[0] for i in (1, 2))
    assert isinstance(first, Heatmap)
    assert isinstance(second, Heatmap)
    assert first.values is second.values


# ------------------------------------------------------------------------------------------------------------- marks

SAME = Pinned("before", np.arange(3), 3)


def heat(values: Any, ticks: tuple[str, ...] = (), tokens: bool = False) -> Heatmap:
    made = np.array(values, dtype=np.float32)
    axis = Axis("", ticks, tokens=tokens)
    return Heatmap("map", made, (0.0, 1.0), x=axis, y=axis)


def test_a_map_is_matched_by_token_and_by_name() -> None:
    here, there = np.arange(9.0).reshape(3, 3), np.arange(16.0).reshape(4, 4) ** 2
    pin = Pinned("before", np.array([0, -1, 3]), 4)
    made, said = difference(heat(here, ("a", "x", "d"), True), heat(there, ("a", "b", "c", "d"), True), pin)
    assert minus("before") in said
    nan = np.nan
    wanted = [[0 - there[0, 0], nan, 2 - there[0, 3]], [nan] * 3, [6 - there[3, 0], nan, 8 - there[3, 3]]]
    np.testing.assert_array_equal(made.values, np.array(wanted, dtype=np.float32))  # type: ignore[union-attr]
    turned = here[::-1, ::-1]
    made, _ = difference(heat(here, ("H0", "H1", "H2")), heat(turned + 1, ("H2", "H1", "H0")), SAME)
    assert (made.values == -1).all()  # type: ignore[union-attr]
    same, said = difference(named := heat(here, ("H0", "H1", "H2")), heat(turned, ("H2", "H1", "H0")), SAME)
    assert same is named
    assert same_in("before") in said


def test_what_has_another_size_or_another_kind_says_so() -> None:
    here = heat(np.ones((3, 3)))
    for there in (heat(np.ones((2, 2))), None, Tokens("map", ("a",), np.ones(1))):
        made, said = difference(here, there, SAME)
        assert made is here
        assert not_compared(said)


def rows(names: list[str], keys: list[int], p: list[float]) -> Rows:
    columns = (
        RowColumn("token", np.array(names, dtype=object)),
        RowColumn("p", np.array(p), bar=True),
        RowColumn("sd", np.ones(len(p))),
    )
    return Rows("tokens", columns, ids(np.array(keys)))


def test_rows_are_matched_by_what_they_are_and_show_before_and_after() -> None:
    made, _ = difference(rows(["a", "b", "c"], [4, 5, 6], [0.5, 0.25, 0.125]), rows(["b", "a"], [5, 4], [0.5, 0.25]), SAME)
    assert isinstance(made, Rows)
    assert [c.name for c in made.columns] == ["token", "Δ", "p", "in before", "sd"]
    assert [c.name for c in made.columns if c.bar] == ["Δ"], "bars are of the change, which the table is about"
    np.testing.assert_array_equal(made.columns[3].values, [0.25, 0.5, np.nan])
    np.testing.assert_array_equal(made.columns[1].values, [0.25, -0.25, np.nan])


def test_tables_without_a_row_in_common_are_not_compared() -> None:
    here = rows(["a", "b"], [4, 5], [0.5, 0.25])
    made, said = difference(here, rows(["c", "d"], [6, 7], [0.5, 0.25]), SAME)
    assert isinstance(made, Rows) and made.columns == here.columns and not_compared(said)


def test_a_ranking_becomes_one_of_changes() -> None:
    """What fell most stands first, whatever it is now; the chosen row stays the chosen one, under its id."""
    here = replace(rows(["a", "b", "c", "d"], [4, 5, 6, 7], [0.5, 0.3, 0.2, 0.01]), ranked=True, chosen=(3,), sort=(1, "down"))
    there = rows(["d", "a", "b", "c"], [7, 4, 5, 6], [0.995, 0.4, 0.35, 0.2])
    made, _ = difference(here, there, SAME)
    assert isinstance(made, Rows)
    by = {c.name: c.values.tolist() for c in made.columns}
    assert by["token"] == ["d", "a", "b", "c"]
    np.testing.assert_allclose(by["Δ"], [-0.985, 0.1, -0.05, 0.0], atol=1e-12)
    assert made.ids.ravel().tolist() == [7, 4, 5, 6]
    assert (made.chosen, made.sort) == ((0,), None)
    plain, _ = difference(replace(here, ranked=False), there, SAME)
    assert [c.values.tolist() for c in plain.columns if c.name == "token"] == [["a", "b", "c", "d"]]  # type: ignore[union-attr]


RANKED = {"ranking", "heads", "list", "table", "pairs", "strongest", "tokens", "triples", "earlier", "entries", "neurons"}


@pytest.mark.parametrize(("name", "page"), PAGES)
def test_every_ranking_beside_a_cut_is_one_of_changes(bench: tuple[Engine, dict[str, State]], name: str, page: str) -> None:
    engine, states = bench
    if name in ("laboratory", "side_by_side", "training"):
        return  # their own order of models, steps and letters
    heads = (Head(0, 1), Head(1, 2))[:: 1 if name == "patching" else -1]
    state = model_for(states, name, page).select(heads=heads)
    cut = on_page(with_edits(state, ablation(Head(0, 1))), name, page)
    for mark in drawn(engine, name, cut, "difference").marks():
        if isinstance(mark, Rows) and (mark.ranked or mark.name in RANKED):
            change = next((c.values for c in mark.columns if c.name == "Δ"), None)
            if change is not None and (name, page) != ("why_here", "heads"):
                known = np.abs(change[np.isfinite(change)])
                assert (np.diff(known) <= 1e-12).all(), mark.name
                assert not np.isfinite(change[len(known) :]).any()


def test_a_row_of_another_name_has_no_change() -> None:
    made, _ = difference(rows(["a", "b"], [0, 1], [0.5, 0.25]), rows(["a", "z"], [0, 1], [0.25, 0.25]), SAME)
    assert isinstance(made, Rows)
    by = {c.name: c.values.tolist() for c in made.columns}
    assert ["a", "z"] in by.values()
    np.testing.assert_array_equal(by["Δ"], [0.25, np.nan])


def test_curves_stand_dashed_beside_ours_and_points_say_how_far_they_moved() -> None:
    line = lambda y: Lines("loss", np.arange(3.0), np.array([y]), ("loss",))
    made, said = difference(line([1.0, 2.0, 3.0]), line([1.0, 2.0, 4.0]), SAME)
    assert isinstance(made, Lines)
    assert (made.names, made.dashed, made.hues) == (("now", "before"), (False, True), (-1, -1))
    assert "before" in said
    points = lambda x, key: Points("plane", np.array(x), np.array(x) * 2, ids(np.array(key)), values=np.zeros(len(x)))
    made, said = difference(points([1.0, 5.0], [7, 8]), points([4.0], [7]), SAME)
    assert isinstance(made, Points)
    np.testing.assert_array_equal(made.x, [-3.0, np.nan])
    np.testing.assert_array_equal(made.y, [-6.0, np.nan])
    assert "1 " in said


def test_an_edge_is_as_wide_as_its_change() -> None:
    """Through the query and through the key of one pair are two edges."""

    def graph(ends: list[list[int]], values: list[float], kinds: list[int]) -> Edges:
        of = np.array(values)
        return Edges("g", np.zeros((3, 2)), ("a", "b", "c"), np.zeros(3, int), np.array(ends), of, np.array(kinds), values=of)

    here = graph([[0, 1], [1, 2], [0, 2], [0, 1]], [0.5, 0.25, 1.0, 0.75], [0, 0, 0, 1])
    made, words = difference(here, graph([[1, 2], [0, 1], [0, 1]], [0.5, 0.375, 0.5], [0, 0, 1]), SAME)
    assert isinstance(made, Edges)
    assert "Q b–c −0.25" in words and "K a–b +0.25" in words and "Q a–b +0.12" in words, "a width has no sign"
    np.testing.assert_array_equal(made.values, [0.125, -0.25, np.nan, 0.25])
    np.testing.assert_array_equal(made.weights, [0.5, 1.0, 0.0, 1.0])


@pytest.mark.parametrize(("change", "top"), [(2e-3, 0.01), (0.25, 0.25)])
def test_the_colours_of_a_difference_take_no_less_than_a_hundredth_of_the_common_scale(change: float, top: float) -> None:
    here = heat([[1.0, 0.0], [0.5, 0.5]], ("a", "b"))
    there = heat(here.values - change, ("a", "b"))
    made, words = difference(here, there, SAME)
    assert isinstance(made, Heatmap) and made.levels == pytest.approx((-top, top), rel=1e-5)
    assert ("0.002" in words and "1%" in words) == (change < top * 0.9)
    wide = replace(there, levels=(-4.0, 4.0))
    assert difference(here, wide, SAME)[0].levels[1] == pytest.approx(max(change, 0.04), rel=1e-5)  # type: ignore[union-attr]
    text = lambda values: Tokens("text", ("a", "b"), np.array(values), (0.0, 8.0), unit="nats")
    made, words = difference(text([1.0, 2.0]), text([1.0, 2.0 + change]), SAME)
    assert isinstance(made, Tokens) and made.levels[1] == pytest.approx(max(change, 0.08))
    assert "0.00 " not in words + colours(made)
    made, _ = difference(rows(["a", "b"], [4, 5], [1.0, 0.5]), rows(["a", "b"], [4, 5], [1.0, 0.5 - change]), SAME)
    assert isinstance(made, Rows)
    delta = next(c for c in made.columns if c.name == "Δ")
    assert delta.levels[1] == pytest.approx(top) and delta.digits == (4 if change < 0.1 else 3)


def test_held_scales_only_grow_and_say_what_the_step_alone_would_have() -> None:
    scales, step = (
        HeldScales(),
        lambda top: Figure(((replace(heat(np.eye(2)), levels=(-top, top), map="signed"),),), "", ("now",)),
    )
    tops = []
    for own in (0.5, 0.25, 0.75, 0.1):
        figure = scales.held(step(own))
        tops.append(figure.marks()[0].levels)  # type: ignore[union-attr]
        assert ("scale held" in figure.caption and f"± {own}" in figure.caption) == (own in (0.25, 0.1))
    assert tops == [(-t, t) for t in (0.5, 0.5, 0.75, 0.75)]
    scales.forget()
    assert scales.held(same := step(0.1)) is same
    scales.held(step(0.9))
    assert scales.held(other := step(0.1), "another head") is other, "of something else it begins anew"


@pytest.mark.parametrize(("change", "same"), [(3e-7, True), (1e-3, False)])
def test_a_change_no_larger_than_rounding_is_said_to_be_none(change: float, same: bool) -> None:
    here = heat([[1.0, 0.0], [0.5, 0.5]], ("a", "b"))
    there = heat(here.values + change, ("a", "b"))
    made, words = difference(here, there, replace(SAME, rounding=ROUNDING))
    assert (made is here) == same
    assert but_for_rounding(words) == same


def test_every_comparison_knows_its_rounding(bench: tuple[Engine, dict[str, State]], monkeypatch: pytest.MonkeyPatch) -> None:
    engine, states = bench
    known: list[float] = []

    def noted(here: Any, there: Any, pin: Pinned) -> Any:
        known.append(pin.rounding)
        return difference(here, there, pin)

    monkeypatch.setattr("circuitlab.figures.contracts.compare.difference", noted)
    state = states["attention-only"]
    pinned = replace(state, pins=(Pin("before", state.with_tokens(TOKENS[::-1]).subject, state.selection),))
    drawn(engine, "attention", pinned, "difference")
    assert known and set(known) == {ROUNDING}
