"""Hugging Face directories of GPT-1 (Radford et al. 2018): the stream is normalised after each addition; no final norm."""

from __future__ import annotations

from collections.abc import Mapping

from circuitlab.errors import BadModel, quoted
from circuitlab.model.config import Activation, ModelConfig
from circuitlab.model.loading.decoder_parts import filled, opener, tied_note
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.gated_decoder import Read
from circuitlab.model.loading.huggingface import flag, head_size, number, scale_note, size
from circuitlab.model.loading.layout import Layout, Stored, linear, norm, stored

_DEFAULTS = {"n_positions": 512, "afn": "gelu", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True}
_ACTIVATIONS: dict[str, Activation] = {"gelu": "gelu_new", "relu": "relu", "silu": "silu", "swish": "silu"}


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of a GPT-1 `config.json`, with what was assumed."""
    config, assumed = filled({"n_positions": config.get("n_ctx"), **config}, _DEFAULTS)
    d_model, n_heads, kind = size(config, "n_embd"), size(config, "n_head"), config["afn"]
    if not isinstance(kind, str) or kind not in _ACTIVATIONS:
        raise BadModel("The activation is not known.", expected=" ".join(_ACTIVATIONS), got=quoted(kind))
    model = ModelConfig(
        n_layers=size(config, "n_layer"),
        n_heads=n_heads,
        d_model=d_model,
        d_head=head_size({}, d_model, n_heads),
        d_vocab=size(config, "vocab_size"),
        n_ctx=size(config, "n_positions"),
        d_mlp=4 * d_model,
        positions="learned",
        norm="layer",
        norm_placement="post_residual",
        final_norm=False,
        norm_eps=number(config, "layer_norm_epsilon"),
        activation=_ACTIVATIONS[kind],
        biases=("q", "k", "v", "o", "mlp"),
        tied=flag(config, "tie_word_embeddings", True),
        family="openai-gpt",
    )
    norm_notes = ("norms after each addition, none before the unembedding",)
    norm_notes += ("activation: the tanh form of gelu, which the file calls gelu",) if kind == "gelu" else ()
    return model, (scale_note(model.score_scale, model.d_head, "the family's own"), *norm_notes, *tied_note(model), *assumed)


def layout(config: ModelConfig) -> Layout:
    """Where GPT-1 keeps its tensors: weights [in, out], as in GPT-2's files."""
    ends = {"embed.W_E": stored("tokens_embed.weight"), "embed.W_pos": stored("positions_embed.weight")}
    ends |= {} if config.tied else {"unembed.W_U": linear("lm_head")}
    block: dict[str, Stored] = norm("attn_post_norm", "h.{i}.ln_1", bias=True) | norm("mlp_post_norm", "h.{i}.ln_2", bias=True)
    for which in ("q", "k", "v"):
        block[f"W_{which.upper()}"] = stored("h.{i}.attn.c_attn.weight").beside(which).heads(which)
        block[f"b_{which.upper()}"] = stored("h.{i}.attn.c_attn.bias").beside(which).heads(which)
    block |= {"W_O": stored("h.{i}.attn.c_proj.weight").heads("o"), "b_O": stored("h.{i}.attn.c_proj.bias")}
    for ours, theirs in (("in", "c_fc"), ("out", "c_proj")):
        block |= {f"mlp.W_{ours}": stored(f"h.{{i}}.mlp.{theirs}.weight"), f"mlp.b_{ours}": stored(f"h.{{i}}.mlp.{theirs}.bias")}
    return Layout(ends, block, (".attn.bias", "position_ids", "lm_head.weight"), ("transformer.",))


FAMILY = Family("openai_gpt", "GPT-1", lambda f: f.model_type == "openai-gpt", opener(read_config, layout, "GPT-1"))
