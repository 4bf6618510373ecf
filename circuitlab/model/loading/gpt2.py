"""Hugging Face GPT-2 directories (Radford et al. 2019): `config.json` with `"model_type": "gpt2"`.

GPT-2 stores `Conv1D` weights as [in, out], which is our row-vector form; queries, keys and values of all heads are
concatenated in `c_attn` [d_model, 3 d_model]. The per-head tensors are views of it. If scores are also divided by the layer's
number, counted from 1 (as in Mistral's GPT-2 reruns), W_Q and b_Q are divided instead, which gives the same scores.
"""

from __future__ import annotations

import math

from circuitlab.disk.json_types import JsonObject
from circuitlab.model.config import ModelConfig
from circuitlab.model.lazy_weights import LazyWeights
from circuitlab.model.loading.checkpoint import Checkpoint
from circuitlab.model.loading.circuitlab_dir import card_of
from circuitlab.model.loading.decoder_parts import filled, tied_note
from circuitlab.model.loading.family import Family, Keep, Opened, tokenizer_of
from circuitlab.model.loading.huggingface import activation, flag, head_size, number, refuse, scale_note, size
from circuitlab.model.loading.layout import Layout, Stored, lay_out, norm, stored

_SCALES = "scale_attn_by_inverse_layer_idx"
_DEFAULTS = {
    "n_positions": 1024,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": True,
}


def read_config(config: JsonObject) -> tuple[ModelConfig, tuple[str, ...]]:
    """Our configuration of a GPT-2 `config.json`, with what was assumed."""
    refuse(config, {"add_cross_attention": "Cross-attention"})
    config, assumed = filled({"n_positions": config.get("n_ctx"), **config}, _DEFAULTS)
    d_model, n_heads = size(config, "n_embd"), size(config, "n_head")
    d_head = head_size({}, d_model, n_heads)
    scaled = flag(config, "scale_attn_weights", True)
    model = ModelConfig(
        n_layers=size(config, "n_layer"),
        n_heads=n_heads,
        d_model=d_model,
        d_head=d_head,
        d_vocab=size(config, "vocab_size"),
        n_ctx=size(config, "n_positions"),
        d_mlp=size(config, "n_inner", 4 * d_model),
        positions="learned",
        norm="layer",
        norm_eps=number(config, "layer_norm_epsilon"),
        activation=activation(config, "activation_function", "gelu_new"),
        biases=("q", "k", "v", "o", "mlp"),
        tied=flag(config, "tie_word_embeddings", True),
        score_scale=1 / math.sqrt(d_head) if scaled else 1.0,
        family="gpt2",
    )
    origin = "from scale_attn_weights" if "scale_attn_weights" in config else "GPT-2's, the file does not say"
    notes = (scale_note(model.score_scale, d_head, origin),)
    if flag(config, _SCALES, False):
        notes += (f"W_Q and b_Q are divided by layer + 1, as {_SCALES} divides the scores: exact up to rounding",)
    return model, (*notes, *tied_note(model), *assumed)


def layout(config: ModelConfig, divided: bool = False) -> Layout:
    """Where GPT-2 keeps its tensors. `divided`: queries are divided by their layer's number, counted from 1."""
    ends = {"embed.W_E": stored("wte.weight"), "embed.W_pos": stored("wpe.weight"), **norm("unembed.norm", "ln_f", bias=True)}
    block: dict[str, Stored] = {**norm("attn_norm", "h.{i}.ln_1", bias=True), **norm("mlp_norm", "h.{i}.ln_2", bias=True)}
    for which in ("q", "k", "v"):
        block[f"W_{which.upper()}"] = stored("h.{i}.attn.c_attn.weight").beside(which).heads(which)
        block[f"b_{which.upper()}"] = stored("h.{i}.attn.c_attn.bias").beside(which).heads(which)
    block |= {"W_O": stored("h.{i}.attn.c_proj.weight").heads("o"), "b_O": stored("h.{i}.attn.c_proj.bias")}
    block |= {"mlp.W_in": stored("h.{i}.mlp.c_fc.weight"), "mlp.b_in": stored("h.{i}.mlp.c_fc.bias")}
    block |= {"mlp.W_out": stored("h.{i}.mlp.c_proj.weight"), "mlp.b_out": stored("h.{i}.mlp.c_proj.bias")}
    ends |= {} if config.tied else {"unembed.W_U": stored("lm_head.weight").T}
    # the causal mask that older files carry, and the second name of a tied embedding
    own = {i: {n: block[n].scaled(1 / (i + 1)) for n in ("W_Q", "b_Q")} for i in range(config.n_layers)} if divided else {}
    return Layout(ends, block, (".attn.bias", ".attn.masked_bias", "lm_head.weight"), ("transformer.",), own)


def _load(checkpoint: Checkpoint, keep: Keep) -> Opened:
    config, notes = read_config(checkpoint.config)
    where = layout(config, flag(checkpoint.config, _SCALES, False))
    parts, unused = lay_out(config, where, checkpoint.needed(), keep == "resident")
    weights = LazyWeights(config, tokenizer_of(checkpoint), parts)
    return Opened(weights, (*notes, *unused), checkpoint.files, card_of(checkpoint.folder), "GPT-2")


FAMILY = Family("gpt2", "GPT-2", lambda f: f.model_type == "gpt2", _load)
