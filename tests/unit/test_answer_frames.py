"""Answers as data frames: every number in its place, under names, with units; and a typed error without pandas."""
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false
# pandas types whatever may come out of an index as all that it may be

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from circuitlab import api
from circuitlab.analysis.base import analyses, axes_with_labels
from circuitlab.analysis.checks.theory_and_measurement import MEASURED, PREDICTED
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Answer
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadMachine, CircuitLabError, UsageError
from tests.models import FULL, directory

TEXT = "ab ab cab"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> api.Model:
    folder = tmp_path_factory.mktemp("frames") / "m"
    directory(folder, FULL)
    return api.open(str(folder), use=Engine(ModelStore()))


def _column(frame: pd.DataFrame, name: str) -> np.ndarray:
    column = frame[name]
    return column.to_numpy(dtype=float, na_value=np.nan) if column.dtype == "Int64" else column.to_numpy()


@pytest.mark.parametrize("name", sorted(analyses()))
def test_every_array_of_every_answer_is_a_column(model: api.Model, name: str) -> None:
    try:
        answer = model.compute(name, text=TEXT)
    except CircuitLabError as error:
        assert error.what
        return
    result = answer.result
    for array_name, array in result.arrays().items():
        frame = answer.to_pandas(array_name)
        wanted = np.where(array < 0, np.nan, array) if result.has_none(array_name) else array
        np.testing.assert_array_equal(_column(frame, array_name), wanted.ravel())
        assert len(frame) == array.size and frame.columns.is_unique
        unit = result.unit_of(array_name)
        assert frame.attrs["units"] == {array_name: unit if isinstance(unit, str) else dict(unit)}
        assert frame.attrs["axes"] == [a for a in frame.attrs["axes"] if a in frame.columns or f"{a} index" in frame.columns]
        wide = answer.to_pandas(array_name, wide=True)
        np.testing.assert_array_equal(wide.to_numpy().ravel(), wanted.ravel())
        assert wide.shape[1] == array.shape[-1]
    default = answer.to_pandas()
    assert len(default) == (answer.result.table().n_rows if not result.arrays() else len(default)) and len(default.columns)


def test_a_row_has_the_head_and_the_tokens_of_its_number(model: api.Model) -> None:
    answer = model.compute("attention", text=TEXT, heads="L1H2,L0H3")
    frame = answer.to_pandas()
    assert list(frame.columns) == ["head", "destination", "destination token", "source", "source token", "values"]
    tokens, text = model.tokens(TEXT), answer.token_text
    assert text is not None
    rng = np.random.default_rng(0)
    for row in frame.iloc[rng.integers(0, len(frame), 30)].to_dict("records"):
        i = ["L1H2", "L0H3"].index(row["head"])
        wanted = answer.result.values[i, row["destination"], row["source"]]
        assert row["values"] == wanted or (np.isnan(row["values"]) and np.isnan(wanted))
        assert row["source token"] == text(tokens[row["source"]]) and row["destination token"] == text(tokens[row["destination"]])
    sums = frame.groupby(["head", "destination"])["values"].sum()
    np.testing.assert_allclose(sums.to_numpy(), 1.0, rtol=1e-5)  # a closed form: rows of a pattern sum to 1
    matrix = model.compute("attention", text=TEXT, heads="L1H2").to_pandas(wide=True)
    assert matrix.shape == (len(tokens), len(tokens)) and matrix.attrs["at"] == {"head": "L1H2"}
    assert matrix.loc[(3, text(tokens[3])), (1, text(tokens[1]))] == answer.result.values[0, 3, 1]


def test_what_stands_along_an_axis_comes_with_it(model: api.Model) -> None:
    frame = model.compute("logit_lens", text=TEXT).to_pandas("ids", "probs")
    answer = model.compute("logit_lens", text=TEXT)
    actual = frame.groupby("position")["actual"].first().to_numpy()
    np.testing.assert_array_equal(actual, answer.result.actual)
    assert set(frame["stage"]) == set(answer.result.stages)
    assert frame["ids text"][0] == answer.token_text(int(frame["ids"][0]))  # type: ignore[misc]
    one = model.compute("predictions", text=TEXT).to_pandas()
    assert list(one.columns) == ["next token", "ids", "ids text", "logits", "log_probs"]


