"""Hugging Face directories of Qwen's mixtures of experts (Yang et al. 2024, 2025): `"model_type": "qwen2_moe"`, `"qwen3_moe"`.

Qwen 2's also has a shared expert for every token, with its own gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from circuitlab.model.config import Experts, ModelConfig
from circuitlab.model.loading import qwen2
from circuitlab.model.loading.experts import LLAMA, expert_notes, experts_of, opener, refuse_dense_layers, with_experts
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.gated_decoder import Read, noted, read
from circuitlab.model.loading.huggingface import flag, size, sliding_windows


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of a Qwen MoE `config.json`, with what was assumed."""
    refuse_dense_layers(config)
    model, notes = read({"intermediate_size": 0, **config}, qwen2.DEFAULTS)
    model, experts, width = (_third if config.get("model_type") == "qwen3_moe" else _second)(config, model)
    model = with_experts(model, experts, width)
    return noted(model, (*notes, *expert_notes(model)))


def _second(config: Mapping[str, object], model: ModelConfig) -> tuple[ModelConfig, Experts, int]:
    biased = flag(config, "qkv_bias", True)
    most, slides = size(config, "max_window_layers", 28), flag(config, "use_sliding_window", False)
    width = {"sliding_window": 4096, **config}
    windows = sliding_windows(width, model.n_layers, lambda i: bool((i + 1) % 2) and i < most) if slides else ()
    experts = experts_of(config, 4)
    shared = size(config, "shared_expert_intermediate_size", 5632)
    model = replace(model, biases=("q", "k", "v") if biased else (), windows=windows)
    return model, replace(experts, shared=shared, shared_gate=True), size(config, "moe_intermediate_size", 1408)


def _third(config: Mapping[str, object], model: ModelConfig) -> tuple[ModelConfig, Experts, int]:
    slides = flag(config, "use_sliding_window", False)
    alike = {"sliding_window": 4096, **{name: value for name, value in config.items() if name != "layer_types"}}
    model = replace(model, qk_norm="rms", windows=sliding_windows(alike, model.n_layers, lambda i: True) if slides else ())
    return model, experts_of(config, 8), size(config, "moe_intermediate_size", 768)


_load = opener(read_config, "mlp", LLAMA, "Qwen MoE")
FAMILY = Family("qwen_moe", "Qwen MoE", lambda f: f.model_type in ("qwen2_moe", "qwen3_moe"), _load)
