"""The queries and keys of one head as sums over the components that wrote the residual streams they read.

    q_d = Σ_c q_d^c,    k_s = Σ_c k_s^c,        c: embedding, position, biases, earlier MLPs and heads, interventions

exact on this run: the scales of norms and q/k norms are the recorded ones, and the parts include smearing and rotation, which are
linear in the key. They are cached per head: `score_expansion` multiplies them, so that each cell of a pattern costs one small
product. Shortformer positions enter after the norm, on both sides; ALiBi enters neither, as it is added to the score. A score is
then Σ_{c, c′} scale · q_d^c · k_s^{c′} (Elhage et al. 2021, "QK circuit"; Q- and K-composition).

Queries and keys are not averaged over prompts, whose positions hold other tokens: `score_expansion` averages the scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.attribution._linear_reading import INTERVENTIONS, Part, Reading, merged, parts_before
from circuitlab.analysis.attribution._recorded_words import recorded_scales
from circuitlab.analysis.base import Column, Ctx, Inputs, Remainder, Result, Table, analysis, naming, over
from circuitlab.analysis.chosen_heads import check_heads
from circuitlab.model import block
from circuitlab.model.config import ModelConfig
from circuitlab.model.positions import rotate
from circuitlab.model.run import Run
from circuitlab.model.subject import Head
from circuitlab.model.weights import Layer

Side = Literal["Q", "K"]
ORDER = ("embedding", "position", "bias", "mlp", "head", "intervention")
OWN_BIAS = "own bias"


@dataclass(frozen=True)
class ScorePartsParams:
    """The head whose queries and keys are decomposed."""

    head: Head = Head(0, 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class ScorePartsResult(Result):
    """`q` [component, dest, d_head], `k` [component, src, d_head] in the run's precision, without the score scale.

    `heads` int64 [component, 2] (layer, head), −1 for components that are no heads; `kinds` and `names` [component] are the same
    on both sides ("own bias" is b_Q on one, b_K on the other); `scale`: the factor of q·k.
    """

    q: np.ndarray = over("component", "destination", "entry", unit="activation units")
    k: np.ndarray = over("component", "source", "entry", unit="activation units")
    heads: np.ndarray = over("component", "(layer, head)", unit="index", none=True)
    kinds: tuple[str, ...] = naming("component", further=True)
    names: tuple[str, ...] = naming("component")
    scale: float

    def named(self, side: Side) -> tuple[str, ...]:
        """Names of the components on one side: Q for the destination's, K for the source's."""
        return tuple(f"b_{side}" if name == OWN_BIAS else name for name in self.names)

    def table(self) -> Table:
        """One row per component: its mean score with the whole keys and with the whole queries, over positions d = s."""
        whole_q, whole_k = self.q.sum(0), self.k.sum(0)
        as_query = self.scale * (self.q * whole_k).sum(-1).mean(1)
        as_key = self.scale * (self.k * whole_q).sum(-1).mean(1)
        return Table(
            (
                Column("component", np.array(self.names)),
                Column("kind", np.array(self.kinds)),
                Column("destination side", as_query, "score at d = s"),
                Column("source side", as_key, "score at d = s"),
            )
        )


def read_by_attention(run: Run, i: int) -> Tensor:
    """[pos, d_model]: the input of attention in layer i: the stream after its norm."""
    c, x = run.weights.config, run.get("resid_pre", i)
    if c.norm_placement not in ("pre", "both"):
        return x
    return block.normalise(x, run.weights.layer(i, mlp=False).attn_norm, c.norm, c.norm_eps)


def added_positions(run: Run, i: int) -> Tensor | None:
    """[pos, d_model]: shortformer positions, which queries and keys of layer i read in addition to the stream; None without."""
    c, W_pos = run.weights.config, run.weights.embed().W_pos
    return W_pos[: run.n] if c.positions == "shortformer" and c.positional(i) and W_pos is not None else None


def _raw_parts(run: Run, head: Head, ctx: Ctx) -> list[Part]:
    """Parts [pos, 2 · d_head], query and key concatenated, before q/k norm, smearing and rotation."""
    c, i, group = run.weights.config, head.layer, run.weights.config.kv_head(head.head)
    layer = run.weights.layer(i, mlp=False)
    W = torch.cat([layer.W_Q[head.head], layer.W_K[group]], dim=1)
    reading, own_parts = Reading(W, torch.ones(run.n, 1, dtype=W.dtype)), list[Part]()
    if c.norm_placement in ("pre", "both"):
        reading, own_parts = reading.before_norm(layer.attn_norm, c.norm, run.get("attn_norm_scale", i))
    if (positions := added_positions(run, i)) is not None:
        own_parts.append(Part("position", "position", positions @ W))
    if layer.b_Q is not None or layer.b_K is not None:
        zero = torch.zeros(c.d_head, dtype=W.dtype)
        b_Q = zero if layer.b_Q is None else layer.b_Q[head.head]
        b_K = zero if layer.b_K is None else layer.b_K[group]
        own_parts.append(Part(OWN_BIAS, "bias", torch.cat([b_Q, b_K]).expand(run.n, -1)))
    own_parts = [Part(p.name, p.kind, p.value.expand(run.n, -1)) for p in own_parts]
    return merged([*parts_before(run, i, reading, ctx.tick), *own_parts])


def _through_norm(run: Run, head: Head, layer: Layer, parts: list[Part], side: Side) -> list[Part]:
    """Parts [pos, d_head] after a q or k norm at the scale of their sum, or of all heads' if the norm is over all heads."""
    c = run.weights.config
    if c.qk_norm == "none":
        return parts
    row, norm = (head.head, layer.q_norm) if side == "Q" else (c.kv_head(head.head), layer.k_norm)
    scale = _norm_over_all(run, head, layer, side) if c.qk_norm_over == "all" else None
    if scale is None:
        scale = block.norm_scale(torch.stack([p.value for p in parts]).sum(0), c.qk_norm, c.norm_eps)
    norm = norm.of_head(row)
    reading, constant = Reading(torch.eye(c.d_head, dtype=scale.dtype), torch.ones_like(scale)).before_norm(
        norm, c.qk_norm, scale
    )
    normed = [Part(p.name, p.kind, reading.of(p.value), p.head) for p in parts]
    return merged([*normed, *(Part(p.name, p.kind, p.value.expand_as(parts[0].value)) for p in constant)])


