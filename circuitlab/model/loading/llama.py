"""Hugging Face directories of Llama 2 and 3 (Touvron et al. 2023): RMSNorm, rotary halves, gated MLP, grouped heads.

`Linear` weights are stored [out, in].
"""

from __future__ import annotations

from collections.abc import Mapping

from circuitlab.model.loading.decoder_parts import opener
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.gated_decoder import Read, layout, noted, read

DEFAULTS = {"max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "hidden_act": "silu"}


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of a Llama `config.json`, with what was assumed."""
    return noted(*read(config, DEFAULTS))


FAMILY = Family("llama", "Llama", lambda f: f.model_type == "llama", opener(read_config, layout, "Llama"))
