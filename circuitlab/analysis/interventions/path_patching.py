"""Path patching: the target when one later head alone reads the sender's output from another prompt.

    q', k' or v' = projection of (x_m + Δ),     Δ = the sender's output on the other prompt − its output on this one

Only the direct path from the sender to the receiver's query, key or value is patched: every head and MLP between them reads this
run's stream. The receiver's new output acts on everything after it, with later patterns recomputed. The same as an
`Intervention` "patch" at `Site("q" | "k" | "v", m, (head,))` with `path_from` the sender (Wang et al. 2022; Goldowsky-Dill et al.
2023). The effects of single paths need not sum to that of patching the sender for every reader (`total`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, naming, over, scalar
from circuitlab.analysis.chosen_heads import check_heads
from circuitlab.analysis.cost import of_layers
from circuitlab.analysis.interventions._partial_reruns import projected, rerun_entries
from circuitlab.analysis.interventions._prompt_pair import PatchEffects, PromptPair, prompt_pair
from circuitlab.analysis.interventions.patched_block import Cells, PatchedBlock, What, inside_cone
from circuitlab.analysis.ordering import head_names
from circuitlab.counting import number
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

    `sender`: a head or, with `writer` "mlp", the MLP of its layer. `receivers` () means every head of every later layer.
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
class PathPatchingResult(PatchEffects, Result):
    """`values` [through, layer, head]: the target after patching; NaN for heads that are not receivers or not computed yet.

    `names`: the entries of the axis `through`. `total`: the target with the sender patched for every reader; `clean`, `other`: on
    this and on the other prompt. `align`, `differs`, `ids`, `at` as in `PatchingResult`.
    """

    values: np.ndarray = over("through", "layer", "head", unit="logit")
    names: tuple[str, ...] = naming("through")
    align: np.ndarray = over("position", unit="position", none=True)
    differs: np.ndarray = over("position", unit="true or false")
    ids: np.ndarray = over("target and other", unit="token id", none=True)
    clean: float = scalar("logit")
    other: float = scalar("logit")
    total: float = scalar("logit")
    at: int

    def across(self) -> Mapping[str, np.ndarray]:
        """`effect`, `normalised` [through, layer, head], NaN where no head receives; `total`: the effect through all readers."""
        return {"effect": self.effect, "normalised": self.normalised, "total": np.array(self.total - self.clean)}

    def table(self) -> Table:
        """One row per receiver and input."""
        through, layer, head = np.nonzero(~np.isnan(self.values))
        at = (through, layer, head)
        return Table(
            (
                Column("receiver", head_names(layer, head)),
                Column("through", np.array(self.names, dtype=str)[through]),
                Column("patched", self.values[at], "logit"),
                Column("effect", self.effect[at], "logit"),
                Column("normalised", self.normalised[at]),
            )
        )


def _memory(config: ModelConfig, n: int, p: PathPatchingParams) -> int:
    own = n * (8 * config.n_heads * config.d_head + 3 * config.d_model + config.n_heads * n)
    return 8 * (own + rerun_entries(config, n, len(p.source) or n)) + 32 * config.n_layers * config.n_heads


def _refuse(config: ModelConfig, p: PathPatchingParams) -> str | None:
    if config.norm_placement != "pre":
        return "path patching needs pre-norm blocks: here a norm stands between a head's output and the residual stream."
    if p.writer == "mlp" and config.attention_only:
        return "this model has no MLP that could be the sender."
    if p.sender.layer + 1 >= config.n_layers:
        return f"no head comes after layer {p.sender.layer}: the sender must be in an earlier layer than the last."
    return None


def _cost(config: ModelConfig, n: int, p: PathPatchingParams) -> float:
    receivers = len(p.receivers) or config.n_heads * max(0, config.n_layers - 1 - p.sender.layer)
    return of_layers(config, n) / 2 * receivers * len(p.through)


@analysis(version=2, needs="tokens", of_heads=True, lane="slow", memory=_memory, refuse=_refuse, cost=_cost)
def path_patching(inputs: Inputs, p: PathPatchingParams, ctx: Ctx) -> PathPatchingResult:
    """Path patching: the target when one later head alone reads the sender's output from another prompt, through Q, K or V."""
    config = inputs.weights.config
    receivers = _receivers(config, p)
    with torch.inference_mode():
        pair = prompt_pair(inputs, p.source, p.target, p.position, p.contrast, ctx)
        sender = _sender(p)
        total = pair.intervened(_edit(pair, sender), lambda: ctx.tick(0, 1, "the sender patched for every reader"))
        values = np.full((len(p.through), config.n_layers, config.n_heads), np.nan)
        before = ctx.previous
        if isinstance(before, PathPatchingResult) and before.values.shape == values.shape:
            values = before.values.copy()
        n_cells = len(p.through) * len(receivers)
        for layer in sorted({h.layer for h in receivers}, reverse=True):
            heads = sorted({h.head for h in receivers if h.layer == layer})
            for i, through in enumerate(p.through):
                heads_left = [h for h in heads if np.isnan(values[i, layer, h])]
                for head, value in _through(pair, sender, layer, through, heads_left, ctx, f"layer {layer}, {through}"):
                    values[i, layer, head] = value
                ctx.partial(_result(pair, p, values, float(total), min(0.999, float((~np.isnan(values)).sum()) / n_cells)))
    return _result(pair, p, values, float(total), 1.0)