def _norm_over_all(run: Run, head: Head, layer: Layer, side: Side) -> Tensor:
    """[pos, 1]: the scale of a norm over the queries (keys) of all heads at once."""
    c = run.weights.config
    W, b = (layer.W_Q, layer.b_Q) if side == "Q" else (layer.W_K, layer.b_K)
    read, positions = read_by_attention(run, head.layer), added_positions(run, head.layer)
    every = torch.einsum("pd,hdk->hpk", read if positions is None else read + positions, W)
    return block.heads_scale(c, every if b is None else every + b[:, None, :])[0]


def _positioned(run: Run, head: Head, layer: Layer, x: Tensor, side: Side) -> Tensor:
    """[component, pos, d_head]: parts after smearing and rotation, as attention uses them."""
    c = run.weights.config
    if side == "K" and layer.smear is not None:
        group = c.kv_head(head.head)
        x = block.smear(x[:, None], layer.smear[group : group + 1])[:, 0]
    rotary = c.rotation(head.layer)
    return x if rotary is None else rotate(x, rotary, 0)


def _intervention_change(run: Run, head: Head, layer: Layer, side: Side) -> Tensor | None:
    """[pos, d_head]: the change that interventions make to the query or key itself; None without one."""
    if not run.editor.touches(head.layer, side.lower()):
        return None
    read, W_pos = read_by_attention(run, head.layer), run.weights.embed().W_pos
    computed = block.queries_keys_values(run.weights.config, layer, head.layer, read, 0, W_pos, None)
    row = head.head if side == "Q" else run.weights.config.kv_head(head.head)
    return run.get(side.lower(), head.layer, (row,))[0] - getattr(computed, side.lower())[row]


