"""Every panel, on a model of every exactness class: its caption has the conventions, and how exact a reading of weights is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

from circuitlab.analysis.base import Remainder, Result, find_analysis
from circuitlab.analysis.circuits.factors import exactness
from circuitlab.analysis.interventions.alignment import alignment_of
from circuitlab.caption_parts import About, Essential, Part, Sense, about_of, of_each, reworded, sampled, whose
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Answer, Provenance, Request, needs
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadFigure, BadInput, Refused
from circuitlab.figures.contracts.about import prompt
from circuitlab.figures.contracts.common import caption, captions
from circuitlab.figures.contracts.compare import _conventions
from circuitlab.figures.contracts.facts import Facts
from circuitlab.figures.contracts.held_scales import HeldScales
from circuitlab.figures.contracts.panel import Panel, Why, facts_of, panels
from circuitlab.figures.marks import Edges, Figure, Heatmap, Points, Rows, joined
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject
from circuitlab.report.render import figure_of
from circuitlab.state.state import State
from tests.models import CONFIGS, directory
from tests.words import norm_on_stream

CLASSES = {
    "attention-only": "exact",
    "rotary-half": "offset-dependent (rotary)",
    "post-sublayer": "exact up to a positive scale per position",
    "post-residual": "none: the residual stream itself is normalised",
}
# asked without a prompt, but measured by forward passes on tokens of their own: exact wherever norms stand
MEASURED = {"head_scores", "in_context", "copying_head_score", "prefix_stripe"}
RAW = Conventions(fold_norm=False, centre=False, dtype="float64")


def pages(panel: Panel) -> Iterator[Any]:
    """The panel's view at its defaults, and with each of its pages in front."""
    yield panel.view()
    hints = get_type_hints(panel.view)
    for field in fields(panel.view):
        if field.metadata.get("kind") == "tabs" or field.name in ("page", "form", "through"):
            yield from (replace(panel.view(), **{field.name: value}) for value in get_args(hints[field.name])[1:])


@pytest.fixture(scope="module", params=CLASSES)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Engine, State, str]:
    path = directory(tmp_path_factory.mktemp("m") / "model", CONFIGS[request.param])
    state = State(ModelRef(f"file:{Path(path)}")).with_tokens((0, 5, 9, 5, 7, 5, 9))
    state = state.select(heads=(Head(1, 1),), edge=(Head(0, 1), Head(1, 1)), destination=4, source=2)
    return Engine(ModelStore()), state, CLASSES[request.param]


@pytest.mark.parametrize("name", panels())
def test_captions_say_the_conventions_and_how_exact_weights_are_read(bench: tuple[Engine, State, str], name: str) -> None:
    engine, state, kind = bench
    panel, facts = panels()[name], facts_of(engine, state.model)
    assert exactness(facts.config) == kind
    for conventions in (Conventions(), RAW):
        for view in pages(panel):
            shown = replace(state, conventions=conventions).with_view(name, view)
            asked = panel.requests(shown, facts)
            if isinstance(asked, Why):
                assert asked.text
                continue
            try:
                figure: Figure = figure_of(engine, panel, shown)
            except (Refused, BadInput) as error:
                assert error.what
                continue
            if figure.why_empty:
                continue
            _named_by_their_ids(figure)
            both = name == "residual" and view.page == "rotation"  # a table of the model as it is, and folded and centred
            for word in conventions.words(facts.config)[-1 if both else 0 :]:
                assert word in figure.caption, (view, figure.caption)
            if any(_of_weights(r) for r in asked.values()):
                # "exact", where what restricts the model's weights is not read, and "not exact", where gains are left out
                assert kind in figure.caption or "exact" in figure.caption, (view, figure.caption)


