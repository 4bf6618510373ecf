"""The loss of tokens that the prompt has had before, beside that of tokens which are new in it.

With L_i = −ln p(t_i | t_0 … t_i−1), R the predicted positions whose token is at an earlier position, and N the others:

    mean L = |R|/n · mean_R L + |N|/n · mean_N L,   n = |R| + |N|

A model with induction heads has mean_R L far below mean_N L on text that repeats (Olsson et al. 2022). What the two sides of the
equation differ by is the remainder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from circuitlab.analysis.base import Column, Ctx, Inputs, Remainder, Result, Table, analysis, find_analysis, over, read_only

KINDS = ("repeated", "new")


@dataclass(frozen=True)
class RepeatedLossParams:
    """There is nothing to choose."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RepeatedLossResult(Result):
    """`loss` [kind] nats, NaN where there is no such token; `count` [kind]: how many predicted tokens there are."""

    ENTRIES: ClassVar[Mapping[str, Sequence[str]]] = {"kind": KINDS}

    loss: np.ndarray = over("kind", unit="nats")
    count: np.ndarray = over("kind", unit="tokens")

    def table(self) -> Table:
        """One row per kind."""
        return Table(
            (
                Column("tokens", np.array(KINDS)),
                Column("count", self.count, of="count"),
                Column("loss", self.loss, "nats"),
            )
        )


def shares(loss: np.ndarray, repeated: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(mean loss [kind], count [kind]) of losses [pos] by whether their token has been there before [pos]."""
    kinds = (repeated, ~repeated)
    means = [loss[kind].mean() if kind.any() else np.nan for kind in kinds]
    return np.array(means), np.array([int(kind.sum()) for kind in kinds])


@analysis(version=1, needs="tokens", lane="live", memory=lambda config, n, p: 32 * n)
def repeated_loss(inputs: Inputs, p: RepeatedLossParams, ctx: Ctx) -> RepeatedLossResult:
    """Mean loss of the prompt's tokens that it has had before, and of those that are new in it."""
    losses = find_analysis("token_loss")
    every = inputs.answer(losses, losses.params()).loss.astype(np.float64)
    tokens = inputs.subject.tokens
    predicted = np.isfinite(every)
    repeated = np.array([token in tokens[:i] for i, token in enumerate(tokens)], dtype=bool)[predicted]
    loss, count = shares(every[predicted], repeated)
    whole = float(every[predicted].mean()) if predicted.any() else 0.0
    sum_of_parts = float(np.nansum(loss * count) / max(1, count.sum()))
    return RepeatedLossResult(
        loss=read_only(loss),
        count=read_only(count),
        conventions=inputs.convention_words(),
        remainder=Remainder(abs(whole - sum_of_parts), abs(whole), "nats", "the mean loss"),
    )
