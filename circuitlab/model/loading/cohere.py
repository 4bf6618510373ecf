"""Hugging Face directories of Command R (Cohere 2024; `"model_type": "cohere"`, `"cohere2"`): attention and MLP in parallel.

Both read the output of one LayerNorm without bias; rotary pairs are interleaved; logits are multiplied by `logit_scale`, which is
included in the gain of the final norm. Command R+ has a LayerNorm of each head's queries and keys. In Command R7B (`cohere2`)
three of four layers have a sliding window, and the others have no positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from circuitlab.errors import BadModel
from circuitlab.model.config import ModelConfig
from circuitlab.model.loading.checkpoint import Checkpoint
from circuitlab.model.loading.decoder_parts import attention, lay_out_and_open, mlp
from circuitlab.model.loading.family import Family, Keep, Opened
from circuitlab.model.loading.gated_decoder import BUFFERS, Read, filled_unless_null, noted, read, with_rotary_in
from circuitlab.model.loading.huggingface import flag, number, size, sliding_windows
from circuitlab.model.loading.layout import Layout, Stored, linear, norm, stored

_DEFAULTS = {"max_position_embeddings": 8192, "hidden_act": "silu", "tie_word_embeddings": True}


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of a Command R `config.json`, with what was assumed."""
    second = config.get("model_type") == "cohere2"
    eps = number(config, "layer_norm_eps", 1e-5)
    model, notes = read({**config, "rms_norm_eps": eps}, _DEFAULTS, base=10000.0 if second else 500000.0)
    assert model.rotary is not None
    model = replace(
        model,
        norm="layer",
        parallel=True,
        rotary=replace(model.rotary, pairs="interleaved"),
        qk_norm="layer" if not second and flag(config, "use_qk_norm", False) else "none",
        biases=("q", "k", "v", "o") if flag(config, "attention_bias", False) else (),
    )
    scale_notes = ("one norm for attention and MLP", f"logits times {_scale(config):g}, included in the gain of the final norm")
    model, window_notes = _windowed(config, model) if second else (model, ())
    return noted(model, (*notes, *scale_notes, *window_notes))


def _windowed(config: Mapping[str, object], model: ModelConfig) -> Read:
    """Three of four layers with a sliding window; positions in these only."""
    config, default_notes = filled_unless_null(config, {"sliding_window": 4096})
    every = size(config, "sliding_window_pattern", 4)
    if every < 1:
        raise BadModel(
            "The configuration's sliding_window_pattern is not positive.", expected="a number such as 4", got=str(every)
        )
    model = replace(model, windows=sliding_windows(config, model.n_layers, lambda i: bool((i + 1) % every)))
    model, position_notes = with_rotary_in(model, [i for i in range(model.n_layers) if model.window(i)])
    return model, (*default_notes, *position_notes)


def _scale(config: Mapping[str, object]) -> float:
    scale = number(config, "logit_scale", 0.0625)
    if scale == 0:
        raise BadModel("The configuration's logit_scale is zero.", expected="a number such as 0.0625", got="0")
    return scale


def layout(config: ModelConfig, scale: float) -> Layout:
    """Where Command R keeps its tensors. `scale` multiplies the logits."""
    ends = {"embed.W_E": stored("embed_tokens.weight"), "unembed.norm.gain": stored("norm.weight").scaled(scale)}
    ends |= {} if config.tied else {"unembed.W_U": linear("lm_head")}
    at = "layers.{i}."
    block: dict[str, Stored] = norm("attn_norm", f"{at}input_layernorm", bias=False)
    block |= norm("mlp_norm", f"{at}input_layernorm", bias=False)
    block |= attention(config, *(f"{at}self_attn.{which}_proj" for which in "qkvo"))
    block |= mlp(config, f"{at}mlp.up_proj", f"{at}mlp.down_proj", f"{at}mlp.gate_proj")
    if config.qk_norm == "layer":
        block |= {f"{which}_norm.gain": stored(f"{at}self_attn.{which}_norm.weight") for which in "qk"}
    return Layout(ends, block, BUFFERS, ("model.",))


def _load(checkpoint: Checkpoint, keep: Keep) -> Opened:
    read = read_config(checkpoint.config)
    return lay_out_and_open(read, layout(read[0], _scale(checkpoint.config)), checkpoint, keep, "Command R")


FAMILY = Family("cohere", "Cohere Command R", lambda f: f.model_type in ("cohere", "cohere2"), _load)
