"""Conventions as another `Weights`: norm gains folded into the reading weights, writing weights and unembedding centred.

For norms before sublayers ("pre") with gain g and bias b:

    reading weight  W -> diag(g) W,     its bias  c -> c + b W,     then gain 1 and bias 0

is exact. Before a mixture of experts the norm is not folded. With a LayerNorm, which subtracts the mean itself, everything that
writes to the stream may also lose its mean over d_model; where it keeps one (a norm after the sublayer brings it back, or it is
not to be centred), what reads behind a folded LayerNorm loses its own instead, as the norm has taken it off. Centring `W_U` over
the vocabulary shifts all logits of a position alike. None of this changes a log-probability; logits lose their mean over the
vocabulary (soft-capped logits are not centred, as that would not be exact).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from circuitlab.model.config import ModelConfig
from circuitlab.model.lazy_weights import LazyWeights
from circuitlab.model.on_device import WeightsOnDevice
from circuitlab.model.subject import Conventions
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.model.weights import Embed, Layer, Mixture, Mlp, Norm, Unembed, Unread, Weights, mapped, parameters_of

Tokens = slice | Tensor  # consecutive ids, or [token] any
TILE = 2048  # tokens at a time
_TORCH = {"float32": torch.float32, "float64": torch.float64}


def under(weights: Weights, conventions: Conventions, device: str = "cpu") -> Weights:
    """`weights` as `conventions` presents them, on a device; the same object where nothing changes.

    Folded layers of a resident model are cached.
    """
    if device != "cpu":
        return FoldedWeights(weights, conventions, device)
    dtype = _TORCH[conventions.dtype]
    # the embedding of a model in its file is not looked at: that would convert it
    plain = weights.resident and not (conventions.fold_norm or conventions.centre)
    same = plain and weights.embed().W_E.dtype == dtype
    return weights if same else FoldedWeights(weights, conventions)


def embed_rows(weights: Weights, tokens: Tokens) -> Tensor:
    """[token, d_model]: W_E of some tokens; of a model in its file only these rows are converted."""
    if isinstance(weights, FoldedWeights) and not weights.resident:
        return weights.embed_rows(tokens)
    return weights.embed().W_E[tokens]


def unembed_columns(weights: Weights, tokens: Tokens) -> Tensor:
    """[d_model, token]: W_U of some tokens, likewise."""
    if isinstance(weights, FoldedWeights) and not weights.resident:
        return weights.unembed_columns(tokens)
    return weights.unembed().W_U[:, tokens]


def final_norm(weights: Weights) -> Norm:
    """The norm before the unembedding as the model has it, also where its gain and bias are folded away."""
    return weights.final_norm if isinstance(weights, FoldedWeights) else weights.unembed().norm


def stored_dtype(weights: Weights, layer: int) -> torch.dtype:
    """What the numbers of a layer's attention are known to, whatever they are computed in: the dtype of the file, or the one that
    they were read as where that is coarser."""
    raw = weights.raw if isinstance(weights, FoldedWeights) else weights
    return raw.known_to(layer) if isinstance(raw, LazyWeights) else raw.layer(layer, mlp=False).W_O.dtype


class FoldedWeights:
    """See the module. Caches folded layers where the model is resident; folds at each call where it is memory-mapped."""

    def __init__(self, raw: Weights, conventions: Conventions, device: str = "cpu") -> None:
        self.raw, self.conventions = raw, conventions
        self._layers: dict[int, Layer] = {}
        self._embed: Embed | None = None
        self._unembed: Unembed | None = None
        # in the file's dtype: a converted tensor is then a copy of our own, which may be folded in place
        self._on_cpu: Weights = raw.as_stored() if isinstance(raw, LazyWeights) else raw
        self._stored = self._on_cpu if device == "cpu" else WeightsOnDevice(self._on_cpu, device)
        self._device = torch.device(device)
        self._mean_out: Tensor | None = None
        c = raw.config
        self._fold, self._fold_final = conventions.folds_sublayers(c), conventions.folds_final(c)
        self._centre_writes, self._centre_logits = conventions.centres_writes(c), conventions.centres_logits(c)
        self._centre_reads = c.norm == "layer" and not self._centre_writes

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

    @property
    def final_norm(self) -> Norm:
        """The raw model's, in the dtype of the conventions."""
        return mapped(self._stored.unembed().norm, self._cast)

    @property
    def n_parameters(self) -> int:
        """The raw model's."""
        return parameters_of(self.raw)

    def embed(self) -> Embed:
        """Embeddings, centred over d_model where that is exact."""
        embed = self._embed or self._folded_embed()
        if self.resident:
            self._embed = embed
        return embed

    def layer(self, i: int, mlp: bool = True) -> Layer:
        """Block i, folded."""
        if i in self._layers:
            return self._layers[i]
        with_mlp = mlp or self.resident
        layer = self._folded_layer(self._stored.layer(i, with_mlp))
        if self.resident:
            self._layers[i] = layer
        return layer

    def unembed(self) -> Unembed:
        """The unembedding, its norm folded in and centred over the vocabulary."""
        unembed = self._unembed or self._folded_unembed()
        if self.resident:
            self._unembed = unembed
        return unembed

    def embed_rows(self, tokens: Tokens) -> Tensor:
        """[token, d_model]: `embed().W_E` of some tokens, without the rest."""
        with torch.device("cpu"):
            stored = self._on_cpu.embed().W_E[_to_cpu(tokens)]
        stored = stored.to(self._device)
        return self._written(self._cast(stored), stored)

    def unembed_columns(self, tokens: Tokens) -> Tensor:
        """[d_model, token]: `unembed().W_U` of some tokens, without the rest."""
        columns = self._folded_columns(tokens)
        if not self._centre_logits:
            return columns
        if self._mean_out is None:
            n, total = self.config.d_vocab_out, torch.zeros_like(columns[:, :1])
            for start in range(0, n, TILE):
                total += self._folded_columns(slice(start, start + TILE)).sum(1, keepdim=True)
            self._mean_out = total / n
        return columns.sub_(self._mean_out)

    def _folded_columns(self, tokens: Tokens) -> Tensor:
        """[d_model, token]: a copy, not yet centred over the vocabulary."""
        with torch.device("cpu"):
            ends = self._on_cpu.unembed()
            stored = ends.W_U[:, _to_cpu(tokens)]
        columns = stored.to(self._device, _TORCH[self.conventions.dtype], copy=True)
        gain = ends.norm.gain if self._fold_final else None
        columns = columns if gain is None else columns.mul_(self._cast(gain.to(self._device))[:, None])
        return columns.sub_(columns.mean(0)) if self._fold_final and self._centre_reads else columns

    def _folded_embed(self) -> Embed:
        raw = self._stored.embed()
        # shortformer positions are added to the input of queries and keys, after the norm: their mean counts
        move_pos = self.config.positions != "shortformer"
        pos = None if raw.W_pos is None else self._cast(raw.W_pos)
        W_E = self._written(self._cast(raw.W_E), raw.W_E)
        return Embed(W_E, self._written(pos, raw.W_pos) if move_pos and pos is not None else pos, self._centre_writes)

    def _folded_unembed(self) -> Unembed:
        raw = self._stored.unembed()
        W, norm = self._cast(raw.W_U), mapped(raw.norm, self._cast)
        b = None if raw.b_U is None else self._cast(raw.b_U)
        if self._fold_final:
            b = _with_bias(b, norm.bias, W)
            W, norm = W if norm.gain is None else _times(W, norm.gain[:, None], raw.W_U), Norm()
            W = self._read(W, raw.W_U, 0)
        if self._centre_logits:
            W = _less(W, W.mean(dim=1, keepdim=True), raw.W_U)
            b = None if b is None else b - b.mean()
        return Unembed(W, b, norm)

    def _cast(self, x: Tensor) -> Tensor:
        """To the dtype of the conventions, before folding, so that the products of folding have its precision."""
        return x.to(_TORCH[self.conventions.dtype])

    def _written(self, x: Tensor, stored: Tensor | None) -> Tensor:
        return _less(x, x.mean(dim=-1, keepdim=True), stored) if self._centre_writes else x

    def _read(self, W: Tensor, stored: Tensor | None, axis: int) -> Tensor:
        """What reads behind a folded norm, `axis` d_model: without what a LayerNorm has taken off, where the stream has it."""
        return _less(W, W.mean(axis, keepdim=True), stored) if self._centre_reads else W

    def _folded_layer(self, stored: Layer) -> Layer:
        raw = mapped(stored, self._cast)  # experts stay as they are stored: each is converted where it is used
        # shortformer adds positions after the norm, where a folded gain would act on them too
        reads = self._fold and self.config.positions != "shortformer"
        attention = self._folded_attention(raw, stored) if reads else raw
        mlp = attention.mlp
        if isinstance(mlp, Mlp) and self._fold:
            mlp = self._folded_mlp(mlp, raw.mlp_norm, stored.mlp)
            attention = replace(attention, mlp_norm=Norm())
        if isinstance(mlp, Mixture):
            mlp = self._centred_mixture(mlp)
        if isinstance(mlp, Mlp):
            assert isinstance(stored.mlp, Mlp)
            out = None if mlp.b_out is None else self._written(mlp.b_out, stored.mlp.b_out)
            mlp = replace(mlp, W_out=self._written(mlp.W_out, stored.mlp.W_out), b_out=out)
        b_O = None if attention.b_O is None else self._written(attention.b_O, stored.b_O)
        return replace(attention, mlp=mlp, W_O=self._written(attention.W_O, stored.W_O), b_O=b_O)

    def _centred_mixture(self, mixture: Mixture) -> Mixture:
        """What each expert writes, without its mean over d_model where that is exact."""
        if not self._centre_writes:
            return mixture
        centred = lambda expert: replace(expert, W_out=self._written(self._cast(expert.W_out), expert.W_out))
        experts = Unread(len(mixture.experts), lambda e: centred(mixture.experts[e]), keep=self.resident)
        return replace(mixture, experts=experts, shared=None if mixture.shared is None else centred(mixture.shared))

    def _folded_attention(self, raw: Layer, stored: Layer) -> Layer:
        gain, bias = raw.attn_norm.gain, raw.attn_norm.bias
        folded = {}
        for name in "QKV":
            W, b = getattr(raw, f"W_{name}"), getattr(raw, f"b_{name}")
            if bias is not None:
                shift = torch.einsum("d,hdk->hk", bias, W)
                b = shift if b is None else b + shift
            scaled = W if gain is None else _times(W, gain[None, :, None], getattr(stored, f"W_{name}"))
            folded |= {f"W_{name}": self._read(scaled, getattr(stored, f"W_{name}"), 1), f"b_{name}": b}
        return replace(raw, attn_norm=Norm(), **folded)

    def _folded_mlp(self, mlp: Mlp, norm: Norm, stored: Mlp | Mixture | None) -> Mlp:
        assert isinstance(stored, Mlp)
        folded: dict[str, Tensor | None] = {}
        for W, b in (("W_in", "b_in"), ("W_gate", "b_gate")):
            weight, stored_weight = getattr(mlp, W), getattr(stored, W)
            if weight is not None:  # the bias first: it reads the weight before its gain
                folded[b] = _with_bias(getattr(mlp, b), norm.bias, weight)
                scaled = weight if norm.gain is None else _times(weight, norm.gain[:, None], stored_weight)
                folded[W] = self._read(scaled, stored_weight, 0)
        return replace(mlp, **folded)  # type: ignore[arg-type]


def _to_cpu(tokens: Tokens) -> Tokens:
    return tokens if isinstance(tokens, slice) else tokens.cpu()


def _with_bias(c: Tensor | None, bias: Tensor | None, W: Tensor) -> Tensor | None:
    """c + bias W, where either may be missing."""
    if bias is None:
        return c
    return bias @ W if c is None else c + bias @ W


def _times(W: Tensor, factor: Tensor, stored: Tensor) -> Tensor:
    """W · factor, in place where W is a converted copy: a model larger than memory has no room for two."""
    return W * factor if W is stored else W.mul_(factor)


def _less(W: Tensor, mean: Tensor, stored: Tensor | None) -> Tensor:
    """W − mean, in place likewise."""
    return W - mean if W is stored else W.sub_(mean)
