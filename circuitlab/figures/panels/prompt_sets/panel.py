"""Prompt sets: an analysis run on every prompt of a set; its mean and sd by head, and its values by prompt."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from circuitlab.analysis.base import Column, Table, TextRef
from circuitlab.analysis.behaviour.over_prompts import (
    OverPromptsParams,
    OverPromptsResult,
    over_prompts,
    prompts_words,
)
from circuitlab.analysis.ordering import Ranks, descending
from circuitlab.caption_parts import About, Essential, about_of, reworded
from circuitlab.counting import number_of
from circuitlab.disk.paths import resource
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.contracts.common import caption, digits, head_column, texts, top_level
from circuitlab.figures.contracts.heads import head_map, pick_head
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.selection_reading import has_head, no_head
from circuitlab.figures.marks import Figure, Heatmap, Hit, RowColumn, Rows, empty, ids, joined
from circuitlab.figures.panels.patching.paths import pick_path, sender_of, why_no_path
from circuitlab.figures.panels.prompt_sets.lists import curve_of, largest_entry, rows_of
from circuitlab.model.subject import Head
from circuitlab.state.state import State

SetName = Literal[
    "literal_copying",
    "literal_copying_two_tokens",
    "names_continued",
    "names_said_again",
    "names_repeated",
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
    "answer_attention",
    "neurons",
    "distances",
    "receivers",
    "orders",
]
# analyses with a value for each head: parameters, and the array that is averaged
BY_HEAD: dict[str, tuple[dict[str, object], str]] = {
    "direct_attribution": ({}, "heads"),
    "token_attribution": ({}, "heads"),
    "ablation": ({"effect": "target"}, "effect"),
    "path_expansion": ({}, "head_total"),
    "patching": ({"what": "head", "grid": "all"}, "effect"),
    "term_importance": ({"heads": True}, "heads"),
    "head_scores": ({"on": "text"}, "mean"),
    "answer_attention": ({}, "attention"),
}
# averages that are listed: analysis, parameters, array
LISTS: dict[str, tuple[str, dict[str, object], str]] = {
    "neurons": ("neurons", {}, "effect"),
    "distances": ("token_attribution", {}, "by_distance"),
    "receivers": ("path_patching", {}, "effect"),
    "orders": ("term_importance", {}, "reduction"),
}
TITLES = {
    "direct_attribution": "part of the target that each head writes",
    "token_attribution": "part of the target that each head writes from all sources",
    "ablation": "change of the target when the head is ablated",
    "path_expansion": "sum of all paths that end in the head",
    "patching": "change of the target when the head is patched from the other prompt",
    "term_importance": "loss that the head's own terms remove, beyond the direct path",
    "head_scores": "prefix matching on the prompts",
    "answer_attention": "attention from where the answer is predicted to what it follows from",
    "neurons": "part of the target that each neuron writes",
    "distances": "part of the target that all heads write from each distance",
    "receivers": "change of the target when one later head reads {sender}'s output from the other prompt",
    "orders": "nats by which the terms of each order lower the loss",
}

NOWHERE = {
    "answer_attention": "In no prompt of this set does the answer stand before, and none names its source: choose another set.",
    "head_scores": "No prompt of this set repeats a token before its end: choose another set.",
}


@dataclass(frozen=True)
class PromptSetsView:
    """The controls of the panel."""

    what: What = control("direct_attribution", label="Show", tip="What is computed on every prompt and averaged")
    prompts: SetName = control("literal_copying", label="Over", tip="A shipped prompt set, or your own file")
    file: str = control(
        "",
        label="File",
        tip="One prompt a line: prompt, tab, answer, tab, other answer",
        kind="file",
        when="prompts",
        values=("a file",),
    )
    page: Literal["heads", "prompts"] = control(
        "heads", label="", tip="The mean over prompts, or the value in each prompt", kind="tabs"
    )


def _path(view: PromptSetsView) -> str:
    return view.file if view.prompts == "a file" else str(resource("prompts", f"{view.prompts}.tsv"))


def _analysis_of(what: What, state: State, facts: Facts) -> tuple[str, dict[str, object], str]:
    """(name of the analysis, its parameters, the array to average)."""
    if what not in LISTS:
        return what, *BY_HEAD[what]
    name, params, field = LISTS[what]
    sender = sender_of(state, facts) if what == "receivers" else None
    return name, params if sender is None else {"sender": str(sender), "contrast": True}, field


def requests(state: State, facts: Facts) -> Requests | Why:
    """One analysis over every prompt of the set."""
    view: PromptSetsView = state.view("prompt_sets", PromptSetsView)
    if not facts.has_tokenizer:
        return Why("This model has no tokenizer, so it cannot read prompt sets.")
    if not _path(view):
        return Why("Choose a file with one prompt a line: prompt, tab, answer, tab, other answer.")
    if view.what == "receivers" and (why := why_no_path(state, facts)):
        return Why(why)
    name, params, field = _analysis_of(view.what, state, facts)
    over = OverPromptsParams(TextRef(_path(view)), name, json.dumps(params), field)
    return {"set": Request(over_prompts, over, state.subject)}


def _choice_of(answer: Answer[OverPromptsResult]) -> What:
    """What is computed on every prompt, as the panel's control calls it, from the request."""
    params: OverPromptsParams = answer.request.params
    for what in get_args(What):
        if what in LISTS and (LISTS[what][0], LISTS[what][2]) == (params.analysis, params.field):
            return what
    return next(what for what in get_args(What) if what == params.analysis)


