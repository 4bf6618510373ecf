"""Hugging Face directories of Phi-3 and Phi-4 (Abdin et al. 2024): Llama with fused projections.

`qkv_proj` concatenates the queries, keys and values of all heads; `gate_up_proj` holds W_gate, then W_in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from circuitlab.model.config import ModelConfig
from circuitlab.model.loading.decoder_parts import opener
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.gated_decoder import BUFFERS, Read, ends, fused_mlp, norms, noted, read
from circuitlab.model.loading.huggingface import sliding_windows
from circuitlab.model.loading.layout import Layout, Stored, Which, linear

_DEFAULTS = {"max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "silu"}


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of a Phi-3 `config.json`, with what was assumed."""
    model, notes = read(config, _DEFAULTS, partial=1.0)
    windows = sliding_windows(config, model.n_layers, lambda i: True)
    narrow = windows if any(w < model.n_ctx for w in windows) else ()  # a window wider than the context changes nothing
    return noted(replace(model, biases=(), windows=narrow), notes)


def layout(config: ModelConfig) -> Layout:
    """Where Phi-3 keeps its tensors."""
    qkv = linear("layers.{i}.self_attn.qkv_proj")
    parts: tuple[Which, ...] = ("q", "k", "v")
    block: dict[str, Stored] = {f"W_{which.upper()}": qkv.beside(which).heads(which) for which in parts}
    block["W_O"] = linear("layers.{i}.self_attn.o_proj").heads("o")
    return Layout(ends(config), block | fused_mlp() | norms(config), BUFFERS, ("model.",))


FAMILY = Family("phi3", "Phi-3", lambda f: f.model_type == "phi3", opener(read_config, layout, "Phi-3"))
