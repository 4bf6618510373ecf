"""Weights assembled from named tensors on access, layer by layer, by canonical names.

A checkpoint family translates its own names and layouts into `Parts`; `LazyWeights` is then the one implementation for resident
and memory-mapped models alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from circuitlab.counting import number_of
from circuitlab.errors import BadModel
from circuitlab.model.config import Experts, ModelConfig
from circuitlab.model.files.tensors import TensorSource, check_kind
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.model.weights import Embed, Layer, Mixture, Mlp, Norm, Unembed, Unread

_NORMS = ("attn_norm", "mlp_norm", "attn_post_norm", "mlp_post_norm", "q_norm", "k_norm")
_ATTENTION = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O", "smear")
_MOST_LACKING = 2**14  # tensors that a file may lack and still have each of them named
_MLP = ("W_in", "W_out", "W_gate", "b_in", "b_gate", "b_out")


class Named(Mapping[str, Tensor]):
    """Tensors by name, each created, and so read from its file, on access; none is cached."""

    def __init__(self, names: Iterable[str], make: Callable[[str], Tensor]) -> None:
        self._names, self._make = dict.fromkeys(names), make

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        return self._make(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names  # without creating the tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Parts(Protocol):
    """Canonical tensors of the ends and of each layer, unread until accessed; names as in `expected_shapes`."""

    @property
    def resident(self) -> bool: ...
    def ends(self) -> Mapping[str, Tensor]: ...
    def layer(self, i: int) -> Mapping[str, Tensor]: ...

    def kinds(self, name: str, i: int) -> frozenset[str]:
        """The dtypes in the file, by torch's names, of what a tensor of block i is made of."""
        ...


