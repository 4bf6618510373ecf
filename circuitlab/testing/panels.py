"""What is asked of every panel: it draws short and long prompts, or says why not, explains itself, and draws the same again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from circuitlab.engine.engine import Engine
from circuitlab.figures.contracts.panel import Panel, Why, facts_of, find_panel
from circuitlab.figures.marks import Figure, Heatmap, Hit, Rows
from circuitlab.model.subject import Conventions
from circuitlab.report.render import figure_of
from circuitlab.state.state import Pin, State
from circuitlab.testing.analyses import PROMPTS, Bench, need

Draw = Callable[[Engine, Panel, State], Figure]


def check_panel(name: str, folder: Path, state: State | None = None) -> None:
    """All of what follows, on a small model that is written below `folder`. `state`: where it has something to draw."""
    bench, panel = Bench.on(folder / "panel"), find_panel(name)
    state = state or State(bench.ref).with_tokens((0, 5, 9, 5, 7, 5, 9))
    check_explained(panel)
    check_gestures(panel, state)
    for tokens in ((), *PROMPTS):
        check_figure(drawn(bench.engine, panel, state.with_tokens(tokens)))
    check_figure(drawn(bench.engine, panel, replace(state, conventions=Conventions(dtype="float64"))))
    pinned = replace(state.with_tokens((0, 5, 9, 6, 7, 5, 9)), pins=(Pin("before", state.subject),))
    for compare in ("now", "reference", "difference"):
        check_figure(drawn(bench.engine, panel, replace(pinned, compare=compare)))
    check_same_arrays(bench.engine, panel, state)


def drawn(engine: Engine, panel: Panel, state: State) -> Figure:
    """The figure of what the panel asks for, or of why it asks for nothing on this model, which it then says."""
    if not isinstance(asked := panel.requests(state, facts := facts_of(engine, state.model)), Why):
        return figure_of(engine, panel, state)
    figure = panel.figure(state, facts, {}, {})
    need(figure.why_empty == asked.text, panel.name, "is empty for another reason than it says:", figure.why_empty)
    return figure


def check_figure(figure: Figure) -> None:
    """It has a title, and marks with names, or the reason that there are none; no mark can be written to."""
    need(figure.grid or figure.why_empty, "nothing is drawn, and not said why")
    need(figure.title, "the figure has no title")
    for mark in figure.marks():
        need(mark.name, "a mark has no name")
        if isinstance(mark, Heatmap):
            need(mark.levels[0] < mark.levels[1], mark.name, "has a colour scale without width")
            need(not mark.values.flags.writeable, mark.name, "can be written to")
        if isinstance(mark, Rows):
            need({len(c.values) for c in mark.columns} == {len(mark.ids)}, mark.name, "has columns of different lengths")


def check_same_arrays(engine: Engine, panel: Panel, state: State, draw: Draw = drawn) -> None:
    """Where a hover asks nothing else, the heatmaps are the same objects: what is drawn is told apart by identity.

    `draw`: how its figures are had.
    """
    other, facts = state.select(destination=2), facts_of(engine, state.model)
    if panel.requests(state, facts) != panel.requests(other, facts):
        return  # another position is another question here
    for a, b in zip(draw(engine, panel, state).marks(), draw(engine, panel, other).marks(), strict=True):
        if isinstance(a, Heatmap) and isinstance(b, Heatmap):
            need(a.values is b.values and a.x is b.x, a.name, "is made anew of the same answer: figures/contracts/memo.py")


def check_explained(panel: Panel) -> None:
    """It says what its numbers are, where they come from, what it is for, and where it stands."""
    for word in ("equation", "source", "help", "title"):
        need(getattr(panel, word), panel.name, "has no", word)
    need(panel.area in ("left", "centre", "right", "bottom"), panel.name, "has no place:", panel.area)


def check_gestures(panel: Panel, state: State) -> None:
    """A gesture that means nothing changes nothing."""
    need(panel.pick(state, Hit("no such mark", (0, 0))) is state, panel.name, "makes a new State of a gesture that means nothing")
