"""Hugging Face directories of OLMoE (Muennighoff et al. 2024): eight of 64 experts, and q/k norms over all heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from circuitlab.model.loading.experts import LLAMA, expert_notes, experts_of, opener, with_experts
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.gated_decoder import Read, noted, read
from circuitlab.model.loading.huggingface import refuse

_DEFAULTS = {"max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "silu"}


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of an OLMoE `config.json`, with what was assumed."""
    refuse(config, {"clip_qkv": "Clipping of queries, keys and values"})
    model, notes = read(config, _DEFAULTS)
    model = with_experts(replace(model, qk_norm="rms", qk_norm_over="all"), experts_of(config, 8))
    return noted(model, (*notes, *expert_notes(model)))


FAMILY = Family("olmoe", "OLMoE", lambda f: f.model_type == "olmoe", opener(read_config, "mlp", LLAMA, "OLMoE"))
