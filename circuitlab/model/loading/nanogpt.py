"""Checkpoints of nanoGPT (Karpathy 2022): `ckpt.pt` with "model", a GPT-2-like state dict, and "model_args", its sizes.

Weights are those of torch `Linear`s, [out, in], unlike Hugging Face's GPT-2; biases, also those of norms, may be missing; names
begin with "_orig_mod." where the model was compiled. Without "model_args" the user has to state the number of heads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from circuitlab.disk.json_types import JsonObject
from circuitlab.errors import BadModel, quoted
from circuitlab.model.config import ModelConfig
from circuitlab.model.files.tensors import TensorSource
from circuitlab.model.lazy_weights import LazyWeights
from circuitlab.model.loading.assumptions import Assumed
from circuitlab.model.loading.checkpoint import Checkpoint
from circuitlab.model.loading.family import Family, Keep, Opened, find_tokenizer
from circuitlab.model.loading.huggingface import scale_note, size
from circuitlab.model.loading.layout import Layout, Stored, lay_out, linear, matrix, norm, stored

_FIRST = "transformer.h.0.attn.c_attn.weight"
_PREFIXES = ("_orig_mod.", "module._orig_mod.", "module.", "model.", "")


def prefix_of(source: TensorSource | None) -> str | None:
    """The prefix of the names of a nanoGPT, None if the tensors are not one's."""
    names = source.names() if source is not None else frozenset[str]()
    for prefix in _PREFIXES:
        if source is not None and prefix + _FIRST in names and f"{prefix}transformer.wte.weight" in names:
            shape = source.shape(prefix + _FIRST)
            return prefix if len(shape) == 2 and shape[0] == 3 * shape[1] else None
    return None


def read_config(source: TensorSource, prefix: str, args: Mapping[str, object], ask: Assumed) -> ModelConfig:
    """Our configuration: sizes from the tensors, heads and context from `model_args` where they are stated."""
    shape = lambda name: matrix(source, prefix + name)
    d_model, names = shape(_FIRST)[1], source.names()
    layers = {int(m[1]) for n in names if (m := re.match(re.escape(prefix) + r"transformer\.h\.(\d{1,9})\.", n))}
    heads = size(args, "n_head") if "n_head" in args else ask.size("n_heads", None, "n_head in model_args")
    if heads < 1 or d_model % heads:
        raise BadModel("The heads do not divide the width.", expected=f"a divisor of {d_model}", got=str(heads))
    for name, got in (("n_layer", len(layers)), ("n_embd", d_model)):
        if args.get(name, got) != got:
            raise BadModel(f"The model_args contradict the tensors: {name}.", expected=quoted(args[name], 40), got=str(got))
    head = f"{prefix}lm_head.weight"
    tied = head not in names or source.alias(head) == source.alias(f"{prefix}transformer.wte.weight")
    return ModelConfig(
        n_layers=len(layers),
        n_heads=heads,
        d_model=d_model,
        d_head=d_model // heads,
        d_vocab=shape("transformer.wte.weight")[0],
        n_ctx=shape("transformer.wpe.weight")[0],
        d_mlp=shape("transformer.h.0.mlp.c_fc.weight")[0],
        positions="learned",
        norm="layer",
        norm_eps=ask.number("norm_eps", 1e-5, "nanoGPT's own"),
        activation="gelu" if ask.choice("activation", "gelu", ("gelu", "gelu_new"), _GELU) == "gelu" else "gelu_new",
        biases=("q", "k", "v", "o", "mlp") if f"{prefix}transformer.h.0.attn.c_attn.bias" in names else (),
        tied=tied,
        family="nanogpt",
    )


_GELU = "torch's exact GELU, as in nanoGPT; its older versions have the tanh form"


def layout(config: ModelConfig, prefix: str) -> Layout:
    """Where a nanoGPT keeps its tensors."""
    bias, at = bool(config.biases), "transformer.h.{i}."
    ends = {"embed.W_E": stored("transformer.wte.weight"), "embed.W_pos": stored("transformer.wpe.weight")}
    ends |= norm("unembed.norm", "transformer.ln_f", bias)
    ends |= {} if config.tied else {"unembed.W_U": linear("lm_head")}
    block: dict[str, Stored] = {**norm("attn_norm", f"{at}ln_1", bias), **norm("mlp_norm", f"{at}ln_2", bias)}
    for which in ("q", "k", "v"):
        block[f"W_{which.upper()}"] = linear(f"{at}attn.c_attn").beside(which).heads(which)
        if bias:
            block[f"b_{which.upper()}"] = stored(f"{at}attn.c_attn.bias").beside(which).heads(which)
    block["W_O"] = linear(f"{at}attn.c_proj").heads("o")
    block |= {"mlp.W_in": linear(f"{at}mlp.c_fc"), "mlp.W_out": linear(f"{at}mlp.c_proj")}
    if bias:
        block |= {"b_O": stored(f"{at}attn.c_proj.bias"), "mlp.b_in": stored(f"{at}mlp.c_fc.bias")}
        block |= {"mlp.b_out": stored(f"{at}mlp.c_proj.bias")}
    return Layout(ends, block, (".attn.bias", *(("lm_head.weight",) if config.tied else ())), (prefix,))


def _load(checkpoint: Checkpoint, keep: Keep) -> Opened:
    source, ask = checkpoint.needed(), Assumed(checkpoint.assume)
    prefix = prefix_of(source)
    assert prefix is not None  # it was claimed
    config = read_config(source, prefix, _arguments(checkpoint), ask)
    parts, unused = lay_out(config, layout(config, prefix), source, keep == "resident")
    notes = (scale_note(config.score_scale, config.d_head, "nanoGPT's own"), *unused)
    notes += ("unembedding tied to the embedding",) if config.tied else ()
    weights = LazyWeights(config, find_tokenizer(checkpoint.folder), parts)
    return Opened(weights, notes, checkpoint.files, "", "nanoGPT", tuple(ask.assumptions))


def _arguments(checkpoint: Checkpoint) -> JsonObject:
    """The sizes that were saved with the weights: "model_args", or whatever else names the heads (a configuration object)."""
    candidates = (checkpoint.metadata.get("model_args"), *checkpoint.metadata.values(), checkpoint.config)
    return next((h for h in candidates if isinstance(h, Mapping) and "n_head" in h), {})


def _claims(checkpoint: Checkpoint) -> bool:
    return not checkpoint.model_type and prefix_of(checkpoint.tensors) is not None


FAMILY = Family("nanogpt", "a nanoGPT checkpoint", _claims, _load)
