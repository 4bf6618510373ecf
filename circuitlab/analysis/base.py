"""The contract of an analysis: a pure function from inputs and parameters to a frozen result.

An analysis is one file in this package:

    @dataclass(frozen=True)
    class MyParams: heads: tuple[Head, ...] = ()
    @dataclass(frozen=True, kw_only=True, eq=False)
    class MyResult(Result): values: np.ndarray          # [head, dest, src]
    @analysis(version=1, needs="tokens", lane="live", memory=…, refuse=…)
    def my_analysis(inputs: Inputs, p: MyParams, ctx: Ctx) -> MyResult: …

The decorator registers it under the function's name; the command line, the codec and the tests find it in the registry.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar, get_type_hints

import numpy as np

from circuitlab.errors import UsageError
from circuitlab.model.config import ModelConfig
from circuitlab.model.intervention import Intervention
from circuitlab.model.prompts import Prompt
from circuitlab.model.records.series_measures import SeriesMeasures
from circuitlab.model.run import Run
from circuitlab.model.subject import Conventions, Subject
from circuitlab.model.weights import Weights

P = TypeVar("P")
R = TypeVar("R", bound="Result")


@dataclass(frozen=True)
class Remainder:
    """What a decomposition leaves unexplained: `size` (largest absolute error), and `of` to judge it by, both in `unit`.

    `what` names `of`: the range of the whole, its largest entry, what the parts' sizes add up to.
    """

    size: float
    of: float
    unit: str
    what: str = ""

    def words(self) -> str:
        """For a caption."""
        beside = f" ({self.what} {self.of:.3g})" if self.what else ""
        return f"remainder {self.size:.1e} {self.unit}".rstrip() + beside


PLAIN = ("dimensionless", "probability", "share of attention", "share of tokens", "share of variance", "standard deviations")


@dataclass(frozen=True, eq=False)
class Column:
    """One column of a table: `values` is a numpy array (numbers or str) with one entry per row.

    `of` says what whole numbers stand for, so that texts can stand beside them: "token": ids of the vocabulary; "position": of
    the prompt; "tokens": texts of several ids; "count": a rank, an index. Of all of these a number below 0 is none.
    """

    name: str
    values: np.ndarray
    unit: str = ""
    of: Literal["", "token", "tokens", "position", "count"] = ""

    @property
    def title(self) -> str:
        """The name with the unit, but for shares, which their names say."""
        return f"{self.name} ({self.unit})" if self.unit and self.unit not in PLAIN else self.name

    def cells(self) -> list[Any]:
        """The entries as Python's values, None where there is none: NaN, and below 0 of what counts."""
        counts = self.of in ("token", "position", "count")
        none = lambda v: v is None or (v < 0 if counts else isinstance(v, float) and v != v)
        return [None if none(v) else v for v in self.values.tolist()]


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of equal length, the plain form of every result (CSV, copy table)."""

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        lengths = {len(c.values) for c in self.columns}
        if len(lengths) > 1:
            raise ValueError(f"columns of different lengths: {sorted(lengths)}")

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.columns[0].values) if self.columns else 0


def at_least(low: int, default: int) -> Any:
    """A parameter that is a count or a place among counts; a smaller one is refused wherever it comes from."""
    return dataclasses.field(default=default, metadata={"low": low})


def over(*axes: str, unit: str, none: bool = False, **default: Any) -> Any:
    """A field of a `Result` that is an array: the names of its axes, and the unit of its numbers, "dimensionless" for none.

    "…" stands for the axes that the result's own field `axes` names; "{field}" as a unit for what that field or property says.
    `none`: whole numbers of which one below 0 says that there is no value; files have nothing there.
    """
    return dataclasses.field(**default, metadata={"axes": axes, "unit": unit, "none": none})


def scalar(unit: str, default: Any = dataclasses.MISSING, none: bool = False) -> Any:
    """A field of a `Result` that is a number with a unit, which may be "{field}". `none`: as of `over`."""
    said = {} if default is dataclasses.MISSING else {"default": default}
    return dataclasses.field(**said, metadata={"unit": unit, "none": none})


Unit = str | Mapping[str, str]  # of all numbers of an array, or of each entry of the axis that has those names


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """What an analysis found. Subclasses add read-only numpy arrays, declared by `over`; NaN means not computed.

    What the model computes in single or double precision is kept in the same (`Conventions.dtype`).
    `conventions` are the words of the caption; `remainder` is None where nothing is decomposed; `done` < 1 marks a partial.
    """

    conventions: tuple[str, ...] = ()
    remainder: Remainder | None = None
    done: float = 1.0
    ACROSS: ClassVar[Mapping[str, str]] = {}  # units of what `across` gives that is no field, or not in the field's unit

    def __post_init__(self) -> None:
        for array in self.arrays().values():
            array.setflags(write=False)

    def arrays(self) -> dict[str, np.ndarray]:
        """The numpy fields by name."""
        pairs = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        return {name: value for name, value in pairs if isinstance(value, np.ndarray)}

    def axes_of(self, name: str) -> tuple[str, ...]:
        """The names of an array's axes. Raises `KeyError` where they are not declared."""
        said = _declared(type(self), name)["axes"]
        return tuple(axis for one in said for axis in (getattr(self, "axes", ()) if one == "…" else (one,)))

    def unit_of(self, name: str) -> Unit:
        """The unit of an array or a number, "dimensionless" of an array without one, "" of a number for which none is said.

        A mapping where entries of one axis have units of their own: from their names to those.
        """
        return self._unit(_declared(type(self), name).get("unit", ""))

    def _unit(self, unit: str) -> Unit:
        return getattr(self, unit[1:-1]) if unit.startswith("{") else unit

    def has_none(self, name: str) -> bool:
        """Whether an array or a number below 0 says that there is no value."""
        return bool(_declared(type(self), name).get("none", False))

    def unit_across(self, name: str) -> Unit:
        """The unit of what `across` calls by this name: what `ACROSS` says, or that of the field; "" where neither does."""
        return self._unit(self.ACROSS[name]) if name in self.ACROSS else self.unit_of(name)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(a.nbytes for a in self.arrays().values())

    def table(self) -> Table:
        """The result as rows and columns."""
        raise NotImplementedError(f"{type(self).__name__} has no table()")

    def across(self) -> Mapping[str, np.ndarray]:
        """What of it can be averaged over prompts, by name: arrays whose shape and meaning depend on no prompt."""
        return {}