def _sender(answer: Answer) -> Head | None:
    """The sender whose receivers an answer holds."""
    name = json.loads(answer.request.params.params).get("sender")
    return None if name is None else Head.parse(name)


def _values(result: OverPromptsResult) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(mean [layer, head], sd [layer, head], values [prompt, layer, head]); the first of several scores."""
    mean, sd, values = result.mean, result.sd, result.values
    while mean.ndim > 2:
        mean, sd, values = mean[0], sd[0], values[:, 0]
    return mean, sd, values


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """The map of heads beside their ranking, or the prompts with the value of the leading head."""
    answer = answers.of("set", over_prompts)
    view: PromptSetsView = state.view("prompt_sets", PromptSetsView)
    result = answer.result
    what = _choice_of(answer)
    if answer.complete and not result.n.any():
        return empty(NOWHERE.get(what, "No prompt of this set has a value: choose another set."), "Prompt sets")
    if what in LISTS:
        return _entries_page(answer, result, what, view.page, state, facts)
    if view.page == "prompts":
        head = state.selection.head
        if not has_head(head, facts):
            return empty(no_head(head, facts).text, "Prompt sets")
        prompts = _prompts(answer, result, *_of_each(answer, result, what, head), facts)
        return Figure(((prompts,),), joined(_set_name(answer), TITLES[what], str(head)), _each_caption(answer))
    marks = (_map(answer, result, state), _ranking(answer, result, state))
    title = joined(_set_name(answer), TITLES[what], _mean_words(result))
    return Figure((marks,), title, caption(answer, _can_do(result)))


def _each_caption(answer: Answer[OverPromptsResult], *more: str) -> tuple[str, ...]:
    """The caption of values by prompt: nothing of the mean, and the remainder is that of the worst prompt."""

    def said(part: str) -> str:
        match about_of(part):
            case About.MEAN:
                return f"a value for each of {prompts_words(answer.request.params, len(answer.result.prompts))}"
            case About.SPREAD:
                return ""
            case About.REMAINDER:
                return reworded(part, f"of the prompt with the largest: {part}")
        return part

    return tuple(filter(None, map(said, caption(answer, _can_do(answer.result), *more))))


def _set_name(answer: Answer[OverPromptsResult]) -> str:
    """For a title: the set as the panel's control calls it, or the name of the person's own file."""
    file = answer.request.params.file
    path = Path("" if file is None else file.path)
    shipped = path.stem in get_args(SetName) and path == resource("prompts", path.name)
    return path.stem.replace("_", " ") if shipped else path.name


def _mean_words(result: OverPromptsResult) -> str:
    """For a title: what the values are the mean of."""
    return f"mean of {number_of(result.counted, 'prompt')}"


def _can_do(result: OverPromptsResult) -> Essential | str:
    """For a caption: in how many prompts the answer is the first choice, and more probable than the other; "" without answers."""
    (first, of_first), (above, of_both) = result.first_choices, result.above_the_other
    if not of_first:
        return ""
    above_words = f", answer above the other {above} of {of_both}" if of_both else ""
    return Essential(f"first choice right {first} of {of_first}{above_words}")


def _map(answer: Answer, result: OverPromptsResult, state: State) -> Heatmap:
    mean = memo(answer, "map", lambda: _values(result)[0].astype(np.float32))
    top = top_level(mean)
    return head_map(state, mean, (-top, top), map="signed", unit="mean")


def _ranking(answer: Answer, result: OverPromptsResult, state: State) -> Rows:
    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        mean, sd, values = _values(result)
        order = descending(mean, by_size=True)
        layer, head = np.unravel_index(order, mean.shape)
        n_prompts = np.maximum((~np.isnan(values)).sum(0), 1)
        same = ((np.sign(values) == np.sign(mean)).sum(0) / n_prompts).ravel()[order]
        top = top_level(mean)
        places = digits(top)
        columns = (
            head_column(layer, head),
            RowColumn("mean", mean.ravel()[order], digits=places, map="signed", levels=(-top, top)),
            RowColumn("sd", sd.ravel()[order], digits=places, tip="standard deviation over prompts"),
            RowColumn("same sign", same, digits=2, tip="share of prompts whose value has the sign of the mean"),
        )
        return columns, ids(layer, head)

    columns, keys = memo(answer, "rows", make)
    heads = {tuple(h) for h in state.selection.heads}
    chosen = tuple(i for i, row in enumerate(keys.tolist()) if tuple(row) in heads)
    return Rows("heads", columns, keys, chosen=chosen, ranked=True)


def _prompts(answer: Answer, result: OverPromptsResult, name: str, values: np.ndarray, facts: Facts) -> Rows:
    """Each prompt with its value, whole, and with the answers that it is asked for."""

    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        top = top_level(values)
        prompts = np.array([text.replace("\n", "↵") for text in result.prompts], dtype=object)
        columns = (
            RowColumn("value", values, digits=digits(top), map="signed", levels=(-top, top), tip=f"of {name}"),
            RowColumn("prompt", prompts, from_end=True),
            *_answer_columns("answer", "p", result.answer, result.answer_probability, facts),
            *_rank_column(result),
            *_answer_columns("other answer", "p of other", result.other_answer, result.other_answer_probability, facts),
        )
        return columns, ids(np.arange(len(values)))

    columns, keys = memo(answer, ("prompts", name), make)
    return Rows("prompts", columns, keys)


def _answer_columns(name: str, p: str, tokens: np.ndarray, probability: np.ndarray, facts: Facts) -> tuple[RowColumn, ...]:
    """One of the two answers [prompt] and its probability, under these names; nothing where no line has one.

    The answers are not `tokens`: a row is a line of the file, also beside a model with another vocabulary.
    """
    if not (tokens >= 0).any():
        return ()
    tip = f"Probability that the prompt goes on with the {name}"
    return (
        RowColumn(name, texts(tokens, facts), tip=f"First token of the {name}: the one that is measured", spare=True),
        RowColumn(p, probability, digits=3, tip=tip, reads="probability", alone=f"p of {name}", spare=True),
    )


def _rank_column(result: OverPromptsResult) -> tuple[RowColumn, ...]:
    """The answer's rank [prompt], a tie at its last place; nothing where none is known."""
    ranks = np.where(result.answer_rank > 0, Ranks(result.answer_rank, result.answer_equal).last, -1)
    if not (ranks > 0).any():
        return ()
    shown = ranks if (ranks > 0).all() else np.where(ranks > 0, ranks.astype(float), np.nan)
    tip = "Rank of the answer among all tokens, equal ones before it: 1 is the model's first choice"
    return (RowColumn("rank", shown, digits=0, tip=tip, spare=True),)


