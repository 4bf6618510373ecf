"""The text under each page of the induction laboratory: its equation, what it shows, why, and what breaks it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from circuitlab.analysis.checks.rope_clock import RotationClockResult
from circuitlab.counting import number, number_of
from circuitlab.figures.marks import Prose
from circuitlab.model.constructed import RopeInduction


class Words(NamedTuple):
    """The text of one page."""

    formula: str
    what: str
    why: str
    what_if: str


CLOCK = Words(
    "score(m, n) = α Σᵢ cos(Δ θᵢ),   Δ = n − m + o",
    "Each pair of key columns is a clock hand that turns by θᵢ at every position. The query at m has the same hands, turned "
    "back by o. The dials show the angles between the hands of source n and those of the query.",
    "A single hand comes round again. Hands of many speeds all point up only at Δ = 0, where the source is o positions back: "
    "there their heights add up to d_head/2, everywhere else to less.",
    "Set θ to equal: the curve is a single cosine, with an alias as high as the peak every 2π/θ positions; g falls to 0 "
    "and no α is enough. A smaller d_head has fewer hands, and also brings the best rival closer.",
)
LAYER_0 = Words(
    "A⁰[m, n] = softmaxₙ(α Σᵢ cos((n − m + o) θᵢ))",
    "Row m shows what the token at m attends to; the cell o positions back is framed. The token there is copied into prev.",
    "Every key is the same vector, so only its rotation distinguishes positions. The right position leads by α g, which the "
    "softmax turns into nearly all of the attention.",
    "Lower α: attention leaks to the neighbours. Give the key a share of the token: it then depends on letters as well "
    "as on positions. o = 2 copies the token two back. The first o rows have no position to look back to.",
)
LAYER_1 = Words(
    "A¹[m, n] = softmaxₙ(β code(t_m) · prev_n + β σ [n is BOS])",
    "The token at m looks for positions whose prev is the same token: those after its earlier occurrences. They are framed, as "
    "is BOS for a token that has not occurred before.",
    "The query reads tok, the key reads prev, which layer 0 has written. Neither layer finds a repeat alone: this is "
    "K-composition, and BOS is where attention rests when nothing matches.",
    "Raise σ towards 1: BOS ties with a match. Lower it: tokens without a repeat have nowhere to rest. A low rank confuses "
    "letters. Without BOS, position 0 attends only to itself and predicts its own letter.",
)
LAYER_1_OF_ONE_RANK = Words(
    "A¹[m, n] = softmaxₙ(β cos φ_m · cos φ_n)",
    "The head as the document defines it: a number for the token at m times a number for the token at n. Framed is where it "
    "should attend to continue the text.",
    "It reads tok on both sides and never what layer 0 has written; a product of two numbers is largest at an extreme letter, "
    "not at an equal one.",
    "Choose another variant: the same two layers find the repeat. Raise β: the attention on wrong letters only gets sharper.",
)
STREAM = Words(
    "x⁰ = tok + one,   x¹ = x⁰ + prev,   x² = x¹ + out",
    "A row is a position, a column a coordinate of the stream. The embedding fills tok and one, layer 0 adds prev, layer 1 adds "
    "out; nothing is overwritten.",
    "Because each step only adds, a position holds its own token and the one o before it at the same time, and these are what "
    "layer 1 compares.",
    "Lower α: prev becomes a mixture of letters. Give the key a share of the token: prev fills with similar letters. γ "
    "scales out and nothing else (here out is divided by it).",
)
PREDICTION = Words(
    "logit(t) = γ · (attention of layer 1 on positions that hold t)",
    "How often each letter has followed this token before, and its logit by formula and in the model. Colours in the text: how "
    "far the right letter leads.",
    "W_U reads only out, so the prediction is that of the head in layer 1. All matches score the same: several continuations "
    "share the attention in proportion to their counts.",
    "A token that is new here rests on BOS: all logits are equal. Lower γ: still right, less confident. Lower β: rivals and BOS "
    "take a share, and the lead shrinks.",
)
PREDICTION_IN_A_PLANE = PREDICTION._replace(
    formula="logit(t) = γ · value(t) · Σₙ A¹[m, n] value(tₙ)",
    why="W_U reads only out. Letters lie on a circle here: W_U reads the mean direction of everything attended to, which is the "
    "right letter only if a single letter has followed.",
)
RANK_ONE = Words(
    "score = β (v · x_m)(v · x_n)   against   β code(t_m) · code(t_n)",
    "Every letter against every other: queries are rows, keys are columns, and the largest entry of each row is framed.",
    "With one direction on either side, a query with a positive number prefers the key with the largest number, one with a "
    "negative number the smallest. Only the two extreme letters can match themselves.",
    "The sinusoidal variant compares two numbers: every row finds its own letter, closely followed by its neighbours on the "
    "circle (lower β to see them). One-hot letters do not resemble each other at all.",
)


def words(page: str, p: RopeInduction) -> Words:
    """The text of a page for a variant."""
    if page == "layer 1" and p.variant == "rank-one":
        return LAYER_1_OF_ONE_RANK
    if page == "prediction" and p.variant != "one-hot":
        return PREDICTION_IN_A_PLANE
    return {
        "clock": CLOCK,
        "layer 0": LAYER_0,
        "layer 1": LAYER_1,
        "stream": STREAM,
        "prediction": PREDICTION,
        "rank one": RANK_ONE,
    }[page]


def prose(page: str, p: RopeInduction, now: str) -> Prose:
    """The equation of a page, the present numbers, and three paragraphs."""
    text = words(page, p)
    return Prose("words", (("Now", now), ("What", text.what), ("Why", text.why), ("What if", text.what_if)), text.formula)


def share(value: float) -> str:
    """A share of attention, with a fourth digit close to 1."""
    if np.isnan(value):
        return "none"
    return f"{value:.4f}" if value > 0.99 else f"{value:.3f}"


def worst(r: RotationClockResult, layer: int) -> float:
    """The least attention that a row puts where it should; NaN if no row has such a position."""
    finite = r.mass[layer][~np.isnan(r.mass[layer])]
    return float(finite.min()) if finite.size else math.nan


def correct(r: RotationClockResult) -> str:
    """How many predictions are right, and by how much at least."""
    k, n = r.right()
    if not n:
        return "Nothing repeats yet, so there is nothing to predict."
    least = float(np.nanmin(r.margin))
    lead = f"smallest lead of the right letter {number(least)}"
    return f"{k} of {number_of(n, 'prediction')} right, {lead}."


def enough(value: float, needed: float, name: str, r: RotationClockResult) -> str:
    """A sharpness beside its bound, above which every text succeeds; below it some texts may fail."""
    bound = f"at most {r.epsilon:.0%} of a row’s attention strays in every text"
    if not math.isfinite(needed):
        return f"{name} {number(value, 'g')}: no {name} guarantees that {bound}"
    verdict = "is enough" if value >= needed else "may be too low"
    return f"{name} {number(value, 'g')} {verdict}: from {number(needed, '.3g')} on, {bound}"
