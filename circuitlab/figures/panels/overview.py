"""All heads at a glance: a contact sheet of every head's attention, layers down, heads across; turned in a wide and low room."""

from __future__ import annotations

from dataclasses import dataclass

from circuitlab.analysis.attention.overview import GAP, OverviewParams, attention_overview
from circuitlab.analysis.attention.pattern import Show
from circuitlab.counting import number_of
from circuitlab.engine.request import Request
from circuitlab.figures.contracts.common import caption, edit_notes, hints, published, top_level, with_edit_notes
from circuitlab.figures.contracts.heads import head_axes, pick_head, sharing
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.marks import Figure, Heatmap, Hit, Tiles
from circuitlab.figures.panels.attention import NAMES, UNITS
from circuitlab.model.subject import Head
from circuitlab.state.state import State


@dataclass(frozen=True)
class OverviewView:
    """The controls of the contact sheet."""

    show: Show = control("pattern", label="Show", tip="What a cell holds")
    leave_out_bos: bool = control(False, label="Without BOS", tip="Leave out the first position as a source")


def requests(state: State, facts: Facts) -> Requests | Why:
    """One request for all heads."""
    view: OverviewView = state.view("overview", OverviewView)
    size = 64 if facts.config.n_layers * facts.config.n_heads <= 64 else 40
    return {"overview": Request(attention_overview, OverviewParams(view.show, size, view.leave_out_bos), state.subject)}


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """One heatmap of tiles."""
    answer = answers.of("overview", attention_overview)
    result, config = answer.result, facts.config
    show = answer.request.params.show
    signed = show == "scores"
    top = memo(answer, "top", lambda: top_level(result.sheet))
    edits = edit_notes(state, facts)
    x, y = head_axes(config.n_layers, config.n_heads, config.group)
    tiles = Tiles(
        rows=config.n_layers,
        cols=config.n_heads,
        height=result.tile,
        width=result.tile,
        gap=GAP,
        chosen=tuple((h.layer, h.head) for h in state.selection.heads),
    )
    heat = Heatmap(
        name="heads",
        values=result.sheet,
        levels=(-top, top) if signed else (0.0, top),
        map="signed" if signed else "magnitude",
        unit=UNITS[show],
        x=x,
        y=y,
        tiles=tiles,
        colour_bar=False,
        turns=True,
        hints=with_edit_notes(hints(facts), edits),
        struck=tuple(edits),
    )
    n = config.n_layers * config.n_heads
    every = "The one head" if n == 1 else f"All {number_of(n, 'head')}"
    return Figure(
        ((heat,),), f"{every} · {NAMES[show]}", caption(answer, "one scale for all heads", sharing(config), published(facts))
    )


def pick(state: State, hit: Hit) -> State:
    """Choose heads."""
    return pick_head(state, Head(*hit.id), hit.gesture) if hit.mark == "heads" and len(hit.id) == 2 else state


PANEL = register(
    Panel(
        name="overview",
        title="All heads",
        view=OverviewView,
        equation="A = softmax(score_scale · (x W_Q)(x W_K)ᵀ) of every head; long prompts pooled by maximum",
        source="Elhage et al. 2021",
        help="Click a head to open it in every panel; Shift-click adds or removes one.",
        needs_tokens="Type some text in the Prompt to see all heads.",
        requests=requests,
        draw=draw,
        pick=pick,
        of_heads=True,
        area="left",
        shortcut="Ctrl+2",
        order=20,
        opens="attention",
    )
)
