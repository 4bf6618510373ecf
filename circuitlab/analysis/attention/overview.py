"""Attention patterns of all heads at a glance, each as a small tile of one sheet.

A tile is at most `size` cells wide. Longer prompts are pooled by the maximum over blocks of positions, so that a thin stripe
stays visible; the caption then says how many positions a cell stands for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from circuitlab.analysis.attention.pattern import UNITS, Show, passes_norm, show_words, values_of
from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, at_least, over
from circuitlab.analysis.ordering import head_names
from circuitlab.counting import number_of
from circuitlab.model.config import ModelConfig

GAP = 2
MOST_CELLS = 50_000  # of two sheets, listed in one table: of 1,200 heads all would be a million rows and 50 MiB
ITSELF, BEFORE, FIRST = "same position", "position before", "position 0"


@dataclass(frozen=True)
class OverviewParams:
    """`size`: the largest edge of a tile in cells. `leave_out_bos`: the first source column is left out of every tile."""

    show: Show = "pattern"
    size: int = at_least(1, 64)
    leave_out_bos: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class OverviewResult(Result):
    """`sheet` [layers · (tile + gap) − gap, heads · (tile + gap) − gap], NaN between tiles and where the mask hides a source.

    `largest` [layer, head]: the largest value of each head, NaN without any; `unit` of all. `tile`: edge of a tile in cells;
    `step`: positions per cell; `gap`: cells between tiles.

    Of destinations after position 0, which can attend to itself alone: `largest_after` [layer, head] and its `place`
    [layer, head, destination and source], −1 for none; `means` [layer, head, attended], over the destinations.
    """

    ENTRIES: ClassVar = {"attended": (ITSELF, BEFORE, FIRST)}

    sheet: np.ndarray = over("cell down", "cell across", unit="{unit}")
    largest: np.ndarray = over("layer", "head", unit="{unit}")
    largest_after: np.ndarray = over("layer", "head", unit="{unit}")
    place: np.ndarray = over("layer", "head", "destination and source", unit="position", none=True)
    means: np.ndarray = over("layer", "head", "attended", unit="{unit}")
    tile: int
    step: int
    unit: str = "share of attention"
    gap: int = GAP

    def entries_along(self, axis: str) -> list[str] | None:
        """Layer or head, and the first position, of each cell; "" between tiles."""
        letter = {"cell down": "L", "cell across": "H"}.get(axis)
        if letter is None:
            return None
        tile = [*(i * self.step for i in range(self.tile)), *[None] * self.gap]
        n = self.largest.shape[letter == "H"]
        return [f"{letter}{k} {at}" if at is not None else "" for k in range(n) for at in tile][: -self.gap or None]

    def table(self) -> Table:
        """One row per head: where its largest value stands, and its means on the sources that every destination has."""
        head = Column("head", head_names(*np.indices(self.largest.shape).reshape(2, -1)))
        if (self.place < 0).all():  # of one token, which attends to itself
            return Table((head, Column("largest", self.largest.ravel(), self.unit)))
        dest, src = self.place.reshape(-1, 2).T
        means = zip(self.ENTRIES["attended"], self.means.reshape(-1, 3).T, strict=True)
        return Table(
            (
                head,
                Column("largest after position 0", self.largest_after.ravel(), self.unit),
                Column("destination", dest, of="position"),
                Column("source", src, of="position"),
                *(Column(f"mean on {where}", mean, self.unit) for where, mean in means if not np.isnan(mean).all()),
            )
        )

    def table_beside(self, other: Result) -> Table:
        """One row per cell of a tile, as the difference of two sheets is drawn, those that change most first, and no more than
        `MOST_CELLS`. Where the other sheet has other tiles, which no picture subtracts, one row per head.
        """
        if not isinstance(other, OverviewResult) or (self._shape, self.unit) != (other._shape, other.unit):
            return self.table()
        mine, others = self._tiles(), other._tiles()
        cells = np.flatnonzero(np.isfinite(mine) | np.isfinite(others))
        change = np.abs(np.nan_to_num(mine.ravel()[cells].astype(np.float64) - others.ravel()[cells]))
        listed = cells[np.argsort(-change, kind="stable")[:MOST_CELLS]]
        layer, head, dest, src = np.unravel_index(listed, mine.shape)
        first = " from" if self.step > 1 else ""  # the first position of those that a cell stands for
        left_out = f"of {number_of(len(cells), 'cell')} the {MOST_CELLS:,} that change most" if len(cells) > MOST_CELLS else ""
        return Table(
            (
                Column("head", head_names(layer, head)),
                Column(f"destination{first}", dest * self.step, of="position"),
                Column(f"source{first}", src * self.step, of="position"),
                Column("value", mine.ravel()[listed], self.unit),
            ),
            left_out,
        )

    @property
    def _shape(self) -> tuple[object, ...]:
        return self.largest.shape, self.tile, self.step, self.gap

    def _tiles(self) -> np.ndarray:
        """[layer, head, cell down, cell across]."""
        edge, (layers, heads) = self.tile + self.gap, self.largest.shape
        padded = np.pad(self.sheet, ((0, self.gap), (0, self.gap)), constant_values=np.nan)
        return padded.reshape(layers, edge, heads, edge).transpose(0, 2, 1, 3)[..., : self.tile, : self.tile]


def pooled(values: Tensor, step: int) -> Tensor:
    """[head, dest, src] -> [head, dest/step, src/step] by maximum; NaN only where a whole block is NaN."""
    if step == 1:
        return values
    n = values.shape[-1]
    pad = -n % step
    filled = F.pad(values.nan_to_num(-torch.inf), (0, pad, 0, pad), value=-torch.inf)
    best = F.max_pool2d(filled, step)
    return torch.where(torch.isinf(best), torch.nan, best)


def _after_first(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(`largest_after` [head], `place` [head, 2], `means` [head, 3]) of values [head, dest, src]: see `OverviewResult`."""
    later = values[:, 1:].nan_to_num(-torch.inf).flatten(1)
    if not later.shape[1]:
        nothing = torch.full((len(values), 3), torch.nan, dtype=values.dtype)
        return nothing[:, 0], torch.full((len(values), 2), -1), nothing
    most, at = later.max(-1)
    none = most.isinf()
    place = torch.stack([at // values.shape[-1] + 1, at % values.shape[-1]], -1)
    diagonal = lambda offset: values.diagonal(offset, 1, 2)
    means = [diagonal(0)[:, 1:].nanmean(-1), diagonal(-1).nanmean(-1), values[:, 1:, 0].nanmean(-1)]
    return most.masked_fill(none, torch.nan), place.masked_fill(none[:, None], -1), torch.stack(means, -1)


def _memory(config: ModelConfig, n: int, p: OverviewParams) -> int:
    return 4 * n * n * 4 * config.n_heads + 4 * config.n_layers * config.n_heads * (p.size + GAP) ** 2


def _holds(version: int, config: ModelConfig, p: OverviewParams) -> bool:
    return version == 3 and not passes_norm(p.show, config)


@analysis(version=4, needs="tokens", of_heads=True, lane="live", memory=_memory, doubles=False, holds=_holds)
def attention_overview(inputs: Inputs, p: OverviewParams, ctx: Ctx) -> OverviewResult:
    """Attention patterns of every head as one contact sheet, layers down, heads across."""
    config, run = inputs.weights.config, inputs.run()
    n_layers, n_heads = config.n_layers, config.n_heads
    step = -(-run.n // max(1, p.size))
    tile = -(-run.n // step)
    edge = tile + GAP
    empty = lambda *shape: np.full(shape, np.nan, dtype=inputs.subject.conventions.dtype)
    arrays = {
        "sheet": empty(n_layers * edge - GAP, n_heads * edge - GAP),
        "largest": empty(n_layers, n_heads),
        "largest_after": empty(n_layers, n_heads),
        "place": np.full((n_layers, n_heads, 2), -1),
        "means": empty(n_layers, n_heads, 3),
    }
    pool = (f"each cell the maximum over {step} × {step} positions",) if step > 1 else ()
    bos = ("first position left out as a source",) if p.leave_out_bos else ()
    conventions = (*inputs.convention_words(), show_words(p.show, inputs.weights.config), *pool, *bos)
    result = lambda done: OverviewResult(
        **{name: array.copy() for name, array in arrays.items()},
        tile=tile,
        step=step,
        unit=UNITS[p.show],
        conventions=conventions,
        done=done,
    )
    for layer in range(n_layers):
        ctx.tick(layer, n_layers, f"layer {layer}")
        with torch.inference_mode():
            values = values_of(run, layer, tuple(range(n_heads)), p.show)
            if p.leave_out_bos:
                values = values.clone()
                values[:, :, 0] = torch.nan
            small = pooled(values, step).cpu().numpy()
            after = _after_first(values)
        for head in range(n_heads):
            arrays["sheet"][layer * edge : layer * edge + tile, head * edge : head * edge + tile] = small[head]
        most = values.nan_to_num(-torch.inf).amax((-1, -2))
        arrays["largest"][layer] = torch.where(most.isinf(), torch.nan, most).cpu().numpy()  # nothing but what is left out
        for name, value in zip(("largest_after", "place", "means"), after, strict=True):
            arrays[name][layer] = value.cpu().numpy()
        if layer + 1 < n_layers and layer % 4 == 3:
            ctx.partial(result((layer + 1) / n_layers))
    return result(1.0)
