"""Hugging Face StableLM directories: StableLM 3B and StableLM 2 (Bellagente et al. 2024): `"model_type": "stablelm"`.

Llama's block with LayerNorms in place of RMSNorms and rotary halves on the first columns of each head; optionally biases of
queries, keys and values, attention and MLP in parallel after one norm, and a LayerNorm of each head's queries and keys, whose
gains [d_head] lie in one tensor per head.
"""

from __future__ import annotations

import torch

from circuitlab.disk.json_types import JsonObject
from circuitlab.model.config import ModelConfig
from circuitlab.model.loading.decoder_parts import attention, filled, mlp, opener, rotary_sizes, shared_norm, tied_note
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.huggingface import activation, flag, scale_note
from circuitlab.model.loading.layout import Layout, Stored, linear, norm, stored

_DEFAULTS = {
    "hidden_act": "silu",
    "layer_norm_eps": 1e-5,
    "use_qkv_bias": False,
    "use_parallel_residual": False,
    "qk_layernorm": False,
    "tie_word_embeddings": False,
}


def read_config(config: JsonObject) -> tuple[ModelConfig, tuple[str, ...]]:
    """Our configuration of a StableLM `config.json`, with what was assumed."""
    config, assumed = filled(config, _DEFAULTS)
    fields, rotary_notes = rotary_sizes(config, config, 0.25, 4096)
    model = ModelConfig(
        **fields,
        activation=activation(config, "hidden_act", "silu"),
        gated=True,
        parallel=flag(config, "use_parallel_residual", False),
        qk_norm="layer" if flag(config, "qk_layernorm", False) else "none",
        biases=("q", "k", "v") if flag(config, "use_qkv_bias", False) else (),
        family="stablelm",
    )
    one = ("one norm for attention and MLP",) if model.parallel else ()
    return model, (
        scale_note(model.score_scale, model.d_head, "the family's own"),
        *one,
        *rotary_notes,
        *tied_note(model),
        *assumed,
    )


def layout(config: ModelConfig) -> Layout:
    """Where StableLM keeps its tensors."""
    ends = {"embed.W_E": stored("embed_tokens.weight"), **norm("unembed.norm", "norm", bias=True)}
    ends |= {} if config.tied else {"unembed.W_U": linear("lm_head")}
    at = "layers.{i}."
    if config.parallel:
        block: dict[str, Stored] = shared_norm(f"{at}input_layernorm")
    else:
        block = norm("attn_norm", f"{at}input_layernorm", bias=True)
        block |= norm("mlp_norm", f"{at}post_attention_layernorm", bias=True)
    block |= attention(config, *(f"{at}self_attn.{which}_proj" for which in "qkvo"))
    block |= mlp(config, f"{at}mlp.up_proj", f"{at}mlp.down_proj", f"{at}mlp.gate_proj")
    if config.qk_norm == "layer":
        block["q_norm.gain"] = _of_heads(f"{at}self_attn.q_layernorm", config.n_heads)
        block["k_norm.gain"] = _of_heads(f"{at}self_attn.k_layernorm", config.n_kv_heads)
    return Layout(ends, block, ("rotary_emb.inv_freq", "lm_head.weight"), ("model.",))


def _of_heads(theirs: str, n_heads: int) -> Stored:
    """[head, d_head] of one vector per head."""
    first, *others = (stored(f"{theirs}.norms.{head}.weight") for head in range(n_heads))
    return first.joined(others, lambda *gains: torch.stack(gains))


FAMILY = Family("stablelm", "StableLM", lambda f: f.model_type == "stablelm", opener(read_config, layout, "StableLM"))
