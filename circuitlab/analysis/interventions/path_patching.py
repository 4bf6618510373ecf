"""Path patching: the target where one later head alone reads what the sender wrote on another prompt.

    q', k' or v' = projection of (x_m + Δ),     Δ = what the sender writes there − what it writes here

Only the path from the sender to the receiver's own query, key or value carries the other prompt: every head and MLP between them
works on this run's stream. The receiver's new output then flows on as it will, later patterns recomputed. The same as an
`Intervention` "patch" at `Site("q" | "k" | "v", m, (head,))` with `path_from` the sender (Wang et al. 2022; Goldowsky-Dill et al.
2023). The sum over receivers is not the sender's whole effect, which is given beside.
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
from circuitlab.analysis.interventions._partial_reruns import ROWS, WAVE, projected
from circuitlab.analysis.interventions._prompt_pair import TwoRuns, differ, two_runs
from circuitlab.analysis.interventions.patched_block import Cells, PatchedBlock, What, inside_cone
from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.model.editor import Editor
from circuitlab.model.intervention import Intervention, Site, SiteName
from circuitlab.model.subject import Head, Target

Through = Literal["Q", "K", "V"]
PART: dict[str, Literal["q", "k", "v"]] = {"Q": "q", "K": "k", "V": "v"}


@dataclass(frozen=True)
class PathPatchingParams:
    """`source`: the other prompt's tokens; () stands for this prompt without its interventions.

    `sender`: a head, or with `writer` "mlp" the MLP of its layer. `receivers` () means every head of every later layer.
    `contrast` as in `PatchingParams`.
    """

    source: tuple[int, ...] = ()
    sender: Head = Head(0, 0)
    writer: Literal["head", "mlp"] = "head"
    receivers: tuple[Head, ...] = ()
    through: tuple[Through, ...] = ("Q", "K", "V")
    target: Target = Target()
    position: int = -1
    contrast: bool = False

    reads_other: ClassVar[bool] = True  # over a set of prompts, each line must have the prompt that is patched from


@dataclass(frozen=True, kw_only=True, eq=False)
class PathPatchingResult(Result):
    """`values` [through, layer, head]: the target after the patch; NaN where there is no receiver, or not computed yet.

    `names`: the axis `through`. `total`: the target with the sender exchanged for everyone; `clean`, `other`: on this prompt and
    on the other one. `align`, `differs`, `ids`, `at` as in `PatchingResult`.
    """

    values: np.ndarray = over("through", "layer", "head", unit="logit")
    names: tuple[str, ...]
    align: np.ndarray = over("position", unit="position", none=True)
    differs: np.ndarray = over("position", unit="true or false")
    ids: np.ndarray = over("target and other", unit="token id", none=True)
    clean: float = scalar("logit")
    other: float = scalar("logit")
    total: float = scalar("logit")
    at: int
    ACROSS: ClassVar = {"effect": "logit", "normalised": "dimensionless"}

    @property
    def effect(self) -> np.ndarray:
        """[through, layer, head]: patched − clean."""
        return self.values - self.clean

    @property
    def normalised(self) -> np.ndarray:
        """[through, layer, head]: (patched − clean) / (other − clean); NaN where the two prompts give the same."""
        if not differ(self.clean, self.other):
            return np.full_like(self.values, np.nan)
        return self.effect / (self.other - self.clean)

    def across(self) -> Mapping[str, np.ndarray]:
        """`effect`, `normalised` [through, layer, head], NaN where there is no receiver; `total`, that of all readers at once."""
        return {"effect": self.effect, "normalised": self.normalised, "total": np.array(self.total - self.clean)}

    def table(self) -> Table:
        """One row a receiver and way in."""
        through, layer, head = np.nonzero(~np.isnan(self.values))
        names = np.array([str(Head(int(a), int(b))) for a, b in zip(layer, head, strict=True)], dtype=str)
        at = (through, layer, head)
        return Table(
            (
                Column("receiver", names),
                Column("through", np.array(self.names, dtype=str)[through]),
                Column("patched", self.values[at], "logit"),
                Column("effect", self.effect[at], "logit"),
                Column("normalised", self.normalised[at]),
            )
        )


def _memory(config: ModelConfig, n: int, p: PathPatchingParams) -> int:
    there = (len(p.source) or n) * (config.d_model + (config.n_heads + 2 * config.n_kv_heads) * config.d_head) * config.n_layers
    rows = max(ROWS, n)
    batch = rows * (3 * config.n_heads * n + 3 * config.d_mlp + 8 * config.n_heads * config.d_head + 6 * config.d_model)
    batch += rows * config.n_heads * config.d_model  # what each head writes, where an intervention reads it
    own = n * (8 * config.n_heads * config.d_head + 3 * config.d_model + config.n_heads * n)
    return 8 * (there + batch + own + 3 * (WAVE + rows) * config.d_model) + 32 * config.n_layers * config.n_heads


def _refuse(config: ModelConfig, p: PathPatchingParams) -> str | None:
    if config.norm_placement != "pre":
        return "a path needs norms before the sublayers: here what a head writes reaches the stream through a norm of its own."
    if p.writer == "mlp" and config.attention_only:
        return "this model has no MLP that could be the sender."
    if p.sender.layer + 1 >= config.n_layers:
        return f"no head reads after layer {p.sender.layer}: the sender must stand before the last layer."
    return None


@analysis(version=1, needs="tokens", of_heads=True, lane="slow", memory=_memory, refuse=_refuse)
def path_patching(inputs: Inputs, p: PathPatchingParams, ctx: Ctx) -> PathPatchingResult:
    """The target where one later head alone reads what the sender wrote on another prompt, by query, key or value."""
    config = inputs.weights.config
    receivers = _receivers(config, p)
    with torch.inference_mode():
        two = two_runs(inputs, p.source, p.target, p.position, p.contrast, ctx)
        sender = _sender(p)
        total = two.intervened(_edit(two, sender), lambda: ctx.tick(0, 1, "the sender for everyone"))
        values = np.full((len(p.through), config.n_layers, config.n_heads), np.nan)
        before = ctx.previous
        if isinstance(before, PathPatchingResult) and before.values.shape == values.shape:
            values = before.values.copy()
        wanted = len(p.through) * len(receivers)
        for layer in sorted({h.layer for h in receivers}, reverse=True):
            heads = sorted({h.head for h in receivers if h.layer == layer})
            for i, through in enumerate(p.through):
                heads_left = [h for h in heads if np.isnan(values[i, layer, h])]
                for head, value in _through(two, sender, layer, through, heads_left, ctx, f"layer {layer}, {through}"):
                    values[i, layer, head] = value
                ctx.partial(_result(two, p, values, float(total), min(0.999, float((~np.isnan(values)).sum()) / wanted)))
    return _result(two, p, values, float(total), 1.0)


def _receivers(config: ModelConfig, p: PathPatchingParams) -> tuple[Head, ...]:
    check_heads(config, p.sender)
    later = tuple(Head(i, h) for i in range(p.sender.layer + 1, config.n_layers) for h in range(config.n_heads))
    if bad := [h for h in p.receivers if h not in later]:
        got = " ".join(map(str, bad))
        raise BadInput("A receiver is not later than the sender.", expected=f"{later[0]} … {later[-1]}", got=got)
    if not p.through:
        raise BadInput("A path leads through a query, key or value.", expected="Q, K or V", got="none")
    return p.receivers or later


def _sender(p: PathPatchingParams) -> Site:
    return Site("mlp_out", p.sender.layer) if p.writer == "mlp" else Site("result", p.sender.layer, (p.sender.head,))


def _edit(two: TwoRuns, site: Site, path_from: Site | None = None) -> Intervention:
    return Intervention("patch", site, source=two.source, align=two.align, path_from=path_from)


def _through(
    two: TwoRuns, sender: Site, layer: int, through: str, heads: list[int], ctx: Ctx, text: str
) -> Iterator[tuple[int, float]]:
    """(head, the target's value) of receivers in one layer; heads of one key-value group read through K and V together."""
    config, part = two.run.weights.config, PART[through]
    of = (lambda h: h) if part == "q" else config.kv_head
    chosen = sorted({of(h) for h in heads})
    tick = lambda: ctx.tick(layer, config.n_layers, text)
    found: dict[int, float] = {}
    if two.paths:
        name: SiteName = part
        for one in chosen:
            found[one] = float(two.intervened(_edit(two, Site(name, layer, (one,)), sender), tick))
    elif chosen:
        tick()
        made = _changed_reading(two, sender, layer, part)
        cone = inside_cone(made, two.shared(sender.layer))
        acting = [one for one in chosen if bool(cone[one].any())]
        found = dict.fromkeys(chosen, two.clean)
        if acting:
            cells = Cells(acting, cone[acting].int().argmax(1).tolist(), lambda some: cone[[acting[c] for c in some]])
            for done, values in made.values(cells, two.aim, tick):
                found |= {acting[c]: v for c, v in zip(done, values.tolist(), strict=True)}
    for head in heads:
        yield head, found[of(head)]


def _changed_reading(two: TwoRuns, sender: Site, layer: int, part: What) -> PatchedBlock:
    """Queries, keys or values of one layer as they are, and read from the stream with the sender's change."""
    run, there = two.run, two.there
    edit = _edit(two, sender)
    written = run.get(sender.name, sender.layer, sender.heads)
    patched = Editor((edit,), run.tokens, lambda _: there).operate(edit, sender, written, 0, sender.heads or None)
    change: Tensor = patched - written
    change = change.sum(0) if sender.name == "result" else change
    stop = slice(0, two.span.stop)
    x = run.get("resid_pre", layer)[stop] + change[stop]
    read = projected(run, run.weights.layer(layer), layer, x, 0)
    new = run.editor.apply(part, layer, getattr(read, part), 0)
    return PatchedBlock(run, layer, part, run.get(part, layer)[:, stop], new, two.span)


def _result(two: TwoRuns, p: PathPatchingParams, values: np.ndarray, total: float, done: float) -> PathPatchingResult:
    config = two.run.weights.config
    sender = f"MLP of layer {p.sender.layer}" if p.writer == "mlp" else str(p.sender)
    grouped = ["a key-value group reads together"] if config.group > 1 and set(p.through) & {"K", "V"} else []
    source = "the other prompt" if p.source else "this prompt without its interventions"
    said = f"{sender} as on {source}, on the path to one receiver's {', '.join(p.through)} alone"
    everyone = f"exchanged for every reader: {total - two.clean:+.3f} (paths need not add up to it)"
    return PathPatchingResult(
        values=values.copy(),
        names=tuple(p.through),
        align=two.aligned.align,
        differs=two.aligned.differs,
        ids=read_only(two.aim.ids[0].cpu().numpy().copy()),
        clean=two.clean,
        other=two.other,
        total=total,
        at=two.at,
        conventions=(*two.inputs.subject.conventions.words(), said, *grouped, *two.words(), everyone),
        done=done,
    )
