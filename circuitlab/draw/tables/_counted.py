"""How many rows of a table are seen, of how many there are: one count, in the window, on a stage and on paper alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circuitlab.figures.marks import Rows
from circuitlab.figures.marks.texts import ALONE


def n_terms(mark: Rows, rows: Sequence[int] | np.ndarray) -> int:
    """How many of these rows are no sum over others."""
    return int((mark.ids[np.asarray(rows, dtype=np.int64), 0] != ALONE).sum()) if len(rows) else 0


def counted(mark: Rows, rows: Sequence[int] | np.ndarray, before: int = 0) -> str:
    """“11 of 4,096” where not all rows are seen, else "".

    `rows`: which of the mark's are seen; `before`: so many stand above them, scrolled out of sight.
    """
    n_seen = n_terms(mark, rows)
    total = max(mark.total, n_terms(mark, range(len(mark.ids))))
    if n_seen >= total:
        return ""
    if before and n_seen:
        return f"{before + 1:,}–{before + n_seen:,} of {total:,}"
    above_gap = mark.gap is not None and 0 < len(rows) <= mark.gap and list(rows) == list(range(len(rows)))
    return f"the {n_seen:,} largest of {total:,}" if above_gap else f"{n_seen:,} of {total:,}"
