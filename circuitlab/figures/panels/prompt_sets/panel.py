"""A set of prompts with their answers: what each head does on average, with its spread, and in each prompt."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from circuitlab.analysis.base import TextRef
from circuitlab.analysis.behaviour.over_prompts import OverPromptsParams, OverPromptsResult, over_prompts
from circuitlab.analysis.ordering import descending
from circuitlab.counting import number_of
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.contracts.common import caption, digits, head_axes, head_column, top_level
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.selection_reading import has_head, no_head
from circuitlab.figures.marks import Figure, Heatmap, Hit, RowColumn, Rows, empty, ids
from circuitlab.figures.panels.overview import pick_head
from circuitlab.figures.panels.patching.paths import pick_path, sender_of, why_no_path
from circuitlab.figures.panels.prompt_sets.lists import curve_of, leading, rows_of
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
    "direct_attribution",
    "token_attribution",
    "ablation",
    "path_expansion",
    "patching",
    "term_importance",
    "head_scores",
    "neurons",
    "distances",
    "receivers",
    "orders",
]
END = 34  # characters of a prompt that are listed
# its parameters, the array: what is averaged of an analysis by layer and head
ASKED: dict[str, tuple[dict[str, Any], str]] = {
    "direct_attribution": ({}, "heads"),
    "token_attribution": ({}, "heads"),
    "ablation": ({"effect": "target"}, "effect"),
    "path_expansion": ({}, "head_total"),
    "patching": ({"what": "head", "grid": "all"}, "effect"),
    "term_importance": ({"heads": True}, "heads"),
    "head_scores": ({"on": "text"}, "mean"),
}
# the same of what is listed: analysis, parameters, array
LISTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "neurons": ("neurons", {}, "effect"),
    "distances": ("token_attribution", {}, "by_distance"),
    "receivers": ("path_patching", {}, "effect"),
    "orders": ("term_importance", {}, "reduction"),
}
SAID = {
    "direct_attribution": "logit that each head writes",
    "token_attribution": "logit that the head sent from all sources",
    "ablation": "change of the target when the head is zeroed",
    "path_expansion": "all paths that end in the head",
    "patching": "change of the target when the head is taken from the other prompt",
    "term_importance": "loss that the head's own terms take away over the direct path",
    "head_scores": "prefix matching on the prompts",
    "neurons": "logit that each neuron writes",
    "distances": "logit that all heads sent over each distance",
    "receivers": "change of the target by one head's output as one later head reads it",
    "orders": "nats that terms of each order take off the loss",
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
    page: Literal["heads", "prompts"] = control("heads", label="", tip="The mean, or prompt by prompt", kind="tabs")


def _path(view: PromptSetsView) -> str:
    return view.file if view.prompts == "a file" else str(resource("prompts", f"{view.prompts}.tsv"))


def _asked(what: What, state: State, facts: Facts) -> tuple[str, dict[str, Any], str]:
    """Analysis, its parameters, the array."""
    if what not in LISTS:
        return what, *ASKED[what]
    name, given, field = LISTS[what]
    sender = sender_of(state, facts) if what == "receivers" else None
    return name, given if sender is None else {"sender": str(sender), "contrast": True}, field


def requests(state: State, facts: Facts) -> Requests | Why:
    """One analysis over every prompt of the set."""
    view: PromptSetsView = state.view("prompt_sets", PromptSetsView)
    if not facts.has_tokenizer:
        return Why("This model has no tokenizer, so it reads no prompt sets.")
    if not _path(view):
        return Why("Choose a file with one prompt a line: prompt, tab, answer, tab, other answer.")
    if view.what == "receivers" and (why := why_no_path(state, facts)):
        return Why(why)
    name, given, field = _asked(view.what, state, facts)
    params = OverPromptsParams(TextRef(_path(view)), name, json.dumps(given), field)
    return {"set": Request(over_prompts, params, state.subject)}


def _measured(answer: Answer[OverPromptsResult]) -> What:
    """What an answer holds, by what was asked."""
    params: OverPromptsParams = answer.request.params
    named = ((what, name, field) for what, (name, _, field) in LISTS.items())
    listed = (what for what, name, field in named if (name, field) == (params.analysis, params.field))
    return next(listed, params.analysis)  # type: ignore[return-value]


def _sender(answer: Answer) -> Head | None:
    """Whose receivers were asked for."""
    found = json.loads(answer.request.params.params).get("sender")
    return None if found is None else Head.parse(found)


def _values(result: OverPromptsResult) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(mean, sd [layer, head], each prompt's [prompt, layer, head]); of several scores the first."""
    mean, sd, each = result.mean, result.sd, result.values
    while mean.ndim > 2:
        mean, sd, each = mean[0], sd[0], each[:, 0]
    return mean, sd, each


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """The map beside the ranking, or the prompts with the leading head's value."""
    answer = answers.of("set", over_prompts)
    view: PromptSetsView = state.view("prompt_sets", PromptSetsView)
    result = answer.result
    what = _measured(answer)
    title = f"{SAID[what]} · mean of {number_of(result.counted, 'prompt')}"
    if what in LISTS:
        return _listed(answer, result, what, view.page, title, state)
    if view.page == "prompts":
        head = state.selection.head
        each = _values(result)[2]
        if not has_head(head, facts):
            return empty(no_head(head, facts).text, "Prompt sets")
        values = each[:, head.layer, head.head]
        return Figure(((_prompts(answer, result, str(head), values),),), f"{SAID[what]} · {head}", caption(answer))
    return Figure(((_map(answer, result, state), _ranking(answer, result, state)),), title, caption(answer))


