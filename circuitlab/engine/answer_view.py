"""What an answer shows of itself in a terminal and in a notebook: what was asked, its arrays, and a corner of their numbers.

Only that corner is read, so that an answer of any size shows itself at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from circuitlab import notebook_html as html
from circuitlab.analysis.base import Axis, Result, SeriesRef, Table, TextRef, TokenText, axes_with_labels, token_texts
from circuitlab.counting import number_of
from circuitlab.disk.paths import base_name
from circuitlab.model.intervention import Intervention
from circuitlab.model.subject import ModelRef

ROWS, COLUMNS, TOKENS, NUMBERS = 8, 8, 16, 8  # at most these are shown
TRIED = 64  # corners
_COMMON = ("conventions", "remainder", "done")


@dataclass(frozen=True, eq=False)
class AnswerView:
    """An answer in its parts. `edits`: the interventions that it depends on; `prompt`: the tokens that its arrays are of; `text`:
    that of a token; `words`: how far it came.
    """

    analysis: str
    params: Any
    model: ModelRef
    edits: tuple[Intervention, ...]
    result: Result
    prompt: tuple[int, ...] = ()
    text: TokenText | None = None
    words: tuple[str, ...] = ()

    def plain(self) -> str:
        """For a terminal."""
        lines = (*self.result.outline(), " · ".join(self._numbers()), " · ".join(self._ending()))
        return "\n".join((f"<Answer {' · '.join(self._asked())}", *(f"  {one}" for one in lines if one))) + ">"

    def html(self) -> str:
        """For a notebook."""
        analysis, *asked = self._asked()
        arrays = [(name, *self.result.described(name)) for name in self.result.arrays()]
        return html.box(
            html.line(html.bold(analysis), *map(html.text_html, asked)),
            html.line(*map(html.text_html, self._numbers())),
            self._corner(),
            html.table(("array", "axes", "type", "unit"), arrays) if arrays else "",
            html.line(*map(html.text_html, self._ending()), quiet=True),
        )

    def _asked(self) -> list[str]:
        return [*asked_words(self.analysis, self.params, self.model, self.edits, self.prompt, self.text), *self.words]

    def _numbers(self) -> list[str]:
        """The result's own numbers that are no arrays."""
        fields = (f.name for f in dataclasses.fields(self.result) if f.name not in _COMMON)
        values = ((name, getattr(self.result, name)) for name in fields)
        plain = [(name, value) for name, value in values if isinstance(value, (bool, int, float))]
        return [self._number(name, value) for name, value in plain[:NUMBERS]] + (["…"] if len(plain) > NUMBERS else [])

    def _number(self, name: str, value: object) -> str:
        unit = self.result.unit_of(name)
        text = _cell(value, self.result.has_none(name))
        return f"{name} {text} {unit if isinstance(unit, str) and text != 'none' else ''}".rstrip()

    def _ending(self) -> list[str]:
        remainder = [] if self.result.remainder is None else [str(self.result.remainder.words())]
        return [*self.result.conventions, *remainder]

    # the corner

    def _corner(self) -> str:
        name = main_array(self.result)
        if name is None:
            return table_corner(self.result.table())
        axes = axes_with_labels(self.result, name, self.prompt, self.text)
        return self._columns(axes[0]) if len(axes) == 1 else self._cells(name, axes)

    def _columns(self, axis: Axis) -> str:
        """All arrays along one axis beside each other."""
        heads, columns = [axis.name], [_texts(axis.entries[:ROWS])]
        for name, column in axis.more.items():
            if name not in self.result.arrays():
                heads.append(name)
                columns.append(_texts(column[:ROWS]))
        words = len(heads)
        for name in along(self.result, (axis.name,)):
            array = self.result.arrays()[name][:ROWS]
            heads.append(name)
            columns.append(_texts(array, self.result.has_none(name)))
            if self.text is not None and self.result.unit_of(name) == "token id":
                heads.append(f"{name} text")
                columns.append(list(token_texts(array, self.text)))
        shown = html.table(heads[:12], [row[:12] for row in zip(*columns, strict=True)], left=words)
        return shown + _left_out((axis, ROWS))

    def _cells(self, name: str, axes: Sequence[Axis]) -> str:
        """A corner of the array's last two axes, at the first entries of the others that have numbers there."""
        down, across = axes[-2:]
        at, corner = _corner(self.result.arrays()[name])
        fixed = ", ".join((name, *(f"{axis.name} {_entry(axis, i)}" for axis, i in zip(axes[:-2], at, strict=True))))
        texts = None if self.text is None or self.result.unit_of(name) != "token id" else token_texts(corner, self.text)
        heads = [f"{down.name} \\ {across.name}", *(_entry(across, i) for i in range(corner.shape[1]))]
        cells = [_texts(row, self.result.has_none(name)) for row in corner]
        if texts is not None:
            cells = [
                [f"{i} {t}".rstrip() for i, t in zip(*both, strict=True)] for both in zip(cells, texts.tolist(), strict=True)
            ]
        rows = [[_entry(down, i), *row] for i, row in enumerate(cells)]
        left = None if texts is not None else 1
        return html.line(html.text_html(fixed)) + html.table(heads, rows, left) + _left_out((down, ROWS), (across, COLUMNS))


