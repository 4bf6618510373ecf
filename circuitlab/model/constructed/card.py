"""What the constructed model is, in words: the card beside it and the notes on what its parameters break."""

from __future__ import annotations

import math

from circuitlab.counting import number_of
from circuitlab.model.constructed.closed_forms import alpha_needed, best_rival, beta_needed
from circuitlab.model.constructed.matrices import configuration, stream
from circuitlab.model.constructed.parameters import RopeInduction

EPSILON = 0.01

_TOKENS = {
    "one-hot": "one coordinate a token, so that no two letters resemble each other",
    "sinusoidal": "½ sin(φ + 0.1 j), φ = place in the alphabet · π/13: all letters lie on one circle, 13 apart are opposite",
    "rank-one": "½ sin(φ + 0.1 j), φ = place in the alphabet · π/13: all letters lie on one circle, 13 apart are opposite",
}
_LAYER_1 = {
    "one-hot": "asks for positions whose `prev` is the token here, and rests on BOS where there is none",
    "sinusoidal": "asks for positions whose `prev` has the angle of the token here, and rests on BOS where there is none",
    "rank-one": "multiplies one number of the token here with one of the token there (the cosine of its angle): every "
    "destination attends to the largest of them or, where its own is negative, to the smallest, whatever followed",
}


def card(p: RopeInduction) -> str:
    """Markdown: what each part of the stream and each matrix is."""
    c, at = configuration(p), stream(p)
    places = ", ".join(f"`{name}` {s.start}…{s.stop - 1}" for name, s in at.items())
    numbers = number_of(c.n_parameters(), "number")
    return f"""# rope-induction

Written by hand, not trained: two layers of one head that complete A B … A with B, after Wendler's construction.
`{p}`: {number_of(c.d_vocab, "token")}, d_model {c.d_model}, d_head {c.d_head}, context {c.n_ctx}, {numbers}, most
of them 0.

## The stream

{places}. No norm, no MLP and no bias; scores are plain products; positions turn queries and keys of layer 0 alone.

## The matrices

| matrix | what it does |
|---|---|
| W_E | writes the token into `tok` ({_TOKENS[p.variant]}), and 1 into `one` |
| layer 0 W_K | reads `one`: the same key c = (1, 0, 1, 0, …) for every token, so that only the rotation tells positions apart |
| layer 0 W_Q | α times the same, rotated back by {p.offset}: the query here meets the key {p.offset} behind it in step |
| layer 0 W_V, W_O | copy what `tok` says of that token into `prev` |
| layer 1 W_Q, W_K | {_LAYER_1[p.variant]} |
| layer 1 W_V, W_O | copy what `tok` says of the token found there into `out`, times γ |
| W_U | reads `out` alone: the direct path adds nothing |

## How sure it is

{chr(10).join("- " + note for note in notes(p))}
"""


def notes(p: RopeInduction) -> tuple[str, ...]:
    """What holds at these parameters and what does not, each in one sentence with its number."""
    rival = best_rival(p)
    lines = [
        f"layer 0: the best rival stands at Δ = {str(rival.delta).replace('-', '−')}, {rival.gap:.3g} α below the peak: "
        f"{_enough('α', p.alpha, alpha_needed(p, EPSILON))}"
    ]
    b = beta_needed(p, EPSILON)
    if p.variant == "rank-one":
        lines.append("layer 1 is of rank one: it does not complete A B … A")
    elif not p.bos:
        lines.append("without BOS layer 1 has no resting place, and position 0 takes itself for its own predecessor")
    elif math.isfinite(b):
        lines.append(f"layer 1: {_enough('β', p.beta, b)}")
    else:
        lines.append("layer 1 cannot tell all letters and its resting place apart on every text, whatever β is")
    if p.variant == "sinusoidal":
        lines.append("where several letters have followed, their mean direction is a letter in between")
    if p.token_in_key:
        lines.append(f"the key of layer 0 holds {p.token_in_key:.0%} of the token: it looks at tokens as well as at positions")
    return tuple(lines)


def _enough(name: str, value: float, needed: float) -> str:
    """A sharpness against its bound, which suffices: below it there may be texts on which more strays, or none."""
    if not math.isfinite(needed):
        return f"no {name} is enough for every text"
    this = "enough" if value >= needed else "too little to be sure"
    return f"for ε = {EPSILON:g} {name} {needed:.3g} is enough for every text, {value:g} is {this}"
