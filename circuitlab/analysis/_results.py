"""Results of analyses: frozen dataclasses of declared arrays and numbers, their tables, and the remainder of a decomposition."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import DTypeLike

from circuitlab.caption_parts import About, Essential, Sense
from circuitlab.counting import number


@dataclass(frozen=True)
class Remainder:
    """What a decomposition leaves unexplained: `size` (largest absolute error), and `of` to judge it by, both in `unit`.

    `what` names `of`: the range of the whole, its largest entry, or the sum of the parts' sizes.
    """

    size: float
    of: float
    unit: str
    what: str = ""

    def words(self) -> Essential:
        """For a caption."""
        scale = f" ({self.what} {number(self.of, '.3g')})" if self.what else ""
        return Essential(f"remainder {number(self.size, '.1e')} {self.unit}".rstrip() + scale, Sense(About.REMAINDER))


PLAIN = ("dimensionless", "probability", "share of attention", "share of tokens", "share of variance", "standard deviations")


@dataclass(frozen=True, eq=False)
class Column:
    """One column of a table: `values` is a numpy array (numbers or str) with one entry per row.

    `of` says what integers stand for, so that texts can be shown beside them: "token": ids of the vocabulary; "position": in the
    prompt; "tokens": texts of several ids; "count": a rank or an index. A number below 0 then stands for no value. `whole`:
    floats that are whole numbers or NaN.
    """

    name: str
    values: np.ndarray
    unit: str = ""
    of: Literal["", "token", "tokens", "position", "count"] = ""
    whole: bool = False

    @property
    def title(self) -> str:
        """The name with its unit; without the unit for shares and other plain numbers."""
        return f"{self.name} ({self.unit})" if self.unit and self.unit not in PLAIN else self.name

    def cells(self) -> list[Any]:
        """The entries as Python values; None for NaN and, in columns with `of`, for numbers below 0."""
        counts = self.of in ("token", "position", "count")
        none = lambda v: v is None or (v < 0 if counts else isinstance(v, float) and v != v)
        return [None if none(v) else int(v) if self.whole else v for v in self.values.tolist()]


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of equal length, the tabular form of every result (CSV, Copy table).

    `left_out`: which of all rows these are, in words; "" where they are all that the result has.
    """

    columns: tuple[Column, ...]
    left_out: str = ""

    def __post_init__(self) -> None:
        lengths = {len(c.values) for c in self.columns}
        if len(lengths) > 1:
            raise ValueError(f"columns of different lengths: {sorted(lengths)}")

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.columns[0].values) if self.columns else 0

    def with_rows(self, values: Sequence[Sequence[object] | np.ndarray]) -> Table:
        """With further rows behind its own. `values`: those of each column."""
        more = [np.asarray(value, dtype=c.values.dtype) for c, value in zip(self.columns, values, strict=True)]
        joined = (np.concatenate([c.values, value]) for c, value in zip(self.columns, more, strict=True))
        columns = tuple(dataclasses.replace(c, values=v) for c, v in zip(self.columns, joined, strict=True))
        return dataclasses.replace(self, columns=columns)


def at_least(low: int, default: int) -> Any:
    """A parameter that is a count or an index, at least `low`; smaller values are refused wherever they come from."""
    return dataclasses.field(default=default, metadata={"low": low})


def added(since: int, default: Any) -> Any:
    """A parameter that the analysis has since a version: what an earlier one answered is of its default."""
    return dataclasses.field(default=default, metadata={"since": since})


def over(*axes: str, unit: str, none: bool = False, since: int = 0, **default: Any) -> Any:
    """A field of a `Result` that is an array: the names of its axes, and the unit of its numbers, "dimensionless" for none.

    "…" stands for the axes in the result's own field `axes`; a unit "{field}" for the value of that field or property.
    `none`: integers of which one below 0 means no value; files leave it empty. `since`: the version of the analysis that has it
    first: a stored answer of an earlier one that still holds has no value there.
    """
    return dataclasses.field(**default, metadata={"axes": axes, "unit": unit, "none": none, "since": since})


def scalar(unit: str, default: Any = dataclasses.MISSING, none: bool = False, since: int = 0) -> Any:
    """A field of a `Result` that is a number with a unit, which may be "{field}". `none` and `since` as in `over`."""
    options = {} if default is dataclasses.MISSING else {"default": default}
    return dataclasses.field(**options, metadata={"unit": unit, "none": none, "since": since})


def naming(axis: str, default: Any = dataclasses.MISSING, further: bool = False) -> Any:
    """A field of a `Result` that is a tuple of texts: the names of the entries along an axis of its arrays.

    `further`: what else is said of them, beside their names.
    """
    options = {} if default is dataclasses.MISSING else {"default": default}
    return dataclasses.field(**options, metadata={"naming": axis, "further": further})


