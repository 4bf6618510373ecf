"""Hugging Face directories of Nemotron 4 and Minitron (Parmar et al. 2024): LayerNorms whose gains are stored minus one, rotary
halves on the first columns of each head, squared ReLU without a gate."""

from __future__ import annotations

from circuitlab.disk.json_types import JsonObject
from circuitlab.model.config import ModelConfig
from circuitlab.model.loading.decoder_parts import attention, filled, mlp, opener, rotary_sizes, tied_note
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.gated_decoder import Read, biases
from circuitlab.model.loading.huggingface import activation, number, scale_note
from circuitlab.model.loading.layout import Layout, Stored, linear, norm, stored

_DEFAULTS = {"hidden_act": "relu2", "norm_eps": 1e-5, "tie_word_embeddings": False}


def read_config(config: JsonObject) -> Read:
    """Our configuration of a Nemotron `config.json`, with what was assumed."""
    config, assumed = filled(config, _DEFAULTS)
    config = {**config, "layer_norm_eps": number(config, "norm_eps")}
    fields, turns = rotary_sizes(config, config, 0.5, 4096)
    model = ModelConfig(**fields, activation=activation(config, "hidden_act", ""), biases=biases(config), family="nemotron")
    notes = (scale_note(model.score_scale, model.d_head, "the family's own"), "gains of norms are stored minus one")
    return model, (*notes, *turns, *tied_note(model), *assumed)


def layout(config: ModelConfig) -> Layout:
    """Where Nemotron keeps its tensors."""
    ends = {"embed.W_E": stored("embed_tokens.weight"), **norm("unembed.norm", "norm", bias=True, offset=True)}
    ends |= {} if config.tied else {"unembed.W_U": linear("lm_head")}
    at = "layers.{i}."
    block: dict[str, Stored] = norm("attn_norm", f"{at}input_layernorm", bias=True, offset=True)
    block |= norm("mlp_norm", f"{at}post_attention_layernorm", bias=True, offset=True)
    block |= attention(config, *(f"{at}self_attn.{which}_proj" for which in "qkvo"))
    block |= mlp(config, f"{at}mlp.up_proj", f"{at}mlp.down_proj")
    return Layout(ends, block, ("rotary_emb.inv_freq", "lm_head.weight"), ("model.",))


FAMILY = Family("nemotron", "Nemotron", lambda f: f.model_type == "nemotron", opener(read_config, layout, "Nemotron"))
