"""The chosen head's attention, large, with the same row in colour over the text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from circuitlab.analysis.attention.pattern import AttentionParams, AttentionResult, Show, attention
from circuitlab.caption_parts import Essential
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.contracts.common import (
    caption,
    destination,
    pick_position,
    prompt_of,
    token_at,
    token_axis,
    top_level,
)
from circuitlab.figures.contracts.hues import head_hue, hue_rgb
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.selection_reading import no_head, selected_heads
from circuitlab.figures.marks import ColourMap, Figure, Heatmap, Hit, Tokens
from circuitlab.model.subject import Head
from circuitlab.state.state import State

UNITS = {"pattern": "weight", "scores": "score", "value_weighted": "weight · ‖v‖", "contribution": "weight · ‖v W_O‖"}
NAMES = {**UNITS, "pattern": "pattern", "scores": "scores"}


@dataclass(frozen=True)
class AttentionView:
    """The controls of the attention panel."""

    show: Show = control(
        "pattern",
        label="Show",
        tip="What a cell holds: the pattern, the scores before the softmax, or the pattern weighted by what is carried",
    )
    direction: Literal["dest → src", "src → dest"] = control(
        "dest → src", label="Text", tip="Colour the text by what this token attends to, or by what attends to it"
    )
    several: Literal["leading", "average", "hue per head"] = control(
        "leading",
        label="Heads",
        tip="With several heads selected: show the leading one, their mean, or each in its own hue",
    )
    leave_out_bos: bool = control(
        False, label="BOS out of scale", tip="Leave the first position out of the colour scale; values stay"
    )
    lock_range: bool = control(False, label="Lock range", tip="Keep the colour range while heads and texts change")
    high: float = control(1.0, label="to", tip="Top of the locked range", low=0.0, when="lock_range")


def _view(state: State) -> AttentionView:
    return state.view("attention", AttentionView)


def requests(state: State, facts: Facts) -> Requests | Why:
    """One request for all chosen heads."""
    heads = selected_heads(state, facts)
    if not heads:
        return no_head(state.selection.head, facts)
    shown_heads = heads if _view(state).several != "leading" else heads[:1]
    return {"attention": Request(attention, AttentionParams(shown_heads, _view(state).show), state.subject)}


def _chosen(answer: Answer[AttentionResult], view: AttentionView) -> np.ndarray:
    """[dest, src] of the leading head, or of the mean."""
    values = answer.result.values
    if len(values) == 1 or view.several != "average":
        return memo(answer, "first", lambda: values[0])
    return memo(answer, "mean", lambda: values.mean(axis=0))


def _levels(values: np.ndarray, show: Show, view: AttentionView) -> tuple[tuple[float, float], ColourMap]:
    scaled = values[:, 1:] if view.leave_out_bos and values.shape[1] > 1 else values
    top = view.high if view.lock_range and view.high else top_level(scaled)
    return ((-top, top), "signed") if show == "scores" else ((0.0, top), "magnitude")


def blend(values: np.ndarray, heads: tuple[Head, ...], top: float) -> np.ndarray:
    """[row, col, 3] uint8: each head's hue, as strong as its value, on white; heads multiply like inks."""
    out = np.ones((*values.shape[1:], 3), dtype=np.float32)
    for value, head in zip(values, heads, strict=True):
        strength = np.clip(np.nan_to_num(value) / top, 0, 1)[..., None]
        out *= 1 - strength * (1 - np.array(hue_rgb(head_hue(head)), dtype=np.float32) / 255)
    return (out * 255).astype(np.uint8)


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """Heatmap above, the text below."""
    view = _view(state)
    answer = answers.of("attention", attention)
    result = answer.result
    heads = tuple(Head(*map(int, h)) for h in result.heads)
    show, tokens = answer.request.params.show, prompt_of(answer)
    values = _chosen(answer, view)
    levels, colours = memo(answer, ("levels", view), lambda: _levels(values, show, view))
    named = heads[:1] if view.several == "leading" else heads
    mean = "mean of " if view.several == "average" and len(heads) > 1 else ""
    title = f"{mean}{' '.join(map(str, named))} · {NAMES[show]}"
    heat = Heatmap(
        name="attention",
        values=values,
        levels=levels,
        map=colours,
        unit=UNITS[show],
        x=memo(answer, ("x", tokens), lambda: token_axis("source", tokens, facts)),
        y=memo(answer, ("y", tokens), lambda: token_axis("destination", tokens, facts)),
        row=state.selection.destination,
        col=state.selection.source,
        blank="masked",
    )
    if view.several == "hue per head" and len(heads) > 1:
        heat = replace(
            heat,
            values=memo(answer, "max", lambda: result.values.max(axis=0)),
            rgb=memo(answer, ("rgb", view), lambda: blend(result.values, heads, max(levels[1], 1e-9))),
            legend=tuple((str(h), head_hue(h)) for h in heads),
            colour_bar=False,
        )
    position = destination(state)
    text = _text(state, tokens, position, heat, view)
    return Figure(
        ((heat,), (text,)), title, caption(answer, _reading(token_at(position, tokens, facts), view)), weights=(4.0, 1.0)
    )


def _reading(token: str, view: AttentionView) -> str:
    return Essential(f"text: what {token} attends to" if view.direction == "dest → src" else f"text: what attends to {token}")


def _text(state: State, tokens: tuple[int, ...], position: int, heat: Heatmap, view: AttentionView) -> Tokens:
    row = heat.values[position] if view.direction == "dest → src" else heat.values[:, position]
    rgb = None
    if heat.rgb is not None:
        rgb = heat.rgb[position] if view.direction == "dest → src" else heat.rgb[:, position]
    return Tokens(
        name="text",
        texts=heat.x.ticks,
        values=row,
        levels=heat.levels,
        map=heat.map,
        unit=heat.unit,
        tips=tuple(f"{i} {t} (id {tokens[i]})" for i, t in enumerate(heat.x.ticks)),
        row=state.selection.destination,
        locked=state.selection.locked,
        rgb=rgb,
    )


def pick(state: State, hit: Hit) -> State:
    """On the text: hover, lock, release. On the matrix: hover reads a row; a click selects the cell."""
    if hit.mark == "text":
        return pick_position(state, hit)
    if hit.mark != "attention":
        return state
    if hit.gesture in ("hover", "leave"):
        return pick_position(state, hit)
    if len(hit.id) != 2:
        return state
    dest, src = hit.id
    selection = state.selection
    if selection.locked and (selection.destination, selection.source) == (dest, src):
        return state.select(destination=None, source=None, locked=False)
    return state.select(destination=dest, source=src, locked=True, token=None)


PANEL = register(
    Panel(
        name="attention",
        title="Attention",
        view=AttentionView,
        equation="A = softmax(score_scale · (x W_Q)(x W_K)ᵀ), causal;  contribution A[d,s] · ‖v_s W_O‖",
        source="Elhage et al. 2021, A Mathematical Framework for Transformer Circuits; norms: Kobayashi et al. 2020",
        help="Rows are destinations, columns sources. Hover a token to read its row; click locks it, click or Esc releases.",
        needs_tokens="Type some text in the Prompt to see what the heads attend to.",
        requests=requests,
        draw=draw,
        pick=pick,
        of_heads=True,
        instead="nothing is attended to; Bigram has the table of what follows each token",
        area="centre",
        shortcut="Ctrl+1",
        order=10,
    )
)
