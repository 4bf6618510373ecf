"""Hugging Face directories of StarCoder2 (Lozhkov et al. 2024): LayerNorms, rotary halves, grouped heads, no gate."""

from __future__ import annotations

from circuitlab.disk.json_types import JsonObject
from circuitlab.model.config import ModelConfig
from circuitlab.model.loading.decoder_parts import attention, filled, mlp, opener, rotary_sizes, tied_note
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.gated_decoder import Read
from circuitlab.model.loading.huggingface import activation, flag, number, scale_note, sliding_windows
from circuitlab.model.loading.layout import Layout, Stored, linear, norm, stored

_DEFAULTS = {
    "num_key_value_heads": 2,
    "hidden_act": "gelu_pytorch_tanh",
    "norm_epsilon": 1e-5,
    "use_bias": True,
    "tie_word_embeddings": True,
}


def read_config(config: JsonObject) -> Read:
    """Our configuration of a StarCoder2 `config.json`, with what was assumed."""
    config, assumed = filled(config, _DEFAULTS)
    config = {**config, "layer_norm_eps": number(config, "norm_epsilon")}
    fields, turns = rotary_sizes(config, config, None, 4096)
    alike = {name: value for name, value in config.items() if name != "layer_types"}  # not a field of this family
    model = ModelConfig(
        **fields,
        activation=activation(config, "hidden_act", ""),
        biases=("q", "k", "v", "o", "mlp") if flag(config, "use_bias", True) else (),
        windows=sliding_windows(alike, fields["n_layers"], lambda i: True),
        family="starcoder2",
    )
    return model, (scale_note(model.score_scale, model.d_head, "the family's own"), *turns, *tied_note(model), *assumed)


def layout(config: ModelConfig) -> Layout:
    """Where StarCoder2 keeps its tensors."""
    ends = {"embed.W_E": stored("embed_tokens.weight"), **norm("unembed.norm", "norm", bias=True)}
    ends |= {} if config.tied else {"unembed.W_U": linear("lm_head")}
    at = "layers.{i}."
    block: dict[str, Stored] = norm("attn_norm", f"{at}input_layernorm", bias=True)
    block |= norm("mlp_norm", f"{at}post_attention_layernorm", bias=True)
    block |= attention(config, *(f"{at}self_attn.{which}_proj" for which in "qkvo"))
    block |= mlp(config, f"{at}mlp.c_fc", f"{at}mlp.c_proj")
    return Layout(ends, block, ("rotary_emb.inv_freq", "lm_head.weight"), ("model.",))


FAMILY = Family("starcoder2", "StarCoder2", lambda f: f.model_type == "starcoder2", opener(read_config, layout, "StarCoder2"))