def test_theory_and_measurement_are_one_frame_with_units_and_intervals(model: api.Model) -> None:
    answer = model.compute("theory_and_measurement")
    frame, result = answer.to_pandas(), answer.result
    assert set(frame["predicted quantity"]) == set(PREDICTED) and set(frame["measured quantity"]) == set(MEASURED)
    assert len(frame) == result.predicted.size * len(MEASURED)
    for row in frame.sample(40, random_state=0).to_dict("records"):
        i, j = PREDICTED.index(row["predicted quantity"]), MEASURED.index(row["measured quantity"])
        layer, head = (int(v) for v in row["head"][1:].split("H"))
        wanted = {
            "predicted": result.predicted[i, layer, head], "measured": result.measured[j, layer, head],
            "Spearman's rho": result.rho[i, j], "95 % from": result.low[i, j], "95 % to": result.high[i, j],
        }  # fmt: skip
        for name, value in wanted.items():
            np.testing.assert_array_equal(row[name], value)
        units = row["predicted unit"], row["measured unit"]
        assert units == (result.units_predicted[PREDICTED[i]], result.units_measured[MEASURED[j]])
        assert row["heads with both"] == result.n[i, j]
        of_pair = np.isfinite(result.predicted[i]) & np.isfinite(result.measured[j])
        known = result.predicted[i][of_pair]
        place = (known > row["predicted"]).sum() + ((known == row["predicted"]).sum() + 1) / 2
        both = [row["predicted rank, 1 the largest"], row["measured rank, 1 the largest"]]
        apart = row["measured − predicted rank"]
        if of_pair[layer, head]:
            assert apart == both[1] - both[0] and both[0] == place
        else:
            assert np.isnan([*both, apart]).all()
    units = frame.attrs["units"]
    assert units["measured − predicted rank"] == "ranks" and units["heads with both"] == "heads"
    assert units["predicted"] == "in the column predicted unit" and units["measured"] == "in the column measured unit"
    assert [units[name] for name in ("Spearman's rho", "95 % from", "95 % to")] == ["dimensionless"] * 3


def test_paths_members_of_circuits_and_sets_are_named(model: api.Model) -> None:
    named = lambda frame: dict(zip(frame.iloc[:, 0], frame.iloc[:, -1], strict=True))
    columns = lambda table, name, value: (next(c.values for c in table.columns if c.name == one) for one in (name, value))
    paths = model.compute("path_expansion", text=TEXT)
    rows = dict(zip(*columns(paths.result.table(), "path", "contribution"), strict=True))
    found = named(paths.to_pandas())
    assert found == {name: rows[name] for name in found} and {"embedding", "L0H1", "L0H1 → L1H2"} <= found.keys()
    assert "L0H1" in paths._repr_html_() or "embedding" in paths._repr_html_()
    circuit = model.compute("keep_only", text=TEXT, heads="L0H1,L1H2", set={"samples": 3})
    heads = dict(zip(*columns(circuit.result.table(), "heads", "value"), strict=True))
    assert named(circuit.to_pandas("left_out")) == {h: heads[f"without {h}"] for h in ("L0H1", "L1H2")}
    random = named(circuit.to_pandas("random_kept"))
    assert len(random) == 3 and random == {name: heads[name] for name in random}
    pairs = model.compute("ablation", text=TEXT, heads="L0H1,L1H2,L1H3", set={"what": "pairs"})
    ablated = dict(zip(*columns(pairs.result.table(), "ablated", "effect"), strict=True))
    sets = named(pairs.to_pandas("set_effect"))
    assert list(sets) == ["L0H1 + L1H2", "L0H1 + L1H3", "L1H2 + L1H3"] and sets == {name: ablated[name] for name in sets}


def test_a_cell_of_the_contact_sheet_says_its_head_and_positions(model: api.Model) -> None:
    frame = model.compute("attention_overview", text=TEXT).to_pandas("sheet")
    pattern = model.compute("attention", text=TEXT, heads="L1H2").result.values[0]
    for dest, source in ((3, 1), (5, 5), (6, 0)):
        cell = frame[(frame["cell down"] == f"L1 {dest}") & (frame["cell across"] == f"H2 {source}")]
        assert len(cell) == 1 and cell["sheet"].item() == pytest.approx(float(pattern[dest, source]), abs=1e-6)
    assert frame[(frame["cell down"] == "") | (frame["cell across"] == "")]["sheet"].isna().all()


def test_rows_from_a_later_token_on_begin_with_it(model: api.Model) -> None:
    frame = model.compute("ov_top_tokens", set={"first": 5, "k": 2}).to_pandas("values")
    whole = model.compute("ov_top_tokens", set={"k": 2}).to_pandas("values")
    assert frame["source"].min() == 5
    same = frame.merge(whole, on=["source", "top"])
    assert len(same) == len(frame)
    np.testing.assert_array_equal(same["values_x"], same["values_y"])


