"""Hugging Face directories of the Llama kind: Llama 2 and 3, Mistral, Qwen 2 (RMSNorm, rotary halves, gated MLP, grouped heads).

Touvron et al. 2023 (Llama), Jiang et al. 2023 (Mistral), Yang et al. 2024 (Qwen 2). `Linear` weights are stored [out, in].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from circuitlab.model.config import BiasName, ModelConfig
from circuitlab.model.loading.family import Family, Keep, Opened, find_tokenizer
from circuitlab.model.loading.found import Found
from circuitlab.model.loading.huggingface import (
    activation,
    flag,
    head_size,
    number,
    refuse,
    scale_note,
    size,
    sliding_windows,
)
from circuitlab.model.loading.layout import Layout, Stored, lay_out, linear, norm, stored
from circuitlab.model.loading.rotary_scaling import rotary
from circuitlab.model.sourced import SourcedWeights

KINDS = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen 2"}


def read_config(config: Mapping[str, Any]) -> tuple[ModelConfig, tuple[str, ...]]:
    """Our configuration of a Llama-like `config.json`, with what was assumed."""
    kind = config.get("model_type")
    d_model, n_heads, n_layers = (size(config, n) for n in ("hidden_size", "num_attention_heads", "num_hidden_layers"))
    d_head = head_size(config, d_model, n_heads)
    refuse(config, {"pretraining_tp": "Weights split for tensor parallelism"} if config.get("pretraining_tp", 1) != 1 else {})
    turning, said = rotary(config, d_head)
    made = ModelConfig(
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=size(config, "num_key_value_heads", n_heads),
        d_model=d_model,
        d_head=d_head,
        d_vocab=size(config, "vocab_size"),
        n_ctx=size(config, "max_position_embeddings", 2048),
        d_mlp=size(config, "intermediate_size"),
        positions="rotary",
        rotary=turning,
        norm="rms",
        norm_eps=number(config, "rms_norm_eps", 1e-6),
        activation=activation(config, "hidden_act", "silu"),
        gated=True,
        biases=_biases(config),
        tied=flag(config, "tie_word_embeddings", False),
        windows=_windows(config, n_layers),
        family=str(kind),
    )
    notes = (scale_note(made.score_scale, d_head, "the family's own"), *said)
    return made, (*notes, "unembedding tied to the embedding") if made.tied else notes


def _biases(config: Mapping[str, Any]) -> tuple[BiasName, ...]:
    """Qwen 2 has biases on queries, keys and values; Llama's are a switch."""
    if config.get("model_type") == "qwen2":
        return ("q", "k", "v")
    attention: tuple[BiasName, ...] = ("q", "k", "v", "o") if flag(config, "attention_bias", False) else ()
    return (*attention, "mlp") if flag(config, "mlp_bias", False) else attention


def _windows(config: Mapping[str, Any], n_layers: int) -> tuple[int, ...]:
    if config.get("model_type") == "mistral":
        return sliding_windows(config, n_layers, every_layer=True)
    # Qwen 2 states a width that is used only where it says so
    return sliding_windows(config, n_layers, every_layer=False) if flag(config, "use_sliding_window", False) else ()


def layout(config: ModelConfig) -> Layout:
    """Where the Llama kind keeps its tensors."""
    ends = {"embed.W_E": stored("embed_tokens.weight"), **norm("unembed.norm", "norm", bias=False)}
    ends |= {} if config.tied else {"unembed.W_U": linear("lm_head")}
    at = "layers.{i}."
    block: dict[str, Stored] = norm("attn_norm", f"{at}input_layernorm", bias=False)
    block |= norm("mlp_norm", f"{at}post_attention_layernorm", bias=False)
    for which in ("q", "k", "v"):
        block[f"W_{which.upper()}"] = linear(f"{at}self_attn.{which}_proj").heads(which)
        if which in config.biases:
            block[f"b_{which.upper()}"] = stored(f"{at}self_attn.{which}_proj.bias").heads(which)
    block["W_O"] = linear(f"{at}self_attn.o_proj").heads("o")
    block |= {"b_O": stored(f"{at}self_attn.o_proj.bias")} if "o" in config.biases else {}
    for ours, theirs in (("in", "up"), ("gate", "gate"), ("out", "down")):
        block[f"mlp.W_{ours}"] = linear(f"{at}mlp.{theirs}_proj")
        block |= {f"mlp.b_{ours}": stored(f"{at}mlp.{theirs}_proj.bias")} if "mlp" in config.biases else {}
    return Layout(ends, block, (".rotary_emb.inv_freq", "lm_head.weight"), ("model.",))


def _load(found: Found, keep: Keep) -> Opened:
    config, notes = read_config(found.config)
    parts, unused = lay_out(config, layout(config), found.needed(), keep == "resident")
    title = KINDS[found.model_type]
    return Opened(SourcedWeights(config, find_tokenizer(found.folder), parts), (*notes, *unused), found.files, "", title)


FAMILY = Family("llama", "Llama, Mistral and Qwen 2 directories", lambda f: f.model_type in KINDS, _load)
