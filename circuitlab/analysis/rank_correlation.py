"""Spearman's rank correlation with its confidence interval, of the values that two quantities have for the same heads.

    ρ = correlation of the ranks, equal values sharing the mean of theirs
    interval: tanh(artanh ρ ± z √((1 + ρ²/2) / (n − 3))),      z = 1.96 for 95 %

(Fisher's transformation with the variance of Bonett and Wright 2000, "Sample size requirements for estimating Pearson, Kendall
and Spearman correlations", for n independent pairs.) A ρ of ±1 has no finite artanh: the end of its interval nearer 0 is that
of the largest |ρ| below 1 (two neighbours swapped, 1 − 12/(n³ − n)), the other is ±1. Fewer than four pairs have no interval;
fewer than two, or a quantity that is the same for all, no correlation. With four or five pairs the interval holds 0 whatever ρ
is. Of n different values in random order it misses 0 with probability 0.033 (6 pairs) to 0.037 (8), which tends to 0.05 from
below as n grows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

LEVEL, DEVIATIONS = 0.95, 1.959963984540054  # of the normal distribution, within which that share of it lies
FEWEST = 4  # pairs that have an interval
TELLING = 6  # the fewest pairs whose interval can exclude 0
WORDS = (
    "95 % interval: Fisher's z with variance (1 + ρ²/2)/(n − 3), at |ρ| = 1 its inner end with 1 − 12/(n³ − n) in place of |ρ| "
    "and its outer end ±1, heads taken as independent"
)


class Correlation(NamedTuple):
    """ρ, the ends of its interval, and the number of pairs; NaN: not computed."""

    rho: float
    low: float
    high: float
    n: int


def ranks(values: np.ndarray) -> np.ndarray:
    """[n] float64: ranks from 1 of finite `values` [n], the largest first; equal values share the mean of their ranks."""
    _, place, count = np.unique(-values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[place]


def rank_differences(predicted: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """Rank by `measured` minus rank by `predicted` of the entries where both are finite, 1 the largest; NaN elsewhere.

    Below 0: the entry stands nearer the top by what is measured than by what was predicted.
    """
    first, second = ranks_of_both(predicted, measured)
    return second - first


def ranks_of_both(predicted: np.ndarray, measured: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ranks of each among the entries where both are finite, as `ranks` has them; NaN elsewhere."""
    both = np.isfinite(predicted) & np.isfinite(measured)
    among = tuple(np.full(predicted.shape, np.nan) for _ in range(2))
    for ranked, values in zip(among, (predicted, measured), strict=True):
        ranked[both] = ranks(values[both])
    return among[0], among[1]


def correlation(predicted: np.ndarray, measured: np.ndarray) -> Correlation:
    """Of the entries of two arrays of one shape where both are finite."""
    both = np.isfinite(predicted) & np.isfinite(measured)
    n = int(both.sum())
    if n < 2:
        return Correlation(math.nan, math.nan, math.nan, n)
    a, b = (one - one.mean() for one in (ranks(predicted[both]), ranks(measured[both])))
    size = math.sqrt(float(a @ a) * float(b @ b))
    if size == 0:
        return Correlation(math.nan, math.nan, math.nan, n)
    rho = min(1.0, max(-1.0, float(a @ b) / size))
    return Correlation(rho, *_interval(rho, n), n)


def _interval(rho: float, n: int) -> tuple[float, float]:
    if n < FEWEST:
        return math.nan, math.nan
    below = 1 - 12 / (n**3 - n)
    near = min(below, max(-below, rho))
    half = DEVIATIONS * math.sqrt((1 + near**2 / 2) / (n - 3))
    low, high = (math.tanh(math.atanh(near) + side * half) for side in (-1, 1))
    return (-1.0 if rho <= -1 else low), (1.0 if rho >= 1 else high)
