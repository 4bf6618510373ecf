"""Hugging Face directories of OLMo 3 (OLMo team 2025): OLMo 2 with a sliding window in three of four layers.

The rotary frequencies are rescaled in the full layers only; those with a window keep the original frequencies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from circuitlab.model.config import Rotary
from circuitlab.model.loading.decoder_parts import opener
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.gated_decoder import Read, filled_unless_null, layout, noted, read
from circuitlab.model.loading.huggingface import sliding_windows
from circuitlab.model.loading.rotary_scaling import rotary

_DEFAULTS = {"max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "hidden_act": "silu"}
_BASE = 500000.0


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of an OLMo 3 `config.json`, with what was assumed."""
    model, notes = read(config, _DEFAULTS, base=_BASE)
    config, default_notes = filled_unless_null(config, {"sliding_window": 4096})
    windows = sliding_windows(config, model.n_layers, lambda i: bool((i + 1) % 4))
    windowed_rotary, windowed_notes = _windowed(config, model.d_head)
    own = windowed_rotary if windows and windowed_rotary != model.rotary else None
    model = replace(
        model, norm_placement="post_sublayer", qk_norm="rms", qk_norm_over="all", windows=windows, rotary_windowed=own
    )
    return noted(model, (*notes, *default_notes, *(windowed_notes if own else ())))


def _windowed(config: Mapping[str, object], d_head: int) -> tuple[Rotary, tuple[str, ...]]:
    """The rotation of layers with a window: stated separately in newer files, never rescaled in older ones."""
    stated = config.get("rope_parameters")
    own = stated.get("sliding_attention") if isinstance(stated, Mapping) else None
    fields = {"rope_theta": config.get("rope_theta")} if own is None else {"rope_parameters": own}
    windowed_rotary, notes = rotary({**fields, "max_position_embeddings": config.get("max_position_embeddings")}, d_head, _BASE)
    return windowed_rotary, tuple(f"in windowed layers: {note}" for note in notes)


FAMILY = Family("olmo3", "OLMo 3", lambda f: f.model_type == "olmo3", opener(read_config, layout, "OLMo 3"))
