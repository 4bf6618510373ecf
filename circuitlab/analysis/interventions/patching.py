"""Patching: what the target becomes where one value of this run is taken from the run on another prompt.

    values[row, pos] = target of this run, with the row's value at position pos exchanged for that of the other run

The other run has no interventions; this run keeps its own. `clean` is the target on this prompt, `other` on the other one;
`normalised` = (patched − clean) / (other − clean) is 0 where nothing changes and 1 where the patch alone makes the difference.
Everything after the exchanged value is computed again, patterns included: the same as an `Intervention("patch", …)` at that site
("resid_mid" has no site of its own; "head" is the site `result`; "attn_out" is `result` of all heads). The method is activation
patching (Vig et al. 2020; Meng et al. 2022; Wang et al. 2022).

Cells outside the causal cone are not computed: their value is `clean`, exactly. Outside is what no later layer can bring to the
position that is read, and what is the same in both runs: every position before the first difference.
With `estimate`, a first-order one of every cell (`patching_first_order`) stands until its exact value replaces it.
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
from circuitlab.analysis.interventions._attribution_patching import first_order, gradients, off_by, passed_entries, slope_of
from circuitlab.analysis.interventions._partial_reruns import ROWS, WAVE, Tick
from circuitlab.analysis.interventions._prompt_pair import differ, two_runs
from circuitlab.analysis.interventions.patched_block import BY_HEAD, SITES, Cells, What, inside_cone, patched_block
from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.model.intervention import Intervention, Site, SiteName
from circuitlab.model.subject import Head, Target

SAID: dict[str, str] = {
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

    `what` is exchanged: for each head (of a key or value: each key-value head), or for each layer where it has no heads.
    `grid` "position": at each position by itself; "all": at all positions at once. `heads` restricts the rows.
    `estimate`: first-order estimates until exact values are there (none where an intervention acts along a path). `contrast`:
    without a target, the logit of what the other prompt makes most probable minus that of what this one does.
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
class PatchingResult(Result):
    """`values` [row, col]: the target after the patch; where not `exact` bool [row, col]: a first-order estimate of it, or NaN.

    `estimate` [row, col]: estimated effects, kept beside the exact ones that replace them; NaN where there are none.
    `rows` int64 [row, 2]: (layer, head), head −1 where the row is a layer, a key-value head at "k" and "v". `positions` int64
    [col], or (−1,) for all at once. `inside` bool [row, col]: whether the cell can have any effect. `align` int64 [pos]: the
    position there of each of ours, −1 for none; `differs` bool [pos]: aligned to another token. `clean`, `other`: the target on
    this prompt and on the other one, NaN where the position `at` that is read has no partner there; `ids` int64 [2]: its tokens.
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
    ACROSS: ClassVar = {"effect": "logit", "normalised": "dimensionless"}

    @property
    def effect(self) -> np.ndarray:
        """[row, col]: patched − clean."""
        return self.values - self.clean

    @property
    def normalised(self) -> np.ndarray:
        """[row, col]: (patched − clean) / (other − clean); NaN where the two prompts give the same."""
        if not differ(self.clean, self.other):
            return np.full_like(self.values, np.nan)
        return self.effect / (self.other - self.clean)

    def across(self) -> Mapping[str, np.ndarray]:
        """`effect`, `normalised` [layer, head] ([layer] of what has no heads), where all positions are exchanged at once."""
        layer, head = self.rows.T
        n_heads = int(head.max()) + 1 if len(head) else 0
        every = np.array_equal(layer * max(n_heads, 1) + np.maximum(head, 0), np.arange(len(self.rows)))
        if tuple(self.positions) != (-1,) or not every:
            return {}
        shape = (-1, n_heads) if n_heads else (-1,)
        known = lambda x: np.where(self.exact, x, np.nan)[:, 0].reshape(shape)
        return {"effect": known(self.effect), "normalised": known(self.normalised)}

    def table(self) -> Table:
        """One row a cell."""
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
                Column(
                    "is", np.where(self.exact, "exact", np.where(np.isnan(self.values), "not computed", "first-order")).ravel()
                ),
            )
        )


