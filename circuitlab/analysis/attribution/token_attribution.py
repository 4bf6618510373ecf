"""Which earlier tokens raised a target: what each source sent through each head, straight to the logit.

    value[h, d, s] = A[d, s] · (v_s W_O^h · D'_d)

D' is the target's direction at the recorded scale of the final norm (`target`), less its mean over the vocabulary, so that what
raises every token alike does not count; v_s holds the value bias. "sources": one destination, every source. "destinations":
one source, what it did to the own target of every position that sees it. Elhage et al. 2021 show it for induction heads.

Where an intervention replaces a head's output, sources have no part in it: their values are 0 (scaled, where it scales) and
what the intervention put there stands apart (`placed`), so that sources and `placed` add up to the head's contribution.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.attribution._contributions import (
    Directions,
    by_head,
    directions,
    kept_share,
    refuse_norm_on_stream,
    seen_by_heads,
)
from circuitlab.analysis.base import Column, Ctx, Inputs, Remainder, Result, Table, analysis, over, read_only, scalar
from circuitlab.analysis.chosen_heads import chosen_heads
from circuitlab.analysis.target import LESS, TargetVector, position_of, target_at
from circuitlab.counting import number_of
from circuitlab.model import block
from circuitlab.model.config import ModelConfig
from circuitlab.model.run import Run
from circuitlab.model.subject import Head, Target

AT_ONCE = 4  # heads whose patterns are held together
NEAR = 16  # distances that are averaged over prompts one by one


@dataclass(frozen=True)
class TokenAttributionParams:
    """`position` is the destination ("sources") or the source ("destinations"), −1 the last; `heads` () means all."""

    target: Target = Target()
    position: int = -1
    heads: tuple[Head, ...] = ()
    direction: Literal["sources", "destinations"] = "sources"


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenAttributionResult(Result):
    """`values` [head, pos] in logits, NaN where a head cannot see; `summed` [pos] over these heads; `heads` [head, 2].

    For "sources": `placed` [head], what an intervention put in place of a head's output; `total`, the target's value; `rest`,
    what of it came neither from a source through these heads nor is `placed`. NaN for "destinations". `ids` [pos or 1, 2].
    """

    values: np.ndarray = over("head", "position", unit="logit")
    summed: np.ndarray = over("position", unit="logit")
    heads: np.ndarray = over("head", "(layer, head)", unit="index")
    placed: np.ndarray = over("head", unit="logit")
    ids: np.ndarray = over("measured at", "target and other", unit="token id", none=True)
    tokens: np.ndarray = over("position", unit="token id")
    position: int
    total: float = scalar("logit", float("nan"))
    rest: float = scalar("logit", float("nan"))

    ACROSS: ClassVar = {"heads": "logit", "by_distance": "logit"}

    def across(self) -> Mapping[str, np.ndarray]:
        """Sums, since a position means something else in every prompt.

        `heads` [layer, head] ([head] of chosen ones): what a head sent from all sources (to all destinations). `by_distance`
        [NEAR + 1]: what all these heads sent over a distance |destination − source| of 0, 1, …, NEAR − 1, and of NEAR and more;
        NaN where the prompt is too short for it.
        """
        every = tuple((self.heads[-1] + 1).tolist())
        by_head = np.where(np.isnan(self.values).all(axis=1), np.nan, np.nansum(self.values, axis=1))
        distance = np.minimum(np.abs(np.arange(len(self.summed)) - self.position), NEAR)
        seen = ~np.isnan(self.summed)
        there = np.bincount(distance[seen], minlength=NEAR + 1) > 0
        far = np.bincount(distance[seen], weights=self.summed[seen], minlength=NEAR + 1)
        return {
            "heads": by_head.reshape(every) if np.array_equal(np.argwhere(np.ones(every)), self.heads) else by_head,
            "by_distance": np.where(there, far, np.nan),
        }

    def table(self) -> Table:
        """One row per position, a column per head."""
        names = [str(Head(*map(int, h))) for h in self.heads]
        columns = [Column("position", np.arange(len(self.summed))), Column("id", self.tokens, of="token")]
        columns += [Column("summed", self.summed, "logit")]
        return Table((*columns, *(Column(n, v, "logit") for n, v in zip(names, self.values, strict=True))))


def centred_target(inputs: Inputs, aim: TargetVector, target: Target) -> TargetVector:
    """The target less its mean over the vocabulary: changes the logit of one token only, and only where W_U is not centred."""
    if target.direction or len(target.tokens) == 2:
        return aim
    if LESS in aim.words:
        return aim  # W_U is centred already
    ends = inputs.weights.unembed()
    offset = aim.offset if ends.b_U is None else aim.offset - ends.b_U.mean()
    return replace(aim, D=aim.D - ends.W_U.mean(dim=1), offset=offset, words=f"{aim.words}{LESS}")


def _memory(config: ModelConfig, n: int, p: TokenAttributionParams) -> int:
    count = len(p.heads) or config.n_layers * config.n_heads
    row = 4 * config.n_heads * (config.d_model + n) + 8 * n * config.d_model
    whole = 4 * AT_ONCE * n * n if p.direction == "destinations" else 4 * config.n_heads * n
    return 8 * (row + whole + count * n + 2 * config.d_vocab_out)


def _refuse(config: ModelConfig, p: TokenAttributionParams) -> str | None:
    return refuse_norm_on_stream(config)


@analysis(version=1, needs="tokens", of_heads=True, lane="live", memory=_memory, refuse=_refuse)
def token_attribution(inputs: Inputs, p: TokenAttributionParams, ctx: Ctx) -> TokenAttributionResult:
    """Which earlier tokens raised a token through which heads, or what one token did to every later one."""
    run, config = inputs.run(), inputs.weights.config
    heads, position = chosen_heads(config, p.heads), position_of(run.n, p.position)
    with torch.inference_mode():
        sent = _Sources if p.direction == "sources" else _Destinations
        return sent(inputs, p, run, heads, position).found(ctx)


class _Sent:
    """What both directions share: the target at the destinations, and the layers that have chosen heads."""

    def __init__(
        self, inputs: Inputs, p: TokenAttributionParams, run: Run, heads: tuple[Head, ...], position: int, dest: slice
    ) -> None:
        self.inputs, self.p, self.run, self.heads, self.position, self.dest = inputs, p, run, heads, position, dest
        self.aim = centred_target(inputs, target_at(inputs, p.target, range(run.n)[dest]), p.target)
        assert run.final is not None
        shared = bool(p.target.tokens or p.target.direction)
        self.D, _ = directions(inputs.weights, self.aim, run.final[dest], shared)
        self.values = np.full((len(heads), run.n), np.nan, np.float64 if self.D.scale.dtype == torch.float64 else np.float32)

    def layers(self, ctx: Ctx) -> Iterator[tuple[int, list[int], list[int]]]:
        """(layer, places in `heads`, heads of the layer), one layer at a time."""
        n_layers = self.inputs.weights.config.n_layers
        for layer in sorted({h.layer for h in self.heads}):
            ctx.tick(layer, n_layers, f"layer {layer}")
            where = [i for i, h in enumerate(self.heads) if h.layer == layer]
            yield layer, where, [self.heads[i].head for i in where]

    def values_of(self, layer: int, heads: list[int]) -> Tensor:
        """[head, src, d_head]: v as these heads see it."""
        c = self.run.weights.config
        return self.run.get("v", layer)[[c.kv_head(h) for h in heads]]

    def share(self, layer: int, heads: list[int]) -> Tensor:
        """[head, dest]: what interventions behind the pattern leave of what sources sent."""
        where = torch.arange(self.run.n)[self.dest]
        found = kept_share(self.run.edits, layer, ("z", "result"), self.run.weights.config.n_heads, where)
        return found[heads].to(self.D.scale.dtype)

    def seen(self, layer: int, z: Tensor) -> Directions:
        """The directions at the destinations as the heads of a layer see them."""
        return seen_by_heads(self.run, layer, self.run.weights.layer(layer, mlp=False), self.D, z, self.dest)[0]

    def result(self, **more: object) -> TokenAttributionResult:
        """The result, with what both directions say alike."""
        seen = ~np.isnan(self.values).all(axis=0)
        summed = np.where(seen, np.nansum(self.values, axis=0), np.nan).astype(self.values.dtype)
        some = "all heads" if not self.p.heads else number_of(len(self.heads), "head")
        said = (self.aim.words, f"through {some}, directly, at the recorded scale of the final norm")
        return TokenAttributionResult(
            values=self.values,
            summed=summed,
            heads=read_only(np.array(self.heads, dtype=np.int64).reshape(-1, 2)),
            ids=read_only(self.aim.ids.cpu().numpy()),
            tokens=read_only(np.array(self.run.tokens)),
            position=self.position,
            conventions=(*self.inputs.subject.conventions.words(), *said),
            **more,  # type: ignore[arg-type]
        )


class _Sources(_Sent):
    """One destination, every source that it sees."""

    def __init__(self, inputs: Inputs, p: TokenAttributionParams, run: Run, heads: tuple[Head, ...], position: int) -> None:
        super().__init__(inputs, p, run, heads, position, slice(position, position + 1))

    def found(self, ctx: Ctx) -> TokenAttributionResult:
        """Values, what interventions placed, the rest, and how far the sources are from what the heads wrote."""
        wrote, kept = np.zeros(len(self.heads)), np.zeros(len(self.heads))
        edited = np.zeros(len(self.heads), dtype=bool)
        for layer, where, heads in self.layers(ctx):
            z = self.run.get("z", layer, (), self.dest)
            E, weights = self.seen(layer, z), self.run.weights.layer(layer, mlp=False)
            q = (E.base @ block.flat_out(weights.W_O).T).unflatten(1, (-1, weights.W_O.shape[1]))[0, heads] * E.scale[0]
            share = self.share(layer, heads)
            pattern = self.run.get("pattern", layer, tuple(heads), self.dest)[:, 0]
            sent = pattern * (self.values_of(layer, heads) @ q[..., None])[..., 0] * share
            self.values[where] = sent.masked_fill(~self.visible(layer) & (pattern == 0), torch.nan).cpu().numpy()
            wrote[where] = by_head(self.run, layer, weights, E, z, self.dest)[heads, 0].double().cpu().numpy()
            edited[where] = (share != 1).any(dim=1).cpu().numpy()
        kept[:] = np.nansum(self.values, axis=1)
        assert self.run.final is not None
        total = float(self.aim.measure(self.run.weights, self.run.final[self.dest])[0])
        placed = np.where(edited, wrote - kept, 0.0)
        left = float(np.abs(wrote - kept - placed).max())
        size = float(np.nansum(np.abs(self.values)) + np.abs(placed).sum())
        remainder = Remainder(left, size, "logits", "the parts' sizes add up to")
        return self.result(placed=placed, total=total, rest=total - float((kept + placed).sum()), remainder=remainder)

    def visible(self, layer: int) -> Tensor:
        """[src] bool."""
        window = self.run.weights.config.window(layer)
        return block.allowed(1, self.run.n, self.position, window)[0]


class _Destinations(_Sent):
    """One source, every destination that sees it, each with its own target."""

    def __init__(self, inputs: Inputs, p: TokenAttributionParams, run: Run, heads: tuple[Head, ...], position: int) -> None:
        super().__init__(inputs, p, run, heads, position, slice(position, run.n))

    def found(self, ctx: Ctx) -> TokenAttributionResult:
        """Values alone: one column of what arrives is no decomposition."""
        for layer, where, heads in self.layers(ctx):
            norm_behind = self.run.weights.config.norm_placement in ("post_sublayer", "both")
            E = self.seen(layer, self.run.get("z", layer, (), self.dest)) if norm_behind else self.D
            W_O = self.run.weights.layer(layer, mlp=False).W_O[heads]
            written = (self.values_of(layer, heads)[:, self.position : self.position + 1] @ W_O)[:, 0]
            effect = (written @ E.base.T) * E.scale[:, 0]
            pattern = self.column(layer, heads, ctx)
            sent = pattern * effect * self.share(layer, heads)
            self.values[np.ix_(where, range(self.position, self.run.n))] = self.masked(layer, sent).cpu().numpy()
        return self.result(placed=np.full(len(self.heads), np.nan))

    def column(self, layer: int, heads: list[int], ctx: Ctx) -> Tensor:
        """[head, dest]: the pattern at the source, a few heads at a time: each needs its whole pattern."""
        parts = []
        for i in range(0, len(heads), AT_ONCE):
            ctx.tick(layer, self.run.weights.config.n_layers, f"layer {layer}")
            some = tuple(heads[i : i + AT_ONCE])
            parts.append(self.run.get("pattern", layer, some, self.dest)[..., self.position].clone())
        return torch.cat(parts)

    def masked(self, layer: int, sent: Tensor) -> Tensor:
        """[head, dest] with NaN where the window has moved past the source."""
        window = self.run.weights.config.window(layer)
        away = torch.arange(sent.shape[1])
        return sent.masked_fill(away >= window, torch.nan) if window else sent
