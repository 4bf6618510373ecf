"""What papers have called a head stands beside it in every panel of heads, with its source, and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from circuitlab.draw.heatmap.heatmap import HeatmapMark
from circuitlab.draw.plots.edges import EdgesMark
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.figures.contracts.panel import find_panel
from circuitlab.figures.marks import Edges, Figure, Heatmap, Points, Rows
from circuitlab.figures.panels.composition import CompositionView
from circuitlab.figures.panels.head_finder import HeadFinderView
from circuitlab.model.records import known_heads as module
from circuitlab.model.records.known_heads import known_heads
from circuitlab.model.subject import ModelRef
from circuitlab.report.render import figure_of
from circuitlab.state.state import State
from tests.models import directory
from tests.unit.test_known_heads import TINY_FILE

SAID = "published for tiny (only the shape fits): induction (A. Body 2020)"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> tuple[Engine, State]:
    ref = ModelRef(f"file:{directory(tmp_path_factory.mktemp('m') / 'model')}")
    return Engine(ModelStore()), State(ref).with_tokens((0, 5, 9, 5, 7, 5, 9))


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "known_heads").mkdir()
    (tmp_path / "known_heads" / "tiny.json").write_text(json.dumps(TINY_FILE))
    monkeypatch.setattr(module, "resource", lambda *parts: tmp_path.joinpath(*parts))
    for kept in (module._shipped, known_heads):
        kept.cache_clear()
    yield
    for kept in (module._shipped, known_heads):
        kept.cache_clear()


def _figures(bench: tuple[Engine, State]) -> dict[str, Figure]:
    engine, state = bench
    views = {"overview": None, "heads": None, "head_finder": HeadFinderView(page="table"), "composition": CompositionView(top=5)}
    made = {n: figure_of(engine, find_panel(n), state if v is None else state.with_view(n, v)) for n, v in views.items()}
    return made | {"plane": figure_of(engine, find_panel("head_finder"), state)}


def test_every_panel_of_heads_says_what_is_published(bench: tuple[Engine, State], published: None) -> None:
    figures = _figures(bench)
    for figure in figures.values():
        assert all(fact in figure.caption for fact in ("tiny", "A. Body 2020", "B. Body 2021", "shape"))
    for name, mark in (("overview", "heads"), ("heads", "map")):
        heat = figures[name].find(mark)
        assert isinstance(heat, Heatmap)
        assert heat.hints[1, 3] == SAID
        assert set(heat.hints) == {(1, 2), (1, 3)}
    for name, mark in (("heads", "ranking"), ("head_finder", "table")):
        rows = figures[name].find(mark)
        assert isinstance(rows, Rows)
        column = next(c for c in rows.columns if c.name == "published")
        said = dict(zip(map(tuple, rows.ids.tolist()), column.values.tolist(), strict=True))
        assert {head: text for head, text in said.items() if text} == {(1, 2): "induction, first token", (1, 3): "induction"}
    plane, graph = figures["plane"].find("plane"), figures["composition"].find("composition")
    assert isinstance(plane, Points) and isinstance(graph, Edges) and graph.node_ids is not None
    tips = dict(zip(map(tuple, plane.ids.tolist()), plane.tips, strict=True))
    assert tips[1, 3].endswith(SAID) and "published" not in tips[0, 0]
    at = [tuple(k) for k in graph.node_ids.tolist()].index((1, 3))
    assert graph.hints[at] == SAID
    assert "†" in figures["composition"].title
    assert graph.badges[at].endswith("†") and sum("†" in b for b in graph.badges) == 2


def test_nothing_is_said_of_a_model_that_no_file_is_about(bench: tuple[Engine, State]) -> None:
    for figure in _figures(bench).values():
        assert "published" not in figure.caption and "†" not in figure.caption
        for mark in figure.marks():
            assert not (isinstance(mark, Heatmap | Edges) and mark.hints)
            assert not (isinstance(mark, Rows) and any(c.name == "published" for c in mark.columns))


def test_the_readout_of_a_tile_and_of_a_node_has_the_hint(bench: tuple[Engine, State], published: None, view: FigureView) -> None:
    figures = _figures(bench)
    view.show_figure(figures["overview"])
    (drawn,) = view.findChildren(HeatmapMark)
    assert drawn.readout((1, 3)) == f"L1H3 · {SAID}"
    assert drawn.readout((0, 3)) == "L0H3"
    view.show_figure(figures["composition"])
    (graph,) = view.findChildren(EdgesMark)
    said = [graph.readout((0, i)) for i in range(8)]
    assert sum(text.endswith(SAID) for text in said) == 1