def _side(run: Run, head: Head, layer: Layer, raw: list[Part], side: Side) -> list[Part]:
    """Parts of the queries or of the keys as attention uses them."""
    c = run.weights.config
    columns = slice(None, c.d_head) if side == "Q" else slice(c.d_head, None)
    parts = [Part(p.name, p.kind, p.value[:, columns], p.head) for p in raw]
    parts = _through_norm(run, head, layer, parts, side)
    values = _positioned(run, head, layer, torch.stack([p.value for p in parts]), side)
    side_parts = [Part(p.name, p.kind, v, p.head) for p, v in zip(parts, values, strict=True)]
    change = _intervention_change(run, head, layer, side)
    return merged(side_parts if change is None else [*side_parts, Part(INTERVENTIONS, "intervention", change)])


def _memory(c: ModelConfig, n: int, p: ScorePartsParams) -> int:
    components = p.head.layer * (c.n_heads + 2) + 5
    patterns = 3 * c.n_heads * n * (n + c.d_head)
    weights = c.n_heads * c.d_head * (c.d_model + 4 * c.d_head) + 4 * c.d_model * c.d_head
    return 8 * (8 * components * n * c.d_head + patterns + weights + 6 * n * c.d_model)


@analysis(version=1, needs="tokens", of_heads=True, lane="live", memory=_memory)
def score_parts(inputs: Inputs, p: ScorePartsParams, ctx: Ctx) -> ScorePartsResult:
    """A head's queries and keys as sums over embedding, position, biases, earlier MLPs and heads."""
    run, c = inputs.run(), inputs.weights.config
    check_heads(c, p.head)
    with torch.inference_mode():
        raw = _raw_parts(run, p.head, ctx)
        layer = inputs.weights.layer(p.head.layer, mlp=False)
        sides = {side: {part.name: part for part in _side(run, p.head, layer, raw, side)} for side in ("Q", "K")}
        components = sorted(
            {**sides["Q"], **sides["K"]}.values(), key=lambda part: (ORDER.index(part.kind), part.head or (-1, -1))
        )
        zero = torch.zeros(run.n, c.d_head, dtype=layer.W_Q.dtype)
        q, k = (torch.stack([sides[s][x.name].value if x.name in sides[s] else zero for x in components]) for s in ("Q", "K"))
        remainder = _remainder(run, p.head, q, k)
    return ScorePartsResult(
        q=q.cpu().numpy(),
        k=k.cpu().numpy(),
        heads=np.array([part.head or (-1, -1) for part in components], dtype=np.int64),
        kinds=tuple(part.kind for part in components),
        names=tuple(part.name for part in components),
        scale=c.score_scale,
        remainder=remainder,
        conventions=(*inputs.convention_words(), *words(c, p.head.layer)),
    )


def _remainder(run: Run, head: Head, q: Tensor, k: Tensor) -> Remainder:
    """The run's own queries and keys minus the sums of parts."""
    group = run.weights.config.kv_head(head.head)
    whole = torch.cat([run.get("q", head.layer, (head.head,))[0], run.get("k", head.layer, (group,))[0]])
    size = float((whole - torch.cat([q.sum(0), k.sum(0)])).abs().max())
    return Remainder(size, float(whole.abs().max()), "in queries and keys", "largest entry")


def words(c: ModelConfig, layer: int) -> tuple[str, ...]:
    """What is held at its recorded values in the queries and keys of a layer, for captions."""
    included = ["rotation"] * (c.rotation(layer) is not None) + ["smearing"] * c.smeared_keys
    phrases = [f"at recorded {recorded_scales(c)}"] * bool(recorded_scales(c))
    phrases += ["MLPs as recorded"] * (not c.attention_only and layer > 0)
    return (*phrases, *([f"{' and '.join(included)} included"] * bool(included)))
