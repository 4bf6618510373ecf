"""Activation patching: the effect of single activations of the pinned prompt in this one, by place and path by path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from circuitlab.analysis.interventions.patched_block import What
from circuitlab.analysis.interventions.patching import PatchingParams, PatchingResult, patching
from circuitlab.analysis.interventions.path_patching import PathPatchingParams, path_patching
from circuitlab.caption_parts import Essential
from circuitlab.counting import number, number_of
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.contracts.common import has_mlps, pick_position
from circuitlab.figures.contracts.facts import PINNED_ELSEWHERE
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.selection_reading import has_head, selected_heads
from circuitlab.figures.marks import Axis, Does, Figure, Hit, empty, ids
from circuitlab.figures.panels.patching.paths import figure_of_paths, pick_path, sender_of, why_no_path
from circuitlab.figures.panels.patching.two_prompts import Show, effect_map, effects_of, no_share, source_name, under_prompts
from circuitlab.model.subject import Head
from circuitlab.state.state import State

TITLE = "Patching"
WHAT: dict[str, What] = {
    "head output": "head",
    "query": "q",
    "key": "k",
    "value": "v",
    "pattern": "pattern",
    "attention output": "attn_out",
    "MLP output": "mlp_out",
    "stream before block": "resid_pre",
    "stream after attention": "resid_mid",
}
NAMES: dict[What, str] = {what: name for name, what in WHAT.items()}


@dataclass(frozen=True)
class PatchingView:
    """The controls of patching."""

    page: Literal["grid", "paths"] = control("grid", label="Page", kind="tabs")
    exchange: Literal[
        "head output",
        "query",
        "key",
        "value",
        "pattern",
        "attention output",
        "MLP output",
        "stream before block",
        "stream after attention",
    ] = control(
        "head output",
        label="Exchange",
        tip="The activation that each cell takes from the pinned prompt",
        when="page",
        values=("grid",),
    )
    at: Literal["each position", "all positions"] = control(
        "each position",
        label="at",
        tip="Patch one position per cell, or all positions of a row at once",
        when="page",
        values=("grid",),
    )
    rows: Literal["all heads", "chosen heads"] = control(
        "all heads", label="Rows", tip="Every head, or only the chosen ones", when="page", values=("grid",)
    )
    writer: Literal["head", "MLP of its layer"] = control(
        "head",
        label="From",
        tip="What is patched: the head's output or the MLP output of its layer",
        when="page",
        values=("paths",),
        only=has_mlps,
    )
    show: Show = control(
        "effect", label="Show", tip="The change of the target, or its share of the difference between the prompts (1: all of it)"
    )
    read: Literal["last token", "locked token"] = control(
        "last token", label="Read after", tip="The position whose prediction is measured"
    )


def _view(state: State) -> PatchingView:
    return state.view("patching", PatchingView)


def _why_no_pair(state: State, facts: Facts) -> tuple[str, Does]:
    """Why there are no two runs to patch between, and what a button does about it; "" where there are."""
    pin, then = state.reference, "Pin this one (Ctrl+P), then change a word of the text."
    if pin is None:
        return f"Patching takes values from another prompt: {then}", "pin"
    if pin.subject.model != state.model:
        other = "was run on another checkpoint" if pin.subject.model.source == state.model.source else "belongs to another model"
        return f"The pinned prompt {other}: {then}", "pin"
    if not pin.subject.tokens:
        return f"The pinned prompt is empty: {then}", "pin"
    if pin.subject == state.subject or (pin.subject.tokens == state.tokens and not state.subject.edits):
        why = "The pinned prompt is this one: change a word of the text, or ablate a head and see which patches undo that."
        whole = not state.subject.edits and selected_heads(state, facts) == state.selection.heads
        return why, "ablate" if whole else ""
    return "", ""


def _why(state: State, facts: Facts) -> str:
    """Why there is nothing to show; "" otherwise."""
    view, (why, _) = _view(state), _why_no_pair(state, facts)
    if why:
        return why
    if view.page == "paths":
        return why_no_path(state, facts)
    if WHAT[view.exchange] == "mlp_out" and not has_mlps(facts):
        return "This model has no MLPs: choose another activation to exchange."
    return ""


def _position(state: State) -> int:
    """The position whose prediction is measured; hovering over a token starts no sweep."""
    selection = state.selection
    if _view(state).read == "locked token" and selection.locked and selection.destination is not None:
        return min(selection.destination, len(state.tokens) - 1)
    return -1


def requests(state: State, facts: Facts) -> Requests | Why:
    """One sweep: the grid, or the paths from one sender."""
    pin = state.reference
    if pin is None or _why(state, facts):
        return {}
    view, target, position, source = _view(state), state.selection.target, _position(state), pin.subject.tokens
    sender = sender_of(state, facts)
    if view.page == "paths" and sender is not None:
        writer = "mlp" if view.writer != "head" and has_mlps(facts) else "head"
        paths = PathPatchingParams(source, sender, writer, target=target, position=position, contrast=True)
        return {"paths": Request(path_patching, paths, state.subject)}
    heads = tuple(sorted(selected_heads(state, facts))) if view.rows == "chosen heads" else ()
    grid = "position" if view.at == "each position" else "all"
    params = PatchingParams(source, WHAT[view.exchange], grid, target, position, heads, contrast=True, estimate=True)
    return {"grid": Request(patching, params, state.subject)}


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """Both prompts, and below them the grid or the paths."""
    if why := _why(state, facts):
        return empty(why, TITLE, PINNED_ELSEWHERE if state.reference is None else "", _why_no_pair(state, facts)[1])
    view, pin = _view(state), state.reference
    paths = answers.find("paths", path_patching)
    answer = paths or answers.of("grid", patching)
    if why := no_share(view.show, answer.result):
        return empty(why, TITLE)
    if paths is not None:
        figure = figure_of_paths(state, facts, paths, view.show)
    else:
        figure = _grid(state, facts, answers.of("grid", patching), view)
    return figure.with_caption("the pin's interventions are not applied") if pin is not None and pin.subject.edits else figure


def _grid(state: State, facts: Facts, answer: Answer[PatchingResult], view: PatchingView) -> Figure:
    result = answer.result
    values = memo(answer, ("values", view.show), lambda: _inside(result, view.show))
    axes = memo(answer, "axes", lambda: _axes(answer, result, facts))
    row, col = _crosshair(state, facts, *axes[2:])
    heat = effect_map(
        "grid",
        answer,
        view.show,
        values,
        axes,
        row=row,
        col=col,
        hatched=memo(answer, "hatched", lambda: _estimated(result) | (~result.inside & result.exact)),
        texts=memo(answer, "texts", lambda: np.where(_estimated(result), "≈", "")) if _estimated(result).any() else None,
    )
    outside, estimated = int((~result.inside & result.exact).sum()), int(_estimated(result).sum())
    cells = number_of(result.inside.size, "cell")
    cone = f"{outside} of {cells} empty and hatched: patching has no effect there" if outside else ""
    hatched = f"{estimated} of {result.inside.size} coloured and hatched"
    estimates = Essential(f"{hatched}, ≈: first-order estimates until exact") if estimated else ""
    what = f"{NAMES[answer.request.params.what]} from the {source_name(state, answer)} run"
    return under_prompts(state, facts, answer, ((heat, 4.0),), what, (estimates, cone, _reading(result, row, col)))


def _estimated(result: PatchingResult) -> np.ndarray:
    """Bool [row, col]: cells that hold a first-order estimate until the exact value arrives."""
    return ~result.exact & ~np.isnan(result.values)


def _inside(result: PatchingResult, show: Show) -> np.ndarray:
    """[row, col] float32: NaN in cells that cannot affect the target."""
    return np.where(result.inside | _estimated(result), effects_of(show, result), np.nan).astype(np.float32)


def _axes(answer: Answer, result: PatchingResult, facts: Facts) -> tuple[Axis, Axis, np.ndarray, np.ndarray]:
    """The axes of positions and of heads or layers, then the ids of rows (layer, head) and of columns (position,).

    A token that differs is marked ≠, one without a partner ∅. A key-value head has the id of its first query head; a layer
    has head −1.
    """
    sign = np.where(result.differs, "≠", np.where(result.align < 0, "∅", ""))
    texts = facts.tokens(answer.request.subject.tokens)
    x = Axis("position", tuple(f"{s}{t}" for s, t in zip(sign, texts, strict=True)), tokens=True)
    x = x if result.positions[0] >= 0 else Axis("", ("all positions",))
    layer, head = result.rows.T
    group = facts.config.group if answer.request.params.what in ("k", "v") else 1
    first = np.where(head < 0, -1, head * group)
    last = lambda h: f"–{h + group - 1}" if group > 1 else ""
    names = tuple(f"L{a}" if h < 0 else f"{Head(a, h)}{last(h)}" for a, h in zip(layer.tolist(), first.tolist(), strict=True))
    return x, Axis("layer" if (head < 0).all() else "head", names), ids(layer, first), ids(result.positions)


def _crosshair(state: State, facts: Facts, rows: np.ndarray, cols: np.ndarray) -> tuple[int | None, int | None]:
    """The row of the leading head or its layer, and the column of the selected position."""
    head, destination = state.selection.head, state.selection.destination
    candidates = (
        np.flatnonzero((rows[:, 0] == head.layer) & (rows[:, 1] <= head.head)) if has_head(head, facts) else np.zeros(0, int)
    )
    row = int(candidates[-1]) if len(candidates) and _same_row(rows, candidates[-1], head, facts) else None
    matches = np.flatnonzero(cols[:, 0] == destination) if destination is not None else np.zeros(0, int)
    return row, int(matches[0]) if len(matches) else None


def _same_row(rows: np.ndarray, row: int, head: Head, facts: Facts) -> bool:
    """Whether a row is the head itself, its layer, or its key-value head."""
    first = int(rows[row, 1])
    return first in (-1, head.head) or (facts.config.group > 1 and facts.config.kv_head(first) == facts.config.kv_head(head.head))


def _reading(result: PatchingResult, row: int | None, col: int | None) -> str:
    """For the caption: the effect in the chosen cell, and its share."""
    col = 0 if result.values.shape[1] == 1 else col
    if row is None or col is None or not result.inside[row, col] or np.isnan(result.values[row, col]):
        return ""
    share = result.normalised[row, col]
    sign = "" if result.exact[row, col] else "≈ "
    return f"chosen cell {sign}{number(result.effect[row, col], '+.3f')}" + (
        "" if np.isnan(share) else f", {number(share, '.0%')} of the difference"
    )


def pick(state: State, hit: Hit) -> State:
    """Select a position of the text, the head and position of a grid cell, or the pair of heads of a path."""
    if hit.mark == "text":
        return pick_position(state, hit)
    if hit.gesture not in ("click", "shift-click", "double-click") or not hit.id:
        return state
    if hit.mark in ("paths", "strongest"):
        return pick_path(state, hit)
    if hit.mark != "grid" or len(hit.id) != 3:
        return state
    layer, head, position = hit.id
    state = state.with_heads(Head(layer, head)) if head >= 0 else state.without_edge()
    return state if position < 0 else state.select(destination=position, locked=True)


PANEL = register(
    Panel(
        name="patching",
        title=TITLE,
        view=PatchingView,
        equation="effect = target(this run, one value ← pinned) − target(this run);  share = effect / (target pinned − here)",
        source=(
            "Vig et al. 2020; Meng et al. 2022; Wang et al. 2022, Interpretability in the Wild; Goldowsky-Dill et al. 2023; "
            "estimates: Nanda 2023, Attribution Patching; Syed et al. 2023"
        ),
        help=(
            "Activation patching between two prompts: the pinned one, and this one. Each cell runs this prompt again with one "
            "activation taken from the pinned run (the output of head h at position p, a query, the residual stream …), "
            "recomputes everything after it, and shows how far the target moves. The default target is the logit of the token "
            "that the pinned prompt predicts minus that of the token this one predicts: a cell that reaches the whole "
            "difference carries everything that distinguishes the prompts. Cells are empty where patching can have no effect: "
            "before the first token that differs, and where no later layer leads to the position that is measured. Coloured and "
            "hatched cells are first-order estimates, the gradient of the target times the difference between the prompts, "
            "until the exact value replaces them. Paths: path patching, in which the query, key or value of one later head "
            "alone reads the sender's output from the pinned run."
        ),
        needs_tokens="Type some text in the Prompt, Pin it (Ctrl+P), then change a word of it.",
        requests=requests,
        draw=draw,
        pick=pick,
        of_heads=True,
        instead="Bigram shows what the last token makes likely",
        area="centre",
        order=75,
        opens="attention",
    )
)