@cache
def _declared(cls: type[Result], name: str) -> Mapping[str, Any]:
    return next((f.metadata for f in dataclasses.fields(cls) if f.name == name), {})


@dataclass(frozen=True)
class TextRef:
    """A text file that an analysis reads through the engine. `sha256` "" is filled in by the engine."""

    path: str
    sha256: str = ""


@dataclass(frozen=True)
class SeriesRef:
    """What was measured along a model's training. `source` as in `ModelRef`; `sha256` "" is filled in by the engine."""

    source: str
    sha256: str = ""


class Inputs(Protocol):
    """All that an analysis sees. `weights` stand under the subject's conventions; `memory` is the budget in bytes."""

    @property
    def subject(self) -> Subject: ...
    @property
    def weights(self) -> Weights: ...
    @property
    def memory(self) -> int: ...
    def presented(self, conventions: Conventions) -> Weights:
        """The same weights under other conventions, to stand beside."""
        ...

    def run(self, tokens: tuple[int, ...] | None = None, edits: tuple[Intervention, ...] | None = None) -> Run:
        """A forward pass, from the cache if it is there; None means the subject's own tokens or interventions."""
        ...

    def answer(self, analysis: Analysis[P, R], params: P) -> R:
        """The result of another analysis of this subject, through the same cache."""
        ...

    def at(self, tokens: tuple[int, ...], edits: tuple[Intervention, ...] = ()) -> Inputs:
        """The same model under the same conventions on another prompt."""
        ...

    def other(self, ref: SeriesRef) -> Inputs:
        """Another model that was measured, under the same conventions on the same prompt, without interventions."""
        ...

    def text(self, ref: TextRef) -> tuple[int, ...]:
        """The tokens of a text file."""
        ...

    def prompts(self, ref: TextRef) -> tuple[Prompt, ...]:
        """The prompts of a prompt set."""
        ...

    def series(self, ref: SeriesRef) -> SeriesMeasures:
        """What was measured along the training of a model, which need not be the subject's and is not opened."""
        ...


class Ctx(Protocol):
    """The way back from a running analysis to whoever asked."""

    @property
    def previous(self) -> Result | None:
        """What a cancelled answer to the same request already holds."""
        ...

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Say how far the work is, at least every 200 ms of it. Raises `Cancelled`."""
        ...

    def partial(self, result: Result) -> None:
        """Show a snapshot with `done` < 1."""
        ...


class NullContext:
    """A `Ctx` that nobody listens to: for calls from code and from tests."""

    previous: Result | None = None

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Nothing."""

    def partial(self, result: Result) -> None:
        """Nothing."""


Memory = Callable[[ModelConfig, int, Any], int] | Callable[[ModelConfig, int, Any, str], int]


