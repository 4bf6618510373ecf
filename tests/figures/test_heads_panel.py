"""The map and the ranking of all heads: each number is that of the head whose name, place and id it stands at."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from circuitlab.analysis.attention.head_scores import HeadScoresParams
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.figures.contracts.panel import panels
from circuitlab.figures.marks import Heatmap, Hit, Rows
from circuitlab.figures.panels.heads import UNITS, HeadsView, Score
from circuitlab.model.subject import Head, ModelRef
from circuitlab.report.render import figure_of
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