def rows_of(config: ModelConfig, what: What, heads: tuple[Head, ...]) -> list[tuple[int, int]]:
    """(layer, head) of every row; head −1 for what has none. Raises `BadInput` for heads that are not there."""
    check_heads(config, *heads)
    if what not in BY_HEAD:
        layers = {h.layer for h in heads} or range(config.n_layers)
        return [(i, -1) for i in sorted(layers)]
    kv = what in ("k", "v")
    n = config.n_kv_heads if kv else config.n_heads
    wanted = {(h.layer, config.kv_head(h.head) if kv else h.head) for h in heads}
    return sorted(wanted) or [(i, h) for i in range(config.n_layers) for h in range(n)]


def _memory(config: ModelConfig, n: int, p: PatchingParams) -> int:
    there = (len(p.source) or n) * (config.d_model + (config.n_heads + 2 * config.n_kv_heads) * config.d_head) * config.n_layers
    wide = config.n_heads * (n if p.what == "pattern" else config.d_model)
    values = 4 * n * wide + 4 * n * config.n_heads * n
    rows = max(ROWS, n)
    batch = rows * (3 * config.n_heads * n + 3 * config.d_mlp + 8 * config.n_heads * config.d_head + 6 * config.d_model)
    batch += rows * config.n_heads * config.d_model  # what each head writes, where an intervention reads it
    wave = 3 * (WAVE + rows) * config.d_model
    values += passed_entries(config, n) if p.estimate else 0
    return 8 * (there + values + batch + wave) + config.n_layers * config.n_heads * n * (n + 32)


def _refuse(config: ModelConfig, p: PatchingParams) -> str | None:
    if p.what == "mlp_out" and config.attention_only:
        return "this model has no MLP whose output could be patched."
    return None


@analysis(version=2, needs="tokens", of_heads=True, lane="slow", memory=_memory, refuse=_refuse)
def patching(inputs: Inputs, p: PatchingParams, ctx: Ctx) -> PatchingResult:
    """The target with one value after another taken from the run on another prompt."""
    sweep = _Sweep(inputs, p, ctx)
    with torch.inference_mode():
        sweep.estimates()
        for layer in sorted({layer for layer, _ in sweep.rows}, reverse=True):  # the last layers are the cheapest
            sweep.layer(layer)
    return sweep.result(1.0)


