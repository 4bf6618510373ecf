"""Hugging Face directories of GLM-4 (Zeng et al. 2024; `"model_type": "glm"`, `"glm4"`).

Llama with interleaved rotary pairs on half of each head's columns, biases of queries, keys and values, and a fused gate and
input; `glm4` also normalises the output of each sublayer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from circuitlab.counting import number_of
from circuitlab.model.config import ModelConfig
from circuitlab.model.loading.decoder_parts import attention, opener
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.gated_decoder import BUFFERS, Read, ends, fused_mlp, norms, noted, read
from circuitlab.model.loading.huggingface import flag
from circuitlab.model.loading.layout import Layout

_DEFAULTS = {
    "num_key_value_heads": 2,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1.5625e-7,
    "hidden_act": "silu",
    "attention_bias": True,
}
_NORMS_4 = {
    "attn_norm": "input_layernorm",
    "attn_post_norm": "post_self_attn_layernorm",
    "mlp_norm": "post_attention_layernorm",
    "mlp_post_norm": "post_mlp_layernorm",
}


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of a GLM-4 `config.json`, with what was assumed."""
    model, notes = read(config, _DEFAULTS, partial=0.5)
    assert model.rotary is not None
    biased = flag(config, "attention_bias", True)
    width = model.rotary.dims or model.d_head
    model = replace(
        model,
        rotary=replace(model.rotary, pairs="interleaved"),
        biases=("q", "k", "v") if biased else (),
        norm_placement="both" if config.get("model_type") == "glm4" else "pre",
    )
    return noted(model, (*notes, f"rotary positions turn {width} of {number_of(model.d_head, 'column')}, interleaved"))


def layout(config: ModelConfig) -> Layout:
    """Where GLM-4 keeps its tensors."""
    block = attention(config, *(f"layers.{{i}}.self_attn.{which}_proj" for which in "qkvo"))
    names = _NORMS_4 if config.norm_placement == "both" else None
    return Layout(ends(config), block | fused_mlp() | norms(config, names=names), BUFFERS, ("model.",))


FAMILY = Family("glm", "GLM-4", lambda f: f.model_type in ("glm", "glm4"), opener(read_config, layout, "GLM-4"))
