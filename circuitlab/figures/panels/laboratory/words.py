"""What stands under each page of the induction laboratory: its equation, what is seen, why it is so, what breaks it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from circuitlab.analysis.checks.rope_clock import RotationClockResult
from circuitlab.counting import number_of
from circuitlab.figures.contracts.common import number
from circuitlab.figures.marks import Prose
from circuitlab.model.constructed import RopeInduction


class Words(NamedTuple):
    """A page's own."""

    formula: str
    what: str
    why: str
    what_if: str


CLOCK = Words(
    "score(m, n) = α Σᵢ cos(Δ θᵢ),   Δ = n − m + o",
    "Each pair of key columns is a clock hand that turns by θᵢ at every position. The query at m carries the same hands, turned "
    "back by o. Drawn is how far the hands of source n stand off the query’s.",
    "One hand alone comes round again. Hands of many speeds point up together only at Δ = 0, where the source stands o behind: "
    "there their heights add up to d_head/2, everywhere else to less.",
    "Set θ to equal: the curve is a single cosine, and every 2π/θ positions an alias stands as high as the peak; g falls to 0 "
    "and no α is enough. A smaller d_head, fewer hands, brings the best rival closer too.",
)
LAYER_0 = Words(
    "A⁰[m, n] = softmaxₙ(α Σᵢ cos((n − m + o) θᵢ))",
    "Row m shows where the token at m looks; framed is the position o behind it. The token found there is copied into prev.",
    "Every key is the same vector, so that only its rotation tells positions apart. The softmax makes nearly all of the mass out "
    "of the lead α g that the right position has.",
    "Lower α: mass leaks to the neighbours, worst row first. Let the key hold a share of the token: it looks at letters as well "
    "as at places. o = 2 copies the token two back. The first o rows have nobody to look at.",
)
LAYER_1 = Words(
    "A¹[m, n] = softmaxₙ(β code(t_m) · prev_n + β σ [n is BOS])",
    "The token at m asks for positions whose prev is the same token: what followed it before. Framed are those positions, and "
    "BOS for a token that has not occurred.",
    "The query reads tok, the key reads prev, which layer 0 has written. Neither layer finds a repeat alone: this is "
    "K-composition, and BOS is the place to rest when there is nothing to find.",
    "Raise σ towards 1: BOS ties with a match. Lower it: tokens without a repeat have no rest. A low rank takes letters for one "
    "another. Without BOS position 0 sees only itself and claims to follow its own letter.",
)
LAYER_1_OF_ONE_RANK = Words(
    "A¹[m, n] = softmaxₙ(β cos φ_m · cos φ_n)",
    "The head as the document writes it: one number of the token at m times one of the token at n. Framed is where it should "
    "look to continue the text.",
    "It reads tok on both sides and never what layer 0 has written; a product of two numbers is largest at an extreme letter, "
    "not at an equal one.",
    "Choose another variant: the same two layers find the repeat. Raise β: the wrong letters only get surer.",
)
STREAM = Words(
    "x⁰ = tok + one,   x¹ = x⁰ + prev,   x² = x¹ + out",
    "A row is a position, a column a coordinate of the stream. The embedding fills tok and one, layer 0 adds prev, layer 1 adds "
    "out; what stood there before stays.",
    "Because each step only adds, a position knows its own token and the one o before it at the same time, and that is what "
    "layer 1 compares.",
    "Lower α: prev becomes a mixture of letters. Give the key a share of the token: prev fills with whatever looks alike. γ "
    "makes out larger and nothing else (here out is divided by it).",
)
PREDICTION = Words(
    "logit(t) = γ · (attention of layer 1 on positions that hold t)",
    "What has followed this token before, how often, and the logit that each letter gets for it, by formula and in the model. "
    "Colours in the text: how far the right letter leads.",
    "W_U reads out alone, so that the prediction is the head’s. All matches score the same: with several continuations their "
    "shares are their counts.",
    "A token that is new here rests on BOS: all logits are equal. Lower γ: still right, less sure. Lower β: rivals and the "
    "resting place take shares, and the lead shrinks.",
)
PREDICTION_IN_A_PLANE = PREDICTION._replace(
    formula="logit(t) = γ · value(t) · Σₙ A¹[m, n] value(tₙ)",
    why="W_U reads out alone. Letters lie on a circle here: what is read is the mean direction of all that is attended to, which "
    "is the right letter only where one letter has followed.",
)
RANK_ONE = Words(
    "score = β (v · x_m)(v · x_n)   against   β code(t_m) · code(t_n)",
    "The alphabet asks itself, every letter once: rows ask, columns are asked, framed is the largest of each row.",
    "With one direction on either side a row that reads a positive number prefers the largest of all, one that reads a negative "
    "number the smallest. Like does not find like, save at the two ends.",
    "The sinusoidal variant compares two numbers: every row finds its own letter, with its neighbours on the circle close "
    "behind (lower β to see them). One-hot letters do not resemble each other at all.",
)


def words(page: str, p: RopeInduction) -> Words:
    """Of a page, for this variant."""
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
    """The page's equation, the present numbers, and its three paragraphs."""
    said = words(page, p)
    return Prose("words", (("Now", now), ("What", said.what), ("Why", said.why), ("What if", said.what_if)), said.formula)


def share(value: float) -> str:
    """A share of attention; what is lost of nearly all is what tells shares apart."""
    if np.isnan(value):
        return "none"
    return f"{value:.4f}" if value > 0.99 else f"{value:.3f}"


def worst(r: RotationClockResult, layer: int) -> float:
    """The least mass that a row puts where it should; NaN where no row has to."""
    known = r.mass[layer][~np.isnan(r.mass[layer])]
    return float(known.min()) if known.size else math.nan


def rightly(r: RotationClockResult) -> str:
    """How many predictions are right, and by how much."""
    k, n = r.right()
    if not n:
        return "Nothing repeats yet: there is nothing to predict."
    least = float(np.nanmin(r.margin))
    lead = f"least lead of the right letter {number(least)}"
    return f"{k} of {number_of(n, 'prediction')} right, {lead}."


def enough(value: float, needed: float, name: str, r: RotationClockResult) -> str:
    """A sharpness against its bound, which suffices: below it a text may go well, but not every text need."""
    bound = f"{r.epsilon:.0%} may stray"
    if not math.isfinite(needed):
        return f"{name} {value:g}, and none is enough for every text where {bound}"
    this = "enough" if value >= needed else "too little to be sure"
    return f"{name} {value:g}, {this}: {needed:.3g} serves every text where {bound}"