def _of_each(answer: Answer, result: OverPromptsResult, what: What, head: Head) -> tuple[str, np.ndarray]:
    """What each prompt is listed with: the head, or the entry with the largest mean, and its values [prompt]."""
    if what in LISTS:
        return largest_entry(answer, result, LISTS[what][0])
    return str(head), _values(result)[2][:, head.layer, head.head]


def table(state: State, answer: Answer) -> Table | None:
    """Of the page of prompts one row per prompt; None for the page of means, which is the answer's own table."""
    view, result = state.view("prompt_sets", PromptSetsView), answer.result
    if view.page != "prompts" or not isinstance(result, OverPromptsResult):
        return None
    what, head = _choice_of(answer), state.selection.head
    if what not in LISTS and not (head.layer < result.mean.shape[-2] and head.head < result.mean.shape[-1]):
        return None
    name, values = _of_each(answer, result, what, head)
    both = (
        Column("answer", result.answer, of="token"),
        Column("p of answer", result.answer_probability, "probability"),
        Column("rank of answer", result.answer_rank),
        Column("other answer", result.other_answer, of="token"),
        Column("p of other answer", result.other_answer_probability, "probability"),
    )
    given = tuple(column for column in both if not (column.values < 0).all() and not np.isnan(column.values).all())
    unit = result.units if isinstance(result.units, str) else ""
    prompts = Column("prompt", np.array(result.prompts, dtype=object))
    number = Column("number", np.arange(1, len(result.prompts) + 1))
    return Table((number, prompts, Column(f"value of {name}", values, unit), *given))


