"""The panel of prompt sets, on the shipped model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from circuitlab.analysis.over_prompts import OverPromptsParams
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.figures.marks import Heatmap, Hit, Rows
from circuitlab.figures.panel import Why, facts_of, find_panel
from circuitlab.figures.prompt_sets import ASKED, PromptSetsView, What
from circuitlab.model.subject import Head, ModelRef
from circuitlab.report.render import figure_of
from circuitlab.session.state import State
from tests.models import CONFIGS, directory

PANEL = find_panel("prompt_sets")
SHIPPED = ModelRef("builtin:attn-only-2l")


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(ModelStore())


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


@pytest.mark.parametrize("what", list(ASKED))
def test_every_measure_is_a_map_of_heads_and_its_ranking(engine: Engine, three: str, what: What) -> None:
    figure = figure_of(engine, PANEL, state(what=what, prompts="a file", file=three))
    heat, rows = figure.find("map"), figure.find("heads")
    assert isinstance(heat, Heatmap)
    assert isinstance(rows, Rows)
    assert heat.values.shape == (2, 4)
    assert np.isfinite(heat.values).any()
    first = tuple(rows.ids[0])
    assert abs(heat.values[first]) == np.nanmax(np.abs(heat.values))
    assert "mean of 3 prompts of three.tsv" in figure.caption


def test_the_second_page_lists_each_prompt_with_the_chosen_heads_value(engine: Engine, three: str) -> None:
    asked = state(prompts="a file", file=three, page="prompts").select(heads=(Head(1, 1),))
    rows = figure_of(engine, PANEL, asked).find("prompts")
    assert isinstance(rows, Rows)
    assert rows.columns[1].values.tolist() == ["so one two one", "so a b a", "so ab cd ab"]
    whole = figure_of(engine, PANEL, state(prompts="a file", file=three)).find("map")
    assert isinstance(whole, Heatmap)
    assert rows.columns[0].values.mean() == pytest.approx(whole.values[1, 1], rel=1e-5)


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
