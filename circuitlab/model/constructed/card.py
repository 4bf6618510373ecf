"""The constructed model described in words: its card, and notes on what holds at its parameters."""

from __future__ import annotations

import math

from circuitlab.counting import number_of
from circuitlab.model.constructed.closed_forms import alpha_needed, best_rival, beta_needed
from circuitlab.model.constructed.matrices import configuration, stream
from circuitlab.model.constructed.parameters import RopeInduction

EPSILON = 0.01

_TOKENS = {
    "one-hot": "one coordinate per token, so that different letters are orthogonal",
    "sinusoidal": "½ sin(φ + 0.1 j), φ = place in the alphabet · π/13: all letters lie on one circle, 13 apart are opposite",
    "rank-one": "½ sin(φ + 0.1 j), φ = place in the alphabet · π/13: all letters lie on one circle, 13 apart are opposite",
}
_LAYER_1 = {
    "one-hot": "attends to positions whose `prev` is the current token, or to BOS if there is none",
    "sinusoidal": "attends to positions whose `prev` has the angle of the current token, or to BOS if there is none",
    "rank-one": "multiplies one number of the destination token (the cosine of its angle) by one of the source token: every "
    "destination attends to the largest, or to the smallest if its own is negative, whatever token followed",
}


def card(p: RopeInduction) -> str:
    """The card as Markdown: what each part of the residual stream and each matrix does."""
    c, at = configuration(p), stream(p)
    places = ", ".join(f"`{name}` {s.start}…{s.stop - 1}" for name, s in at.items())
    numbers = number_of(c.n_parameters(), "number")
    return f"""# rope-induction

Constructed by hand, not trained: two layers with one head each that complete A B … A with B, after Wendler's construction.
`{p}`: {number_of(c.d_vocab, "token")}, d_model {c.d_model}, d_head {c.d_head}, context {c.n_ctx}, {numbers}, most
of them 0.

## The stream

{places}. No norm, MLP or biases; scores are plain dot products; rotary positions in layer 0 only.

## The matrices

| matrix | what it does |
|---|---|
| W_E | writes the token into `tok` ({_TOKENS[p.variant]}), and 1 into `one` |
| layer 0 W_K | reads `one`: every token has the key c = (1, 0, 1, 0, …), so that only the rotation distinguishes positions |
| layer 0 W_Q | α c, rotated back by {number_of(p.offset, "position")}: the query is aligned with the key {p.offset} back |
| layer 0 W_V, W_O | copy that token from `tok` to `prev` |
| layer 1 W_Q, W_K | {_LAYER_1[p.variant]} |
| layer 1 W_V, W_O | copy the attended token from `tok` to `out`, times γ |
| W_U | reads `out` only: the direct path contributes nothing |

## What is guaranteed

{chr(10).join("- " + note for note in notes(p))}
"""


def notes(p: RopeInduction) -> tuple[str, ...]:
    """What holds at these parameters and what does not: one sentence each, with its number."""
    rival = best_rival(p)
    lines = [
        f"layer 0: the best rival is at Δ = {str(rival.delta).replace('-', '−')}, {rival.gap:.3g} α below the peak: "
        f"{_sharpness('α', p.alpha, alpha_needed(p, EPSILON))}"
    ]
    beta = beta_needed(p, EPSILON)
    if p.variant == "rank-one":
        lines.append("layer 1 has rank one: it does not complete A B … A")
    elif not p.bos:
        lines.append("without BOS layer 1 has no resting place, and position 0 is taken for its own predecessor")
    elif math.isfinite(beta):
        lines.append(f"layer 1: {_sharpness('β', p.beta, beta)}")
    else:
        lines.append("layer 1 cannot tell all letters and its resting place apart on every text, whatever β is")
    if p.variant == "sinusoidal":
        lines.append("where different letters have followed the token, the mean of their directions is a letter in between")
    if p.token_in_key:
        lines.append(f"{p.token_in_key:.0%} of the key of layer 0 is the token: it attends by token as well as by position")
    return tuple(lines)


def _sharpness(name: str, value: float, needed: float) -> str:
    """A sharpness and its bound, which is sufficient, not necessary: below it some texts may exceed ε, or none."""
    if not math.isfinite(needed):
        return f"no {name} suffices on every text"
    bound = f"bound {needed:.3g} for ε = {EPSILON:g}"
    return f"{name} = {value:g} " + (f"suffices on every text ({bound})" if value >= needed else f"is below the {bound}")
