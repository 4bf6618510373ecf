"""The panel of prompt sets, on the shipped model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from circuitlab.analysis.base import Result
from circuitlab.analysis.behaviour.over_prompts import OverPromptsParams, OverPromptsResult
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Answer, Provenance
from circuitlab.figures.contracts.panel import Why, facts_of, find_panel
from circuitlab.figures.marks import Figure, Heatmap, Hit, Lines, Rows
from circuitlab.figures.panels.prompt_sets.panel import BY_HEAD, LISTS, PromptSetsView, SetName, What, _set_name
from circuitlab.model.subject import Head, ModelRef
from circuitlab.report.render import figure_of
from circuitlab.state.state import State
from tests.figures.figure_words import rows_counted
from tests.models import CONFIGS, directory

PANEL = find_panel("prompt_sets")
SHIPPED = ModelRef("builtin:attn-only-2l")


def state(**view: object) -> State:
    return State(SHIPPED).with_view("prompt_sets", replace(PromptSetsView(), **view))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("sets") / "three.tsv"
    path.write_text(
        "so one two one\t two\t one\tso two one two\nso a b a\t b\t a\tso b a b\nso ab cd ab\t cd\t ab\tso cd ab cd\n",
        encoding="utf-8",
    )
    return str(path)


@pytest.mark.parametrize("what", list(BY_HEAD))
def test_every_measure_is_a_map_of_heads_and_its_ranking(engine: Engine, three: str, what: What) -> None:
    figure = figure_of(engine, PANEL, state(what=what, prompts="a file", file=three))
    heat, rows = figure.find("map"), figure.find("heads")
    assert isinstance(heat, Heatmap)
    assert isinstance(rows, Rows)
    assert heat.values.shape == (2, 4)
    assert np.isfinite(heat.values).any()
    first = tuple(rows.ids[0])
    assert abs(heat.values[first]) == np.nanmax(np.abs(heat.values))
    assert "3 prompts" in figure.caption and "three.tsv" in figure.caption


def test_a_set_without_any_value_says_why(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "set.tsv"
    path.write_text("one two\t three\t four\n", encoding="utf-8")
    figure = figure_of(engine, PANEL, state(what="answer_attention", prompts="a file", file=str(path)))
    assert not figure.grid and "does the answer stand before" in figure.why_empty
    path.write_text("one two\t three\t four\t\t two\n", encoding="utf-8")
    assert figure_of(engine, PANEL, state(what="answer_attention", prompts="a file", file=str(path))).find("map") is not None


def test_the_second_page_lists_each_prompt_with_the_chosen_heads_value(engine: Engine, three: str) -> None:
    asked = state(prompts="a file", file=three, page="prompts").select(heads=(Head(1, 1),))
    rows = figure_of(engine, PANEL, asked).find("prompts")
    assert isinstance(rows, Rows)
    assert rows.columns[1].values.tolist() == ["so one two one", "so a b a", "so ab cd ab"]
    whole = figure_of(engine, PANEL, state(prompts="a file", file=three)).find("map")
    assert isinstance(whole, Heatmap)
    assert rows.columns[0].values.mean() == pytest.approx(whole.values[1, 1], rel=1e-5)


def test_each_prompt_is_whole_and_has_both_answers(engine: Engine, tmp_path: Path) -> None:
    long = "so " + "one two three " * 20 + "one\\ntwo"
    file = tmp_path / "long.tsv"
    file.write_text(f"{long}\t three\t one\nso a b a\t b\n", encoding="utf-8")
    asked = state(prompts="a file", file=str(file), page="prompts").select(heads=(Head(1, 1),))
    figure = figure_of(engine, PANEL, asked)
    rows = figure.find("prompts")
    assert isinstance(rows, Rows)
    by = {column.copied_name: column.values for column in rows.columns}
    assert list(by) == ["value", "prompt", "answer", "p of answer", "rank", "other answer", "p of other answer"]
    assert by["prompt"].tolist() == [long.replace("\\n", "↵"), "so a b a"]
    wanted = PANEL.requests(asked, facts_of(engine, SHIPPED))
    assert not isinstance(wanted, Why)
    result, text = engine.answer(wanted["set"]).result, facts_of(engine, SHIPPED).token_text
    assert isinstance(result, OverPromptsResult)
    assert by["answer"].tolist() == [text(int(i)) for i in result.answer]
    assert by["other answer"].tolist() == [text(int(result.other_answer[0])), ""]
    np.testing.assert_array_equal(by["p of answer"], result.answer_probability)
    assert PANEL.table is not None
    exported = PANEL.table(asked, engine.answer(wanted["set"]))
    assert exported is not None and PANEL.table(state(), engine.answer(wanted["set"])) is None
    by_name = {column.name: column.values.tolist() for column in exported.columns}
    assert by_name["prompt"] == list(result.prompts) and by_name["value of L1H1"] == by["value"].tolist()
    assert by_name["other answer"] == result.other_answer.tolist() and by_name["p of answer"] == by["p of answer"].tolist()
    file.write_text("so a b a\t b\n", encoding="utf-8")
    alone = figure_of(engine, PANEL, asked).find("prompts")
    assert isinstance(alone, Rows)
    assert [column.name for column in alone.columns] == ["value", "prompt", "answer", "p", "rank"]


def test_a_title_names_the_set_as_the_control_does(engine: Engine) -> None:
    facts = facts_of(engine, SHIPPED)
    for name in set(get_args(SetName)) - {"a file"}:
        wanted = PANEL.requests(state(prompts=name), facts)
        assert not isinstance(wanted, Why)
        assert _set_name(Answer(wanted["set"], Result(), True, Provenance())) == name.replace("_", " ")


def test_it_is_said_what_the_target_is_and_on_which_page_there_is_a_mean(engine: Engine, three: str, tmp_path: Path) -> None:
    asked = state(prompts="a file", file=three).select(heads=(Head(1, 1),))
    figure = figure_of(engine, PANEL, asked)
    assert figure.title == "three.tsv · part of the target that each head writes · mean of 3 prompts"
    assert "target in logits: answer minus other answer" in figure.caption_parts
    assert "mean of 3 prompts of three.tsv" in figure.caption_parts
    assert "first choice right 1 of 3, answer above the other 3 of 3" in figure.caption_parts
    each = figure_of(engine, PANEL, state(prompts="a file", file=three, page="prompts").select(heads=(Head(1, 1),)))
    assert each.title == "three.tsv · part of the target that each head writes · L1H1"
    assert "target in logits: answer minus other answer" in each.caption_parts
    assert "a value for each of 3 prompts of three.tsv" in each.caption_parts
    assert "mean" not in each.caption and "sd" not in each.caption
    assert "of the prompt with the largest: remainder" in each.caption
    mixed = tmp_path / "mixed.tsv"
    mixed.write_text("so one two one\t two\t one\nso a b a\t b\nso ab cd ab\t cd\n", encoding="utf-8")
    caption = figure_of(engine, PANEL, state(prompts="a file", file=str(mixed))).caption
    assert "target in logits: answer minus other answer in 1, answer in 2" in caption
    scores = figure_of(engine, PANEL, state(what="head_scores", prompts="a file", file=three)).caption
    assert "target" not in scores


def test_same_sign_is_the_share_of_prompts_on_the_side_of_the_mean(engine: Engine, three: str) -> None:
    ranking = figure_of(engine, PANEL, state(prompts="a file", file=three)).find("heads")
    assert isinstance(ranking, Rows)
    means, same = (next(c.values for c in ranking.columns if c.name == name) for name in ("mean", "same sign"))
    for row, head in enumerate(map(tuple, ranking.ids.tolist())):
        asked = state(prompts="a file", file=three, page="prompts").select(heads=(Head(*head),))
        each = figure_of(engine, PANEL, asked).find("prompts")
        assert isinstance(each, Rows)
        agreeing = [np.sign(value) == np.sign(means[row]) for value in each.columns[0].values]
        assert same[row] == pytest.approx(sum(agreeing) / 3)


def test_a_head_is_chosen_by_a_click_and_what_is_missing_is_said(engine: Engine, tmp_path: Path) -> None:
    assert PANEL.pick(state(), Hit("map", (1, 2))).selection.heads == (Head(1, 2),)
    facts = facts_of(engine, SHIPPED)
    why = PANEL.requests(state(prompts="a file"), facts)
    assert isinstance(why, Why)
    asked = PANEL.requests(state(), facts)
    assert not isinstance(asked, Why)
    params = asked["set"].params
    assert isinstance(params, OverPromptsParams)
    assert params.file is not None
    assert Path(params.file.path).is_file()
    bare = ModelRef(f"file:{directory(tmp_path / 'm', CONFIGS['attention-only'], tokenizer=False)}")
    assert isinstance(PANEL.requests(replace(state(), model=bare), facts_of(engine, bare)), Why)


def answered(engine: Engine, asked: State) -> tuple[Figure, Rows, OverPromptsResult]:
    """The figure, its list, and the answer that it must agree with."""
    figure, wanted = figure_of(engine, PANEL, asked), PANEL.requests(asked, facts_of(engine, asked.model))
    assert not isinstance(wanted, Why), wanted.text
    result, rows = engine.answer(wanted["set"]).result, figure.find("list")
    assert isinstance(result, OverPromptsResult)
    assert isinstance(rows, Rows)
    return figure, rows, result


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> str:
    """For a tokenizer of bytes: the answers begin with different ones."""
    path = tmp_path_factory.mktemp("sets") / "letters.tsv"
    path.write_text("one two one\tt\to\tone six one\nab ac ab\ta\tb\tab zc ab\nxyxyx\ty\tz\txzxzx\n", encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def with_mlps(tmp_path_factory: pytest.TempPathFactory) -> ModelRef:
    return ModelRef(f"file:{directory(tmp_path_factory.mktemp('m') / 'm', CONFIGS['gpt2'])}")


@pytest.mark.parametrize("what", list(LISTS))
def test_lists_hold_mean_and_spread_of_their_entries(engine: Engine, letters: str, with_mlps: ModelRef, what: What) -> None:
    asked = replace(state(what=what, prompts="a file", file=letters), model=with_mlps).select(heads=(Head(0, 1),))
    figure, rows, result = answered(engine, asked)
    at = tuple(rows.ids.T)
    by = {c.name: c.values for c in rows.columns}
    values = np.stack([one[at] for one in result.values]).astype(float)
    assert len(values) == 3
    weights = result.weights[:, None] * ~np.isnan(values)
    mean = np.nansum(weights * values, axis=0) / weights.sum(axis=0)
    np.testing.assert_allclose(by["mean"], mean, rtol=1e-5, atol=1e-7)
    n = (~np.isnan(values)).sum(axis=0)
    assert (n == 3).all() if "prompts" not in by else (by["prompts"] == n).all()
    np.testing.assert_allclose(by["same sign"], (np.sign(values) == np.sign(by["mean"])).sum(axis=0) / n)
    assert "3 prompts" in figure.caption
    if what in ("neurons", "receivers"):
        assert (np.diff(np.abs(by["mean"])) <= 0).all()
        assert abs(by["mean"][0]) == np.nanmax(np.abs(result.mean))
    if what == "neurons":
        assert rows_counted(figure) == (40, 80)
    if what == "receivers":
        assert set(rows.ids[:, 1]) == {1}  # the sender stands in the first layer
        assert "L0H1's output" in figure.title
    if what == "distances":
        curve = figure.find("distance")
        assert isinstance(curve, Lines)
        np.testing.assert_allclose(curve.ys[0][rows.ids[:, 0]], by["mean"], rtol=1e-6)
    if what == "orders":
        assert by["terms"].tolist() == ["direct path", "order 1", "order 2"]


def test_the_prompts_of_a_list_show_its_largest_entry(engine: Engine, letters: str, with_mlps: ModelRef) -> None:
    asked = replace(state(what="neurons", prompts="a file", file=letters), model=with_mlps)
    _, rows, result = answered(engine, asked)
    figure = figure_of(
        engine, PANEL, asked.with_view("prompt_sets", replace(asked.view("prompt_sets", PromptSetsView), page="prompts"))
    )
    mark = figure.find("prompts")
    assert isinstance(mark, Rows)
    assert str(rows.columns[0].values[0]) in figure.title
    np.testing.assert_array_equal(mark.columns[0].values, [one[tuple(rows.ids[0])] for one in result.values])


def test_a_receiver_chooses_its_pair_and_the_sender_stays(engine: Engine, three: str) -> None:
    asked = state(what="receivers", prompts="a file", file=three).select(heads=(Head(0, 1),))
    _, rows, _ = answered(engine, asked)
    taken = PANEL.pick(asked, Hit("list", tuple(rows.ids[2].tolist())))
    way, layer, head = rows.ids[2].tolist()
    assert taken.selection.edge == (Head(0, 1), Head(layer, head))
    assert taken.selection.edge_kind == "QKV"[way]
    _, again, _ = answered(engine, taken)
    assert again.chosen == (2,)
    assert again.ids is rows.ids
    last = PANEL.requests(asked.select(heads=(Head(1, 1),)), facts_of(engine, SHIPPED))
    assert isinstance(last, Why)
    assert "last layer" in last.text


def test_neurons_of_a_model_without_mlps_say_why(engine: Engine, three: str) -> None:
    found = PANEL.requests(state(what="neurons", prompts="a file", file=three), facts_of(engine, SHIPPED))
    assert isinstance(found, Why)
    assert "MLP" in found.text