def _receivers(config: ModelConfig, p: PathPatchingParams) -> tuple[Head, ...]:
    check_heads(config, p.sender)
    later = tuple(Head(i, h) for i in range(p.sender.layer + 1, config.n_layers) for h in range(config.n_heads))
    if bad := [h for h in p.receivers if h not in later]:
        got = " ".join(map(str, bad))
        raise BadInput(
            "A receiver is not later than the sender.",
            expected=f"{later[0]} … {later[-1]}",
            got=got,
            remedy="Choose receivers in later layers, or none for all of them.",
        )
    if not p.through:
        raise BadInput(
            "A path leads through a query, key or value.", expected="Q, K or V", got="none", remedy="Choose one or more of them."
        )
    return p.receivers or later


def _sender(p: PathPatchingParams) -> Site:
    return Site("mlp_out", p.sender.layer) if p.writer == "mlp" else Site("result", p.sender.layer, (p.sender.head,))


def _edit(pair: PromptPair, site: Site, path_from: Site | None = None) -> Intervention:
    return Intervention("patch", site, source=pair.source, align=pair.align, path_from=path_from)


def _through(
    pair: PromptPair, sender: Site, layer: int, through: str, heads: list[int], ctx: Ctx, text: str
) -> Iterator[tuple[int, float]]:
    """(head, target value) of receivers in one layer; heads of one key-value group share what they read through K and V."""
    config, part = pair.run.weights.config, PART[through]
    of = (lambda h: h) if part == "q" else config.kv_head
    chosen = sorted({of(h) for h in heads})
    tick = lambda: ctx.tick(layer, config.n_layers, text)
    values_by_head: dict[int, float] = {}
    if pair.paths:
        name: SiteName = part
        for one in chosen:
            values_by_head[one] = float(pair.intervened(_edit(pair, Site(name, layer, (one,)), sender), tick))
    elif chosen:
        tick()
        patched = _changed_reading(pair, sender, layer, part)
        cone = inside_cone(patched, pair.shared(sender.layer))
        acting = [one for one in chosen if bool(cone[one].any())]
        values_by_head = dict.fromkeys(chosen, pair.clean)
        if acting:
            cells = Cells(acting, cone[acting].int().argmax(1).tolist(), lambda some: cone[[acting[c] for c in some]])
            for done, values in patched.values(cells, pair.aim, tick):
                values_by_head |= {acting[c]: v for c, v in zip(done, values.tolist(), strict=True)}
    for head in heads:
        yield head, values_by_head[of(head)]


def _changed_reading(pair: PromptPair, sender: Site, layer: int, part: What) -> PatchedBlock:
    """Queries, keys or values of one layer, as recorded and as read from the stream with the sender's change."""
    run, other_run = pair.run, pair.other_run
    edit = _edit(pair, sender)
    written = run.get(sender.name, sender.layer, sender.heads)
    patched = Editor((edit,), run.tokens, lambda _: other_run).operate(edit, sender, written, 0, sender.heads or None)
    change: Tensor = patched - written
    change = change.sum(0) if sender.name == "result" else change
    stop = slice(0, pair.span.stop)
    x = run.get("resid_pre", layer)[stop] + change[stop]
    read = projected(run, run.weights.layer(layer), layer, x, 0)
    new = run.editor.apply(part, layer, getattr(read, part), 0)
    return PatchedBlock(run, layer, part, run.get(part, layer)[:, stop], new, pair.span)


def _result(pair: PromptPair, p: PathPatchingParams, values: np.ndarray, total: float, done: float) -> PathPatchingResult:
    config = pair.run.weights.config
    sender = f"MLP of layer {p.sender.layer}" if p.writer == "mlp" else str(p.sender)
    shared = config.group > 1 and bool(set(p.through) & {"K", "V"})
    grouped = ("heads of a key-value group share their paths through K and V",) if shared else ()
    path_words = f"output of {sender} patched from {pair.donor}, for one receiver's {' or '.join(p.through)} alone"
    every_reader = f"patched for every reader: {number(total - pair.clean, '+.3f')} (single paths need not add up to it)"
    return PathPatchingResult(
        values=values.copy(),
        names=tuple(p.through),
        total=total,
        **pair.result_fields(),
        conventions=(*pair.inputs.convention_words(), path_words, *grouped, *pair.words(), every_reader),
        done=done,
    )