def asked_words(
    analysis: str,
    params: object,
    model: ModelRef,
    edits: tuple[Intervention, ...] = (),
    prompt: tuple[int, ...] = (),
    text: TokenText | None = None,
) -> list[str]:
    """What is asked, in parts: the analysis, of which model, parameters that are not the defaults, interventions, the prompt."""
    fields = dataclasses.fields(params) if dataclasses.is_dataclass(params) and not isinstance(params, type) else ()
    changed = ((f.name, getattr(params, f.name), f.default) for f in fields)
    words = [f"{name} {html.shortened(_words(value), 60)}" for name, value, default in changed if value != default]
    cut = number_of(len(edits), "intervention") if edits else ""
    parts = (analysis, html.shortened(model.name, 60), *words, cut, prompt_words(prompt, text))
    return [part for part in parts if part]


def prompt_words(prompt: tuple[int, ...], text: TokenText | None = None) -> str:
    """How many tokens, and the first of them; "" without any."""
    if not prompt:
        return ""
    texts = [html.shortened(str(i) if text is None else text(i), 20) for i in prompt[:TOKENS]]
    return f"{number_of(len(prompt), 'token')}: {' '.join(texts)}{' …' if len(prompt) > TOKENS else ''}"


def main_array(result: Result) -> str | None:
    """The first array that is more than the numbers of heads or positions that others are of; None without one."""
    arrays = result.arrays()
    return next((name for name in arrays if result.unit_of(name) not in ("index", "position")), next(iter(arrays), None))


def table_corner(table: Table, most: int = 12) -> str:
    """The first rows and columns of a table."""
    first = [replace(c, values=c.values[:ROWS]) for c in table.columns[:most]]
    rows = list(zip(*(["" if v is None else _cell(v) for v in c.cells()] for c in first), strict=True))
    more = f"first {ROWS} of {number_of(table.n_rows, 'row')}" if table.n_rows > ROWS else ""
    return html.table([c.title for c in first], rows) + html.line(html.text_html(more), quiet=True) if rows else ""


def along(result: Result, axes: tuple[str, ...]) -> list[str]:
    """The arrays that have these axes."""
    return [name for name in result.arrays() if result.axes_of(name) == axes]


def _corner(array: np.ndarray) -> tuple[tuple[int, ...], np.ndarray]:
    """(Where in the axes before the last two, the corner there): the first of few that are tried in which not all is NaN."""
    leading = array.shape[:-2]
    if 0 in leading:
        return (0,) * len(leading), array.reshape(-1, array.shape[-1])[:0]
    corners = ((at, array[at][:ROWS, :COLUMNS]) for at in islice(np.ndindex(leading), TRIED))
    whole = next(corners)
    return next((one for one in (whole, *corners) if one[1].dtype.kind not in "fc" or not np.isnan(one[1]).all()), whole)


def _entry(axis: Axis, i: int) -> str:
    token = axis.more.get(f"{axis.name} token")
    return str(axis.entries[i]) if token is None else f"{axis.entries[i]} {html.shortened(str(token[i]), 16)}"


def _left_out(*parts: tuple[Axis, int]) -> str:
    """How much of these axes is not shown."""
    words = [f"{axis.name}: first {most} of {len(axis.entries):,}" for axis, most in parts if len(axis.entries) > most]
    return html.line(*map(html.text_html, words), quiet=True)


def _texts(values: np.ndarray, none: bool = False) -> list[str]:
    return [_cell(value, none) for value in values.tolist()]


def _cell(value: Any, none: bool = False) -> str:
    if isinstance(value, (bool, str)):
        return str(value)
    if isinstance(value, (float, complex)):
        return f"{value:.4g}"
    return "none" if none and value < 0 else str(value)


def _words(value: object) -> str:
    if type(value) is tuple:
        return " ".join(map(_words, value))
    place = value.path if isinstance(value, TextRef) else value.source if isinstance(value, SeriesRef) else None
    return str(value) if place is None else base_name(place).rpartition(":")[2]