class LazyWeights:
    """`Weights` over `Parts`, converted to `dtype` on access (None: as stored)."""

    def __init__(
        self, config: ModelConfig, tokenizer: Tokenizer | None, parts: Parts, dtype: torch.dtype | None = torch.float32
    ) -> None:
        self.config, self.tokenizer, self.parts, self.dtype = config, tokenizer, parts, dtype

    @property
    def n_parameters(self) -> int | None:
        """The number of parameters, shared ones counted once; None where the parts do not know it."""
        return getattr(self.parts, "n_parameters", None)

    def as_stored(self) -> LazyWeights:
        """The same tensors in the file's own dtype."""
        return LazyWeights(self.config, self.tokenizer, self.parts, None)

    def known_to(self, i: int) -> torch.dtype:
        """The coarsest dtype that the attention weights of block i have had, in the file or since they were read."""
        kinds = {kind for name in ("W_Q", "W_K", "W_V", "W_O") for kind in self.parts.kinds(name, i)}
        read = self.parts.layer(i)["W_O"].dtype
        return max((read, *(getattr(torch, kind) for kind in kinds)), key=lambda dtype: torch.finfo(dtype).eps)

    def embed(self) -> Embed:
        """The embeddings."""
        ends = self.parts.ends()
        return Embed(self._to(ends["embed.W_E"]), self._maybe(ends.get("embed.W_pos")))

    @property
    def resident(self) -> bool:
        """Whether the parts lie in memory."""
        return self.parts.resident

    def layer(self, i: int, mlp: bool = True) -> Layer:
        """Block i; `mlp` False: without its MLP."""
        stored = self.parts.layer(i)
        unread = "mlp.experts." if mlp else "mlp."  # experts are read when a token is sent to one
        tensors = {name: self._to(stored[name]) for name in stored if not name.startswith(unread)}
        block = None
        if "mlp.router" in tensors:
            block = self._mixture(stored, tensors)
        elif "mlp.W_in" in tensors:
            block = replace(_mlp("mlp", tensors), norm=Norm(tensors.get("mlp.norm.gain"), tensors.get("mlp.norm.bias")))
        norms = {n: Norm(tensors.get(f"{n}.gain"), tensors.get(f"{n}.bias")) for n in _NORMS}
        return Layer(**{n: tensors.get(n) for n in _ATTENTION}, mlp=block, **norms)  # type: ignore[arg-type]

    def _mixture(self, stored: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> Mixture:
        """Experts as they are stored, unread (few of them see a token); the rest converted."""
        assert self.config.experts is not None
        experts = Unread(self.config.experts.n, lambda e: _mlp(f"mlp.experts.{e}", stored))
        shared = _mlp("mlp.shared", tensors) if self.config.experts.shared else None
        return Mixture(tensors["mlp.router"], experts, shared, tensors.get("mlp.shared_gate"))

    def unembed(self) -> Unembed:
        """The final norm and the unembedding (in tied models the transposed embedding)."""
        ends = self.parts.ends()
        W_U = ends["unembed.W_U"] if "unembed.W_U" in ends else ends["embed.W_E"].T
        norm = Norm(self._maybe(ends.get("unembed.norm.gain")), self._maybe(ends.get("unembed.norm.bias")))
        return Unembed(self._to(W_U), self._maybe(ends.get("unembed.b_U")), norm)

    def _to(self, value: Tensor) -> Tensor:
        return value if self.dtype in (None, value.dtype) else value.to(self.dtype)

    def _maybe(self, value: Tensor | None) -> Tensor | None:
        return None if value is None else self._to(value)


def _mlp(at: str, tensors: Mapping[str, Tensor]) -> Mlp:
    return Mlp(**{name: tensors.get(f"{at}.{name}") for name in _MLP})  # type: ignore[arg-type]


class CanonicalParts:
    """`Parts` of a source whose names are the canonical ones: `embed.W_E`, `layers.0.W_Q`, `unembed.W_U`."""

    def __init__(self, config: ModelConfig, source: TensorSource) -> None:
        check_shapes(config, source)
        self._source = source
        self.resident = source.resident
        self._ends: list[str] = []
        self._layers: dict[str, list[str]] = {}
        for name in source.names():
            if name.startswith("layers."):
                _, number, rest = name.split(".", 2)
                self._layers.setdefault(number, []).append(rest)
            else:
                self._ends.append(name)

    def ends(self) -> Mapping[str, Tensor]:
        """Embedding, unembedding and final norm."""
        return Named(self._ends, self._source.tensor)

    def layer(self, i: int) -> Mapping[str, Tensor]:
        """Block i, its names without their prefix."""
        return Named(self._layers.get(str(i), ()), lambda name: self._source.tensor(f"layers.{i}.{name}"))

    def kinds(self, name: str, i: int) -> frozenset[str]:
        """The dtype of one tensor of block i in the file."""
        return frozenset({self._source.kind(f"layers.{i}.{name}")})


def _norm_shapes(prefix: str, kind: str, *shape: int) -> dict[str, tuple[int, ...]]:
    both = {f"{prefix}.gain": shape, f"{prefix}.bias": shape}
    return {} if kind == "none" else both if kind == "layer" else {f"{prefix}.gain": shape}


def _expert_shapes(c: ModelConfig, experts: Experts) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"mlp.router": (c.d_model, experts.n)}
    places = [(f"mlp.experts.{e}", c.d_mlp) for e in range(experts.n)]
    for at, width in [*places, *([("mlp.shared", experts.shared)] if experts.shared else [])]:
        shapes |= {f"{at}.W_in": (c.d_model, width), f"{at}.W_out": (width, c.d_model)}
        shapes |= {f"{at}.W_gate": (c.d_model, width)} if c.gated else {}
    return shapes | ({"mlp.shared_gate": (c.d_model, 1)} if experts.shared_gate else {})


