"""Training: what was measured along a model's checkpoints, and the checkpoint that every panel looks at."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from circuitlab.analysis.base import SeriesRef
from circuitlab.analysis.training.pca import TrainingPcaParams, training_pca
from circuitlab.analysis.training.series import TrainingSeriesParams, training_series
from circuitlab.engine.request import Request
from circuitlab.errors import CircuitLabError
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.marks import Figure, Hit
from circuitlab.figures.panels.overview import pick_head
from circuitlab.figures.panels.training.overlay import overlay
from circuitlab.figures.panels.training.pages import curves, heads_over_training, loss_by_index, zeroed
from circuitlab.figures.panels.training.plane import plane
from circuitlab.figures.panels.training.points import MARKS, NO_LAYERS, OWN
from circuitlab.model.records.series_measures import GONE
from circuitlab.model.subject import Head, Subject
from circuitlab.session.state import State

NONE = (
    "This model has no checkpoint series that was measured: open attn-only-2l, which has one, or measure a model's own "
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
        "prefix matching", label="Heads", tip="Which score of each head", when="page", values=("curves", "heads")
    )
    context: Literal["all", "repeated random tokens", "repeated text", "text"] = control(
        "all", label="In context", tip="On what the in-context score is measured", when="page", values=("curves",)
    )
    on: Literal["repeated random tokens", "text"] = control(
        "repeated random tokens",
        label="Loss on",
        tip="On what the loss without the head is",
        when="page",
        values=("zeroed heads",),
    )
    over: Literal["tokens", "steps"] = control(
        "tokens", label="Over", tip="What counts as time", when="page", values=("curves", "zeroed heads")
    )
    log: bool = control(True, label="Log", tip="Time on a logarithmic axis", when="page", values=("curves", "zeroed heads"))
    models: str = control(
        "",
        label="Models",
        tip="Beside this model: names separated by commas; empty: in the plane all that ship with measurements, none in curves",
        when="page",
        values=("curves", "plane"),
    )
    first: float = control(
        0.0,
        label="From M tokens",
        tip="Leave out points that have seen fewer million tokens: the first ones are far from all others",
        low=0,
        high=1e6,
        when="page",
        values=("plane",),
    )


def _view(state: State) -> TrainingView:
    return state.view("training", TrainingView)


def _subject(state: State) -> Subject:
    """The same for every checkpoint and every text: what was measured is asked for once."""
    return Subject(replace(state.model, checkpoint=None))


def requests(state: State, facts: Facts) -> Requests | Why:
    """The model's own series; for the plane the others' too."""
    view = _view(state)
    several = view.page == "plane" or (view.page == "curves" and bool(view.models.strip()))
    try:
        found = facts.measured(view.models if several else "")
    except CircuitLabError as error:
        return Why(f"{error.what} Name models that were measured, or none for all shipped ones.")
    if not found or found[0] != state.model.source:
        return Why(NONE)
    if view.page == "plane":
        params = TrainingPcaParams(tuple(map(SeriesRef, found)), round(max(view.first, 0.0) * 1e6), bool(view.models.strip()))
        return {"plane": Request(training_pca, params, _subject(state))}
    named = tuple(map(SeriesRef, found if several else found[:1]))
    return {"series": Request(training_series, TrainingSeriesParams(named, _control(facts)), _subject(state))}


def _control(facts: Facts) -> SeriesRef | None:
    """The shipped model without layers, where it was measured: what its score on text is, the texts do alone."""
    try:
        return SeriesRef(NO_LAYERS) if NO_LAYERS in facts.measured("") else None
    except CircuitLabError:
        return None


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """The page that is open."""
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
    """A click chooses the checkpoint it points at, and the head where it is on a head's curve."""
    if hit.mark not in MARKS or len(hit.id) != 3 or hit.gesture not in ("click", "shift-click", "double-click"):
        return state
    layer, head, checkpoint = hit.id
    chosen = pick_head(state, Head(layer, head), hit.gesture) if layer >= 0 else state
    if layer < OWN or checkpoint == GONE or hit.gesture == "shift-click":
        return chosen
    model = replace(state.model, checkpoint=None if checkpoint < 0 else checkpoint)
    return chosen if model == state.model else replace(chosen, model=model)


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
            "score, below zero where later tokens are cheaper than earlier ones (partly by the texts alone, as a model without "
            "layers shows); and a score of each head; name other models, and each is one curve in every plot, with its best "
            "head. The shaded band is the phase change: the interval in which the in-context score falls fastest, with its "
            "neighbours that fall at least half as fast, shown only if it falls by a stated amount in all. Loss by index: the "
            "loss [index of the token, checkpoint], and its slope by the logarithm of the index, negative (blue) where a "
            "longer context helps. Plane: every checkpoint of every model is a point whose coordinates are the losses on the "
            "same few thousand tokens, projected on the two directions in which they differ most. Zeroed heads: how much "
            "dearer tokens get without a head, with all attention patterns kept as they were. Click a place to look at that "
            "checkpoint in every panel."
        ),
        requests=requests,
        draw=draw,
        pick=pick,
        area="bottom",
        order=150,
    )
)
