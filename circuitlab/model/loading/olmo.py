"""Hugging Face directories of OLMo 1 (Groeneveld et al. 2024): Llama with LayerNorms that have neither gain nor bias."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from circuitlab.model.config import ModelConfig
from circuitlab.model.loading.decoder_parts import attention, mlp, opener
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.gated_decoder import BUFFERS, Read, noted, read
from circuitlab.model.loading.huggingface import refuse
from circuitlab.model.loading.layout import Layout, linear, stored

_DEFAULTS = {"max_position_embeddings": 2048, "hidden_act": "silu"}
_EPS = 1e-5  # from the family's code; no file states it


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of an OLMo 1 `config.json`, with what was assumed."""
    refuse(config, {"clip_qkv": "Clipping of queries, keys and values"})
    model, notes = read({**config, "rms_norm_eps": _EPS}, _DEFAULTS)
    return noted(replace(model, norm="layer"), (*notes, "norms have neither gains nor biases"))


def layout(config: ModelConfig) -> Layout:
    """Where OLMo 1 keeps its tensors."""
    at = "layers.{i}."
    block = attention(config, *(f"{at}self_attn.{which}_proj" for which in "qkvo"))
    block |= mlp(config, f"{at}mlp.up_proj", f"{at}mlp.down_proj", f"{at}mlp.gate_proj")
    ends = {"embed.W_E": stored("embed_tokens.weight")} | ({} if config.tied else {"unembed.W_U": linear("lm_head")})
    return Layout(ends, block, BUFFERS, ("model.",))


FAMILY = Family("olmo", "OLMo 1", lambda f: f.model_type == "olmo", opener(read_config, layout, "OLMo 1"))
