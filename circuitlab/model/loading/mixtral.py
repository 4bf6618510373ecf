"""Hugging Face directories of Mixtral (Jiang et al. 2024): Mistral with two of eight experts in place of each MLP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from circuitlab.model.loading.experts import expert_notes, experts_of, opener, with_experts
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.gated_decoder import Read, noted, read
from circuitlab.model.loading.huggingface import sliding_windows

_DEFAULTS = {"num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "hidden_act": "silu"}


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of a Mixtral `config.json`, with what was assumed."""
    model, notes = read(config, _DEFAULTS, base=1e6)
    alike = {name: value for name, value in config.items() if name != "layer_types"}  # not a field of this family
    model = replace(model, biases=(), windows=sliding_windows(alike, model.n_layers, lambda i: True))
    model = with_experts(model, experts_of(config, 2, renormalise=True))
    return noted(model, (*notes, *expert_notes(model)))


_load = opener(read_config, "block_sparse_moe", ("w1", "w3", "w2"), "Mixtral")
FAMILY = Family("mixtral", "Mixtral", lambda f: f.model_type == "mixtral", _load)
