"""The contract of an analysis: a pure function from inputs and parameters to a frozen result.

An analysis is one file in this package:

    @dataclass(frozen=True)
    class MyParams: heads: tuple[Head, ...] = ()
    @dataclass(frozen=True, kw_only=True, eq=False)
    class MyResult(Result): values: np.ndarray          # [head, dest, src]
    @analysis(version=1, needs="tokens", lane="live", memory=…, refuse=…)
    def my_analysis(inputs: Inputs, p: MyParams, ctx: Ctx) -> MyResult: …

The decorator registers it under the function's name; the command line, the codec and the tests find it in the registry.
This is the door. The parts: `_results` (what it returns), `_contract` (what it is and is given), `_registry` (how it is found).
"""

from __future__ import annotations

from circuitlab.analysis._contract import (
    Analysis,
    AnyAnalysis,
    Ctx,
    Inputs,
    Need,
    NullContext,
    P,
    R,
    R_co,
    SeriesRef,
    TextRef,
    never_holds,
)
from circuitlab.analysis._labels import Axis, TokenText, axes_with_labels, token_texts
from circuitlab.analysis._registry import NO_HEADS, analyses, analysis, find_analysis, number_size
from circuitlab.analysis._results import (
    PLAIN,
    Column,
    Remainder,
    Result,
    Table,
    Unit,
    added,
    at_least,
    naming,
    over,
    read_only,
    scalar,
)

__all__ = [
    "NO_HEADS",
    "PLAIN",
    "Analysis",
    "AnyAnalysis",
    "Axis",
    "Column",
    "Ctx",
    "Inputs",
    "Need",
    "NullContext",
    "P",
    "R",
    "R_co",
    "Remainder",
    "Result",
    "SeriesRef",
    "Table",
    "TextRef",
    "TokenText",
    "Unit",
    "added",
    "analyses",
    "analysis",
    "at_least",
    "axes_with_labels",
    "find_analysis",
    "naming",
    "never_holds",
    "number_size",
    "over",
    "read_only",
    "scalar",
    "token_texts",
]
