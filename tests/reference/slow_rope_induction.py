"""`rope-induction` from its definition, slowly: vectors that are turned one by one, in float64, without the package's matrices.

A key of layer 0 is (1 − s) (1, 0, 1, 0, …) + s √(d/2) u(t), where u(t) is what is known of the token: its own coordinate
(one-hot) or (sin φ, cos φ), φ = place · π/13, 0 for BOS. The query is α times the same, turned back by o positions. Layer 1
compares the token here with what layer 0 has moved to a position, rests on BOS at βσ, and moves γ times the token it finds.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

DEFAULTS: dict[str, Any] = {
    "variant": "one-hot",
    "alpha": 12.8,
    "beta": 17.9,
    "gamma": 20.0,
    "sigma": 0.5,
    "d_head": 32,
    "offset": 1,
    "letters": 26,
    "frequencies": "geometric",
    "base": 10000.0,
    "period": 8.0,
    "token_in_key": 0.0,
    "rank": 0,
}


class Slow(NamedTuple):
    """Attention [dest, src] of either layer, 0 where the mask is; logits [dest, token]."""

    first: np.ndarray
    second: np.ndarray
    logits: np.ndarray


def rope_induction(tokens: tuple[int, ...], **given: Any) -> Slow:
    """The model of these parameters on a prompt."""
    q = {**DEFAULTS, **{k: v for k, v in given.items() if k in DEFAULTS}}
    n, known = len(tokens), [_known(q, t) for t in tokens]
    keys = [_key(q, x) for x in known]
    first = np.zeros((n, n))
    for m in range(n):
        query = q["alpha"] * _turned(q, keys[m], m - q["offset"])
        first[m, : m + 1] = _softmax([query @ _turned(q, keys[s], s) for s in range(m + 1)])
    moved = [np.sum([first[s, j] * known[j] for j in range(s + 1)], axis=0) for s in range(n)]
    second, logits = np.zeros((n, n)), np.zeros((n, q["letters"] + 1))
    for m in range(n):
        there = known if q["variant"] == "rank-one" else moved
        rest = [q["sigma"] * (tokens[s] == 0) * (q["variant"] != "rank-one") for s in range(m + 1)]
        second[m, : m + 1] = _softmax([q["beta"] * (_likeness(q, known[m], there[s]) + rest[s]) for s in range(m + 1)])
        for t in range(1, q["letters"] + 1):
            value = _known(q, t)
            logits[m, t] = q["gamma"] * sum(second[m, s] * (known[s] @ value) for s in range(m + 1) if tokens[s])
    return Slow(first, second, logits)


def _known(q: dict[str, Any], token: int) -> np.ndarray:
    if q["variant"] == "one-hot":
        return np.eye(q["letters"] + 1)[token]
    phi = (token - 1) * math.pi / 13
    return np.array([math.sin(phi), math.cos(phi)]) if token else np.zeros(2)


def _key(q: dict[str, Any], known: np.ndarray) -> np.ndarray:
    made = np.zeros(max(q["d_head"], len(known)))
    made[0 : q["d_head"] : 2] = 1 - q["token_in_key"]
    made[: len(known)] += q["token_in_key"] * math.sqrt(q["d_head"] / 2) * known
    return made


def _turned(q: dict[str, Any], x: np.ndarray, by: int) -> np.ndarray:
    """R(by) x: pair (2i, 2i + 1) of the first d_head columns turned by `by` times its angle."""
    out = x.copy()
    for i in range(q["d_head"] // 2):
        equal = q["frequencies"] == "equal"
        theta = 2 * math.pi / q["period"] if equal else q["base"] ** (-2 * i / q["d_head"])
        turn = np.array([[math.cos(by * theta), -math.sin(by * theta)], [math.sin(by * theta), math.cos(by * theta)]])
        out[2 * i : 2 * i + 2] = turn @ x[2 * i : 2 * i + 2]
    return out


def _likeness(q: dict[str, Any], one: np.ndarray, other: np.ndarray) -> float:
    """What layer 1 makes of two tokens, or mixtures of tokens: of all their coordinates, or of `rank` directions."""
    if q["variant"] == "rank-one" or (q["variant"] == "sinusoidal" and q["rank"] == 1):
        return float(one[1] * other[1])
    if q["variant"] == "sinusoidal":
        return float(one @ other)
    if q["rank"] in (0, q["letters"]):
        return float(one[1:] @ other[1:])
    total, letters = 0.0, q["letters"]
    for r in range(q["rank"]):
        wave = np.cos if r % 2 == 0 else np.sin
        row = wave((r // 2 + 1) * 2 * math.pi * np.arange(letters) / letters)
        total += float(one[1:] @ row) * float(other[1:] @ row)
    return total / math.ceil(q["rank"] / 2)


def _softmax(scores: list[float]) -> np.ndarray:
    e = np.exp(np.array(scores) - max(scores))
    return e / e.sum()
