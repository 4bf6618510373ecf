"""Hugging Face directories of Mistral (Jiang et al. 2023): Llama with a sliding window in every layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from circuitlab.model.loading.decoder_parts import opener
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.gated_decoder import Read, filled_unless_null, layout, noted, read
from circuitlab.model.loading.huggingface import sliding_windows

_DEFAULTS = {"max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "hidden_act": "silu"}


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of a Mistral `config.json`, with what was assumed."""
    model, notes = read(config, _DEFAULTS)
    config, default_notes = filled_unless_null(config, {"sliding_window": 4096})
    alike = {name: value for name, value in config.items() if name != "layer_types"}  # not a field of this family
    return noted(replace(model, windows=sliding_windows(alike, model.n_layers, lambda i: True)), (*notes, *default_notes))


FAMILY = Family("mistral", "Mistral", lambda f: f.model_type == "mistral", opener(read_config, layout, "Mistral"))
