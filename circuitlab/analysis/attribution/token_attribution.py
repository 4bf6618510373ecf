"""Token attribution: each source token's direct contribution to a target through each head.

    value[h, d, s] = A[d, s] · (v_s W_O^h · D'_d)

D' is the target's direction at the recorded scale of the final norm (`target`), minus its mean over the vocabulary, so that what
raises all tokens alike does not count; v_s includes the value bias. "sources": one destination, every source. "destinations": one
source, its effect on the target of each position that can attend to it. Elhage et al. 2021 show it for induction heads.

If an intervention replaces a head's output, its sources contribute 0 (the scaled value if it scales), and the replacement's own
contribution is given as `placed`, so that sources and `placed` add up to the head's contribution.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.attribution._contributions import (
    PARTS_SUM,
    Directions,
    directions,
    directions_at_heads,
    head_contributions,
    refuse_norm_on_stream,
)
from circuitlab.analysis.attribution._recorded_words import at_final_scale
from circuitlab.analysis.base import Column, Ctx, Inputs, Remainder, Result, Table, analysis, over, read_only, scalar
from circuitlab.analysis.chosen_heads import by_layer, chosen_heads
from circuitlab.analysis.target import MINUS_MEAN, TargetVector, position_of, target_at
from circuitlab.counting import number_of
from circuitlab.model import block
from circuitlab.model.config import ModelConfig
from circuitlab.model.run import Run
from circuitlab.model.subject import Head, Target

AT_ONCE = 4  # heads whose whole patterns are in memory together
NEAR = 16  # distances below this are averaged over prompts one by one


@dataclass(frozen=True)
class TokenAttributionParams:
    """`position` is the destination ("sources") or the source ("destinations"), −1 the last; `heads` () means all."""

    target: Target = Target()
    position: int = -1
    heads: tuple[Head, ...] = ()
    direction: Literal["sources", "destinations"] = "sources"


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenAttributionResult(Result):
    """`values` [head, pos] in logits, NaN where the mask hides a position; `summed` [pos] over these heads; `heads` [head, 2].

    For "sources": `placed` [head], what interventions put in place of a head's output; `total`, the target's value; `rest`, the
    part of it that is neither from sources through these heads nor `placed`. NaN for "destinations". `ids` [pos or 1, 2].
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
        """Sums over positions, since a position means something else in every prompt.

        `heads` [layer, head] ([head] for a choice of heads): a head's sum over all sources, or over all destinations.
        `by_distance` [NEAR + 1]: the sum over these heads at distance |destination − source| of 0, 1, …, NEAR − 1, and NEAR or
        more; NaN if the prompt is too short for the distance.
        """
        every = tuple((self.heads[-1] + 1).tolist())
        by_head = np.where(np.isnan(self.values).all(axis=1), np.nan, np.nansum(self.values, axis=1))
        distance = np.minimum(np.abs(np.arange(len(self.summed)) - self.position), NEAR)
        visible = ~np.isnan(self.summed)
        has_any = np.bincount(distance[visible], minlength=NEAR + 1) > 0
        far = np.bincount(distance[visible], weights=self.summed[visible], minlength=NEAR + 1)
        return {
            "heads": by_head.reshape(every) if np.array_equal(np.argwhere(np.ones(every)), self.heads) else by_head,
            "by_distance": np.where(has_any, far, np.nan),
        }

    def table(self) -> Table:
        """One row per position, a column per head."""
        names = [str(Head(*map(int, h))) for h in self.heads]
        columns = [Column("position", np.arange(len(self.summed))), Column("id", self.tokens, of="token")]
        columns += [Column("summed", self.summed, "logit")]
        return Table((*columns, *(Column(n, v, "logit") for n, v in zip(names, self.values, strict=True))))


def centred_target(inputs: Inputs, vector: TargetVector, target: Target) -> TargetVector:
    """The target minus its mean over the vocabulary: differs for the logit of one token, unless W_U is centred already."""
    if target.direction or len(target.tokens) == 2 or vector.centred:
        return vector
    ends = inputs.weights.unembed()
    offset = vector.offset if ends.b_U is None else vector.offset - ends.b_U.mean()
    return replace(vector, D=vector.D - ends.W_U.mean(dim=1), offset=offset, words=vector.words + MINUS_MEAN, centred=True)


