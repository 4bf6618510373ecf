"""The MLP neurons with the largest direct effect on a target: activation, effect, and output in tokens.

    MLP = act W_out + b_out,        effect[n] = act[n] · (W_out[n] · D')        direct, at the recorded scale of the final norm
    writes[n] = W_out[n] through the final norm's gain and centring, times W_U, minus its mean over the vocabulary

act includes the gate of a gated MLP. D' is the target's direction (`target`), through a norm after the MLP at its recorded scale
if there is one (`_contributions`). All neurons of a layer and b_out add up to the MLP's direct contribution. Geva et al. 2022,
"Transformer Feed-Forward Layers Build Predictions by Promoting Concepts in the Vocabulary Space".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.attribution._contributions import PARTS_SUM, Directions, directions, refuse_norm_on_stream
from circuitlab.analysis.attribution._recorded_words import at_final_scale
from circuitlab.analysis.base import Column, Ctx, Inputs, Remainder, Result, Table, analysis, at_least, over, read_only, scalar
from circuitlab.analysis.target import position_of, target_at
from circuitlab.model import block
from circuitlab.model.config import ModelConfig
from circuitlab.model.recorded_norm import linear_part
from circuitlab.model.run import Run
from circuitlab.model.subject import Target
from circuitlab.model.weights import NO_NEURONS, Layer, Weights


@dataclass(frozen=True)
class NeuronsParams:
    """The `k` neurons of largest |effect| at `position` (−1 the last); `tokens`: how many each raises and how many it lowers."""

    target: Target = Target()
    position: int = -1
    k: int = at_least(1, 20)
    tokens: int = at_least(0, 5)


@dataclass(frozen=True, kw_only=True, eq=False)
class NeuronsResult(Result):
    """Rows, the largest |effect| first: `layer`, `neuron`, `activation`, `effect` (logits), `top_ids`, `top`, `bottom_ids`,
    `bottom` [row, token]: the tokens that a unit of activation raises and lowers most, in logits before the final norm's scale.

    `every` [layer, neuron]: the effect of each neuron. Per layer: `summed` over its neurons; `bias`; `placed`, what
    interventions put in place of the MLP's output; `mlp`, the MLP's direct contribution. `total`: the target's value.
    `n_neurons`: of the whole model.
    """

    layer: np.ndarray = over("row", unit="index")
    neuron: np.ndarray = over("row", unit="index")
    activation: np.ndarray = over("row", unit="activation units")
    effect: np.ndarray = over("row", unit="logit")
    top_ids: np.ndarray = over("row", "token", unit="token id")
    top: np.ndarray = over("row", "token", unit="logit")
    bottom_ids: np.ndarray = over("row", "token", unit="token id")
    bottom: np.ndarray = over("row", "token", unit="logit")
    every: np.ndarray = over("layer", "neuron", unit="logit")
    summed: np.ndarray = over("layer", unit="logit")
    bias: np.ndarray = over("layer", unit="logit")
    placed: np.ndarray = over("layer", unit="logit")
    mlp: np.ndarray = over("layer", unit="logit")
    ids: np.ndarray = over("position", "target and other", unit="token id", none=True)
    position: int
    total: float = scalar("logit")
    n_neurons: int

    def across(self) -> Mapping[str, np.ndarray]:
        """`effect` [layer, neuron] of every neuron, so that the strongest are chosen by their mean, and `mlp` [layer]."""
        return {"effect": self.every, "mlp": self.mlp}

    def table(self) -> Table:
        """One row per neuron."""
        names = np.array([f"L{a}N{b}" for a, b in zip(self.layer, self.neuron, strict=True)], dtype=str)
        joined = lambda rows: np.array([" ".join(map(str, row)) for row in rows], dtype=str)
        return Table(
            (
                Column("neuron", names),
                Column("activation", self.activation, "activation units"),
                Column("effect", self.effect, "logit"),
                Column("raises", joined(self.top_ids), of="tokens"),
                Column("lowers", joined(self.bottom_ids), of="tokens"),
            )
        )


@dataclass(eq=False)
class _Strongest:
    """The strongest neurons so far: (layer, neuron) [k, 2], activation and effect [k], output direction `writes` [k, d_model]."""

    ids: Tensor
    activation: Tensor
    effect: Tensor
    writes: Tensor

    def with_layer(self, c: ModelConfig, layer: int, act: Tensor, effect: Tensor, weights: Layer, k: int) -> _Strongest:
        """The k strongest of these and of one layer's neurons, with `act` and `effect` [neuron]."""
        assert weights.mlp is not None
        best = effect.abs().topk(min(k, len(effect))).indices
        ids = torch.cat([self.ids, torch.stack([torch.full_like(best, layer), best], dim=1)])
        merged = [torch.cat(pair) for pair in ((self.activation, act[best]), (self.effect, effect[best]))]
        order = merged[1].abs().argsort(descending=True, stable=True)[:k]
        writes = weights.mlp.W_out[best]
        if c.norm != "none" and c.norm_placement in ("post_sublayer", "both"):
            writes = linear_part(writes, weights.mlp_post_norm, c.norm)
        return _Strongest(ids[order], merged[0][order], merged[1][order], torch.cat([self.writes, writes])[order])