def _map(answer: Answer, result: OverPromptsResult, state: State) -> Heatmap:
    mean = memo(answer, "map", lambda: _values(result)[0].astype(np.float32))
    top, head = top_level(mean), state.selection.head
    inside = head.layer < mean.shape[0] and head.head < mean.shape[1]
    x, y = head_axes(mean.shape[0], mean.shape[1])
    return Heatmap(
        name="map",
        values=mean,
        levels=(-top, top),
        map="signed",
        unit="mean",
        x=x,
        y=y,
        row=head.layer if inside else None,
        col=head.head if inside else None,
    )


def _ranking(answer: Answer, result: OverPromptsResult, state: State) -> Rows:
    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        mean, sd, each = _values(result)
        order = descending(mean, by_size=True)
        layer, head = np.unravel_index(order, mean.shape)
        same = (np.sign(each) == np.sign(mean)).sum(0).ravel()[order] / np.maximum((~np.isnan(each)).sum(0).ravel()[order], 1)
        top = top_level(mean)
        places = digits(top)
        columns = (
            head_column(layer, head),
            RowColumn("mean", mean.ravel()[order], digits=places, map="signed", levels=(-top, top)),
            RowColumn("sd", sd.ravel()[order], digits=places, tip="standard deviation over prompts"),
            RowColumn("same sign", same, digits=2, tip="share of prompts whose value has the sign of the mean"),
        )
        return columns, ids(layer, head)

    columns, found = memo(answer, "rows", make)
    heads = {tuple(h) for h in state.selection.heads}
    chosen = tuple(i for i, row in enumerate(found.tolist()) if tuple(row) in heads)
    return Rows("heads", columns, found, chosen=chosen, ranked=True)


def _end(text: str) -> str:
    """The end of a prompt, where the answer is asked for."""
    shown = text.replace("\n", "↵")
    return shown if len(shown) <= END else f"…{shown[-END:]}"


def _prompts(answer: Answer, result: OverPromptsResult, name: str, values: np.ndarray) -> Rows:
    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        top = top_level(values)
        texts = np.array([_end(t) for t in result.prompts], dtype=object)
        columns = (
            RowColumn("value", values, digits=digits(top), map="signed", levels=(-top, top)),
            RowColumn("prompt ends with", texts),
        )
        return columns, ids(np.arange(len(values)))

    columns, found = memo(answer, ("prompts", name), make)
    return Rows("prompts", columns, found)


def _listed(answer: Answer, result: OverPromptsResult, what: What, page: str, title: str, state: State) -> Figure:
    """The list, under its curve where entries are distances; or the prompts with the value of its largest entry."""
    name, sender = LISTS[what][0], _sender(answer)
    said = f"sent by {sender}" if sender is not None else ""
    if page == "prompts":
        entry, values = leading(answer, result, name)
        of = f"{SAID[what]} · {entry}, the largest mean"
        return Figure(((_prompts(answer, result, entry, values),),), of, caption(answer, said))
    rows, shown = rows_of(answer, result, name)
    title = title.replace("one head's", f"{sender}'s") if sender is not None else title
    if what == "distances":
        return Figure(((curve_of(answer, result),), (rows,)), title, caption(answer), weights=(1.2, 1.0))
    return Figure(((_chosen(rows, state, sender),),), title, caption(answer, said), shown)


def _chosen(rows: Rows, state: State, sender: Head | None) -> Rows:
    """With the receiver of the chosen pair marked."""
    edge, kind = state.selection.edge, state.selection.edge_kind
    if sender is None or edge is None or edge[0] != sender:
        return rows
    key = ["QKV".index(kind), *edge[1]]
    return replace(rows, chosen=tuple(i for i, k in enumerate(rows.ids.tolist()) if k == key))


def pick(state: State, hit: Hit) -> State:
    """Choose heads; a receiver chooses its pair with the sender."""
    if hit.mark == "list" and len(hit.id) == 3 and hit.gesture in ("click", "double-click"):
        edge, view = state.selection.edge, state.view("prompt_sets", PromptSetsView)
        sender = state.selection.head if edge is None else edge[0]
        return pick_path(state, Hit(hit.mark, (*sender, hit.id[1], hit.id[0], hit.id[2]))) if view.what == "receivers" else state
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
            "in sign. Neurons, distances, receivers of one head's output and orders of terms are lists. Click a head to select "
            "it everywhere; the second page lists every prompt with that head's value, or with that of the largest entry."
        ),
        requests=requests,
        draw=draw,
        pick=pick,
        of_heads=True,
        instead="Predictions has what it says after this prompt",
        area="left",
        order=46,
        opens="attention",
    )
)
