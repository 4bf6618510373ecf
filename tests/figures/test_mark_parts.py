"""A mark whose parts disagree is not made; a fault while Qt paints is drawn as its reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PySide6.QtWidgets import QApplication

from circuitlab.draw.export.pictures import picture
from circuitlab.draw.look import guarded
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.theme import DARK, LIGHT
from circuitlab.errors import BadFigure, CircuitLabError
from circuitlab.figures.marks import (
    Axis,
    Bars,
    Dials,
    Figure,
    Heatmap,
    Mark,
    Points,
    Prose,
    RowColumn,
    Rows,
    Tiles,
    Tokens,
    ids,
)
from circuitlab.figures.marks.common import Frozen
from tests.figures.test_mark_gestures import CURVES, GRAPH, MARKS

FIVE = Axis("", tuple("abcde"))
MAP = Heatmap("m", np.ones((12, 12), np.float32), (0.0, 1.0))
DOTS = Points("m", np.zeros(3), np.zeros(3), ids(np.arange(3)))
BARS = Bars("m", np.zeros(2), ("a", "b"))
WORDS = Tokens("m", ("a", "b"), np.zeros(2))
TABLE = Rows("m", (RowColumn("x", np.zeros(2)),), ids(np.arange(2)))
DIALS = Dials("m", np.zeros(2))

COLUMN = RowColumn("x", np.zeros(2))
PROSE = Prose("m", (("lead", "text"),))

WRONG: list[tuple[Mark | RowColumn, dict[str, Any]]] = [
    (MAP, {"x": FIVE}),
    (MAP, {"y": FIVE}),
    (MAP, {"x": Axis(spans=((0, 5, "a"), (5, 20, "b")))}),
    (MAP, {"values": np.ones(12, np.float32)}),
    (MAP, {"levels": (1.0, 0.0)}),
    (MAP, {"levels": (0.0, float("nan"))}),
    (MAP, {"rgb": np.zeros((12, 11, 3), np.uint8)}),
    (MAP, {"hatched": np.zeros((3, 12), bool)}),
    (MAP, {"texts": np.full((12, 3), "")}),
    (MAP, {"framed": np.zeros(12, bool)}),
    (MAP, {"row_ids": ids(np.arange(12)), "col_ids": ids(np.arange(3))}),
    (MAP, {"row_ids": ids(np.arange(12))}),
    (MAP, {"tiles": Tiles(2, 2, 4, 4)}),
    (MAP, {"tiles": Tiles(2, 2, 5, 5, chosen=((0, 2),))}),
    (MAP, {"values": np.full((12, 12), "1.0")}),
    (MAP, {"values": np.ones((12, 12)).tolist()}),
    (MAP, {"x": Axis("", tuple(range(12)))}),  # type: ignore[arg-type]
    (MAP, {"rgb": np.zeros((12, 12, 3))}),
    (MAP, {"framed": np.zeros((12, 12))}),
    (MAP, {"texts": np.zeros((12, 12))}),
    (MAP, {"row_ids": np.zeros((12, 1)), "col_ids": ids(np.arange(12))}),
    (MAP, {"row": 12}),
    (MAP, {"col": -1}),
    (MAP, {"struck": ((0, 12),)}),
    (DOTS, {"y": np.zeros(2)}),
    (DOTS, {"ids": ids(np.arange(2))}),
    (DOTS, {"labels": ("a",)}),
    (DOTS, {"tips": ("a",)}),
    (DOTS, {"hues": np.zeros(4, int)}),
    (DOTS, {"values": np.zeros(4)}),
    (DOTS, {"paths": ((0, 3),)}),
    (DOTS, {"chosen": (3,)}),
    (DOTS, {"controls": np.zeros(3)}),
    (DOTS, {"hues": np.zeros(3)}),
    (DOTS, {"x": np.array(["a", "b", "c"])}),
    (DOTS, {"levels": (1.0, 1.0)}),
    (CURVES, {"ys": np.zeros((2, 4))}),
    (CURVES, {"names": ("a",)}),
    (CURVES, {"hues": (1, 2, 3)}),
    (CURVES, {"named": (2,)}),
    (CURVES, {"chosen": (-1,)}),
    (CURVES, {"dashed": (True,)}),
    (CURVES, {"ys": CURVES.ys.astype(str)}),
    (CURVES, {"curve_ids": ids(np.arange(len(CURVES.ys)))}),
    (CURVES, {"curve_ids": ids(np.arange(3)), "step_ids": ids(np.arange(3))}),
    (CURVES, {"step_ids": ids(np.arange(2))}),
    (BARS, {"labels": ("a",)}),
    (BARS, {"hues": (1,)}),
    (BARS, {"chosen": (2,)}),
    (BARS, {"values": np.zeros((2, 1))}),
    (GRAPH, {"xy": np.zeros((3, 3))}),
    (GRAPH, {"labels": ("a",)}),
    (GRAPH, {"hues": np.zeros(2, int)}),
    (GRAPH, {"ends": np.array([[0, 2], [1, 3]])}),
    (GRAPH, {"weights": np.ones(3)}),
    (GRAPH, {"kinds": np.array([0, 3])}),
    (GRAPH, {"chosen_edges": (2,)}),
    (GRAPH, {"edge_ids": ids(np.arange(3))}),
    (GRAPH, {"node_ids": ids(np.arange(2))}),
    (GRAPH, {"badges": ("a",)}),
    (GRAPH, {"edge_badges": ("a",) * 9}),
    (GRAPH, {"edge_hints": ("a",) * 9}),
    (GRAPH, {"hints": ("a",)}),
    (GRAPH, {"struck": (99,)}),
    (GRAPH, {"chosen_nodes": (99,)}),
    (GRAPH, {"ends": GRAPH.ends.astype(float)}),
    (WORDS, {"values": np.zeros(3)}),
    (WORDS, {"rgb": np.zeros((3, 3), np.uint8)}),
    (WORDS, {"tips": ("a",)}),
    (WORDS, {"texts": ("a", 1)}),
    (WORDS, {"row": 2}),
    (WORDS, {"named": ((2, "a"),)}),
    (WORDS, {"arrows": ((0, 2),)}),
    (WORDS, {"values": np.array(["0", "1"])}),
    (WORDS, {"levels": (0.0, 0.0)}),
    (TABLE, {"columns": (RowColumn("x", np.zeros(3)),)}),
    (TABLE, {"sort": (1, "up")}),
    (TABLE, {"chosen": (2,)}),
    (TABLE, {"strong": (2,)}),
    (TABLE, {"gap": 9}),
    (TABLE, {"ids": np.zeros((2, 1))}),
    (COLUMN, {"values": np.zeros((2, 1))}),
    (COLUMN, {"values": [0.0, 1.0]}),
    (COLUMN, {"values": np.array(["a", "b"], object), "bar": True}),
    (COLUMN, {"map": "signed", "levels": (1.0, 0.0)}),
    (PROSE, {"paragraphs": (("lead",),)}),
    (PROSE, {"paragraphs": (("lead", 1),)}),
    (DIALS, {"tips": ("a",)}),
    (DIALS, {"angles": np.array(["a", "b"])}),
    (TABLE, {"ids": np.arange(2)}),
    (DIALS, {"labels": ("a",)}),
    (DIALS, {"angles": np.zeros((2, 2))}),
]


@pytest.mark.parametrize(("mark", "wrong"), WRONG, ids=lambda v: "-".join(v) if isinstance(v, dict) else type(v).__name__)
def test_a_mark_whose_parts_disagree_is_not_made(mark: Mark | RowColumn, wrong: dict[str, Any]) -> None:
    with pytest.raises(BadFigure) as refused:
        replace(mark, **wrong)
    assert type(mark).__name__ in refused.value.what
    assert refused.value.expected
    assert refused.value.got


def test_two_marks_of_one_name_are_no_figure() -> None:
    with pytest.raises(BadFigure, match="called alike"):
        Figure(((MAP, replace(MAP)),))
    Figure(((MAP, replace(WORDS, name="m")),))  # of different kinds they have widgets of their own
    with pytest.raises(BadFigure):
        Figure(((MAP,),), weights=(1.0, 2.0))


def fail(*args: Any) -> None:
    raise IndexError("tuple index out of range")


LABELS, NUMBERS = "draw.plots.axis.LabelAxis._paint_steps", "draw.plots.axis.LabelAxis.generateDrawSpecs"
CURVE, DOTTED = "pyqtgraph.PlotCurveItem._shouldUseDrawLineSegments", "pyqtgraph.ScatterPlotItem._maskAt"
PARTS = (
    ("cells", "draw.heatmap.heatmap.paint_rules"),
    ("cells", "draw.look.colour_bar.ColourBar._paint_strip"),
    ("cells", "pyqtgraph.ImageItem.render"),
    ("cells", LABELS),
    ("points", "over"),
    ("points", DOTTED),
    ("points", NUMBERS),
    ("curves", "under"),
    ("curves", "draw.look.legend.QColor"),
    ("curves", CURVE),
    ("a node", "over"),
    ("a node", CURVE),
    ("bars", "draw.painted.bars.BarsMark.draw"),
    ("tokens", "draw.painted.tokens.TokensMark.draw"),
    ("dials", "draw.painted.dials.DialsMark.draw"),
    ("prose", "draw.painted.prose.ProseMark.draw"),
    ("rows", "draw.tables._cells.RowsDelegate._paint_cell"),
    ("rows", "draw.tables._colour_key.paint_key"),
)
COLOURED = Rows("m", (RowColumn("x", np.array([1.0, 2.0]), map="magnitude", levels=(0.0, 2.0)),), ids(np.arange(2)), key=True)


@pytest.mark.parametrize(("name", "part"), PARTS)
def test_a_fault_while_painting_is_drawn_as_its_reason(
    view: Any, name: str, part: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any part of any mark: it stands in the picture, no file goes out without it, and the view lives on."""
    guarded._LOGGED.clear()
    marks: dict[str, Mark] = {"prose": Prose("m", (("a", "word"),)), "rows": COLOURED}
    mark = marks[name] if name in marks else MARKS[name][0]
    view.show_figure(Figure(((mark,),), "Figure"))
    QApplication.processEvents()
    whole = view.grab().toImage()
    with monkeypatch.context() as broken:
        if part in ("over", "under"):
            broken.setattr(getattr(view.widget("m"), f"_{part}"), "_draw", fail)
        else:
            broken.setattr(part if part.startswith("pyqtgraph") else f"circuitlab.{part}", fail)
        view.set_theme(DARK)  # everything is painted again
        view.set_theme(LIGHT)
        with guarded.faults() as heard:
            marred = view.grab().toImage()
        assert heard and all("tuple index out of range" in why for why in heard)
        if part in (CURVE, DOTTED):
            with pytest.raises(CircuitLabError, match="could not be drawn"):
                picture(Figure(((mark,),), "Figure"), ".pdf", Paper())
    assert marred.size() == whole.size()
    assert marred != whole  # the reason stands there
    assert len([r for r in caplog.records if r.name == "circuitlab.draw"]) == 1  # told once, however often it is painted
    view.set_theme(DARK)
    view.set_theme(LIGHT)
    assert view.grab().toImage() == whole


def test_the_classes_here_are_all_marks() -> None:
    assert {type(mark) for mark, _ in WRONG} == set(Frozen.__subclasses__())