def _layer_shapes(c: ModelConfig) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "W_Q": (c.n_heads, c.d_model, c.d_head),
        "W_K": (c.n_kv_heads, c.d_model, c.d_head),
        "W_V": (c.n_kv_heads, c.d_model, c.d_head),
        "W_O": (c.n_heads, c.d_head, c.d_model),
    }
    bias = {"q": (c.n_heads, c.d_head), "k": (c.n_kv_heads, c.d_head), "v": (c.n_kv_heads, c.d_head), "o": (c.d_model,)}
    shapes |= {f"b_{name.upper()}": shape for name, shape in bias.items() if name in c.biases}
    if c.smeared_keys:
        shapes["smear"] = (c.n_kv_heads,)
    if c.experts is not None:
        shapes |= _expert_shapes(c, c.experts)
    elif not c.attention_only:
        shapes |= {"mlp.W_in": (c.d_model, c.d_mlp), "mlp.W_out": (c.d_mlp, c.d_model)}
        shapes |= {"mlp.W_gate": (c.d_model, c.d_mlp)} if c.gated else {}
        if "mlp" in c.biases:
            shapes |= {"mlp.b_in": (c.d_mlp,), "mlp.b_out": (c.d_model,)}
            shapes |= {"mlp.b_gate": (c.d_mlp,)} if c.gated else {}
        shapes |= _norm_shapes("mlp.norm", "layer", c.d_mlp) if c.activation == "solu_ln" else {}
    names = {"pre": ["attn_norm", "mlp_norm"], "both": ["attn_norm", "mlp_norm", "attn_post_norm", "mlp_post_norm"]}
    for name in names.get(c.norm_placement, ["attn_post_norm", "mlp_post_norm"]):
        if name.startswith("attn") or not c.attention_only:
            shapes |= _norm_shapes(name, c.norm, c.d_model)
    over_all = c.qk_norm_over == "all"
    q_width, k_width = ((c.n_heads, c.d_head), (c.n_kv_heads, c.d_head)) if over_all else ((c.d_head,), (c.d_head,))
    return shapes | _norm_shapes("q_norm", c.qk_norm, *q_width) | _norm_shapes("k_norm", c.qk_norm, *k_width)


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every canonical tensor that a model of this configuration has, with its shape."""
    shapes: dict[str, tuple[int, ...]] = {"embed.W_E": (config.d_vocab, config.d_model)}
    if config.stored_positions:
        shapes["embed.W_pos"] = (config.n_ctx, config.d_model)
    for i in range(config.n_layers):
        shapes |= {f"layers.{i}.{name}": shape for name, shape in _layer_shapes(config).items()}
    if not config.tied:
        shapes["unembed.W_U"] = (config.d_model, config.d_vocab_out)
    if "unembed" in config.biases:
        shapes["unembed.b_U"] = (config.d_vocab_out,)
    return shapes | (_norm_shapes("unembed.norm", config.norm, config.d_model) if config.final_norm else {})


def need_names(needed: int, source: TensorSource, what: str) -> None:
    """Raise `BadModel` where a file has many fewer tensors than are `needed`: before anything is built of a number that it only
    states. Of a few that are missing, the names are said later.
    """
    if needed > (there := len(source.names())) + _MOST_LACKING:
        raise BadModel("The weights lack tensors.", expected=f"at least {needed:,}, for {what}", got=number_of(there, "tensor"))


def check_shapes(config: ModelConfig, source: TensorSource) -> None:
    """Raise `BadModel` unless `source` holds exactly the canonical tensors of `config`."""
    need_names(config.n_layers * (1 if config.experts is None else config.experts.n), source, config.sizes)
    shapes = expected_shapes(config)
    if missing := sorted(set(shapes) - source.names()):
        raise BadModel("The weights lack tensors.", expected=", ".join(missing[:6]), got=f"{len(missing)} missing")
    if unused := sorted(source.names() - set(shapes)):
        raise BadModel(
            "The weights hold tensors that the configuration has no place for.",
            expected=f"the {number_of(len(shapes), 'tensor')} of config.json",
            got=", ".join(unused[:6]),
        )
    for name, shape in shapes.items():
        check_kind(source, name)
        if source.shape(name) != shape:
            raise BadModel(f"The tensor {name} has the wrong shape.", expected=str(shape), got=str(source.shape(name)))
