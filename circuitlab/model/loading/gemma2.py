"""Hugging Face directories of Gemma 2 (Gemma team 2024): norms on both sides, soft caps, a window in every other layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from circuitlab.errors import BadModel
from circuitlab.model.loading import gemma
from circuitlab.model.loading.decoder_parts import opener
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.gated_decoder import Read, filled_unless_null, noted, read
from circuitlab.model.loading.huggingface import number, sliding_windows

_DEFAULTS = {**gemma.DEFAULTS, "num_key_value_heads": 4, "query_pre_attn_scalar": 256}
_STATED_OR_NONE = {"sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of a Gemma 2 `config.json`, with what was assumed."""
    model, notes = read(config, _DEFAULTS, "hidden_activation")
    config, default_notes = filled_unless_null(config, _STATED_OR_NONE)
    model = replace(
        model,
        norm_placement="both",
        score_scale=query_scale(config),
        score_soft_cap=number(config, "attn_logit_softcapping", 0.0),
        logit_soft_cap=number(config, "final_logit_softcapping", 0.0),
        windows=sliding_windows(config, model.n_layers, lambda i: i % 2 == 0),
    )
    return noted(*gemma.scaled(model, (*notes, *default_notes)), "query_pre_attn_scalar^-1/2")


def query_scale(config: Mapping[str, object]) -> float:
    """1/√query_pre_attn_scalar, which may differ from 1/√d_head."""
    value = number(config, "query_pre_attn_scalar", 256)
    if value <= 0:
        raise BadModel(
            "The configuration's query_pre_attn_scalar is not positive.", expected="a number such as 256", got=f"{value:g}"
        )
    return 1 / math.sqrt(value)


FAMILY = Family("gemma2", "Gemma 2", lambda f: f.model_type == "gemma2", opener(read_config, gemma.layout, "Gemma 2"))