def _named_by_their_ids(figure: Figure) -> None:
    """What is called like a head is, under a click, that head."""
    for mark in figure.marks():
        if isinstance(mark, Rows):
            for column in mark.columns if mark.ids.shape[1] == 2 else ():
                _same_heads([str(v) for v in column.values], mark.ids)
        elif isinstance(mark, Heatmap):
            _same_heads(mark.y.ticks, mark.row_ids)
            _same_heads(mark.x.ticks, mark.col_ids)
        elif isinstance(mark, Edges):
            _same_heads(mark.labels, mark.node_ids)
        elif isinstance(mark, Points):
            _same_heads(mark.labels, mark.ids)


def _same_heads(names: Sequence[str], keys: np.ndarray | None) -> None:
    if keys is not None and keys.shape[1] == 2 and len(names) and all(re.fullmatch(r"L\d+H\d+", n) for n in names):
        assert list(names) == [str(Head(*key)) for key in keys.tolist()]


def _of_weights(request: Request) -> bool:
    return request.analysis.name not in MEASURED and needs(request.analysis, request.params) == "weights"


@pytest.mark.parametrize("name", ["composition", "circuits", "spectra", "virtual"])
def test_where_weights_alone_say_nothing_exact_the_panel_says_so(bench: tuple[Engine, State, str], name: str) -> None:
    engine, state, kind = bench
    asked = panels()[name].requests(state, facts_of(engine, state.model))
    if kind.startswith("none"):
        assert isinstance(asked, Why) and norm_on_stream(asked.text)
    else:
        assert not isinstance(asked, Why)


def test_a_caption_says_what_remains_of_how_much_and_how_far_it_is() -> None:
    request = Request.named("direct_attribution", None, Subject(ModelRef("file:/m"), (1,)))
    result = Result(
        conventions=("norm folded",), remainder=Remainder(size=0.0015, of=12.5, unit="logit", what="range"), done=0.25
    )
    answer = Answer(request, result, complete=False, provenance=Provenance(reused=3))
    remainder = "remainder 1.5e−03 logit (range 12.5)"
    assert caption(answer, "more", "") == ("norm folded", "more", remainder, "so far: 25%")
    both = {"one": answer, "none": None, "other": replace(answer, complete=True)}
    assert captions(both, "more", "") == ("norm folded", remainder, "one: so far: 25%", "more")
    assert isinstance(captions(both)[-1], Essential) and captions({"one": answer}) == caption(answer)
    assert [part for part in caption(answer, "more") if isinstance(part, Essential)] == [remainder, "so far: 25%"]
    dots = replace(answer, result=replace(result, conventions=("score = scale · q · k",)))
    assert captions({"one": answer, "two": dots})[-1] == "two: score = scale · q · k", (
        "a part is what was given as one, whatever stands in it"
    )


def test_a_merged_caption_says_whose_a_part_is_unless_all_say_it_or_it_says_so_itself() -> None:
    exact, rows = Part("exact", Sense(About.EXACT)), Part("OV: rows centred", Sense(quantities=("OV",)))
    said = {
        "OV": ("float32", exact, rows),
        "QK": ("float32", Essential("to a scale"), "four"),
        "own": ("float32", "four", "four"),
    }
    assert whose(said) == {"float32": (), exact: ("OV",), rows: ("OV",), "to a scale": ("QK",), "four": ("QK", "own")}
    merged = of_each(said)
    assert merged == ("float32", "OV: exact", "OV: rows centred", "QK: to a scale", "QK, own: four")
    assert about_of(merged[1]) is About.EXACT and isinstance(merged[3], Essential)
    assert joined(*merged) == "float32 · OV: exact; rows centred · QK: to a scale · QK, own: four"
    assert of_each({}) == () and of_each({"OV": said["OV"]}) == said["OV"]


