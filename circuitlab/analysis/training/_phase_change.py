"""The phase change of a training series: the window in which the in-context score falls fastest, if it falls enough.

    slope_k = (score_{k+1} − score_k) / (ln tokens_{k+1} − ln tokens_k)        between neighbouring points, nats

The window is the interval of the most negative slope, with neighbouring intervals as long as they fall at least `share` as fast.
It is a phase change if the score falls in it by `threshold` or more, and at least `steeper` times as fast as over the whole
training: a score that falls evenly has no phase change. A point that has seen less than `apart` times the tokens of the one
before is skipped, since noise has steep slopes between close points. A point that has seen no tokens (ln 0) is skipped too.

Olsson et al. (2022) mark the phase change by eye, where the in-context score falls; the rule here is our own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class PhaseRule:
    """`threshold` in nats; `share`, `steeper`, `apart`: see the module; `first`: points with fewer tokens are skipped."""

    threshold: float
    share: float = 0.5
    steeper: float = 2.0
    apart: float = 1.03
    first: int = 1

    def words(self, elsewhere: str = "") -> str:
        """The rule in a sentence, for captions; `elsewhere`: words on another threshold, put after this one."""
        nats = f"{self.threshold:g} {'nat' if self.threshold == 1 else 'nats'}{elsewhere}"
        return (
            f"phase change: the steepest fall of the score by ln(tokens) with the neighbouring intervals at least {self.share:g} "
            f"as steep, if it falls by {nats} or more there, at least {self.steeper:g} times as fast as over the whole training"
        )


def counted(tokens: np.ndarray, score: np.ndarray, rule: PhaseRule) -> np.ndarray:
    """Indices of the points that are not skipped, in the order of training."""
    points: list[int] = []
    for i in np.flatnonzero((tokens >= max(rule.first, 1)) & np.isfinite(score)).tolist():
        if not points or tokens[i] >= max(rule.apart * tokens[points[-1]], tokens[points[-1]] + 1):
            points.append(i)
    return np.array(points, dtype=np.int64)


def phase_change(tokens: np.ndarray, score: np.ndarray, rule: PhaseRule) -> tuple[int, int] | None:
    """(first, last) index of the window; None if `score` [point] at `tokens` [point] has no phase change."""
    points = counted(tokens, score, rule)
    if len(points) < 2:
        return None
    at, time = score[points], np.log(tokens[points].astype(float))
    slope = np.diff(at) / np.diff(time)
    first = last = int(slope.argmin())
    if slope[first] >= 0:
        return None
    steep = slope <= rule.share * slope[first]
    while first > 0 and steep[first - 1]:
        first -= 1
    while last + 1 < len(slope) and steep[last + 1]:
        last += 1
    fall = at[last + 1] - at[first]
    evenly = min(at[-1] - at[0], 0.0) / (time[-1] - time[0])
    if -fall < rule.threshold or fall / (time[last + 1] - time[first]) > rule.steeper * evenly:
        return None
    return int(points[first]), int(points[last + 1])
