"""Hugging Face directories of SmolLM3 (Bakouch et al. 2025): Llama without positions in every fourth layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from circuitlab.counting import number_of
from circuitlab.errors import BadModel, quoted
from circuitlab.model.loading.decoder_parts import opener
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.gated_decoder import Read, layout, noted, read, with_rotary_in
from circuitlab.model.loading.huggingface import flag, size, sliding_windows

_DEFAULTS = {
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
}


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of a SmolLM3 `config.json`, with what was assumed."""
    model, notes = read(config, _DEFAULTS, base=2e6)
    rotary_layers = _rotary_layers(config, model.n_layers)
    slides = flag(config, "use_sliding_window", False)
    windows = sliding_windows(config, model.n_layers, lambda i: slides and i not in rotary_layers)
    model, position_notes = with_rotary_in(replace(model, windows=windows), rotary_layers)
    return noted(model, (*notes, *position_notes))


def _rotary_layers(config: Mapping[str, object], n_layers: int) -> tuple[int, ...]:
    """The layers with rotary positions: those with 1 in `no_rope_layers`, despite its name."""
    listed = config.get("no_rope_layers")
    if listed is None:
        every = size(config, "no_rope_layer_interval", 4)
        if every < 1:
            raise BadModel(
                "The configuration's no_rope_layer_interval is not positive.", expected="a number such as 4", got=str(every)
            )
        return tuple(i for i in range(n_layers) if (i + 1) % every)
    if not isinstance(listed, list) or len(listed) != n_layers or any(has_rotary not in (0, 1) for has_rotary in listed):
        raise BadModel(
            "The configuration's no_rope_layers does not fit the layers.",
            expected=f"1 (rotary positions) or 0 (none) for each of {number_of(n_layers, 'layer')}",
            got=quoted(listed, 120),
        )
    return tuple(i for i, has_rotary in enumerate(listed) if has_rotary)


FAMILY = Family("smollm3", "SmolLM3", lambda f: f.model_type == "smollm3", opener(read_config, layout, "SmolLM3"))