def _entries_page(answer: Answer, result: OverPromptsResult, what: What, page: str, state: State, facts: Facts) -> Figure:
    """The table of entries, below a curve if they are distances; or the prompts with the value of the largest entry."""
    name, sender = LISTS[what][0], _sender(answer)
    note = f"sent by {sender}" if sender is not None else ""
    title = joined(_set_name(answer), TITLES[what].format(sender=sender))
    if page == "prompts":
        entry, values = _of_each(answer, result, what, state.selection.head)
        prompts = _prompts(answer, result, entry, values, facts)
        return Figure(((prompts,),), f"{title} · {entry}, the largest mean", _each_caption(answer, note))
    rows = rows_of(answer, result, name)
    title = f"{title} · {_mean_words(result)}"
    if what == "distances":
        return Figure(((curve_of(answer, result),), (rows,)), title, caption(answer, _can_do(result)), weights=(1.2, 1.0))
    return Figure(((_chosen(rows, state, sender),),), title, caption(answer, _can_do(result), note))


def _chosen(rows: Rows, state: State, sender: Head | None) -> Rows:
    """The table with the receiver of the chosen pair marked."""
    edge, kind = state.selection.edge, state.selection.edge_kind
    if sender is None or edge is None or edge[0] != sender:
        return rows
    key = ["QKV".index(kind), *edge[1]]
    return replace(rows, chosen=tuple(i for i, k in enumerate(rows.ids.tolist()) if k == key))


def pick(state: State, hit: Hit) -> State:
    """Choose a head, or the pair of the sender and a receiver."""
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
            "What one prompt shows may be peculiar to that prompt. Here an analysis is run on every line of a prompt set, "
            "with the line's own answer as the target, and averaged. Beside the mean stand the sd over prompts and the share "
            "of prompts that agree in sign. Neurons, distances, receivers of one head's output and orders of terms are "
            "tables. Click a head to choose it in every panel; the second page lists every prompt with that head's value, or "
            "with that of the largest entry, and with its answers and how probable the model finds them."
        ),
        opens_sweeps=True,
        requests=requests,
        draw=draw,
        pick=pick,
        table=table,
        of_heads=True,
        instead="Predictions shows what it predicts after this prompt",
        area="left",
        order=46,
        opens="attention",
    )
)