def activations(run: Run, layer: int, weights: Layer, row: slice) -> Tensor:
    """[row, neuron]: MLP activations, the gate included."""
    c = run.weights.config
    assert weights.mlp is not None
    x = run.get("resid_pre" if c.parallel else "resid_mid", layer, (), row)
    if c.norm_placement in ("pre", "both"):
        x = block.normalise(x, weights.mlp_norm, c.norm, c.norm_eps)
    return block.mlp_hidden(c, weights.mlp, x)


def directions_at_mlp(run: Run, weights: Layer, D: Directions, act: Tensor) -> tuple[Directions, Tensor]:
    """(E, constant [row]): the directions for the MLP's output, through a norm after it if there is one."""
    c, mlp = run.weights.config, weights.mlp
    assert mlp is not None
    if c.norm_placement not in ("post_sublayer", "both") or c.norm == "none":
        return D, torch.zeros_like(D.scale[:, 0])
    output = act @ mlp.W_out
    return D.before_norm(c, weights.mlp_post_norm, output if mlp.b_out is None else output + mlp.b_out)


def in_tokens(weights: Weights, writes: Tensor, k: int) -> tuple[np.ndarray, ...]:
    """(ids, values, ids, values) [row, k]: the tokens that output directions [row, d_model] raise most and lower most."""
    c, ends = weights.config, weights.unembed()
    if c.final_norm and c.norm != "none":
        writes = linear_part(writes, ends.norm, c.norm)
    out = writes @ ends.W_U
    out = out - out.mean(dim=1, keepdim=True)
    k = min(max(0, k), out.shape[1])
    top, bottom = out.topk(k, dim=1), out.topk(k, dim=1, largest=False)
    return top.indices.cpu().numpy(), top.values.cpu().numpy(), bottom.indices.cpu().numpy(), bottom.values.cpu().numpy()


def _memory(config: ModelConfig, n: int, p: NeuronsParams) -> int:
    k = max(1, p.k)
    rows = 3 * config.d_model * (k + min(k, config.d_mlp)) + 3 * k * config.d_vocab_out
    return 8 * (rows + 6 * config.d_mlp + 3 * config.n_heads * n) + 4 * config.n_layers * config.d_mlp


def _refuse(config: ModelConfig, p: NeuronsParams) -> str | None:
    if not config.n_layers:
        return "this model has no layers, and so no MLP neurons."
    if config.attention_only:
        return "this model is attention-only: it has no MLP neurons."
    return NO_NEURONS if config.experts is not None else refuse_norm_on_stream(config)


