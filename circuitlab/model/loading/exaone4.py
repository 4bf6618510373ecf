"""Hugging Face directories of EXAONE 4 (LG AI Research 2025): norms after the sublayers and on each head's queries and keys.

In models with a sliding window, the layers without one have no positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from circuitlab.errors import BadModel, quoted
from circuitlab.model.loading.decoder_parts import opener
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.gated_decoder import Read, filled_unless_null, layout, noted, read, with_rotary_in
from circuitlab.model.loading.huggingface import size, sliding_windows

_DEFAULTS = {"max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "hidden_act": "silu"}


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of an EXAONE 4 `config.json`, with what was assumed."""
    model, notes = read(config, _DEFAULTS)
    config, default_notes = filled_unless_null(config, {"sliding_window": 4096})
    model = replace(model, norm_placement="post_sublayer", qk_norm="rms", biases=())
    if config["sliding_window"] is None:
        return noted(model, (*notes, *default_notes))
    model = replace(model, windows=sliding_windows(config, model.n_layers, _local(config, model.n_layers)))
    model, position_notes = with_rotary_in(model, [i for i in range(model.n_layers) if model.window(i)])
    return noted(model, (*notes, *default_notes, *position_notes))


def _local(config: Mapping[str, object], n_layers: int) -> Callable[[int], bool]:
    """Which layers have a window, from `sliding_window_pattern`: a period whose last layer has none, or a string like "LLLG"."""
    pattern = config.get("sliding_window_pattern")
    if not isinstance(pattern, str):
        every = size(config, "sliding_window_pattern", 4)
        if every < 1:
            raise BadModel(
                "The configuration's sliding_window_pattern is not positive.", expected="a number such as 4", got=str(every)
            )
        return lambda i: bool((i + 1) % every)
    if not pattern or set(pattern) - {"L", "G"}:
        raise BadModel(
            "The configuration's sliding_window_pattern cannot be read.",
            expected="a pattern such as LLLG",
            got=quoted(pattern, 60),
        )
    return lambda i: pattern[i % len(pattern)] == "L" and i < n_layers - 1  # the last layer never has a window


FAMILY = Family("exaone4", "EXAONE 4", lambda f: f.model_type == "exaone4", opener(read_config, layout, "EXAONE 4"))