class _Sweep:
    """The grid as it fills. What a cancelled sweep left is taken over."""

    def __init__(self, inputs: Inputs, p: PatchingParams, ctx: Ctx) -> None:
        self.p, self.ctx = p, ctx
        self.two = two_runs(inputs, p.source, p.target, p.position, p.contrast, ctx)
        self.rows = rows_of(inputs.weights.config, p.what, p.heads)
        n_cols = self.two.run.n if p.grid == "position" else 1
        self.values = np.full((len(self.rows), n_cols), np.nan)
        self.inside, self.estimate = np.zeros(self.values.shape, dtype=bool), np.full(self.values.shape, np.nan)
        before = ctx.previous
        if isinstance(before, PatchingResult) and before.values.shape == self.values.shape:
            self.values, self.inside = np.where(before.exact, before.values, np.nan), before.inside.copy()
            self.estimate = before.estimate.copy()

    def estimates(self) -> None:
        """First-order estimates of all cells, the last layer first, unless they are there already."""
        two, n_layers = self.two, self.two.run.weights.config.n_layers
        if not self.p.estimate or two.paths or not (np.isnan(self.values) & np.isnan(self.estimate)).any():
            return
        tick = lambda: self.ctx.tick(0, self.values.size, "first-order estimate")
        after = slope_of(two, tick)
        for layer in reversed(range(min(i for i, _ in self.rows), n_layers)):
            by_value, after = gradients(two.run, layer, self.p.what, after, tick)
            made = patched_block(two, layer, self.p.what, tick)
            cone = inside_cone(made, two.shared(layer))
            found = np.where(cone.cpu().numpy(), first_order(made, by_value).cpu().numpy(), 0.0)
            for row, col in self._places(layer, cone.cpu().numpy()):
                one = found[max(self.rows[row][1], 0)]
                self.estimate[row, col] = one.sum() if self.p.grid == "all" else one[col]
            self.ctx.partial(self.result(min(0.999, float((~np.isnan(self.values)).mean()))))

    def layer(self, layer: int) -> None:
        """All cells of one layer that are not there yet."""
        if not np.isnan(self.values[[i == layer for i, _ in self.rows]]).any():
            return
        done = int((~np.isnan(self.values)).sum())
        tick = lambda: self.ctx.tick(done, self.values.size, f"layer {layer}")
        made = patched_block(self.two, layer, self.p.what, tick)
        cone = inside_cone(made, self.two.shared(layer))
        places = self._places(layer, cone.cpu().numpy())
        if not places:
            return
        cells = self._cells(places, cone)
        waves = self._one_by_one(layer, cells, tick) if self.two.paths else made.values(cells, self.two.aim, tick)
        for found, values in waves:
            for cell, value in zip(found, values.tolist(), strict=True):
                self.values[places[cell]] = value
            done = int((~np.isnan(self.values)).sum())
            self.ctx.partial(self.result(min(0.999, done / self.values.size)))

    def _places(self, layer: int, cone: np.ndarray) -> list[tuple[int, int]]:
        """(row, column) of the layer's cells that must be computed; the others are filled in."""
        found = []
        for row in (r for r, (i, _) in enumerate(self.rows) if i == layer):
            seen = cone[max(self.rows[row][1], 0)]
            if self.p.grid == "all":
                self.inside[row] = seen.any()
            else:
                self.inside[row, : len(seen)] = seen
            self.values[row, ~self.inside[row]] = self.two.clean
            found += [(row, int(col)) for col in np.flatnonzero(np.isnan(self.values[row]))]
        return found

    def _cells(self, places: list[tuple[int, int]], cone: Tensor) -> Cells:
        heads = [max(self.rows[row][1], 0) for row, _ in places]
        if self.p.grid == "all":
            starts = cone.int().argmax(1)[heads].tolist()
            return Cells(heads, starts, lambda cells: cone[[heads[c] for c in cells]])
        columns = [col for _, col in places]
        every = torch.arange(cone.shape[1])
        return Cells(heads, columns, lambda cells: every == torch.tensor([columns[c] for c in cells])[:, None])

    def _one_by_one(self, layer: int, cells: Cells, tick: Tick) -> Iterator[tuple[list[int], Tensor]]:
        """As `PatchedBlock.values`, a forward pass a cell: interventions along paths read the changed run itself."""
        what, two = self.p.what, self.two
        if what == "resid_mid":
            why = "The stream after attention cannot be patched while an intervention acts along a path."
            raise BadInput(why, expected="another value, or no such intervention", got="resid_mid")
        name: SiteName = SITES.get(what, what)  # type: ignore[arg-type]
        for cell, head in enumerate(cells.heads):
            chosen = (head,) if what in BY_HEAD else ()
            positions = tuple(cells.where([cell])[0].nonzero()[:, 0].tolist())
            edit = Intervention("patch", Site(name, layer, chosen, positions), source=two.source, align=two.align)
            yield [cell], two.intervened(edit, tick)

    def result(self, done: float) -> PatchingResult:
        """A snapshot."""
        positions = np.arange(self.two.run.n) if self.p.grid == "position" else np.array([-1])
        return PatchingResult(
            values=np.where(np.isnan(self.values), self.two.clean + self.estimate, self.values),
            rows=read_only(np.array(self.rows, dtype=np.int64)),
            positions=positions,
            inside=self.inside.copy(),
            exact=~np.isnan(self.values),
            estimate=self.estimate.copy(),
            align=self.two.aligned.align,
            differs=self.two.aligned.differs,
            ids=read_only(self.two.aim.ids[0].cpu().numpy().copy()),
            clean=self.two.clean,
            other=self.two.other,
            at=self.two.at,
            conventions=self._words(),
            done=done,
        )

    def _words(self) -> tuple[str, ...]:
        p, inputs = self.p, self.two.inputs
        where = "at each position" if p.grid == "position" else "at all positions at once"
        grouped = ["of key-value heads"] if p.what in ("k", "v") and inputs.weights.config.group > 1 else []
        source = "from the other prompt" if p.source else "from this prompt without its interventions"
        said = " ".join([SAID[p.what], *grouped, where, source])
        return (
            *inputs.subject.conventions.words(),
            said,
            *self.two.words(),
            *off_by(self.values - self.two.clean, self.estimate),
            *(("first-order estimates keep each token's experts",) if p.estimate and inputs.weights.config.experts else ()),
        )
