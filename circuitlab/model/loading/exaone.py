"""Directories of EXAONE 3 (LG AI Research 2024; `"model_type": "exaone"`): Llama under other names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from circuitlab.model.config import ModelConfig
from circuitlab.model.loading.decoder_parts import attention, mlp, opener
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.gated_decoder import BUFFERS, Read, noted, read
from circuitlab.model.loading.layout import Layout, linear, norm, stored

_DEFAULTS = {"max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "activation_function": "silu"}
_RENAMED = {"num_layers": "num_hidden_layers", "layer_norm_epsilon": "rms_norm_eps"}


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of an EXAONE 3 `config.json`, with what was assumed."""
    named = {_RENAMED.get(name, name): value for name, value in config.items()}
    model, notes = read(named, _DEFAULTS, "activation_function")
    return noted(replace(model, biases=()), notes)


def layout(config: ModelConfig) -> Layout:
    """Where EXAONE 3 keeps its tensors."""
    at = "h.{i}."
    block = attention(config, *(f"{at}attn.attention.{name}" for name in ("q_proj", "k_proj", "v_proj", "out_proj")))
    block |= mlp(config, f"{at}mlp.c_fc_1", f"{at}mlp.c_proj", f"{at}mlp.c_fc_0")
    block |= norm("attn_norm", f"{at}ln_1", bias=False) | norm("mlp_norm", f"{at}ln_2", bias=False)
    ends = {"embed.W_E": stored("wte.weight"), **norm("unembed.norm", "ln_f", bias=False)}
    ends |= {} if config.tied else {"unembed.W_U": linear("lm_head")}
    return Layout(ends, block, (*BUFFERS, ".rotary.inv_freq"), ("transformer.",))


FAMILY = Family("exaone", "EXAONE 3", lambda f: f.model_type == "exaone", opener(read_config, layout, "EXAONE 3"))