@analysis(version=4, needs="tokens", lane="live", memory=_memory, refuse=_refuse)
def neurons(inputs: Inputs, p: NeuronsParams, ctx: Ctx) -> NeuronsResult:
    """The MLP neurons with the largest direct effect on a target at a position."""
    run, c = inputs.run(), inputs.weights.config
    position = position_of(run.n, p.position)
    row, k = slice(position, position + 1), max(1, p.k)
    with torch.inference_mode():
        assert run.final is not None
        vector = target_at(inputs, p.target, (position,))
        D, _ = directions(inputs.weights, vector, run.final[row], shared=True)
        none = torch.zeros(0, dtype=D.base.dtype)
        strongest = _Strongest(torch.zeros(0, 2, dtype=torch.int64), none, none, none.reshape(0, c.d_model))
        sums = np.zeros((4, c.n_layers))  # neurons, bias, placed, MLP
        every = np.zeros((c.n_layers, c.d_mlp), dtype=inputs.subject.conventions.dtype)
        for layer in range(c.n_layers):
            ctx.tick(layer, c.n_layers, f"layer {layer}")
            strongest, sums[:, layer], every[layer] = _layer(run, layer, D, row, strongest, k)
        ctx.tick(c.n_layers, c.n_layers, "in tokens")
        tokens = in_tokens(inputs.weights, strongest.writes, p.tokens)
        total = float(vector.measure(run.weights, run.final[row])[0])
        return _result(inputs, run, p, (strongest, sums, every, tokens), vector.words, vector.ids, total)


def _layer(
    run: Run, layer: int, D: Directions, row: slice, strongest: _Strongest, k: int
) -> tuple[_Strongest, np.ndarray, np.ndarray]:
    """(strongest with this layer's, sums [4]: neurons, bias, placed by interventions, MLP; effect of each neuron)."""
    weights = run.weights.layer(layer)
    mlp = weights.mlp
    assert mlp is not None
    act = activations(run, layer, weights, row)
    E, constant = directions_at_mlp(run, weights, D, act)
    share = run.editor.kept_share(layer, ("mlp_out",), act.new_empty(run.n, 1))[row][0, 0]
    effect = act[0] * (mlp.W_out @ E.base[0]) * E.scale[0] * share
    bias = (constant if mlp.b_out is None else constant + E.of(mlp.b_out[None])) * share
    whole, summed = float(D.of(run.get("mlp_out", layer, (), row))), float(effect.sum())
    placed = whole - summed - float(bias) if float(share) != 1 else 0.0
    sums = np.array([summed, float(bias), placed, whole])
    return strongest.with_layer(run.weights.config, layer, act[0], effect, weights, k), sums, effect.cpu().numpy()


def _result(
    inputs: Inputs,
    run: Run,
    p: NeuronsParams,
    parts: tuple[_Strongest, np.ndarray, np.ndarray, tuple[np.ndarray, ...]],
    words: str,
    ids: Tensor,
    total: float,
) -> NeuronsResult:
    strongest, sums, every, tokens = parts
    c = inputs.weights.config
    left = float(np.abs(sums[0] + sums[1] + sums[2] - sums[3]).max())
    return NeuronsResult(
        layer=read_only(strongest.ids[:, 0].cpu().numpy()),
        neuron=read_only(strongest.ids[:, 1].cpu().numpy()),
        activation=strongest.activation.cpu().numpy(),
        effect=strongest.effect.cpu().numpy(),
        top_ids=tokens[0],
        top=tokens[1],
        bottom_ids=tokens[2],
        bottom=tokens[3],
        every=every,
        summed=sums[0],
        bias=sums[1],
        placed=sums[2],
        mlp=sums[3],
        ids=read_only(ids.cpu().numpy()),
        position=position_of(run.n, p.position),
        total=total,
        n_neurons=c.n_layers * c.d_mlp,
        conventions=(*inputs.convention_words(), words, f"direct effects{at_final_scale(c)}"),
        remainder=Remainder(left, float(np.abs(sums).sum(0).max()), "logits", PARTS_SUM),
    )