def _memory(config: ModelConfig, n: int, p: TokenAttributionParams) -> int:
    count = len(p.heads) or config.n_layers * config.n_heads
    row = 4 * config.n_heads * (config.d_model + n) + 8 * n * config.d_model
    whole = 4 * AT_ONCE * n * n if p.direction == "destinations" else 4 * config.n_heads * n
    return 8 * (row + whole + count * n + 2 * config.d_vocab_out)


def _refuse(config: ModelConfig, p: TokenAttributionParams) -> str | None:
    return refuse_norm_on_stream(config)


@analysis(version=2, needs="tokens", of_heads=True, lane="live", memory=_memory, refuse=_refuse)
def token_attribution(inputs: Inputs, p: TokenAttributionParams, ctx: Ctx) -> TokenAttributionResult:
    """Token attribution: direct effects of all sources on a target through each head, or of one source on later targets."""
    run, config = inputs.run(), inputs.weights.config
    heads, position = chosen_heads(config, p.heads), position_of(run.n, p.position)
    with torch.inference_mode():
        direction = _Sources if p.direction == "sources" else _Destinations
        return direction(inputs, p, run, heads, position).compute(ctx)


class _TokenEffects:
    """The common part of both directions: the target at the destinations, and the layers of the chosen heads."""

    def __init__(
        self, inputs: Inputs, p: TokenAttributionParams, run: Run, heads: tuple[Head, ...], position: int, dest: slice
    ) -> None:
        self.inputs, self.p, self.run, self.heads, self.position, self.dest = inputs, p, run, heads, position, dest
        self.vector = centred_target(inputs, target_at(inputs, p.target, range(run.n)[dest]), p.target)
        assert run.final is not None
        shared = bool(p.target.tokens or p.target.direction)
        self.D, _ = directions(inputs.weights, self.vector, run.final[dest], shared)
        self.values = np.full((len(heads), run.n), np.nan, np.float64 if self.D.scale.dtype == torch.float64 else np.float32)

    def layers(self, ctx: Ctx) -> Iterator[tuple[int, list[int], list[int]]]:
        """(layer, indices into `heads`, heads of the layer), one layer at a time."""
        n_layers = self.inputs.weights.config.n_layers
        for layer, heads, places in by_layer(self.heads):
            ctx.tick(layer, n_layers, f"layer {layer}")
            yield layer, places, heads

    def values_of(self, layer: int, heads: list[int]) -> Tensor:
        """[head, src, d_head]: the values that these heads read."""
        c = self.run.weights.config
        return self.run.get("v", layer)[[c.kv_head(h) for h in heads]]

    def share(self, layer: int, heads: list[int]) -> Tensor:
        """[head, dest]: the factor that interventions after the pattern leave of the sources' contributions."""
        like = self.D.scale.new_empty(self.run.weights.config.n_heads, self.run.n, 1)
        return self.run.editor.kept_share(layer, ("z", "result"), like)[heads, self.dest, 0]

    def directions_at(self, layer: int, z: Tensor) -> Directions:
        """The directions at the destinations for the head outputs of a layer."""
        return directions_at_heads(self.run, layer, self.run.weights.layer(layer, mlp=False), self.D, z, self.dest)[0]

    def result(self, **more: object) -> TokenAttributionResult:
        """The result, with the fields that both directions share."""
        visible = ~np.isnan(self.values).all(axis=0)
        summed = np.where(visible, np.nansum(self.values, axis=0), np.nan).astype(self.values.dtype)
        some = "all heads" if not self.p.heads else number_of(len(self.heads), "head")
        words = (self.vector.words, f"direct effects through {some}{at_final_scale(self.run.weights.config)}")
        return TokenAttributionResult(
            values=self.values,
            summed=summed,
            heads=read_only(np.array(self.heads, dtype=np.int64).reshape(-1, 2)),
            ids=read_only(self.vector.ids.cpu().numpy()),
            tokens=read_only(np.array(self.run.tokens)),
            position=self.position,
            conventions=(*self.inputs.convention_words(), *words),
            **more,  # type: ignore[arg-type]
        )


