"""Conventions as another `Weights`: norm gains folded into what reads, writing weights and the unembedding centred.

For norms before sublayers ("pre") with gain g and bias b:

    reading weight  W -> diag(g) W,     its bias  c -> c + b W,     then gain 1 and bias 0

is exact. With a LayerNorm, which subtracts the mean itself, everything that writes to the stream may also lose its mean over
d_model. Centring `W_U` over the vocabulary shifts all logits of a position alike. None of this changes a log-probability; logits
then stand minus their vocabulary mean (soft-capped logits are left uncentred, where centring would not be exact).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Conventions
from circuitlab.model.tokenizer import Tokenizer
from circuitlab.model.weights import Embed, Layer, Mlp, Norm, Unembed, Weights

_TORCH = {"float32": torch.float32, "float64": torch.float64}


def under(weights: Weights, conventions: Conventions) -> Weights:
    """`weights` as `conventions` presents them; the same object where nothing changes. Folded layers are kept once made."""
    dtype = _TORCH[conventions.dtype]
    same = not (conventions.fold_norm or conventions.centre) and weights.embed().W_E.dtype == dtype
    return weights if same else FoldedWeights(weights, conventions)


def centres_writes(config: ModelConfig, conventions: Conventions) -> bool:
    """Whether everything that writes to the stream loses its mean over d_model: exact where every reader is a LayerNorm."""
    reads_centred = config.norm == "layer" and config.norm_placement == "pre" and config.final_norm
    return conventions.centre and reads_centred


class FoldedWeights:
    """See the module. Keeps what it has folded where the model is resident; folds anew at each call where it is mapped."""

    def __init__(self, raw: Weights, conventions: Conventions) -> None:
        self.raw, self.conventions = raw, conventions
        self._layers: dict[int, Layer] = {}
        self._embed: Embed | None = None
        self._unembed: Unembed | None = None
        c = raw.config
        self._fold = conventions.fold_norm and c.norm != "none" and c.norm_placement in ("pre", "both")
        self._fold_final = conventions.fold_norm and c.norm != "none" and c.final_norm
        self._centre_writes = centres_writes(c, conventions)
        self._centre_logits = conventions.centre and c.logit_soft_cap == 0

    @property
    def config(self) -> ModelConfig:
        """The raw model's: shapes do not change."""
        return self.raw.config

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The raw model's."""
        return self.raw.tokenizer

    @property
    def resident(self) -> bool:
        """The raw model's."""
        return self.raw.resident

    def embed(self) -> Embed:
        """Embeddings, centred over d_model where that is exact."""
        made = self._embed or self._folded_embed()
        if self.resident:
            self._embed = made
        return made

    def layer(self, i: int, mlp: bool = True) -> Layer:
        """Block i, folded."""
        if i in self._layers:
            return self._layers[i]
        whole = mlp or self.resident
        made = self._folded_layer(self.raw.layer(i, whole))
        if self.resident:
            self._layers[i] = made
        return made

    def unembed(self) -> Unembed:
        """The unembedding, its norm folded in and centred over the vocabulary."""
        made = self._unembed or self._folded_unembed()
        if self.resident:
            self._unembed = made
        return made

    def _folded_embed(self) -> Embed:
        raw = self.raw.embed()
        # shortformer positions are added to what queries and keys read, behind the norm: their mean counts
        move_pos = self.config.positions != "shortformer"
        pos = None if raw.W_pos is None else self._cast(raw.W_pos)
        return Embed(self._written(self._cast(raw.W_E)), self._written(pos) if move_pos and pos is not None else pos)

    def _folded_unembed(self) -> Unembed:
        raw = self.raw.unembed()
        W, norm = self._cast(raw.W_U), self._cast_norm(raw.norm)
        b = None if raw.b_U is None else self._cast(raw.b_U)
        if self._fold_final:
            b = _moved(b, norm.bias, W)
            W, norm = (W if norm.gain is None else norm.gain[:, None] * W), Norm()
        if self._centre_logits:
            W = W - W.mean(dim=1, keepdim=True)
            b = None if b is None else b - b.mean()
        return Unembed(W, b, norm)

    def _cast(self, x: Tensor) -> Tensor:
        """Before anything is folded: in float64 the products of folding count too."""
        return x.to(_TORCH[self.conventions.dtype])

    def _cast_norm(self, norm: Norm) -> Norm:
        gain = None if norm.gain is None else self._cast(norm.gain)
        return Norm(gain, None if norm.bias is None else self._cast(norm.bias))

    def _written(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=-1, keepdim=True) if self._centre_writes else x

    def _folded_layer(self, raw: Layer) -> Layer:
        raw = self._cast_layer(raw)
        # shortformer adds positions behind the norm, where a folded gain would reach them too
        reads = self._fold and self.config.positions != "shortformer"
        attention = self._folded_attention(raw) if reads else raw
        mlp = attention.mlp
        if mlp is not None and self._fold:
            mlp = _folded_mlp(mlp, raw.mlp_norm)
            attention = replace(attention, mlp_norm=Norm())
        if mlp is not None:
            out = None if mlp.b_out is None else self._written(mlp.b_out)
            mlp = replace(mlp, W_out=self._written(mlp.W_out), b_out=out)
        b_O = None if attention.b_O is None else self._written(attention.b_O)
        return replace(attention, mlp=mlp, W_O=self._written(attention.W_O), b_O=b_O)

    def _folded_attention(self, raw: Layer) -> Layer:
        gain, bias = raw.attn_norm.gain, raw.attn_norm.bias
        folded = {}
        for name in "QKV":
            W, b = getattr(raw, f"W_{name}"), getattr(raw, f"b_{name}")
            if bias is not None:
                shift = torch.einsum("d,hdk->hk", bias, W)
                b = shift if b is None else b + shift
            folded |= {f"W_{name}": W if gain is None else gain[None, :, None] * W, f"b_{name}": b}
        return replace(raw, attn_norm=Norm(), **folded)

    def _cast_layer(self, layer: Layer) -> Layer:
        changed = {}
        for name, value in vars(layer).items():
            if isinstance(value, Tensor):
                changed[name] = self._cast(value)
            elif isinstance(value, Norm):
                changed[name] = self._cast_norm(value)
        mlp = layer.mlp
        if mlp is not None:
            cast: dict[str, Any] = {n: self._cast(v) for n, v in vars(mlp).items() if isinstance(v, Tensor)}
            mlp = Mlp(**cast, norm=self._cast_norm(mlp.norm))
        return replace(layer, mlp=mlp, **changed)


def _moved(c: Tensor | None, bias: Tensor | None, W: Tensor) -> Tensor | None:
    """c + bias W."""
    if bias is None:
        return c
    return bias @ W if c is None else c + bias @ W


def _folded_mlp(mlp: Mlp, norm: Norm) -> Mlp:
    scaled = lambda W: W if norm.gain is None else norm.gain[:, None] * W
    return replace(
        mlp,
        W_in=scaled(mlp.W_in),
        b_in=_moved(mlp.b_in, norm.bias, mlp.W_in),
        W_gate=None if mlp.W_gate is None else scaled(mlp.W_gate),
        b_gate=None if mlp.W_gate is None else _moved(mlp.b_gate, norm.bias, mlp.W_gate),
    )
