"""Training: measurements along a model's checkpoints, and the choice of the checkpoint that every panel shows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from circuitlab.analysis.base import SeriesRef
from circuitlab.analysis.training.pca import TrainingPcaParams, training_pca
from circuitlab.analysis.training.series import TrainingSeriesParams, training_series
from circuitlab.engine.request import Request
from circuitlab.errors import CircuitLabError
from circuitlab.figures.contracts.heads import pick_head
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.marks import Figure, Hit
from circuitlab.figures.panels.training.overlay import overlay
from circuitlab.figures.panels.training.pages import curves, heads_over_training, loss_by_index, zeroed
from circuitlab.figures.panels.training.plane import plane
from circuitlab.figures.panels.training.points import MARKS, NO_LAYERS, OWN
from circuitlab.model.archives.offering import obtainable
from circuitlab.model.records.series_measures import GONE
from circuitlab.model.subject import Head, Subject
from circuitlab.state.state import State

NONE = (
    "This model has no checkpoint series with measurements: open attn-only-2l, which has one, or measure a model's own "
    "checkpoints with circuitlab measure MODEL --text FILES."
)

Score = Literal[
    "prefix matching", "previous token", "duplicate token", "first token", "copying", "own token top 1", "own token top 10"
]


@dataclass(frozen=True)
class TrainingView:
    """The controls of the panel."""

    page: Literal["curves", "loss by index", "plane", "zeroed heads", "heads"] = control("curves", label="Page", kind="tabs")
    score: Score = control(
        "prefix matching", label="Heads", tip="The score that is drawn for each head", when="page", values=("curves", "heads")
    )
    context: Literal["all", "repeated random tokens", "repeated text", "text"] = control(
        "all", label="In context", tip="What the in-context score is measured on", when="page", values=("curves",)
    )
    on: Literal["repeated random tokens", "text"] = control(
        "repeated random tokens",
        label="Loss on",
        tip="What the loss is measured on while a head is ablated",
        when="page",
        values=("zeroed heads",),
    )
    over: Literal["tokens", "steps"] = control(
        "tokens", label="Over", tip="The unit of time", when="page", values=("curves", "zeroed heads")
    )
    log: bool = control(True, label="Log", tip="Time on a logarithmic axis", when="page", values=("curves", "zeroed heads"))
    models: str = control(
        "",
        label="Models",
        tip="Models to compare with, separated by commas; if empty: none in curves, every shipped one in the plane",
        kind="models",
        when="page",
        values=("curves", "plane"),
    )
    first: float = control(
        0.0,
        label="From M tokens",
        tip="Leave out checkpoints before this many million tokens: the first ones are far from all others",
        low=0,
        high=1e6,
        when="page",
        values=("plane",),
    )


def _view(state: State) -> TrainingView:
    return state.view("training", TrainingView)


def series_subject(state: State) -> Subject:
    """The model without checkpoint and text: its series is requested once for all of them."""
    return Subject(replace(state.model, checkpoint=None))


def requests(state: State, facts: Facts) -> Requests | Why:
    """The series of the open model; for the plane and a comparison those of other models too."""
    view = _view(state)
    several = view.page == "plane" or (view.page == "curves" and bool(view.models.strip()))
    try:
        sources = facts.measured(view.models if several else "")
    except CircuitLabError as error:
        return Why(f"{error.what} Name models that have measurements, or none for all shipped ones.")
    if not sources or sources[0] != state.model.source:
        return Why(NONE)
    if view.page == "plane":
        params = TrainingPcaParams(tuple(map(SeriesRef, sources)), round(max(view.first, 0.0) * 1e6), bool(view.models.strip()))
        return {"plane": Request(training_pca, params, series_subject(state))}
    series = tuple(map(SeriesRef, sources if several else sources[:1]))
    return {"series": Request(training_series, TrainingSeriesParams(series, without_layers(facts)), series_subject(state))}


def without_layers(facts: Facts) -> SeriesRef | None:
    """The shipped model without layers, if it has measurements: its score on text is due to the texts alone."""
    try:
        return SeriesRef(NO_LAYERS) if NO_LAYERS in facts.measured("") else None
    except CircuitLabError:
        return None


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """The open page."""
    view = _view(state)
    if view.page == "plane":
        return plane(state, answers.of("plane", training_pca))
    answer = answers.of("series", training_series)
    if view.page == "curves" and view.models.strip():
        return overlay(state, answer, view.score.replace(" ", "_"), view.context, view.over, view.log)
    if view.page == "curves":
        return curves(state, answer, view.score.replace(" ", "_"), view.context, view.over, view.log)
    if view.page == "loss by index":
        return loss_by_index(state, answer)
    if view.page == "zeroed heads":
        return zeroed(state, answer, view.on, view.over, view.log)
    return heads_over_training(state, answer, view.score.replace(" ", "_"))


def pick(state: State, hit: Hit) -> State:
    """A click chooses the checkpoint it points at and, on the curve of a head, that head."""
    if hit.mark not in MARKS or len(hit.id) != 3 or hit.gesture not in ("click", "shift-click", "double-click"):
        return state
    layer, head, checkpoint = hit.id
    chosen = pick_head(state, Head(layer, head), hit.gesture) if layer >= 0 else state
    if layer < OWN or checkpoint == GONE or hit.gesture == "shift-click":
        return chosen
    model = replace(state.model, checkpoint=None if checkpoint < 0 else checkpoint)
    return chosen if model == state.model else replace(chosen, model=model)


def why_not(state: State, hit: Hit) -> str:
    """A click on a point whose weights are not here chooses no checkpoint: why, and how they can be got."""
    gone = hit.mark in MARKS and hit.id[2:] == (GONE,) and hit.id[0] >= OWN
    if not gone or hit.gesture not in ("click", "double-click"):
        return ""
    if obtainable(state.model) is None:
        return "The weights of this step were not kept: choose another point."
    return "The weights of this step are not on this machine: File → Get checkpoints…"


PANEL = register(
    Panel(
        name="training",
        title="Training",
        view=TrainingView,
        equation=(
            "in-context score = late loss − early loss (on a repeated sequence: second repetition − first);  "
            "phase change: where d score / d ln(tokens) is most negative"
        ),
        source="Olsson et al. 2022, In-context Learning and Induction Heads; the rule of the phase change is our own",
        help=(
            "A model's training, replayed from measurements of its checkpoints. Curves: the loss on text; the in-context "
            "score, negative where later tokens have a lower loss than earlier ones (partly because of the texts, as a "
            "model without layers shows); and a score of each head. Name other models, and every plot has a curve for each, "
            "with its best head. The shaded band is the phase change: the interval in which the in-context score falls fastest, "
            "with its neighbours that fall at least half as fast, shown only if the score falls by a stated amount in all. Loss "
            "by index: the loss [index of the token, checkpoint], and its slope by the logarithm of the index, negative (blue) "
            "where a longer context helps. Plane: every checkpoint of every model is a point; its coordinates are the losses on "
            "the same few thousand tokens, projected on the two directions in which they vary most. Zeroed heads: how much the "
            "loss rises when a head is ablated, with all attention patterns held fixed. Click a point in time to see that "
            "checkpoint in every panel."
        ),
        opens_sweeps=True,
        requests=requests,
        draw=draw,
        pick=pick,
        why_not=why_not,
        area="bottom",
        order=150,
    )
)
