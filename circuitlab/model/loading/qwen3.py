"""Hugging Face directories of Qwen 3 (Yang et al. 2025): an RMSNorm on each head's queries and keys in place of biases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from circuitlab.model.loading import qwen2
from circuitlab.model.loading.decoder_parts import opener
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.gated_decoder import Read, layout, noted, read

_DEFAULTS = {**qwen2.DEFAULTS, "head_dim": 128}  # not d_model / heads: heads may be wider


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of a Qwen 3 `config.json`, with what was assumed."""
    model, notes = read(config, _DEFAULTS)
    return noted(replace(model, qk_norm="rms", windows=qwen2.windows(config, model.n_layers)), notes)


FAMILY = Family("qwen3", "Qwen 3", lambda f: f.model_type == "qwen3", opener(read_config, layout, "Qwen 3"))
