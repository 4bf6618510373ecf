"""`rope-induction` in closed form, without its matrices: scores, attention, logits and the bounds on sharpness.

    layer 0    score(m, n) = α Σ_i cos((n − m + o) θ_i)                          largest, α d_head/2, at n = m − o
    gap        g = min over Δ ≠ 0, −(N−1) ≤ Δ ≤ o, of Σ_i (1 − cos Δθ_i)         the best rival's distance below it, in units of α
    layer 1    score(m, n) = β Σ_j A⁰[n, j] code(t_m) · code(t_j) + β σ [t_n is BOS]
    logits     γ Σ_n A¹[m, n] value(t_n) · value(t)

With one-hot letters, prompts of up to N tokens, α ≥ ln(N/ε)/g and β ≥ ln(N/ε)/(½ − ε) (σ = ½), each head puts at least 1 − ε
of its attention on the correct position: a rival in layer 0 has at most e^{−αg} of the peak's weight; in layer 1 a match scores
at least β(1 − ε), anything else at most βε, the resting place β/2. With all letters in one plane, the nearest rival is
δ = 1 − cos(π/13) below a match and the resting place half of that: β ≥ 2 ln(N/ε)/δ, and a little more for stray attention in
layer 0.

The bounds here also cover two cases that the theorem leaves out. If keys contain a share of the token, the peak depends on the
text: what counts is its lead over every token at every other distance (`lead`). And destinations before o have nothing to attend
to: unless BOS scores highest for them, they attend to a letter instead (`astray`).

Arrays are float64; m is the destination, n the source, o the offset.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from circuitlab.model.constructed.features import codes, features, output_features
from circuitlab.model.constructed.parameters import RopeInduction


class Rival(NamedTuple):
    """The Δ = n − m + o whose score is nearest to the peak, and its distance g below the peak (in units of α)."""

    gap: float
    delta: int


def hands(p: RopeInduction, delta: np.ndarray) -> np.ndarray:
    """[delta, pair] radians, −π … π: the angle of each rotary pair (clock hand) for a source Δ off the correct one."""
    angle = np.asarray(delta, dtype=np.float64)[:, None] * np.array(p.theta())
    return np.arctan2(np.sin(angle), np.cos(angle))


def sum_of_cosines(p: RopeInduction, delta: np.ndarray) -> np.ndarray:
    """[delta]: Σ_i cos(Δ θ_i), d_head/2 at Δ = 0."""
    return np.cos(np.asarray(delta, dtype=np.float64)[:, None] * np.array(p.theta())).sum(axis=1)


def rivals(p: RopeInduction) -> np.ndarray:
    """Every Δ of the theorem, 0 included: −(N − 1) … o. The first o are beyond any actual source."""
    return np.arange(1 - p.n_ctx, p.offset + 1)


def best_rival(p: RopeInduction) -> Rival:
    """g and its Δ; among equals, the Δ nearest to 0."""
    others = rivals(p)[rivals(p) != 0]
    gaps = p.d_head / 2 - sum_of_cosines(p, others)
    least = float(gaps.min())
    nearest = min(others[gaps <= least + 1e-12 * p.d_head], key=lambda delta: (abs(delta), delta))
    return Rival(max(0.0, least), int(nearest))


def _keys(p: RopeInduction) -> tuple[np.ndarray, np.ndarray]:
    """([token, pair] complex, [token, column]): the token's share of a key, in its rotary pairs and in its other columns."""
    waves = p.token_in_key * math.sqrt(p.d_head / 2) * features(p)
    wide = np.pad(waves, ((0, 0), (0, max(0, p.d_head - waves.shape[1]))))
    return wide[:, 0 : p.d_head : 2] + 1j * wide[:, 1 : p.d_head : 2], wide[:, p.d_head :]


def _by_token(p: RopeInduction, delta: np.ndarray) -> Iterator[np.ndarray]:
    """[token, delta] for each destination letter in turn: the score of layer 0 by source token and Δ, in units of α.

    If the key is the same for all tokens, a single array with one row.
    """
    curve, share = sum_of_cosines(p, delta), 1 - p.token_in_key
    if not p.token_in_key:
        yield curve[None]
        return
    rotated, still = _keys(p)
    turn = np.exp(1j * np.array(p.theta())[:, None] * delta)
    as_source, as_destination = (share * np.real(x @ turn) for x in (rotated, rotated.conj()))
    for letter in range(1, p.d_vocab):
        pairs = rotated[letter].nonzero()[0]
        both = np.real((rotated[letter, pairs].conj() * rotated[:, pairs]) @ turn[pairs]) + (still @ still[letter])[:, None]
        yield share**2 * curve + as_destination[letter] + as_source + both


def lead(p: RopeInduction) -> float:
    """The lead of layer 0's correct position over all others, in units of α, whatever the tokens; negative if another may win.

    It equals g if the key is the same for all tokens. At Δ = o the source is the destination itself, with the same token.
    """
    if not p.token_in_key:
        return best_rival(p).gap
    delta, least = rivals(p), math.inf
    for letter, scores in enumerate(_by_token(p, delta), start=1):
        own = scores[letter, -1]
        elsewhere = scores[int(not p.bos) :, (delta != 0) & (delta != p.offset)].max(initial=own)
        least = min(least, float(scores[int(not p.bos) :, delta == 0].min() - elsewhere))
    return least


def alpha_needed(p: RopeInduction, epsilon: float) -> float:
    """The α from which layer 0 puts 1 − ε on the correct position, on every text; infinite if a rival may reach the peak.

    Sufficient, not necessary: most texts have fewer rivals than N, and most rivals are further below the peak.
    """
    ahead = lead(p)
    return math.log(p.n_ctx / epsilon) / ahead if ahead > 1e-12 * p.d_head else math.inf


