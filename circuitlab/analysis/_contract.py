"""What an analysis is: its declaration, what it is given, and the way back to its caller."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from circuitlab.analysis._results import Result
from circuitlab.analysis.cost import one_run
from circuitlab.model.config import ModelConfig
from circuitlab.model.intervention import Intervention
from circuitlab.model.prompts import Prompt
from circuitlab.model.records.series_measures import SeriesMeasures
from circuitlab.model.run import Run
from circuitlab.model.subject import Conventions, Subject
from circuitlab.model.weights import Weights
from circuitlab.plugins.declaring import Plugin

P = TypeVar("P")
R = TypeVar("R", bound=Result)
R_co = TypeVar("R_co", bound=Result, covariant=True)  # of what holds a result, and never takes one


# what an analysis reads of its subject: the prompt and its interventions, the interventions on prompts of its own, or neither
Need = Literal["weights", "edits", "tokens"]


@dataclass(frozen=True)
class TextRef:
    """A text file that an analysis reads through the engine, which fills in an empty `sha256`."""

    path: str
    sha256: str = ""


@dataclass(frozen=True)
class SeriesRef:
    """The measures along a model's training. `source` as in `ModelRef`; the engine fills in an empty `sha256`."""

    source: str
    sha256: str = ""


class Inputs(Protocol):
    """The inputs of an analysis. `weights` are under the subject's conventions; `memory` is the budget in bytes."""

    @property
    def subject(self) -> Subject: ...
    @property
    def weights(self) -> Weights: ...
    @property
    def memory(self) -> int: ...
    def presented(self, conventions: Conventions) -> Weights:
        """The same weights under other conventions."""
        ...

    def convention_words(self) -> tuple[str, ...]:
        """The convention strip of a caption: what the subject's conventions do to this model."""
        ...

    def run(self, tokens: tuple[int, ...] | None = None, edits: tuple[Intervention, ...] | None = None) -> Run:
        """A forward pass, cached; None means the subject's own tokens or interventions."""
        ...

    def answer(self, analysis: Analysis[P, R], params: P) -> R:
        """The result of another analysis of this subject, through the same cache."""
        ...

    def at(self, tokens: tuple[int, ...], edits: tuple[Intervention, ...] = ()) -> Inputs:
        """The same model under the same conventions on another prompt."""
        ...

    def other(self, ref: SeriesRef) -> Inputs:
        """Another measured model, under the same conventions on the same prompt, without interventions."""
        ...

    def text(self, ref: TextRef) -> Sequence[int]:
        """The tokens of a text file, however long: 4 bytes each. Ticks while it is read."""
        ...

    def prompts(self, ref: TextRef) -> tuple[Prompt, ...]:
        """The prompts of a prompt set."""
        ...

    def series(self, ref: SeriesRef) -> SeriesMeasures:
        """The measures along the training of a model, which need not be the subject's and is not opened."""
        ...


class Ctx(Protocol):
    """The way back from a running analysis to its caller."""

    @property
    def previous(self) -> Result | None:
        """The partial result of a cancelled answer to the same request."""
        ...

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Report progress, at least every 200 ms. Raises `Cancelled`."""
        ...

    def partial(self, result: Result) -> None:
        """Show a snapshot with `done` < 1."""
        ...


class NullContext:
    """A `Ctx` without a listener: for calls from code and from tests."""

    previous: Result | None = None

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Nothing."""

    def partial(self, result: Result) -> None:
        """Nothing."""


def never_holds(version: int, config: ModelConfig, p: object) -> bool:
    """For analyses none of whose earlier versions is known to have answered the same."""
    return False


def none_wider(p: object) -> tuple[Any, ...]:
    """The `wider` of an analysis none of whose answers has all numbers of another."""
    return ()


def never_refused(config: ModelConfig, p: object) -> str | None:
    """The `refuse` of an analysis that applies to every model."""
    return None


@dataclass(frozen=True, eq=False, repr=False)
class Analysis(Generic[P, R_co]):
    """A registered analysis, equal only to itself. `needs` "weights": its cache key has no tokens and no interventions.

    `lane` "live": cheap, conflated while dragging; "slow": restarted, with progress. `refuse(config, params)`: why it does not
    apply, or None; `memory(config, n_tokens, params)`, or `memory(…, dtype)` if it depends on the dtype: an estimate in bytes.
    `doubles`: whether it computes in float64 internally, which not every device supports. `any_prompt`: it answers for prompts
    that the model cannot take, with the reason; for all other analyses these are refused before their memory is estimated.
    `holds(version, config, params)`: whether what an earlier version of it answered is what it would answer now.
    `wider(params)`: other parameters whose answer has all numbers of the answer to these; one that is held is given for it.
    `cost(config, n_tokens, params)`: about how many operations it takes (`analysis/cost.py`); the cheapest slow one goes first.
    `derived`: an intermediate of other analyses, computed and cached like any, but not listed among the analyses.
    `plugin`: the plug-in that adds it; None for one of CircuitLab's own.
    """

    name: str
    run: Callable[[Inputs, P, Ctx], R_co]
    params: type[P]
    result: type[R_co]
    version: int
    needs: Need
    lane: Literal["live", "slow"]
    memory: Callable[[ModelConfig, int, P, str], int]
    refuse: Callable[[ModelConfig, P], str | None] = never_refused
    doubles: bool = True
    any_prompt: bool = False
    holds: Callable[[int, ModelConfig, P], bool] = never_holds
    wider: Callable[[P], tuple[P, ...]] = none_wider
    cost: Callable[[ModelConfig, int, P], float] = one_run
    derived: bool = False
    plugin: Plugin | None = None

    def __repr__(self) -> str:
        return f"<analysis {self.name}>"

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (inspect.getdoc(self.run) or "").partition("\n")[0]


AnyAnalysis: TypeAlias = Analysis[Any, Any]  # one that is found by name: only it knows its parameters and its result
