"""A set of prompts with their answers: what each head does on average, with its spread, and in each prompt."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from circuitlab.analysis.base import TextRef
from circuitlab.analysis.over_prompts import OverPromptsParams, OverPromptsResult
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.common import caption, digits, once, top_level
from circuitlab.figures.marks import Axis, Figure, Heatmap, Hit, RowColumn, Rows, empty, ids
from circuitlab.figures.overview import pick_head
from circuitlab.figures.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.model.subject import Head
from circuitlab.paths import resource
from circuitlab.session.state import State

SetName = Literal[
    "names_repeated",
    "literal_copying",
    "pattern_matching",
    "translation",
    "few_shot_classification",
    "code",
    "random_tokens",
    "a file",
]
What = Literal[
    "direct_attribution", "token_attribution", "ablation", "path_expansion", "patching", "term_importance", "head_scores"
]
END = 34  # characters of a prompt that are listed
# (analysis, its parameters, the array): what is averaged
ASKED: dict[str, tuple[dict[str, Any], str]] = {
    "direct_attribution": ({}, "heads"),
    "token_attribution": ({}, "heads"),
    "ablation": ({"effect": "target"}, "effect"),
    "path_expansion": ({}, "head_total"),
    "patching": ({"what": "head", "grid": "all"}, "effect"),
    "term_importance": ({"heads": True}, "heads"),
    "head_scores": ({"on": "text"}, "mean"),
}
SAID = {
    "direct_attribution": "logit that each head writes",
    "token_attribution": "logit that the head sent from all sources",
    "ablation": "change of the target when the head is zeroed",
    "path_expansion": "all paths that end in the head",
    "patching": "change of the target when the head is taken from the other prompt",
    "term_importance": "loss that the head's own terms take away over the direct path",
    "head_scores": "prefix matching on the prompts",
}


@dataclass(frozen=True)
class PromptSetsView:
    """The controls of the panel."""

    what: What = control("direct_attribution", label="Show", tip="What is computed on every prompt and averaged")
    prompts: SetName = control("names_repeated", label="Over", tip="A shipped prompt set, or a file of your own")
    file: str = control(
        "",
        label="File",
        tip="One prompt a line: prompt, tab, answer, tab, other answer",
        kind="file",
        when="prompts",
        values=("a file",),
    )
    page: Literal["heads", "prompts"] = control("heads", label="", tip="Mean by head, or prompt by prompt", kind="tabs")


def _path(view: PromptSetsView) -> str:
    return view.file if view.prompts == "a file" else str(resource("prompts", f"{view.prompts}.tsv"))


def requests(state: State, facts: Facts) -> Requests | Why:
    """One analysis over every prompt of the set."""
    view: PromptSetsView = state.view("prompt_sets", PromptSetsView)
    if not facts.has_tokenizer:
        return Why("This model has no tokenizer, so it reads no prompt sets.")
    if not _path(view):
        return Why("Choose a file with one prompt a line: prompt, tab, answer, tab, other answer.")
    given, field = ASKED[view.what]
    params = OverPromptsParams(TextRef(_path(view)), view.what, json.dumps(given), field)
    return {"set": Request("over_prompts", params, state.subject)}


def _values(result: OverPromptsResult) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(mean, sd [layer, head], each prompt's [prompt, layer, head]); of several scores the first."""
    mean, sd, each = result.mean, result.sd, result.values
    while mean.ndim > 2:
        mean, sd, each = mean[0], sd[0], each[:, 0]
    return mean, sd, each


def figure(state: State, facts: Facts, now: Answers, ref: Answers) -> Figure:
    """The map beside the ranking, or the prompts with the leading head's value."""
    asked = requests(state, facts)
    if isinstance(asked, Why):
        return empty(asked.text, "Prompt sets")
    answer = now.get("set")
    if answer is None:
        return Figure(title="Prompt sets")
    view: PromptSetsView = state.view("prompt_sets", PromptSetsView)
    result = answer.result
    assert isinstance(result, OverPromptsResult)
    title = f"{SAID[view.what]} · mean of {result.counted} prompts"
    if view.page == "prompts":
        head = state.selection.head
        return Figure(((_prompts(answer, result, head),),), f"{SAID[view.what]} · {head}", caption(answer))
    return Figure(((_map(answer, result, state), _ranking(answer, result, state)),), title, caption(answer))


