"""Hugging Face directories of Gemma 3 (Gemma team 2025), and the text part of the multimodal ones.

Gemma 2 without soft caps, with an RMSNorm on each head's queries and keys, five windowed layers for each full one, and a
separate rotary base in the windowed layers. Multimodal files have the text model's fields in `text_config` and its tensors
under `language_model.`; the rest is not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from circuitlab.disk.json_types import JsonObject
from circuitlab.errors import BadModel
from circuitlab.model.config import ModelConfig, Rotary
from circuitlab.model.loading import gemma
from circuitlab.model.loading.checkpoint import Checkpoint
from circuitlab.model.loading.decoder_parts import opener
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.gated_decoder import Read, filled_unless_null, noted, read
from circuitlab.model.loading.gemma2 import query_scale
from circuitlab.model.loading.huggingface import number, size, sliding_windows
from circuitlab.model.loading.layout import Layout
from circuitlab.model.loading.rotary_scaling import rotary

_DEFAULTS = {
    **gemma.DEFAULTS,
    "vocab_size": 262208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131072,
    "query_pre_attn_scalar": 256,
}
_PICTURES = tuple(f"{at}{part}." for at in ("", "model.") for part in ("vision_tower", "multi_modal_projector"))
_PREFIXES = ("model.language_model.", "language_model.model.", "model.")


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of a Gemma 3 `config.json`, with what was assumed."""
    config, notes = _text_part(config)
    model, model_notes = read(config, _DEFAULTS, "hidden_activation", base=1e6)
    local, local_notes = _local(config, model.d_head)
    every = size(config, "sliding_window_pattern", 6)
    if every < 1:
        raise BadModel(
            "The configuration's sliding_window_pattern is not positive.", expected="a number such as 6", got=str(every)
        )
    width, assumed = filled_unless_null(config, {"sliding_window": 4096})
    # without a width the windowed layers see everything, but keep their own rotary base
    width = {**width, "sliding_window": width["sliding_window"] or model.n_ctx}
    model = replace(
        model,
        norm_placement="both",
        qk_norm="rms",
        score_scale=query_scale(config),
        logit_soft_cap=number(config, "final_logit_softcapping", 0.0),
        rotary_windowed=local,
        windows=sliding_windows(width, model.n_layers, lambda i: bool((i + 1) % every)),
    )
    cap = number(config, "attn_logit_softcapping", 0.0)  # a field of Gemma 2, which no code of Gemma 3 applies
    uncapped = (f"attn_logit_softcapping {cap:g} is not used: the scores of Gemma 3 have no soft cap",) if cap else ()
    notes = (*notes, *model_notes, *local_notes, *assumed, *uncapped)
    return noted(*gemma.scaled(model, notes), "query_pre_attn_scalar^-1/2")


def _text_part(config: Mapping[str, object]) -> tuple[JsonObject, tuple[str, ...]]:
    inner = config.get("text_config")
    if config.get("model_type") != "gemma3" or not isinstance(inner, Mapping):
        return config, ()
    outer = {name: config[name] for name in ("tie_word_embeddings",) if name in config}
    return {**outer, **inner, "model_type": "gemma3"}, ("the text model only: the vision tower is not read",)


def _local(config: Mapping[str, object], d_head: int) -> tuple[Rotary, tuple[str, ...]]:
    """The rotation of windowed layers: newer files state all of it, older ones only its base."""
    stated = config.get("rope_parameters")
    own = stated.get("sliding_attention") if isinstance(stated, Mapping) else None
    fields = {} if own is None else {"rope_parameters": own}
    if config.get("rope_local_base_freq") is not None:
        fields["rope_theta"] = config["rope_local_base_freq"]
    local_rotary, notes = rotary({**fields, "max_position_embeddings": config.get("max_position_embeddings")}, d_head)
    return local_rotary, tuple(f"in windowed layers: {note}" for note in notes)


def _claims(checkpoint: Checkpoint) -> bool:
    return checkpoint.model_type == "gemma3_text" or (checkpoint.model_type == "gemma3" and "text_config" in checkpoint.config)


def _layout(config: ModelConfig) -> Layout:
    return replace(gemma.layout(config, prefixes=_PREFIXES), elsewhere=_PICTURES)


FAMILY = Family("gemma3", "Gemma 3", _claims, opener(read_config, _layout, "Gemma 3"))
