"""Hugging Face directories of Gemma 1 (Gemma team 2024): scaled embeddings, gains stored minus one, heads of any width.

Gemma 2 and 3 share its layout and the scale of the embeddings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch

from circuitlab.model.config import ModelConfig
from circuitlab.model.loading.decoder_parts import opener
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.gated_decoder import Read, noted, read
from circuitlab.model.loading.gated_decoder import layout as gated_layout

DEFAULTS = {
    "num_key_value_heads": 16,
    "head_dim": 256,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
}
layout = partial(gated_layout, minus_one=True)


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of a Gemma 1 `config.json`, with what was assumed."""
    kind = config.get("hidden_activation") or config.get("hidden_act")
    # the first files state "gelu" but mean its tanh form, with which the model was trained
    activation = {} if kind is None else {"hidden_activation": "gelu_pytorch_tanh" if kind == "gelu" else kind}
    model, notes = read({**config, **activation}, DEFAULTS, "hidden_activation")
    notes = (*notes, "activation: the tanh form of gelu, which the file calls gelu") if kind == "gelu" else notes
    return noted(*scaled(model, notes))


def scaled(config: ModelConfig, notes: tuple[str, ...]) -> Read:
    """Embeddings times √d_model."""
    scale = math.sqrt(config.d_model)
    rounded = float(torch.tensor(scale, dtype=torch.bfloat16))
    note = f"embeddings times √d_model = {scale:.6g}"
    if rounded != scale:
        note += f"; programs that compute in bfloat16 multiply by {rounded:g} and differ slightly"
    return replace(config, embed_scale=scale), (*notes, note, "gains of norms are stored minus one")


FAMILY = Family("gemma", "Gemma 1", lambda f: f.model_type == "gemma", opener(read_config, layout, "Gemma 1"))
