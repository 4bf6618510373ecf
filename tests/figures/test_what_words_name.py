"""What figures and answers say is so of this model: norms where there are any; signs and small numbers as they are read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from circuitlab.analysis.base import Result, analyses
from circuitlab.counting import number, probability
from circuitlab.draw.pointing import gestures
from circuitlab.draw.tables.model import cell_text
from circuitlab.engine.engine import Engine
from circuitlab.engine.export_data import export_of, json_text
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import CircuitLabError
from circuitlab.figures.contracts.panel import Panel, Why, facts_of, panels
from circuitlab.figures.marks import Figure, RowColumn
from circuitlab.model.config import ModelConfig
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Conventions, Head, ModelRef
from circuitlab.report.render import figure_of
from circuitlab.state.state import Pin, State
from tests.figures.figure_words import views, words_of
from tests.models import CONFIGS, FULL, TINY, directory

TOKENS = (0, 5, 9, 5, 7, 5, 9)
NORMLESS = {"attention-only": TINY, "with MLPs": replace(FULL, norm="none"), "post": CONFIGS["post-residual"], "normed": FULL}
NORM = re.compile(r"(?i)\b(layer|rms)?-?norms?\b|normalised (final )?(stream|residual)|LayerNorm|RMSNorm")
# lengths of vectors and matrices, and the row of the model's facts that says "none"
LENGTHS = re.compile(r"^(<[^>]*>)?\s*(norms?|over both norms|norm \(residual units\))(<[^>]*>)?$")


@pytest.fixture(scope="module", params=NORMLESS)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Engine, State, ModelConfig]:
    config = NORMLESS[request.param]
    ref = ModelRef(f"file:{directory(tmp_path_factory.mktemp('m') / 'model', config)}")
    state = State(ref).with_tokens(TOKENS).select(heads=(Head(1, 1),), edge=(Head(0, 1), Head(1, 1)), destination=4, source=2)
    return Engine(ModelStore()), state, config


def figures(engine: Engine, panel: Panel, state: State) -> Iterator[Figure]:
    """Of each of the panel's choices, as far as this model and this prompt have them."""
    facts = facts_of(engine, state.model)
    for view in views(panel):
        shown = state.with_view(panel.name, view)
        if isinstance(asked := panel.requests(shown, facts), Why):
            yield panel.figure(shown, facts, {}, {})
            assert asked.text
            continue
        try:
            yield figure_of(engine, panel, shown)
        except CircuitLabError as error:
            assert error.remedy


@pytest.mark.parametrize("name", panels())
def test_a_norm_is_named_where_there_is_one(bench: tuple[Engine, State, ModelConfig], name: str) -> None:
    engine, state, config = bench
    raw = replace(state, conventions=Conventions(fold_norm=False))
    compared = replace(state, pins=(Pin("before", raw.subject),), compare="difference")
    for shown in (state, raw, compared):
        for figure in figures(engine, panels()[name], shown):
            named = [(where, text) for where, text in words_of(figure) if NORM.search(text) and not LENGTHS.search(text)]
            if config.norm == "none":
                assert not named, named
            elif figure.grid and shown is state and "float32" in figure.caption_parts:
                word = "norm folded" if config.final_norm else "norm not folded"  # after a sublayer there is nothing to fold into
                assert word in figure.caption or "rotated" in figure.title, figure.caption_parts  # the model as it is, and folded


def said_in(result: Result) -> Iterator[str]:
    """What an answer says beside its numbers."""
    yield from result.conventions
    yield "" if result.remainder is None else result.remainder.words()
    for name in result.arrays():
        unit = result.unit_of(name)
        yield from (unit,) if isinstance(unit, str) else (*unit, *unit.values())
    for column in result.table().columns:
        yield column.title
        if column.values.dtype.kind in "UO":
            yield from map(str, column.values.tolist())


@pytest.mark.parametrize("name", [n for n, entry in analyses().items() if n not in ("over_prompts", "tensor_identity")])
def test_an_answer_names_no_norm_that_is_not_there(bench: tuple[Engine, State, ModelConfig], name: str) -> None:
    engine, state, config = bench
    subject = replace(state.subject, edits=(Intervention("zero", Site("result", 0)),) if "patching" in name else ())
    try:
        answer = engine.answer(Request.named(name, analyses()[name].params(), subject))
    except (CircuitLabError, TypeError):  # it does not apply, or has a parameter without a default
        return
    named = [text for text in said_in(answer.result) if NORM.search(text) and not LENGTHS.search(text)]
    assert config.norm != "none" or not named, named
    exported = json_text(export_of(engine, answer, identified=False)).replace('"fold_norm"', "")
    assert config.norm != "none" or not re.search(r"final norm|norm scale|norm folded|norm not|norm bias", exported)


