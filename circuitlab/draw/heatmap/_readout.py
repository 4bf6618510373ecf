"""What is said of a cell of a heatmap under the pointer."""

from __future__ import annotations

from circuitlab.draw.pointing.gestures import number
from circuitlab.figures.marks import Axis, Heatmap


def cell_words(mark: Heatmap, row: int, col: int) -> str:
    """Where it is on both axes, and the value; of a tile no value."""
    names = _step(mark.y, row), _step(mark.x, col)
    heads = mark.y.label == "layer" and mark.x.label == "head"
    where = "".join(a.ticks[i] for a, i in ((mark.y, row), (mark.x, col))) if heads else " · ".join(names)
    hint = mark.hints.get((row, col), "")
    hint = f" · {hint}" if hint else ""
    if mark.tiles:
        return f"{where}{hint}"
    written = "" if mark.texts is None else f" · ‘{mark.texts[row, col]}’"
    return f"{where}{written} · {number(float(mark.values[row, col]), mark.unit, mark.blank)}{hint}"


def _step(axis: Axis, i: int) -> str:
    if axis.tokens and i < len(axis.ticks):
        return f"{axis.label} {i} ‘{axis.ticks[i]}’"
    if i < len(axis.ticks):
        return f"{axis.label} {axis.ticks[i]}".strip()
    return f"{axis.label} {i}".strip()