def _of_dtype(memory: Callable[..., int]) -> Callable[[ModelConfig, int, Any, str], int]:
    """An estimate as it is asked for, whether or not it depends on the dtype; `dtype` may be left out: float32."""
    if len(inspect.signature(memory).parameters) > 3:
        return lambda config, n, p, dtype="float32": memory(config, n, p, dtype)
    return lambda config, n, p, dtype="float32": memory(config, n, p)


def number_size(dtype: str) -> int:
    """Bytes of one number of what is computed in."""
    return 8 if dtype == "float64" else 4


def _never(config: ModelConfig, p: Any) -> str | None:
    return None


@dataclass(frozen=True, eq=False, repr=False)
class Analysis(Generic[P, R]):
    """A registered analysis, equal to itself alone. `needs` "weights": keyed without tokens and interventions.

    `lane` "live": cheap, conflated while dragging; "slow": restarted, with progress. `refuse(config, params)` is the reason
    why it does not apply, or None; `memory(config, n_tokens, params)` is its estimate in bytes, or `memory(…, dtype)` where it
    depends on what is computed in. `doubles`: whether it computes in float64 in between, which not every device has.
    `any_prompt`: of a prompt that the model cannot take it answers why; all others are refused before their memory is asked for.
    `derived`: an intermediate of other analyses, computed and cached like any, that lists of what can be asked leave out.
    """

    name: str
    run: Callable[[Inputs, P, Ctx], R]
    params: type[P]
    result: type[R]
    version: int
    needs: Literal["weights", "tokens"]
    lane: Literal["live", "slow"]
    memory: Callable[[ModelConfig, int, P, str], int]
    refuse: Callable[[ModelConfig, P], str | None] = _never
    doubles: bool = True
    any_prompt: bool = False
    derived: bool = False

    def __repr__(self) -> str:
        return f"<analysis {self.name}>"

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (inspect.getdoc(self.run) or "").partition("\n")[0]


_REGISTRY: dict[str, Analysis[Any, Any]] = {}


NO_HEADS = "this model has no layers, and so no heads."


def _with_heads(refuse: Callable[[ModelConfig, Any], str | None]) -> Callable[[ModelConfig, Any], str | None]:
    """What an analysis of heads refuses: a model without layers before anything else."""
    return lambda config, p: refuse(config, p) if config.n_layers else NO_HEADS


def analysis(
    *,
    version: int,
    needs: Literal["weights", "tokens"],
    lane: Literal["live", "slow"],
    memory: Memory,
    refuse: Callable[[ModelConfig, Any], str | None] = _never,
    doubles: bool = True,
    of_heads: bool = False,
    any_prompt: bool = False,
    derived: bool = False,
) -> Callable[[Callable[[Inputs, P, Ctx], R]], Analysis[P, R]]:
    """Register a function `(inputs, p: Params, ctx) -> Result` as the analysis of its own name.

    `of_heads`: it says nothing of a model without layers, and refuses it in one sentence that all of them share.
    """

    def register(function: Callable[[Inputs, P, Ctx], R]) -> Analysis[P, R]:
        hints = get_type_hints(function)
        registered = Analysis[P, R](
            name=function.__name__,
            run=function,
            params=hints["p"],
            result=hints["return"],
            version=version,
            needs=needs,
            lane=lane,
            memory=_of_dtype(memory),
            refuse=_with_heads(refuse) if of_heads else refuse,
            doubles=doubles,
            any_prompt=any_prompt,
            derived=derived,
        )
        if registered.name in _REGISTRY:
            raise ValueError(f"two analyses are called {registered.name}")
        _REGISTRY[registered.name] = registered
        return registered

    return register


@cache
def _walk() -> None:
    import circuitlab.analysis as package

    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)


def analyses() -> dict[str, Analysis[Any, Any]]:
    """Every registered analysis by name, found by walking this package."""
    _walk()
    return dict(sorted(_REGISTRY.items()))


def find_analysis(name: str) -> Analysis[Any, Any]:
    """One analysis by name. Raises `UsageError` with the names there are."""
    if name in _REGISTRY:
        return _REGISTRY[name]
    known = analyses()
    if name not in known:
        listed = " ".join(name for name, entry in known.items() if not entry.derived)
        raise UsageError("There is no such analysis.", expected=listed, got=repr(name))
    return known[name]


def read_only(array: np.ndarray | Sequence[Any], dtype: Any = None) -> np.ndarray:
    """A contiguous array that cannot be written to."""
    made = np.ascontiguousarray(array, dtype=dtype)
    made.setflags(write=False)
    return made