def _map(answer: Answer, result: OverPromptsResult, state: State) -> Heatmap:
    mean = once(answer, "map", lambda: _values(result)[0].astype(np.float32))
    top, head = top_level(mean), state.selection.head
    inside = head.layer < mean.shape[0] and head.head < mean.shape[1]
    return Heatmap(
        name="map",
        values=mean,
        levels=(-top, top),
        map="signed",
        unit="mean",
        x=once(answer, "x", lambda: Axis("head", tuple(f"H{h}" for h in range(mean.shape[1])))),
        y=once(answer, "y", lambda: Axis("layer", tuple(f"L{i}" for i in range(mean.shape[0])))),
        row=head.layer if inside else None,
        col=head.head if inside else None,
    )


def _ranking(answer: Answer, result: OverPromptsResult, state: State) -> Rows:
    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        mean, sd, each = _values(result)
        order = np.argsort(-np.abs(np.nan_to_num(mean)), axis=None, kind="stable")
        layer, head = np.unravel_index(order, mean.shape)
        names = np.array([str(Head(int(a), int(b))) for a, b in zip(layer, head, strict=True)], dtype=object)
        same = (np.sign(each) == np.sign(mean)).sum(0).ravel()[order] / np.maximum((~np.isnan(each)).sum(0).ravel()[order], 1)
        top = top_level(mean)
        places = digits(top)
        columns = (
            RowColumn("head", names),
            RowColumn("mean", mean.ravel()[order], digits=places, map="signed", levels=(-top, top)),
            RowColumn("sd", sd.ravel()[order], digits=places, tip="standard deviation over prompts"),
            RowColumn("same sign", same, digits=2, tip="share of prompts whose value has the sign of the mean"),
        )
        return columns, ids(layer, head)

    columns, found = once(answer, "rows", make)
    heads = {tuple(h) for h in state.selection.heads}
    chosen = tuple(i for i, row in enumerate(found.tolist()) if tuple(row) in heads)
    return Rows("heads", columns, found, chosen=chosen)


def _end(text: str) -> str:
    """The end of a prompt, where the answer is asked for."""
    shown = text.replace("\n", "↵")
    return shown if len(shown) <= END else f"…{shown[-END:]}"


def _prompts(answer: Answer, result: OverPromptsResult, head: Head) -> Rows:
    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        each = _values(result)[2]
        inside = head.layer < each.shape[1] and head.head < each.shape[2]
        values = each[:, head.layer, head.head] if inside else np.full(len(each), np.nan)
        top = top_level(values)
        texts = np.array([_end(t) for t in result.prompts], dtype=object)
        columns = (
            RowColumn("value", values, digits=digits(top), map="signed", levels=(-top, top)),
            RowColumn("prompt ends with", texts),
        )
        return columns, ids(np.arange(len(values)))

    columns, found = once(answer, ("prompts", head), make)
    return Rows("prompts", columns, found)


def pick(state: State, hit: Hit) -> State:
    """Choose heads."""
    return pick_head(state, Head(*hit.id), hit.gesture) if hit.mark in ("map", "heads") and len(hit.id) == 2 else state


PANEL = register(
    Panel(
        name="prompt_sets",
        title="Prompt sets",
        view=PromptSetsView,
        equation="mean = 1/n Σ_i x_i;  sd² = 1/(n − 1) Σ_i (x_i − mean)²;  x_i: prompt i, target = answer − other answer",
        source="Sets of prompts with answer pairs: Wang et al. 2022; pattern matching: Olsson et al. 2022",
        help=(
            "What one prompt shows may be an accident of it. The same analysis is run on every line of a prompt set, each "
            "with its own answer as the target, and averaged: the spread stands beside the mean, and how many prompts agree "
            "in sign. Click a head to select it everywhere; the second page lists every prompt with that head's value."
        ),
        requests=requests,
        figure=figure,
        pick=pick,
        area="left",
        order=46,
        opens="attention",
    )
)