class _Sources(_TokenEffects):
    """One destination and all of its visible sources."""

    def __init__(self, inputs: Inputs, p: TokenAttributionParams, run: Run, heads: tuple[Head, ...], position: int) -> None:
        super().__init__(inputs, p, run, heads, position, slice(position, position + 1))

    def compute(self, ctx: Ctx) -> TokenAttributionResult:
        """Values, what interventions placed, the rest, and the remainder of the heads' contributions."""
        by_head, from_sources = np.zeros(len(self.heads)), np.zeros(len(self.heads))
        edited = np.zeros(len(self.heads), dtype=bool)
        for layer, where, heads in self.layers(ctx):
            z = self.run.get("z", layer, (), self.dest)
            E, weights = self.directions_at(layer, z), self.run.weights.layer(layer, mlp=False)
            q = (E.base @ block.flat_out(weights.W_O).T).unflatten(1, (-1, weights.W_O.shape[1]))[0, heads] * E.scale[0]
            share = self.share(layer, heads)
            pattern = self.run.get("pattern", layer, tuple(heads), self.dest)[:, 0]
            effects = pattern * (self.values_of(layer, heads) @ q[..., None])[..., 0] * share
            self.values[where] = effects.masked_fill(~self.visible(layer) & (pattern == 0), torch.nan).cpu().numpy()
            by_head[where] = head_contributions(self.run, layer, weights, E, z, self.dest)[heads, 0].double().cpu().numpy()
            edited[where] = (share != 1).any(dim=1).cpu().numpy()
        from_sources[:] = np.nansum(self.values, axis=1)
        assert self.run.final is not None
        total = float(self.vector.measure(self.run.weights, self.run.final[self.dest])[0])
        placed = np.where(edited, by_head - from_sources, 0.0)
        left = float(np.abs(by_head - from_sources - placed).max())
        size = float(np.nansum(np.abs(self.values)) + np.abs(placed).sum())
        remainder = Remainder(left, size, "logits", PARTS_SUM)
        return self.result(placed=placed, total=total, rest=total - float((from_sources + placed).sum()), remainder=remainder)

    def visible(self, layer: int) -> Tensor:
        """[src] bool: which sources the mask and window show."""
        window = self.run.weights.config.window(layer)
        return block.allowed(1, self.run.n, self.position, window)[0]


class _Destinations(_TokenEffects):
    """One source and all destinations that can attend to it, each with its own target."""

    def __init__(self, inputs: Inputs, p: TokenAttributionParams, run: Run, heads: tuple[Head, ...], position: int) -> None:
        super().__init__(inputs, p, run, heads, position, slice(position, run.n))

    def compute(self, ctx: Ctx) -> TokenAttributionResult:
        """Values alone: one source's contributions are no decomposition, so there is no remainder."""
        for layer, where, heads in self.layers(ctx):
            post_norm = self.run.weights.config.norm_placement in ("post_sublayer", "both")
            E = self.directions_at(layer, self.run.get("z", layer, (), self.dest)) if post_norm else self.D
            W_O = self.run.weights.layer(layer, mlp=False).W_O[heads]
            outputs = (self.values_of(layer, heads)[:, self.position : self.position + 1] @ W_O)[:, 0]
            per_attention = (outputs @ E.base.T) * E.scale[:, 0]
            pattern = self.column(layer, heads, ctx)
            effects = pattern * per_attention * self.share(layer, heads)
            self.values[np.ix_(where, range(self.position, self.run.n))] = self.masked(layer, effects).cpu().numpy()
        return self.result(placed=np.full(len(self.heads), np.nan))

    def column(self, layer: int, heads: list[int], ctx: Ctx) -> Tensor:
        """[head, dest]: the pattern at the source, a few heads at a time, as each needs its whole pattern."""
        parts = []
        for i in range(0, len(heads), AT_ONCE):
            ctx.tick(layer, self.run.weights.config.n_layers, f"layer {layer}")
            some = tuple(heads[i : i + AT_ONCE])
            parts.append(self.run.get("pattern", layer, some, self.dest)[..., self.position].clone())
        return torch.cat(parts)

    def masked(self, layer: int, effects: Tensor) -> Tensor:
        """[head, dest] with NaN where the window no longer reaches the source."""
        window = self.run.weights.config.window(layer)
        distance = torch.arange(effects.shape[1])
        return effects.masked_fill(distance >= window, torch.nan) if window else effects
