"""Hugging Face directories of Qwen 2 and 2.5 (Yang et al. 2024): Llama with biases on queries, keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from circuitlab.model.loading.decoder_parts import opener
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.gated_decoder import Read, layout, noted, read
from circuitlab.model.loading.huggingface import flag, size, sliding_windows

DEFAULTS = {"max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "hidden_act": "silu"}


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of a Qwen 2 `config.json`, with what was assumed."""
    model, notes = read(config, DEFAULTS)
    return noted(replace(model, biases=("q", "k", "v"), windows=windows(config, model.n_layers)), notes)


def windows(config: Mapping[str, object], n_layers: int) -> tuple[int, ...]:
    """The window of each layer. Every file states a width; it is used if `use_sliding_window` is set, in the upper layers."""
    if not flag(config, "use_sliding_window", False):
        return ()
    full = size(config, "max_window_layers", 28)
    return sliding_windows({"sliding_window": 4096, **config}, n_layers, lambda i: i >= full)


FAMILY = Family("qwen2", "Qwen 2", lambda f: f.model_type == "qwen2", opener(read_config, layout, "Qwen 2"))