def astray(p: RopeInduction, alpha: float) -> float:
    """The most attention that rows before o, which have no correct source, put on letters instead of BOS; 0 for o = 1."""
    rows, most = min(p.offset, p.n_ctx) - 1, 0.0
    if rows < 1:
        return most
    for letter, by_token in enumerate(_by_token(p, np.arange(1, p.offset + 1)), start=1):
        scores = alpha * by_token
        bos, own, best = scores[0], scores[min(letter, len(scores) - 1), -1], scores[-(p.d_vocab - 1) :].max(axis=0)
        # row r sees BOS at Δ = o − r, any letters at o − r + 1 … o − 1, and itself at o
        others = np.append(-np.inf, np.logaddexp.accumulate(best[-2::-1]))[:rows]
        ahead = np.logaddexp(others, own) - bos[-2::-1][:rows]
        most = max(most, float(1 / (1 + np.exp(np.minimum(-ahead, 700.0)).min())))
    return most


def beta_needed(p: RopeInduction, epsilon: float) -> float:
    """The β from which layer 1 puts 1 − ε on matches, or on BOS if there is none; infinite if no β is enough.

    One-hot at full rank: as in the theorem, with layer 0 within ε too. Otherwise e = N e^{−αg} of layer 0's attention is stray at
    the given α: a match scores at least 1 − 2e and the nearest other letter, c < 1, at most c + e(1 − c), in units of β. A row
    before o scores at most its `astray`.
    """
    if p.variant == "rank-one" or not p.bos:
        return math.inf
    if p.variant == "one-hot" and p.rank in (0, p.letters):
        sharp = alpha_needed(p, epsilon)
        loose = astray(p, max(p.alpha, sharp) if math.isfinite(sharp) else p.alpha)
        room = min(1 - epsilon - p.sigma, p.sigma - max(epsilon, loose))
    else:
        code = codes(p)[1:]
        products = code @ code.T
        match = float(products.diagonal().min())
        other = max(0.0, float(products[~np.eye(len(code), dtype=bool)].max()))
        stray = p.n_ctx * math.exp(-p.alpha * max(0.0, lead(p)))
        room = min(match - 2 * stray - p.sigma, p.sigma - max(other + stray * (1 - other), astray(p, p.alpha)))
    return math.log(p.n_ctx / epsilon) / room if room > 1e-12 else math.inf


def _softmax(scores: np.ndarray) -> np.ndarray:
    causal = np.tril(np.ones(scores.shape, dtype=bool))
    shifted = np.where(causal, scores, -np.inf)
    weights = np.exp(shifted - shifted.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def scores_0(p: RopeInduction, tokens: Sequence[int]) -> np.ndarray:
    """[dest, src] scores of layer 0, before the causal mask.

    If the key contains a share s of the token, with features u, each rotary pair of the key is a complex number z,
    1 − s + s √(d_head/2) (u_{2i} + i u_{2i+1}), and the score is α Σ_i Re(z̄_m e^{iΔθ_i} z_n); columns that do not rotate add
    their dot product.
    """
    place = np.arange(len(tokens))
    if not p.token_in_key:
        steps = np.arange(p.offset + 1 - len(tokens), p.offset + len(tokens))
        curve = sum_of_cosines(p, steps)
        return p.alpha * curve[place[None, :] - place[:, None] + len(tokens) - 1]
    rotated, still = (x[list(tokens)] for x in _keys(p))
    z, angle = 1 - p.token_in_key + rotated, np.array(p.theta())
    looking, standing = z * np.exp(1j * (place[:, None] - p.offset) * angle), z * np.exp(1j * place[:, None] * angle)
    return p.alpha * ((looking.conj() @ standing.T).real + still @ still.T)


def attention_0(p: RopeInduction, tokens: Sequence[int]) -> np.ndarray:
    """[dest, src] of layer 0."""
    return _softmax(scores_0(p, tokens))


def scores_1(p: RopeInduction, tokens: Sequence[int]) -> np.ndarray:
    """[dest, src] scores of layer 1; of the rank-one head β cos φ_m cos φ_n, without a resting place."""
    code = codes(p)[list(tokens)]
    if p.variant == "rank-one":
        return p.beta * code @ code.T
    rest = p.sigma * (np.array(tokens) == 0)
    return p.beta * (code @ (attention_0(p, tokens) @ code).T + rest)


def attention_1(p: RopeInduction, tokens: Sequence[int]) -> np.ndarray:
    """[dest, src] of layer 1."""
    return _softmax(scores_1(p, tokens))


def letters(p: RopeInduction) -> np.ndarray:
    """[query, key]: how layer 1 compares the alphabet with itself: softmax over keys of β code · code, every letter once."""
    code = codes(p)[1:]
    scores = p.beta * code @ code.T
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def logits(p: RopeInduction, tokens: Sequence[int]) -> np.ndarray:
    """[dest, token]: γ times the attention mass on positions that hold the token (one-hot), or its product with the mean."""
    value = output_features(p)
    return p.gamma * attention_1(p, tokens) @ value[list(tokens)] @ value.T


def targets(p: RopeInduction, tokens: Sequence[int]) -> np.ndarray:
    """[dest, src] bool, the correct sources of layer 1: those whose token `o` back is the destination's token, if a letter."""
    t, o = np.array(tokens), min(p.offset, len(tokens))
    matches = np.zeros((len(t), len(t)), dtype=bool)
    matches[:, o:] = (t[:, None] == t[None, : len(t) - o]) & (t[:, None] != 0)
    return np.tril(matches)
