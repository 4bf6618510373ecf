"""Attention patterns of all heads at a glance, each as a small tile of one sheet.

A tile is at most `size` cells wide. Longer prompts are pooled by the maximum over blocks of positions, so that a thin stripe
stays visible; the caption then says how many positions a cell stands for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from circuitlab.analysis.attention.pattern import SHOW_WORDS, UNITS, Show, values_of
from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, at_least, over
from circuitlab.analysis.ordering import head_names
from circuitlab.model.config import ModelConfig

GAP = 2


@dataclass(frozen=True)
class OverviewParams:
    """`size`: the largest edge of a tile in cells. `leave_out_bos`: the first source column is left out of every tile."""

    show: Show = "pattern"
    size: int = at_least(1, 64)
    leave_out_bos: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class OverviewResult(Result):
    """`sheet` [layers · (tile + gap) − gap, heads · (tile + gap) − gap], NaN between tiles and where the mask hides a source.

    `largest` [layer, head]: the largest value of each head, NaN without any; `unit` of both. `tile`: edge of a tile in cells;
    `step`: positions per cell.
    """

    sheet: np.ndarray = over("cell down", "cell across", unit="{unit}")
    largest: np.ndarray = over("layer", "head", unit="{unit}")
    tile: int
    step: int
    unit: str = "share of attention"

    def table(self) -> Table:
        """One row per head."""
        names = head_names(*np.indices(self.largest.shape).reshape(2, -1))
        return Table((Column("head", names), Column("largest", self.largest.ravel(), self.unit)))


def pooled(values: Tensor, step: int) -> Tensor:
    """[head, dest, src] -> [head, dest/step, src/step] by maximum; NaN only where a whole block is NaN."""
    if step == 1:
        return values
    n = values.shape[-1]
    pad = -n % step
    filled = F.pad(values.nan_to_num(-torch.inf), (0, pad, 0, pad), value=-torch.inf)
    best = F.max_pool2d(filled, step)
    return torch.where(torch.isinf(best), torch.nan, best)


def _memory(config: ModelConfig, n: int, p: OverviewParams) -> int:
    return 4 * n * n * 4 * config.n_heads + 4 * config.n_layers * config.n_heads * (p.size + GAP) ** 2


@analysis(version=1, needs="tokens", of_heads=True, lane="live", memory=_memory, doubles=False)
def attention_overview(inputs: Inputs, p: OverviewParams, ctx: Ctx) -> OverviewResult:
    """Attention patterns of every head as one contact sheet, layers down, heads across."""
    config, run = inputs.weights.config, inputs.run()
    step = -(-run.n // max(1, p.size))
    tile = -(-run.n // step)
    edge = tile + GAP
    sheet = np.full((config.n_layers * edge - GAP, config.n_heads * edge - GAP), np.nan, dtype=inputs.subject.conventions.dtype)
    largest = np.full((config.n_layers, config.n_heads), np.nan, dtype=inputs.subject.conventions.dtype)
    pool = (f"each cell the maximum over {step} × {step} positions",) if step > 1 else ()
    bos = ("first position left out as a source",) if p.leave_out_bos else ()
    result = OverviewResult(
        sheet=sheet,
        largest=largest,
        tile=tile,
        step=step,
        unit=UNITS[p.show],
        conventions=(*inputs.subject.conventions.words(), SHOW_WORDS[p.show], *pool, *bos),
    )
    sheet.setflags(write=True)
    largest.setflags(write=True)
    for layer in range(config.n_layers):
        ctx.tick(layer, config.n_layers, f"layer {layer}")
        with torch.inference_mode():
            values = values_of(run, layer, tuple(range(config.n_heads)), p.show)
            if p.leave_out_bos:
                values = values.clone()
                values[:, :, 0] = torch.nan
            small = pooled(values, step).cpu().numpy()
        for head in range(config.n_heads):
            sheet[layer * edge : layer * edge + tile, head * edge : head * edge + tile] = small[head]
        most = values.nan_to_num(-torch.inf).amax((-1, -2))
        largest[layer] = torch.where(most.isinf(), torch.nan, most).cpu().numpy()  # nothing but a source that is left out
        if layer + 1 < config.n_layers and layer % 4 == 3:
            ctx.partial(replace(result, sheet=sheet.copy(), largest=largest.copy(), done=(layer + 1) / config.n_layers))
    return replace(result, sheet=sheet, largest=largest)
