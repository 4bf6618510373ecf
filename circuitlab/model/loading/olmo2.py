"""Hugging Face directories of OLMo 2 (OLMo team 2024): RMSNorm after each sublayer, and q/k norms over all heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from circuitlab.model.loading.decoder_parts import opener
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.gated_decoder import Read, layout, noted, read

_DEFAULTS = {"max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "hidden_act": "silu"}


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of an OLMo 2 `config.json`, with what was assumed."""
    model, notes = read(config, _DEFAULTS)
    return noted(replace(model, norm_placement="post_sublayer", qk_norm="rms", qk_norm_over="all"), notes)


FAMILY = Family("olmo2", "OLMo 2", lambda f: f.model_type == "olmo2", opener(read_config, layout, "OLMo 2"))