Unit = str | Mapping[str, str]  # of all numbers of an array, or of each entry of the axis that has those names


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """The result of an analysis. Subclasses add read-only numpy arrays, declared by `over`; NaN means not computed.

    Arrays have the precision in which the model computes (`Conventions.dtype`). `conventions`: the words of the caption;
    `remainder`: None if nothing is decomposed; `done` < 1 marks a partial result.
    """

    conventions: tuple[str, ...] = ()
    remainder: Remainder | None = None
    done: float = 1.0
    ACROSS: ClassVar[Mapping[str, str]] = {}  # units of arrays in `across` that are no fields, or not in the field's unit

    FRAME_IS_TABLE: ClassVar[bool] = False  # arrays of different axes are read together, as rows of the table
    ENTRIES: ClassVar[Mapping[str, Sequence[str]]] = {}  # names along axes that have the same entries in every result

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__repr__ = Result.__repr__  # a dataclass keeps the one that its class has; its own would print all arrays

    def __post_init__(self) -> None:
        for array in self.arrays().values():
            array.setflags(write=False)

    def __repr__(self) -> str:
        """What there is, and no numbers: those may be millions."""
        return "\n".join((f"<{type(self).__name__}>", *(f"  {line}" for line in self.outline())))

    def outline(self) -> list[str]:
        """A line for each array, with axes, type and unit."""
        names = self.arrays()
        width = max(map(len, names), default=0)
        return [f"{name.ljust(width)}  {'  '.join(self.described(name))}" for name in names]

    def described(self, name: str) -> tuple[str, str, str]:
        """An array's axes with their lengths, its type, and its unit: ("[head 1, destination 5]", "float32", "logit")."""
        array, unit = self.arrays()[name], self.unit_of(name)
        axes = ", ".join(f"{axis} {size}" for axis, size in zip(self.axes_of(name), array.shape, strict=True))
        words = unit if isinstance(unit, str) else ", ".join(dict.fromkeys(unit.values()))
        kind = {"U": "text", "b": "bool"}.get(array.dtype.kind, str(array.dtype))
        return f"[{axes}]", kind, words

    def arrays(self) -> dict[str, np.ndarray]:
        """The numpy fields by name."""
        pairs = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        return {name: value for name, value in pairs if isinstance(value, np.ndarray)}

    def axes_of(self, name: str) -> tuple[str, ...]:
        """The names of an array's axes. Raises `KeyError` if they are not declared."""
        declared = _declared(type(self), name)["axes"]
        return tuple(axis for one in declared for axis in (getattr(self, "axes", ()) if one == "…" else (one,)))

    def unit_of(self, name: str) -> Unit:
        """The unit of an array or a number: "dimensionless" for an array without one, "" for a number without one.

        A mapping from names to units if the entries of one axis have units of their own.
        """
        return self._unit(_declared(type(self), name).get("unit", ""))

    def _unit(self, unit: str) -> Unit:
        return getattr(self, unit[1:-1]) if unit.startswith("{") else unit

    def entries_along(self, axis: str) -> Sequence[str] | np.ndarray | None:
        """What the entries along an axis are, where that follows from the result's arrays: names, or whole numbers that do not
        begin with 0; None where fields and `ENTRIES` say all."""
        return None

    def naming(self, axis: str) -> dict[str, tuple[str, ...]]:
        """Names of the entries along an axis, by field, those first that are more than said of them; {} if none are declared."""
        fields = sorted(
            (f for f in dataclasses.fields(self) if f.metadata.get("naming") == axis), key=lambda f: f.metadata["further"]
        )
        always = {axis: tuple(self.ENTRIES[axis])} if axis in self.ENTRIES else {}
        return always | {f.name: getattr(self, f.name) for f in fields}

    def has_none(self, name: str) -> bool:
        """Whether a value below 0 in this array or number means no value."""
        return bool(_declared(type(self), name).get("none", False))

    def unit_across(self, name: str) -> Unit:
        """The unit of an array in `across`: from `ACROSS`, else the field's; "" if neither has one."""
        return self._unit(self.ACROSS[name]) if name in self.ACROSS else self.unit_of(name)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(a.nbytes for a in self.arrays().values())

    def table(self) -> Table:
        """The result as rows and columns."""
        raise NotImplementedError(f"{type(self).__name__} has no table()")

    def table_beside(self, other: Result) -> Table:
        """`table`, with the rows that the table of `other` lists, as far as they are known; ids mean the same in both."""
        return self.table()

    def across(self) -> Mapping[str, np.ndarray]:
        """Arrays that can be averaged over prompts, by name: their shape and meaning do not depend on the prompt."""
        return {}


@cache
def _declared(cls: type[Result], name: str) -> Mapping[str, Any]:
    return next((f.metadata for f in dataclasses.fields(cls) if f.name == name), {})


def read_only(array: np.ndarray | Sequence[object], dtype: DTypeLike | None = None) -> np.ndarray:
    """A contiguous array that cannot be written to."""
    frozen = np.ascontiguousarray(array, dtype=dtype)
    frozen.setflags(write=False)
    return frozen
