"""The result of a faithfulness test: metric values, the shares derived from them, and random sets for comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from circuitlab.analysis.base import Column, Result, Table, over, scalar
from circuitlab.analysis.interventions._other_sets import n_others
from circuitlab.analysis.interventions.edges import Edge
from circuitlab.analysis.ordering import Ranks, rank_in
from circuitlab.model.subject import Head

SMALLEST = 1e-5  # of |F(all)| + |F(∅)|: a smaller difference is rounding


def names_of(members: np.ndarray) -> tuple[str, ...]:
    """The names of heads [member, 2] or edges [member, 5]."""
    return tuple(str(Edge.of(m) if len(m) == 5 else Head(*m)) for m in members.tolist())


@dataclass(frozen=True, kw_only=True, eq=False)
class KeepOnlyResult(Result):
    """Metric values F in `unit`: `intact` F(all), `bare` F(∅), `circuit` F(S), `without` F(all ∖ S); NaN: not computed yet.

    `members` int [member, 2 or 5]: the circuit S, heads as (layer, head) or edges as numbered in `edges`; `left_out` [member]:
    F(S ∖ m). Random sets of the same size, no two alike and none of them S: `random_members` int [sample, member, 2 or 5];
    `random_kept`, `random_cut` [sample]: F with only that set left, and with only that set ablated. `of`: the number of heads or
    edges in all.
    """

    intact: float = scalar("{unit}")
    bare: float = scalar("{unit}")
    circuit: float = scalar("{unit}")
    without: float = scalar("{unit}")
    members: np.ndarray = over("member", "what it is", unit="index", none=True)
    left_out: np.ndarray = over("member", unit="{unit}")
    random_members: np.ndarray = over("sample", "member", "what it is", unit="index", none=True)
    random_kept: np.ndarray = over("sample", unit="{unit}")
    random_cut: np.ndarray = over("sample", unit="{unit}")
    unit: str
    of: int
    ACROSS: ClassVar = dict.fromkeys(
        ("faithfulness", "completeness", "minimality", "random_faithfulness", "random_completeness"), "dimensionless"
    )

    @property
    def are_edges(self) -> bool:
        """Whether members are edges; heads otherwise."""
        return self.members.shape[1] == 5

    @property
    def names(self) -> tuple[str, ...]:
        """The members of the circuit by name."""
        return names_of(self.members)

    @property
    def random_names(self) -> tuple[str, ...]:
        """The members of each random set, by name."""
        return tuple(map(" ".join, map(names_of, self.random_members)))

    def entries_along(self, axis: str) -> Sequence[str] | None:
        names = {"member": lambda: self.names, "sample": lambda: self.random_names}
        return names[axis]() if axis in names else None

    @property
    def all_others(self) -> bool:
        """Whether the random sets are all other sets of the same size; otherwise they are drawn from them."""
        return len(self.random_members) == n_others(self.of, len(self.members))

    @property
    def whole(self) -> float:
        """F(all) − F(∅); NaN if it is too small to divide by."""
        size = abs(self.intact) + abs(self.bare)
        difference = self.intact - self.bare
        return difference if abs(difference) > SMALLEST * size else float("nan")

    @property
    def faithfulness(self) -> float:
        """(F(S) − F(∅)) / (F(all) − F(∅)) of the circuit."""
        return (self.circuit - self.bare) / self.whole

    @property
    def completeness(self) -> float:
        """(F(all) − F(all ∖ S)) / (F(all) − F(∅)) of the circuit."""
        return (self.intact - self.without) / self.whole

    @property
    def minimality(self) -> np.ndarray:
        """[member]: the faithfulness lost when this head or edge leaves the circuit."""
        return (self.circuit - self.left_out) / self.whole

    @property
    def random_faithfulness(self) -> np.ndarray:
        """[sample]: the faithfulness of each random set."""
        return (self.random_kept - self.bare) / self.whole

    @property
    def random_completeness(self) -> np.ndarray:
        """[sample]: the completeness of each random set."""
        return (self.intact - self.random_cut) / self.whole

    def rank(self, name: str) -> tuple[Ranks, int]:
        """The rank of the circuit's "faithfulness" or "completeness" among the random sets and itself, and how many these are."""
        own, others = getattr(self, name), getattr(self, f"random_{name}")
        every = np.append(others[~np.isnan(others)], own)
        return Ranks(*map(int, rank_in(every, own))), len(every)

    def table(self) -> Table:
        """The circuit, the circuit without each of its members, then each random set."""
        names = ["circuit", *(f"without {name}" for name in self.names), *self.random_names]
        kind = ["circuit", *["left out"] * len(self.members), *["random"] * len(self.random_members)]
        nothing = np.full(len(self.members), np.nan)
        faithful = np.concatenate([[self.faithfulness], self.faithfulness - self.minimality, self.random_faithfulness])
        complete = np.concatenate([[self.completeness], nothing, self.random_completeness])
        values = np.concatenate([[self.circuit], self.left_out, self.random_kept])
        return Table(
            (
                Column("kind", np.array(kind)),
                Column("edges" if self.are_edges else "heads", np.array(names)),
                Column("value", values, self.unit),
                Column("faithfulness", faithful),
                Column("completeness", complete),
            )
        )

    def across(self) -> Mapping[str, np.ndarray]:
        """Faithfulness and completeness, of the circuit and of the random sets [sample], and minimality [member]."""
        return {
            "faithfulness": np.array(self.faithfulness),
            "completeness": np.array(self.completeness),
            "minimality": self.minimality,
            "random_faithfulness": self.random_faithfulness,
            "random_completeness": self.random_completeness,
        }
