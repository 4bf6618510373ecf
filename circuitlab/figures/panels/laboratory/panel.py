"""Induction laboratory: the constructed model step by step. The sliders are its parameters; every number is the open model's."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from circuitlab.analysis.checks.construction import ConstructionParams, construction
from circuitlab.analysis.checks.rope_clock import RotationClockParams, rotation_clock
from circuitlab.engine.request import Request
from circuitlab.figures.contracts.common import destination, pick_position
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, register
from circuitlab.figures.marks import Figure, Hit, RowColumn, Rows, ids
from circuitlab.figures.panels.laboratory import equations, pages, tables
from circuitlab.figures.panels.laboratory.parameters import NAME, LaboratoryView, reads, writes
from circuitlab.model.constructed import RopeInduction
from circuitlab.model.constructed.parameters import Variant
from circuitlab.state.constructed import parameters, parameters_of, with_parameters
from circuitlab.state.state import State

TITLE = "Induction laboratory"
_CHOICES: tuple[tuple[Variant, str], ...] = (
    ("one-hot", "a direction for each letter: completes A B … A → B, provably"),
    ("sinusoidal", "letters on a circle, two numbers each: also completes it"),
    ("rank-one", "one number for each letter: cannot match equal letters"),
)


def requests(state: State, facts: Facts) -> Requests | Why:
    """The rotation clock of the open model; no request for a model that is not a constructed one."""
    if parameters(state) is None:
        return {}
    if not state.tokens:
        return Why("Type some text of letters in the Prompt, for instance A B C D A.")
    view: LaboratoryView = state.view(NAME, LaboratoryView)
    if view.page == "equations":
        return {"equations": Request(construction, ConstructionParams(), state.subject)}
    return {"clock": Request(rotation_clock, RotationClockParams(), state.subject)}


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """The open page; for other models, a list of constructed models to open."""
    if parameters(state) is None:
        return _models_to_open()
    view: LaboratoryView = state.view(NAME, LaboratoryView)
    if "equations" in answers:
        checked = answers.of("equations", construction)
        p = parameters_of(checked.request.subject.model)
        assert p is not None
        return equations.page(checked, view, p)
    answer = answers.of("clock", rotation_clock)
    p = parameters_of(answer.request.subject.model)
    assert p is not None
    if view.page == "clock":
        return pages.clock(state, facts, answer, view, p)
    if view.page == "stream":
        return pages.stream(state, facts, answer, view, p)
    if view.page == "prediction":
        return pages.prediction(state, facts, answer, p)
    if view.page == "rank one":
        return pages.alphabet(state, facts, answer, p)
    return pages.attention(state, facts, answer, int(view.page[-1]), p)


@lru_cache(maxsize=1)
def _models_to_open() -> Figure:
    """The constructed models, each a row that opens it."""
    columns = (
        RowColumn("constructed model", np.array([name for name, _ in _CHOICES], dtype=object)),
        RowColumn("what it does", np.array([what for _, what in _CHOICES], dtype=object)),
    )
    rows = Rows("open", columns, ids(np.arange(len(_CHOICES))))
    why = "Click a row to open one. These models were written by hand, and this panel shows how they work."
    elsewhere = "It shows how constructed models work: name one, for instance rope-induction."
    return Figure(((rows,),), "Open the constructed model", why_empty=why, elsewhere=elsewhere)


def pick(state: State, hit: Hit) -> State:
    """Open a model; select a cell or token; a point on the curve selects a source, or a Δ that the prompt does not reach."""
    if hit.mark == "open" and hit.id and hit.gesture in ("click", "double-click"):
        variant = _CHOICES[hit.id[0]][0]
        return with_parameters(state, RopeInduction.preset(variant))
    if hit.mark in ("formula", "measured"):
        return _pick_cell(state, hit)
    if hit.mark in ("text", *pages.STEPS):
        return pick_position(state, hit)
    if hit.mark == equations.MARK:
        view: LaboratoryView = state.view(NAME, LaboratoryView)
        chosen = equations.picked(view, hit)
        return state if chosen == view.equation else state.with_view(NAME, replace(view, equation=chosen))
    if hit.mark == "curve":
        return _pick_delta(state, hit)
    return state


def _pick_cell(state: State, hit: Hit) -> State:
    if hit.gesture in ("hover", "leave") or len(hit.id) != 2:
        return pick_position(state, hit)
    dest, src = hit.id
    selection = state.selection
    if selection.locked and (selection.destination, selection.source) == (dest, src):
        return state.select(destination=None, source=None, locked=False)
    return state.select(destination=dest, source=src, locked=True, token=None)


def _pick_delta(state: State, hit: Hit) -> State:
    """Select the source at the clicked Δ; hovering only reads the curve."""
    p = parameters(state)
    if hit.gesture not in ("click", "double-click") or len(hit.id) != 2 or p is None:
        return state
    delta, dest = hit.id[1] - (p.n_ctx - 1), destination(state)
    src = dest - p.offset + delta
    view: LaboratoryView = state.view(NAME, LaboratoryView)
    if 0 <= src <= dest:
        return state.with_view(NAME, replace(view, far=None)).select(destination=dest, source=src, locked=True)
    return state.with_view(NAME, replace(view, far=delta)).select(source=None)


PANEL = register(
    Panel(
        name=NAME,
        title=TITLE,
        view=LaboratoryView,
        equation="A⁰ = softmax(α Σᵢ cos((n − m + o) θᵢ));  A¹ = softmax(β code(t_m) · prev_n + β σ [BOS]);  logit = γ A¹[tₙ = t]",
        source="After Wendler’s construction; rotary positions: Su et al. 2021, section 3.4",
        help=(
            "A two-layer model written by hand: every weight is known, so each step can be checked against a formula. m is the "
            "destination, n the source, o how far layer 0 looks back, t_m the token at m. The residual stream is "
            "tok | prev | out | one. "
            "Clock (click its curve to choose a Δ): "
            "the key of every token is the same vector c = (1, 0, 1, 0, …), rotated by θᵢ in each pair of columns at every "
            "position; the query is the same vector rotated back by o, times α. Their product is α times the sum of the hands’ "
            "heights, which is largest when all hands point up. g is how far the best rival within the context N lies below "
            "that; the softmax then puts at least 1 − ε on n = m − o once α ≥ ln(N/ε)/g, and likewise in layer 1 once "
            "β ≥ ln(N/ε)/(½ − ε) with one-hot letters. "
            "Layer 0, Layer 1: attention by formula beside the model’s own; framed cells are where it should be. "
            "Stream: every coordinate of the stream after each step. Prediction: the logit of a letter is γ times the attention "
            "on positions that hold it, so several continuations share it in proportion to their counts. "
            "Rank one: how layer 1 fails when it reads one direction on each side. "
            "Equations: every equation of the construction, checked in the open model; click one to have it explained. "
            "The controls are the parameters of the open model: moving one builds another model, and every panel follows; undo "
            "brings back the previous one. “Right” means that the most probable letter is one that has followed most often."
        ),
        requests=requests,
        draw=draw,
        pick=pick,
        area="centre",
        order=75,
        table=tables.table,
        reads=reads,
        writes=writes,
    )
)