# these say what an entry is by its number: of a dimension, a bin, the rank in an order, a text, a token; or by columns beside it
BY_NUMBER = {
    *("bin", "bin edge", "bottom", "component", "dimension", "direction", "entry", "example"),
    *("head", "index", "layer", "left head", "left layer", "left token", "neuron", "next token", "order", "point"),
    *(
        "position",
        "principal component",
        "rank",
        "repetition",
        "right head",
        "right layer",
        "right token",
        "row",
        "source",
        "source head",
    ),
    *(
        "source layer",
        "destination",
        "destination head",
        "destination layer",
        "step",
        "table",
        "text",
        "token",
        "top",
        "top moved",
    ),
    *("top of the bias", "trigram", "what it is", "measured at", "first and last index", "delta", "pair", "factor", "d_model"),
}


@pytest.mark.parametrize("name", sorted(analyses()))
def test_every_entry_that_has_a_name_is_called_by_it(model: api.Model, name: str) -> None:
    try:
        answer = model.compute(name, text=TEXT)
    except CircuitLabError:
        return
    for array in answer.result.arrays():
        for axis in axes_with_labels(answer.result, array, answer.prompt, answer.token_text):
            declared = axis.name.partition(" (")[0]
            assert axis.entries.dtype.kind in "OU" or not len(axis.entries) or declared in BY_NUMBER, f"{array}: {axis.name}"


def test_steps_of_a_training_stand_beside_its_curves() -> None:
    model = api.open("attn-only-2l")
    answer = model.compute("training_series", set={"models": "attn-only-2l"})
    frame = answer.to_pandas("scores")
    assert {"steps", "tokens", "kind", "scores", "is_final"} <= set(frame.columns)
    last = frame[frame["is_final"]].set_index("kind")["scores"]
    np.testing.assert_array_equal(last["text"], answer.result.scores[answer.result.is_final, 2])


def test_frames_of_arrays_that_are_not_alike_are_refused(model: api.Model) -> None:
    answer = model.compute("attention", text=TEXT)
    for wrong in (("values", "heads"), ("nothing",)):
        with pytest.raises(UsageError) as error:
            answer.to_pandas(*wrong)
        assert "values" in error.value.expected
    with pytest.raises(UsageError):
        model.compute("model_facts").to_pandas(wide=True)
    with pytest.raises(UsageError):
        model.compute("predictions", text=TEXT).to_pandas("ids", "logits", wide=True)


def test_without_a_tokenizer_there_are_no_texts(model: api.Model) -> None:
    answer = replace(model.compute("attention", text=TEXT), token_text=None)
    assert list(answer.to_pandas().columns) == ["head", "destination", "source", "values"]


def test_a_difference_is_a_frame_too(model: api.Model) -> None:
    now, before = model.compute("token_loss", text=TEXT), model.compute("token_loss", text=TEXT, conventions=None)
    difference = api.difference(now, before)
    frame = difference.to_pandas()
    assert frame["Δ loss"].dropna().eq(0).all() and frame.attrs["units"]["loss"] == "nats"
    assert len(frame) == len(model.tokens(TEXT)) and "Δ loss" in repr(difference) and "<table>" in difference._repr_html_()


def test_a_frame_says_what_was_asked(model: api.Model) -> None:
    """A frame of a run with a cut can be told from one without, and a later training step from an earlier one."""
    whole, cut = model.compute("token_loss", text=TEXT), model.compute("token_loss", text=TEXT, cut="L0H1")
    of, of_cut = whole.to_pandas().attrs, cut.to_pandas().attrs
    (edit,) = of_cut["edits"]
    assert of["edits"] == [] and (edit["op"], edit["site"]["layer"], edit["site"]["heads"]) == ("zero", 0, [1])
    assert {name for name in of if of[name] != of_cut[name]} <= {"edits", "conventions", "remainder"}
    assert of["tokens"] == list(model.tokens(TEXT)) and of["analysis"] == "token_loss"
    sides = api.difference(cut, whole).to_pandas().attrs
    assert len(sides["now"]["edits"]) == 1 and sides["reference"]["edits"] == [] == whole.asked()["edits"]
    assert model.compute("composition", cut="L0H1").asked()["edits"] == [], "of the weights: its numbers are not under them"
    json.dumps([of, of_cut, sides])


def test_without_pandas_it_says_what_to_install(model: api.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    answer: Answer[Any] = model.compute("attention", text=TEXT)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BadMachine) as error:
        answer.to_pandas()
    assert "pip install" in error.value.remedy
    assert repr(answer) and answer._repr_html_()