def test_a_line_says_once_whose_the_parts_are_that_stand_together() -> None:
    said = {
        "scores": ("float32", sampled("10 samples"), "uniform", Essential("a control"), "all"),
        "own": ("float32", "exact", "all"),
        "third": ("float32", "exact: by hand"),
    }
    merged = of_each({name: parts[:1] + parts[2:] if name == "third" else parts for name, parts in said.items()})
    assert joined(*merged) == "float32 · scores: 10 samples; uniform; a control · scores, own: all · own: exact"
    assert merged[2] == "scores: uniform", "each says by itself whose it is"
    assert joined(merged[1], merged[4], merged[3]) == "scores: 10 samples · scores, own: all · scores: a control", "apart, each"
    assert joined(*merged[1:3], "a scale") == "scores: 10 samples; uniform · a scale"
    interleaved = of_each({"a": ("one", "both", "two"), "b": ("both", "three"), "c": ()})
    assert interleaved == ("a: one", "a: two", "a, b: both", "b: three"), "what the same ones say stands together"
    assert about_of(merged[1]) is About.SAMPLE and isinstance(merged[3], Essential)
    begun = reworded(merged[2], "at 3 of 5 checkpoints uniform")
    assert joined(merged[1], begun) == "scores: 10 samples · at 3 of 5 checkpoints uniform", "only what begins so is continued"
    assert joined("", "a: one", "", "a: two") == "a: one · a: two", "a text is what it is"


def test_a_caption_is_given_in_parts() -> None:
    with pytest.raises(BadFigure, match="cannot be drawn"):
        Figure((), "T", "norm folded")  # type: ignore[arg-type]
    figure = Figure((), "T", ("norm folded", "centred"))
    assert figure.caption == "norm folded · centred" and figure.with_caption("", "more").caption_parts[-1] == "more"
    assert figure.with_caption("") is figure


def test_a_part_that_stays_in_sight_does_so_beside_a_reference_and_on_a_held_scale() -> None:
    of = lambda n, top: Figure(
        ((Heatmap("m", np.full((2, 2), top, np.float32), (0.0, top)),),), "T", (Essential(f"{n} of 9 exact"), "0 to 1 of it")
    )
    here, there = of(5, 1.0), of(7, 1.0)
    merged = _conventions(here.caption_parts, there.caption_parts, "pin", True)
    assert merged[0] == "now 5, pin 7 of 9 exact" and [isinstance(part, Essential) for part in merged] == [True, False]
    lacking = Essential("not computed: K-composition, for a reason")
    merged = _conventions(("exact", "32 rows"), ("exact", lacking, "32 rows"), "pin", True)
    assert merged == ("exact", f"pin: {lacking}", "32 rows"), "what both say is nobody's own"
    scales = HeldScales()
    scales.held(of(5, 4.0))
    held = scales.held(here).caption_parts
    assert [isinstance(part, Essential) for part in held] == [True, False, True], held
    of_one_length, of_two = alignment_of((1, 2), (1, 3)).words, alignment_of((1, 2), (1, 2, 3)).words
    assert not isinstance(of_one_length, Essential) and isinstance(of_two, Essential)


def test_a_caption_says_nothing_of_how_fast_it_was_computed(bench: tuple[Engine, State, str]) -> None:
    """Typing on takes positions over from the shorter prompt: that is a fact of the engine, not of the figure."""
    _, state, _ = bench
    engine, panel = Engine(ModelStore()), panels()["predictions"]
    figure_of(engine, panel, state.with_tokens(state.tokens[:5]).select(heads=(Head(1, 1),)))
    answer = engine.answer(Request.named("predictions", find_analysis("predictions").params(), state.subject))
    assert answer.provenance.reused, "or this test says nothing"
    assert figure_of(engine, panel, state).caption == figure_of(Engine(ModelStore()), panel, state).caption


def test_a_prompt_is_named_with_its_length_and_whether_bos_is_its_first_token() -> None:
    facts, state = Facts(("m",), None, str, bos=0), State(ModelRef("builtin:m")).with_text("ab", (0, 5, 9))
    assert prompt(state, facts) == "“ab” (3 tokens, BOS first)"
    assert prompt(replace(state, tokens=(5, 0)), facts) == "“ab” (2 tokens, no BOS)"
    assert prompt(state, replace(facts, bos=None)) == "“ab” (3 tokens, no BOS)"
    assert prompt(state, replace(facts, bos=None, has_tokenizer=False)) == "“ab” (3 tokens)"
    assert prompt(state.with_tokens(()), facts) == ""