def test_nothing_is_called_folded_or_centred_that_is_not() -> None:
    words = lambda config, **chosen: Conventions(**chosen).words(config)
    assert words(TINY) == ("W_U centred", "float32") and words(TINY, centre=False) == ("not centred", "float32")
    assert words(FULL) == ("norm folded", "centred", "float32") and words(FULL, fold_norm=False)[0] == "norm not folded"
    after = CONFIGS["post-residual"]
    assert words(after)[0] == "norm not folded" and Conventions(fold_norm=False).unlike(Conventions(), after) == ()
    assert Conventions(fold_norm=False).unlike(Conventions(), TINY) == ()
    assert Conventions(fold_norm=False).unlike(Conventions(), FULL) == ("norm not folded",)
    assert words(replace(FULL, logit_soft_cap=9.0))[1] == "writing weights centred"
    of = {name: words(CONFIGS[name])[1] for name in ("llama", "experts", "shared-expert", "post-residual")}
    norms = {name: CONFIGS[name].norm for name in of if CONFIGS[name].norm_placement == "pre"}
    assert of == {name: "centred" if norms.get(name) == "layer" else "W_U centred" for name in of} and "layer" in norms.values()
    capped = CONFIGS["both-norms-capped"]  # neither its writes nor its logits can be centred
    assert words(capped)[1] == "not centred"


# -- signs and small numbers -----------------------------------------------------------------------------------------------

HYPHEN = re.compile(r"(?<![\w\d.–])-(?=\d)|\de-(?=\d)")  # a minus that is none; not in a name such as gpt-2


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> tuple[Engine, State]:
    ref = ModelRef(f"file:{directory(tmp_path_factory.mktemp('m') / 'model', FULL)}")
    return Engine(ModelStore()), State(ref).with_tokens(TOKENS).select(heads=(Head(1, 1),), destination=4, source=2)


@pytest.mark.parametrize("name", panels())
@pytest.mark.parametrize("compared", [False, True])
def test_signs_are_typographic_and_small_numbers_are_not_zero(gpt: tuple[Engine, State], name: str, compared: bool) -> None:
    engine, state = gpt
    if compared:
        cut = replace(state, edits=((Intervention("zero", Site("result", 0, (1,))), True),))
        state = replace(cut, pins=(Pin("uncut", state.subject),), compare="difference")
    for figure in figures(engine, panels()[name], state):
        wrong = [(w, t) for w, t in words_of(figure) if HYPHEN.search(t) or re.search(r"(?<!\d)0\.0000(?!\d)", t)]
        assert not wrong, wrong[:6]


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [(-0.5, ".2f", "−0.50"), (-0.001, ".2f", "0.00"), (1e-5, ".3g", "1e−05"), (0.25, "+.2f", "+0.25"), (-0.001, "+.2f", "0.00")],
)
def test_a_number_is_written_with_a_true_minus_and_no_sign_at_zero(value: float, spec: str, text: str) -> None:
    assert number(value, spec) == text


def test_a_small_probability_is_not_zero() -> None:
    assert probability(0.0) == "0" and probability(0.5) == "0.5000" and probability(1e-4) == "0.0001"
    assert probability(3.14e-5) == "3.1e−05" and probability(0.0042, 2) == "0.0042" and probability(0.005, 2) == "0.01"


@pytest.mark.parametrize(
    ("reads", "digits", "values", "texts"),
    [
        ("probability", 4, [0.0, 6e-7, 1.2e-4, 0.0042, 0.25], ["0", "6.0e−07", "1.2e−04", "0.0042", "0.2500"]),
        ("probability", 4, [0.0, 1.2e-4, 0.0042, 0.25], ["0", "0.0001", "0.0042", "0.2500"]),
        ("probability", 3, [np.nan, 3.1e-5, 0.0042, 0.5], ["", "3.1e−05", "4.2e−03", "0.500"]),
        ("change", 4, [0.0, 6e-7, -1.2e-4, 0.0042, 1.5], ["0", "+6e−07", "−1e−04", "+0.0042", "+1.5000"]),
        ("change", 4, [-1.2e-4, 0.0042, 1.5], ["−0.0001", "+0.0042", "+1.5000"]),
        ("number", 4, [6e-7, 1.2e-4], ["0.0000", "0.0001"]),
        ("ranked", 3, [0.927, 0.0042, 3e-4, 1e-4, 0.0], ["0.927", "4.2e−03", "3.0e−04", "1.0e−04", "0"]),
        ("ranked", 3, [0.927, -0.2, 0.0042, 1e-4], ["0.927", "−0.200", "0.004", "0.000"]),
        ("ranked", 3, [0.927, 0.0, 0.0], ["0.927", "0.000", "0.000"]),
    ],
)
def test_small_numbers_of_a_column_are_written_in_one_way(reads: Any, digits: int, values: list[float], texts: list[str]) -> None:
    column = RowColumn("p", np.array(values, dtype=np.float32), digits=digits, reads=reads)
    assert [cell_text(column, i) for i in range(len(values))] == texts


def test_a_change_has_its_sign_in_a_table_and_in_a_readout() -> None:
    column = RowColumn("Δ", np.array([0.5, -0.5, 0.0]), digits=2, reads="change")
    assert [cell_text(column, i) for i in range(3)] == ["+0.50", "−0.50", "0"]
    assert gestures.number(0.5, "Δ nats").startswith("+0.5") and gestures.number(0.5, "nats").startswith("0.5")
    assert gestures.number(-2e-9, "Δ").startswith("−2e−") and gestures.number(0.0, "p") == "0 p"
