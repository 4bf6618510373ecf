"""Hugging Face GPT-2 directories (Radford et al. 2019): `config.json` with `"model_type": "gpt2"`, one safetensors file.

GPT-2 stores `Conv1D` weights as [in, out], which is our row-vector form; queries, keys and values of all heads lie side by
side in `c_attn` [d_model, 3 d_model]. The per-head tensors are views of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from circuitlab.errors import BadModel
from circuitlab.model.config import ModelConfig
from circuitlab.model.loading.family import Family, Keep, Opened, find_tokenizer
from circuitlab.model.sourced import SourcedWeights
from circuitlab.model.tensors import MappedTensors, ResidentTensors, TensorSource, check_finite

_ACTIVATIONS = {"gelu_new": "gelu_new", "gelu_pytorch_tanh": "gelu_new", "gelu": "gelu", "relu": "relu", "silu": "silu"}
_BUFFERS = (".attn.bias", ".attn.masked_bias")  # the causal mask that older files carry


def _number(config: dict[str, Any], name: str, default: Any = None) -> int:
    value = config.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadModel(f"config.json: {name} is not a whole number.", expected="a size", got=repr(value))
    return value


def read_config(config: dict[str, Any], tied: bool) -> tuple[ModelConfig, tuple[str, ...]]:
    """Our configuration of a GPT-2 `config.json`, with what was assumed."""
    d_model, n_heads = _number(config, "n_embd"), _number(config, "n_head")
    if n_heads < 1 or d_model % n_heads:
        raise BadModel(
            "config.json: heads do not divide the width.",
            expected="n_embd a multiple of n_head",
            got=f"{d_model}, {n_heads}",
        )
    if config.get("scale_attn_by_inverse_layer_idx"):
        raise BadModel(
            "Scores scaled per layer are not supported.",
            expected="one score scale",
            got="scale_attn_by_inverse_layer_idx",
        )
    if config.get("add_cross_attention"):
        raise BadModel("Cross-attention is not supported.", expected="a decoder", got="add_cross_attention")
    name = config.get("activation_function", "gelu_new")
    if name not in _ACTIVATIONS:
        raise BadModel("The activation is not known.", expected=" ".join(_ACTIVATIONS), got=repr(name))
    scaled = bool(config.get("scale_attn_weights", True))
    made = ModelConfig(
        n_layers=_number(config, "n_layer"),
        n_heads=n_heads,
        d_model=d_model,
        d_head=d_model // n_heads,
        d_vocab=_number(config, "vocab_size"),
        n_ctx=_number(config, "n_positions", config.get("n_ctx", 1024)),
        d_mlp=config.get("n_inner") or 4 * d_model,
        positions="learned",
        norm="layer",
        norm_eps=float(config.get("layer_norm_epsilon", 1e-5)),
        activation=_ACTIVATIONS[name],  # type: ignore[arg-type]
        biases=("q", "k", "v", "o", "mlp"),
        tied=tied,
        score_scale=1 / math.sqrt(d_model // n_heads) if scaled else 1.0,
        family="gpt2",
    )
    said = "from scale_attn_weights" if "scale_attn_weights" in config else "GPT-2's, the file does not say"
    scale = f"score scale {made.score_scale:.4g} ({'1/√d_head' if scaled else 'none'}, {said})"
    return made, (scale,)


def _shapes(c: ModelConfig) -> dict[str, tuple[int, ...]]:
    d, m = c.d_model, c.d_mlp
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (c.d_vocab, d), "wpe.weight": (c.n_ctx, d)}
    shapes |= {"ln_f.weight": (d,), "ln_f.bias": (d,)}
    for i in range(c.n_layers):
        block: dict[str, tuple[int, ...]] = {
            "ln_1.weight": (d,), "ln_1.bias": (d,), "ln_2.weight": (d,), "ln_2.bias": (d,),
            "attn.c_attn.weight": (d, 3 * d), "attn.c_attn.bias": (3 * d,),
            "attn.c_proj.weight": (d, d), "attn.c_proj.bias": (d,),
            "mlp.c_fc.weight": (d, m), "mlp.c_fc.bias": (m,), "mlp.c_proj.weight": (m, d), "mlp.c_proj.bias": (d,),
        }  # fmt: skip
        shapes |= {f"h.{i}.{name}": shape for name, shape in block.items()}
    return shapes if c.tied else shapes | {"lm_head.weight": (c.d_vocab, d)}


class Gpt2Parts:
    """Canonical tensors as views of GPT-2's own."""

    def __init__(self, config: ModelConfig, source: TensorSource, prefix: str) -> None:
        self._config, self._source, self._prefix = config, source, prefix
        self.resident = source.resident

    def _get(self, name: str) -> Tensor:
        return self._source.tensor(name if name == "lm_head.weight" else self._prefix + name)

    def ends(self) -> Mapping[str, Tensor]:
        """Embeddings, final norm, unembedding."""
        ends = {
            "embed.W_E": self._get("wte.weight"),
            "embed.W_pos": self._get("wpe.weight"),
            "unembed.norm.gain": self._get("ln_f.weight"),
            "unembed.norm.bias": self._get("ln_f.bias"),
        }
        return ends if self._config.tied else ends | {"unembed.W_U": self._get("lm_head.weight").T}

    def layer(self, i: int) -> Mapping[str, Tensor]:
        """Block i."""
        get = lambda name: self._get(f"h.{i}.{name}")
        heads = (self._config.n_heads, self._config.d_head)
        made: dict[str, Tensor] = {}
        weights, biases = get("attn.c_attn.weight").chunk(3, dim=1), get("attn.c_attn.bias").chunk(3)
        for name, W, b in zip("QKV", weights, biases, strict=True):
            made |= {f"W_{name}": W.unflatten(1, heads).permute(1, 0, 2), f"b_{name}": b.unflatten(0, heads)}
        made |= {"W_O": get("attn.c_proj.weight").unflatten(0, heads), "b_O": get("attn.c_proj.bias")}
        made |= {"mlp.W_in": get("mlp.c_fc.weight"), "mlp.b_in": get("mlp.c_fc.bias")}
        made |= {"mlp.W_out": get("mlp.c_proj.weight"), "mlp.b_out": get("mlp.c_proj.bias")}
        for ours, theirs in (("attn_norm", "ln_1"), ("mlp_norm", "ln_2")):
            made |= {f"{ours}.gain": get(f"{theirs}.weight"), f"{ours}.bias": get(f"{theirs}.bias")}
        return made


