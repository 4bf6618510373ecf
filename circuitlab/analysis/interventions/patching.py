"""Activation patching: the target of this run with one activation at a time replaced by that of the run on another prompt.

    values[row, pos] = target of this run, with the row's activation at position pos taken from the other run

The other run has no interventions; this run keeps its own. `clean` is the target on this prompt, `other` on the other one;
`normalised` = (patched − clean) / (other − clean) is 0 if the patch changes nothing and 1 if it alone restores the other value.
Everything after the patched activation is recomputed, patterns included, as with an `Intervention("patch", …)` at that site
("resid_mid" has no site of its own; "head" is the site `result`; "attn_out" is `result` of all heads). Vig et al. 2020; Meng et
al. 2022; Wang et al. 2022.

Cells outside the causal cone are not computed: their value is exactly `clean`. A cell is outside if no later layer can carry it
to the position that is read, or if the activation is the same in both runs, as at every position before the first difference.
With `estimate`, each cell shows a first-order estimate (`_attribution_patching`) until its exact value replaces it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, over, read_only, scalar
from circuitlab.analysis.chosen_heads import check_heads
from circuitlab.analysis.cost import of_layers
from circuitlab.analysis.interventions._attribution_patching import (
    backward_entries,
    error_words,
    estimated_effects,
    gradients,
    slope_of,
)
from circuitlab.analysis.interventions._gradient_estimate import kinds_of
from circuitlab.analysis.interventions._partial_reruns import Tick, rerun_entries
from circuitlab.analysis.interventions._prompt_pair import PatchEffects, prompt_pair
from circuitlab.analysis.interventions.patched_block import BY_HEAD, Cells, What, inside_cone, patched_block, site_of
from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Head, Target

VALUE_NAMES: dict[str, str] = {
    "resid_pre": "stream before the block",
    "resid_mid": "stream after attention",
    "attn_out": "attention output",
    "mlp_out": "MLP output",
    "head": "head output",
    "pattern": "pattern row",
    "q": "query",
    "k": "key",
    "v": "value",
}


@dataclass(frozen=True)
class PatchingParams:
    """`source`: the other prompt's tokens; () stands for this prompt without its interventions.

    `what` is patched: per head (keys and values: per key-value head), or per layer if it is not of heads.
    `grid` "position": one position at a time; "all": all positions at once. `heads` restricts the rows.
    `estimate`: show first-order estimates until exact values replace them (none if an intervention acts along a path).
    `contrast`: without a target, the logit of the other prompt's most probable token minus that of this prompt's.
    """

    source: tuple[int, ...] = ()
    what: What = "head"
    grid: Literal["position", "all"] = "position"
    target: Target = Target()
    position: int = -1
    heads: tuple[Head, ...] = ()
    contrast: bool = False
    estimate: bool = False

    reads_other: ClassVar[bool] = True  # over a set of prompts, each line must have the prompt that is patched from


@dataclass(frozen=True, kw_only=True, eq=False)
class PatchingResult(PatchEffects, Result):
    """`values` [row, col]: the target after patching; a first-order estimate or NaN where `exact` bool [row, col] is false.

    `estimate` [row, col]: estimated effects, kept beside the exact ones that replace them; NaN for none.
    `rows` int64 [row, 2]: (layer, head), head −1 for a whole layer, a key-value head for "k" and "v". `positions` int64 [col],
    or (−1,) for all at once. `inside` bool [row, col]: whether the cell is inside the causal cone. `align` int64 [pos]: the
    partner of each position in the other prompt, −1 for none; `differs` bool [pos]: the partner is another token. `clean`,
    `other`: the target on this and on the other prompt, NaN if the position `at` that is read has no partner; `ids` int64 [2]:
    the target's tokens.
    """

    values: np.ndarray = over("row", "column", unit="logit")
    rows: np.ndarray = over("row", "(layer, head)", unit="index", none=True)
    positions: np.ndarray = over("column", unit="position", none=True)
    inside: np.ndarray = over("row", "column", unit="true or false")
    exact: np.ndarray = over("row", "column", unit="true or false")
    estimate: np.ndarray = over("row", "column", unit="logit")
    align: np.ndarray = over("position", unit="position", none=True)
    differs: np.ndarray = over("position", unit="true or false")
    ids: np.ndarray = over("target and other", unit="token id", none=True)
    clean: float = scalar("logit")
    other: float = scalar("logit")
    at: int

    def across(self) -> Mapping[str, np.ndarray]:
        """`effect`, `normalised` [layer, head] (or [layer]), if all positions are patched at once; else nothing."""
        layer, head = self.rows.T
        n_heads = int(head.max()) + 1 if len(head) else 0
        every = np.array_equal(layer * max(n_heads, 1) + np.maximum(head, 0), np.arange(len(self.rows)))
        if tuple(self.positions) != (-1,) or not every:
            return {}
        shape = (-1, n_heads) if n_heads else (-1,)
        exact_grid = lambda x: np.where(self.exact, x, np.nan)[:, 0].reshape(shape)
        return {"effect": exact_grid(self.effect), "normalised": exact_grid(self.normalised)}

    def table(self) -> Table:
        """One row per cell."""
        row, col = np.indices(self.values.shape).reshape(2, -1)
        names = np.array([f"L{a}" if h < 0 else str(Head(int(a), int(h))) for a, h in self.rows], dtype=str)
        return Table(
            (
                Column("row", names[row]),
                Column("position", self.positions[col], of="position"),
                Column("patched", self.values.ravel(), "logit"),
                Column("effect", self.effect.ravel(), "logit"),
                Column("normalised", self.normalised.ravel()),
                Column("inside the cone", self.inside.ravel()),
                Column("is", kinds_of(self.exact, self.values).ravel()),
            )
        )


def rows_of(config: ModelConfig, what: What, heads: tuple[Head, ...]) -> list[tuple[int, int]]:
    """(layer, head) of every row, head −1 for a whole layer. Raises `BadInput` for heads that the model does not have."""
    check_heads(config, *heads)
    if what not in BY_HEAD:
        layers = {h.layer for h in heads} or range(config.n_layers)
        return [(i, -1) for i in sorted(layers)]
    kv = what in ("k", "v")
    n = config.n_kv_heads if kv else config.n_heads
    chosen = {(h.layer, config.kv_head(h.head) if kv else h.head) for h in heads}
    return sorted(chosen) or [(i, h) for i in range(config.n_layers) for h in range(n)]


def _memory(config: ModelConfig, n: int, p: PatchingParams) -> int:
    wide = config.n_heads * (n if p.what == "pattern" else config.d_model)
    values = 4 * n * wide + 4 * n * config.n_heads * n
    values += backward_entries(config, n) if p.estimate else 0
    cells = config.n_layers * config.n_heads * n * (n + 32)
    return 8 * (values + rerun_entries(config, n, len(p.source) or n)) + cells


def _refuse(config: ModelConfig, p: PatchingParams) -> str | None:
    if p.what == "mlp_out" and config.attention_only:
        return "this model has no MLP whose output could be patched."
    return None


def _cost(config: ModelConfig, n: int, p: PatchingParams) -> float:
    """Of prompts that differ from the beginning on: a cell is half of the later layers, at half of the positions."""
    later = of_layers(config, n) * max(0, config.n_layers - 1) / (4 * config.n_layers)
    return later * len(rows_of(config, p.what, p.heads)) * (n if p.grid == "position" else 2)


@analysis(version=3, needs="tokens", of_heads=True, lane="slow", memory=_memory, refuse=_refuse, cost=_cost)
def patching(inputs: Inputs, p: PatchingParams, ctx: Ctx) -> PatchingResult:
    """Activation patching: the target with one activation at a time taken from the run on another prompt."""
    sweep = _Sweep(inputs, p, ctx)
    with torch.inference_mode():
        sweep.estimates()
        for layer in sorted({layer for layer, _ in sweep.rows}, reverse=True):  # the last layers are the cheapest
            sweep.layer(layer)
    return sweep.result(1.0)


class _Sweep:
    """The grid while it is computed, starting from what a cancelled sweep holds."""

    def __init__(self, inputs: Inputs, p: PatchingParams, ctx: Ctx) -> None:
        self.p, self.ctx = p, ctx
        self.pair = prompt_pair(inputs, p.source, p.target, p.position, p.contrast, ctx)
        self.rows = rows_of(inputs.weights.config, p.what, p.heads)
        n_cols = self.pair.run.n if p.grid == "position" else 1
        self.values = np.full((len(self.rows), n_cols), np.nan)
        self.inside, self.estimate = np.zeros(self.values.shape, dtype=bool), np.full(self.values.shape, np.nan)
        before = ctx.previous
        if isinstance(before, PatchingResult) and before.values.shape == self.values.shape:
            self.values, self.inside = np.where(before.exact, before.values, np.nan), before.inside.copy()
            self.estimate = before.estimate.copy()

    def estimates(self) -> None:
        """Compute first-order estimates of all cells, the last layer first, unless a cancelled sweep holds them."""
        pair, n_layers = self.pair, self.pair.run.weights.config.n_layers
        if not self.p.estimate or pair.paths or not (np.isnan(self.values) & np.isnan(self.estimate)).any():
            return
        tick = lambda: self.ctx.tick(0, self.values.size, "first-order estimate")
        after = slope_of(pair, tick)
        for layer in reversed(range(min(i for i, _ in self.rows), n_layers)):
            by_value, after = gradients(pair.run, layer, self.p.what, after, tick)
            patched = patched_block(pair, layer, self.p.what, tick)
            cone = inside_cone(patched, pair.shared(layer))
            estimated = np.where(cone.cpu().numpy(), estimated_effects(patched, by_value).cpu().numpy(), 0.0)
            for row, col in self._places(layer, cone.cpu().numpy()):
                by_position = estimated[max(self.rows[row][1], 0)]
                self.estimate[row, col] = by_position.sum() if self.p.grid == "all" else by_position[col]
            self.ctx.partial(self.result(min(0.999, float((~np.isnan(self.values)).mean()))))

    def layer(self, layer: int) -> None:
        """Compute all remaining cells of one layer."""
        if not np.isnan(self.values[[i == layer for i, _ in self.rows]]).any():
            return
        done = int((~np.isnan(self.values)).sum())
        tick = lambda: self.ctx.tick(done, self.values.size, f"layer {layer}")
        patched = patched_block(self.pair, layer, self.p.what, tick)
        cone = inside_cone(patched, self.pair.shared(layer))
        places = self._places(layer, cone.cpu().numpy())
        if not places:
            return
        cells = self._cells(places, cone)
        waves = self._one_by_one(layer, cells, tick) if self.pair.paths else patched.values(cells, self.pair.aim, tick)
        for done_cells, values in waves:
            for cell, value in zip(done_cells, values.tolist(), strict=True):
                self.values[places[cell]] = value
            done = int((~np.isnan(self.values)).sum())
            self.ctx.partial(self.result(min(0.999, done / self.values.size)))

    def _places(self, layer: int, cone: np.ndarray) -> list[tuple[int, int]]:
        """(row, column) of the layer's cells that must be computed; cells outside the cone are set to `clean`."""
        places = []
        for row in (r for r, (i, _) in enumerate(self.rows) if i == layer):
            in_cone = cone[max(self.rows[row][1], 0)]
            if self.p.grid == "all":
                self.inside[row] = in_cone.any()
            else:
                self.inside[row, : len(in_cone)] = in_cone
            self.values[row, ~self.inside[row]] = self.pair.clean
            places += [(row, int(col)) for col in np.flatnonzero(np.isnan(self.values[row]))]
        return places

    def _cells(self, places: list[tuple[int, int]], cone: Tensor) -> Cells:
        heads = [max(self.rows[row][1], 0) for row, _ in places]
        if self.p.grid == "all":
            starts = cone.int().argmax(1)[heads].tolist()
            return Cells(heads, starts, lambda cells: cone[[heads[c] for c in cells]])
        columns = [col for _, col in places]
        every = torch.arange(cone.shape[1])
        return Cells(heads, columns, lambda cells: every == torch.tensor([columns[c] for c in cells])[:, None])

    def _one_by_one(self, layer: int, cells: Cells, tick: Tick) -> Iterator[tuple[list[int], Tensor]]:
        """As `PatchedBlock.values`, with a forward pass per cell: interventions along paths read the changed run itself."""
        what, pair = self.p.what, self.pair
        if what == "resid_mid":
            why = "The stream after attention cannot be patched while an intervention acts along a path."
            raise BadInput(
                why,
                expected="another value, or no such intervention",
                got="resid_mid",
                remedy="Patch another value, or remove that intervention.",
            )
        name = site_of(what)
        for cell, head in enumerate(cells.heads):
            chosen = (head,) if what in BY_HEAD else ()
            positions = tuple(cells.where([cell])[0].nonzero()[:, 0].tolist())
            edit = Intervention("patch", Site(name, layer, chosen, positions), source=pair.source, align=pair.align)
            yield [cell], pair.intervened(edit, tick)

    def result(self, done: float) -> PatchingResult:
        """A snapshot."""
        positions = np.arange(self.pair.run.n) if self.p.grid == "position" else np.array([-1])
        return PatchingResult(
            values=np.where(np.isnan(self.values), self.pair.clean + self.estimate, self.values),
            rows=read_only(np.array(self.rows, dtype=np.int64)),
            positions=positions,
            inside=self.inside.copy(),
            exact=~np.isnan(self.values),
            estimate=self.estimate.copy(),
            **self.pair.result_fields(),
            conventions=self._words(),
            done=done,
        )

    def _words(self) -> tuple[str, ...]:
        p, inputs = self.p, self.pair.inputs
        where = "at each position" if p.grid == "position" else "at all positions at once"
        grouped = " of key-value heads" if p.what in ("k", "v") and inputs.weights.config.group > 1 else ""
        return (
            *inputs.convention_words(),
            f"{VALUE_NAMES[p.what]}{grouped} patched {where} from {self.pair.donor}",
            *self.pair.words(),
            *error_words(self.values - self.pair.clean, self.estimate),
            *(
                ("first-order estimates hold the choice of experts fixed",)
                if p.estimate and inputs.weights.config.experts
                else ()
            ),
        )
