"""Hugging Face directories of Granite 3 (Granite team 2024): Llama with four multipliers.

    x_0 = embedding_multiplier · W_E[tokens]     scores = attention_multiplier · q kᵀ
    x  <- x + residual_multiplier · sublayer(x)  logits = norm(x) W_U / logits_scaling

The first two are fields of our configuration. The third is multiplied into the weights that write to the stream (W_O, W_out and
their biases), the fourth into the gain of the final norm, so that every analysis of weights includes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from circuitlab.errors import BadModel
from circuitlab.model.config import ModelConfig
from circuitlab.model.loading.checkpoint import Checkpoint
from circuitlab.model.loading.decoder_parts import lay_out_and_open
from circuitlab.model.loading.family import Family, Keep, Opened
from circuitlab.model.loading.gated_decoder import Read, noted, read
from circuitlab.model.loading.gated_decoder import layout as gated_layout
from circuitlab.model.loading.huggingface import number
from circuitlab.model.loading.layout import Layout

_DEFAULTS = {"max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "hidden_act": "silu"}
_WRITES = ("W_O", "b_O", "mlp.W_out", "mlp.b_out")


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of a Granite `config.json`, with what was assumed."""
    model, notes = read(config, _DEFAULTS)
    model = replace(
        model, embed_scale=_factor(config, "embedding_multiplier"), score_scale=_factor(config, "attention_multiplier")
    )
    written, divided = _factor(config, "residual_multiplier"), _factor(config, "logits_scaling")
    embedding_note = f"embeddings times {model.embed_scale:g}"
    inside = (
        f"W_O and W_out include residual_multiplier {written:g}, the final norm's gain is divided by logits_scaling {divided:g}"
    )
    return noted(model, (*notes, embedding_note, inside), "attention_multiplier")


def _factor(config: Mapping[str, object], name: str) -> float:
    value = number(config, name, 1.0)
    if value == 0:
        raise BadModel(f"The configuration's {name} is zero.", expected="a number other than 0", got="0")
    return value


def layout(config: ModelConfig, written: float, divided: float) -> Layout:
    """Where Granite keeps its tensors. `written` multiplies the output of sublayers, `divided` divides the logits."""
    plain = gated_layout(config)
    block = {name: where.scaled(written) if name in _WRITES else where for name, where in plain.block.items()}
    ends = {name: where.scaled(1 / divided) if name == "unembed.norm.gain" else where for name, where in plain.ends.items()}
    return replace(plain, ends=ends, block=block)


def _load(checkpoint: Checkpoint, keep: Keep) -> Opened:
    read = read_config(checkpoint.config)
    where = layout(read[0], _factor(checkpoint.config, "residual_multiplier"), _factor(checkpoint.config, "logits_scaling"))
    return lay_out_and_open(read, where, checkpoint, keep, "Granite")


FAMILY = Family("granite", "Granite", lambda f: f.model_type == "granite", _load)