def _check(config: ModelConfig, source: TensorSource, prefix: str) -> tuple[str, ...]:
    """Raise `BadModel` where tensors are missing or misshapen; say which are unused."""
    wanted = {n if n == "lm_head.weight" else prefix + n: s for n, s in _shapes(config).items()}
    if missing := sorted(set(wanted) - source.names()):
        raise BadModel("The weights lack tensors.", expected=", ".join(missing[:6]), got=f"{len(missing)} missing")
    for name, shape in wanted.items():
        if source.shape(name) != shape:
            raise BadModel(f"{name} has the wrong shape.", expected=f"{shape} by config.json", got=str(source.shape(name)))
    unused = sorted(n for n in source.names() - set(wanted) if not n.endswith(_BUFFERS) and n != "lm_head.weight")
    return (f"unused tensors: {', '.join(unused)}",) if unused else ()


def _resident(source: TensorSource, names: set[str]) -> ResidentTensors:
    made = {}
    for name in sorted(names):
        value = source.tensor(name)
        made[name] = value.to(torch.float32) if value.dtype != torch.float32 else value.clone()
        check_finite(name, made[name])
    return ResidentTensors(made)


def _load(path: Path, config: dict[str, Any], keep: Keep) -> Opened:
    file = path / "model.safetensors"
    source: TensorSource = MappedTensors(file)
    tied = bool(config.get("tie_word_embeddings", True))
    made, notes = read_config(config, tied)
    prefix = "transformer." if "transformer.wte.weight" in source.names() else ""
    notes += _check(made, source, prefix)
    if keep == "resident":
        used = {n if n == "lm_head.weight" else prefix + n for n in _shapes(made)}
        source = _resident(source, used)
    weights = SourcedWeights(made, find_tokenizer(path), Gpt2Parts(made, source, prefix))
    notes += ("unembedding tied to the embedding",) if tied else ()
    return Opened(weights, notes, (file,), "", "GPT-2")


FAMILY = Family("gpt2", "a Hugging Face GPT-2 directory", lambda c: c.get("model_type") == "gpt2", _load)
