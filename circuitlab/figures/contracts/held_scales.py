"""Scales that only widen: while the steps of a training are played or dragged, one colour means one number in every frame."""

from __future__ import annotations

from dataclasses import replace

from circuitlab.caption_parts import Essential, reworded
from circuitlab.figures.contracts.shared_scales import Levels, ends, figured, union
from circuitlab.figures.marks import Figure, Heatmap, Mark, RowColumn, Rows, Tokens


class HeldScales:
    """The widest levels that each map, text and column has had since `forget`."""

    def __init__(self) -> None:
        self._widest: dict[tuple[object, ...], Levels] = {}
        self._subject: object = None

    def forget(self) -> None:
        """Start anew: the next figure has its own scale."""
        self._widest.clear()

    def held(self, figure: Figure, subject: object = None) -> Figure:
        """The figure on scales no narrower than before; its caption says so and gives its own levels.

        `subject`: what the figure is of, except for the training step; another subject starts anew.
        """
        if subject != self._subject:
            self.forget()
            self._subject = subject
        if not figure.grid:
            return figure
        widened = {mark: self._wide(mark) for mark in figure.marks()}
        pairs = [(mark, wide) for mark, wide in widened.items() if wide is not mark]
        if not pairs:
            return figure
        caption, own_ranges = figure.caption_parts, dict[str, None]()
        for mark, wide in pairs:
            if isinstance(mark, Heatmap | Tokens) and isinstance(wide, Heatmap | Tokens):
                caption = tuple(reworded(part, part.replace(ends(mark), ends(wide))) for part in caption)
                own_range = _range_words(mark.levels)
                own_ranges[f"{mark.name} {own_range}" if len(figure.marks()) > 1 else own_range] = None
        words = Essential(f"scale held (this step: {', '.join(own_ranges)})") if own_ranges else ""
        grid = tuple(tuple(widened[mark] for mark in row) for row in figure.grid)
        return replace(figure, grid=grid, caption_parts=caption).with_caption(words)

    def _wide(self, mark: Mark) -> Mark:
        if isinstance(mark, Rows):
            columns = tuple(self._column(mark, c) for c in mark.columns)
            return mark if all(a is b for a, b in zip(columns, mark.columns, strict=True)) else replace(mark, columns=columns)
        if not isinstance(mark, Heatmap | Tokens) or mark.rgb is not None:
            return mark
        levels = self._widened((type(mark), mark.name, mark.map, mark.unit), mark.levels)
        return mark if levels == mark.levels else replace(mark, levels=levels)

    def _column(self, mark: Rows, column: RowColumn) -> RowColumn:
        if column.map is None and not column.bar:
            return column
        levels = self._widened((mark.name, column.name, column.map), column.levels)
        return column if levels == column.levels else replace(column, levels=levels)

    def _widened(self, key: tuple[object, ...], levels: Levels) -> Levels:
        self._widest[key] = widest = union(self._widest.get(key, levels), levels)
        return widest


def _range_words(levels: Levels) -> str:
    low, high = levels
    return f"± {figured(high, 2)}" if low == -high else f"{figured(low, 2)} to {figured(high, 2)}"
