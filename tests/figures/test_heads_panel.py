"""The map and the ranking of all heads: each number is that of the head whose name, place and id it stands at."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from circuitlab.analysis.attention.head_scores import HeadScoresParams
from circuitlab.analysis.behaviour.over_prompts import of_one_prompt
from circuitlab.caption_parts import Essential
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.figures.contracts.panel import panels
from circuitlab.figures.contracts.selection_reading import EDITED
from circuitlab.figures.marks import Heatmap, Hit, Rows
from circuitlab.figures.panels.head_finder import HeadFinderView
from circuitlab.figures.panels.heads import UNITS, HeadsView, Score
from circuitlab.figures.panels.induction.panel import InductionView
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Head, ModelRef
from circuitlab.report.render import figure_of
from circuitlab.state.cuts import ablation, with_edits
from circuitlab.state.state import State
from tests.models import directory


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> tuple[Engine, State]:
    ref = ModelRef(f"file:{directory(tmp_path_factory.mktemp('m') / 'model')}")
    return Engine(ModelStore()), State(ref).with_tokens((0, 5, 9, 5, 7, 5, 9))


def test_every_score_stands_at_its_head(bench: tuple[Engine, State]) -> None:
    """All scores in turn on one answer, so that what is remembered of one is not shown as another."""
    engine, state = bench
    panel = panels()["heads"]
    result = engine.answer(Request.named("head_scores", HeadScoresParams(), state.subject)).result
    for place, score in enumerate(get_args(Score)):
        heat, ranking = figure_of(engine, panel, state.with_view("heads", HeadsView(score=score))).marks()
        assert isinstance(heat, Heatmap) and isinstance(ranking, Rows)
        assert result.names[place] == score  # type: ignore[attr-defined]
        known = {n: getattr(result, n)[place] for n in ("mean", "spread", "control")}
        assert heat.unit == UNITS.get(score, "score")
        for (row, col), value in np.ndenumerate(heat.values):
            layer, head = int(heat.y.ticks[row].removeprefix("L")), int(heat.x.ticks[col].removeprefix("H"))
            assert value == np.float32(known["mean"][layer, head])
            assert panel.pick(state, Hit("map", (row, col))).selection.heads == (Head(layer, head),)
        columns = {c.name: c.values for c in ranking.columns}
        assert columns["#"].tolist() == list(range(1, 9))
        assert (np.diff(columns["mean"]) <= 0).all()
        for row, (name, key) in enumerate(zip(columns["head"], ranking.ids.tolist(), strict=True)):
            layer, head = map(int, re.fullmatch(r"L(\d+)H(\d+)", name).groups())  # type: ignore[union-attr]
            assert key == [layer, head]
            for column, of in (("mean", "mean"), ("sd", "spread"), ("control", "control")):
                np.testing.assert_equal(columns[column][row], known[of][layer, head])


def test_the_title_is_about_the_chosen_head(bench: tuple[Engine, State]) -> None:
    engine, state = bench
    values = engine.answer(Request.named("head_scores", HeadScoresParams(), state.subject)).result.mean[0]  # type: ignore[attr-defined]
    state = replace(state, selection=state.selection.with_heads(Head(1, 2)))
    figure = figure_of(engine, panels()["heads"], state)
    rank = 1 + int((values > values[1, 2]).sum())
    sample = re.search(r"(\d+) samples of (?:BOS \+ )?(\d+) random tokens × (\d+)", figure.caption)
    assert sample is not None
    assert (
        figure.title.replace("\u00a0", " ")
        == f"prefix matching · L1H2 {values[1, 2]:.2f}, rank {rank} of 8 on {' × '.join(sample.groups())}"
    )
    own = figure_of(engine, panels()["heads"], state.with_view("heads", HeadsView(on="text")))
    assert own.title != figure.title and "×" not in own.title, "two numbers of one name say what tells them apart"
    heat, ranking = figure.marks()
    assert (heat.row, heat.col) == (1, 2)  # type: ignore[union-attr]
    assert [ranking.ids[i].tolist() for i in ranking.chosen] == [[1, 2]]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["heads", "ablation", "head_finder"])
@pytest.mark.parametrize("heads", [(Head(1, 2), Head(0, 1)), (Head(0, 1), Head(1, 2))])
def test_of_several_heads_the_row_of_the_one_in_the_title_leads(
    bench: tuple[Engine, State], name: str, heads: tuple[Head, ...]
) -> None:
    engine, state = bench
    state = replace(state, selection=state.selection.with_heads(*heads))
    marks = [m for m in figure_of(engine, panels()[name], state).marks() if m.name in ("ranking", "plane")]
    for mark in marks:
        assert [tuple(mark.ids[i].tolist()) for i in mark.chosen] == [tuple(h) for h in heads]  # type: ignore[union-attr]
    assert marks


@pytest.mark.parametrize(
    ("name", "view", "switched"),
    [
        ("heads", HeadsView(), HeadsView(edited=True)),
        ("head_finder", HeadFinderView(), HeadFinderView(edited=True)),
        ("head_finder", HeadFinderView(page="table"), HeadFinderView(page="table", edited=True)),
        ("induction", InductionView(page="stripe"), InductionView(page="stripe", edited=True)),
        ("induction", InductionView(page="heads"), InductionView(page="heads", edited=True)),
    ],
)
def test_scores_of_random_tokens_say_so_where_they_are_without_the_interventions_that_are_on(
    bench: tuple[Engine, State], name: str, view: object, switched: object
) -> None:
    """In sight whatever room a caption has: the switch may stand behind a button."""
    engine, state = bench
    said = lambda state, view: [
        part for part in figure_of(engine, panels()[name], state.with_view(name, view)).caption_parts if EDITED in part
    ]
    cut = with_edits(state, ablation(Head(0, 1)))
    here = with_edits(state, Intervention("zero", Site("z", 0, (1,), positions=(2,))))
    (part,) = said(cut, view)
    assert isinstance(part, Essential) and "left out" in part
    assert not said(state, view), "nothing is cut"
    assert not said(cut, switched), "they are in it"
    assert of_one_prompt(here.subject.edits[0]) and not said(here, view), "no switch would bring in what is of the prompt alone"
    if hasattr(view, "on"):
        assert not said(cut, replace(view, on="prompt" if name == "induction" else "text")), "a prompt has them always"  # type: ignore[type-var]
