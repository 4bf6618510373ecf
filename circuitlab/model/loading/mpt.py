"""Hugging Face directories of MPT (MosaicML 2023): ALiBi, LayerNorms without bias, and no other biases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from circuitlab.counting import number_of
from circuitlab.errors import BadModel, quoted
from circuitlab.model.config import ModelConfig
from circuitlab.model.files.tensors import TensorSource
from circuitlab.model.loading.checkpoint import Checkpoint
from circuitlab.model.loading.decoder_parts import alibi_notes, filled, lay_out_and_open, mlp, tied_note
from circuitlab.model.loading.family import Family, Keep, Opened
from circuitlab.model.loading.gated_decoder import Read
from circuitlab.model.loading.huggingface import flag, head_size, number, refuse, scale_note, size
from circuitlab.model.loading.layout import Layout, Stored, Which, linear, matrix, norm, stored

_DEFAULTS = {"expansion_ratio": 4, "max_seq_len": 2048, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True}
_PREFIXES = ("transformer.",)
_REFUSED = {
    "clip_qkv": "Clipping of queries, keys and values",
    "qk_ln": "A norm of queries and keys",
    "prefix_lm": "A prefix",
}


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of an MPT `config.json`, with what was assumed."""
    config, assumed = filled(config, _DEFAULTS)
    attention = config.get("attn_config") or {}
    if not isinstance(attention, Mapping):
        raise BadModel("The configuration's attn_config cannot be read.", expected="an object", got=quoted(attention))
    refuse(attention, _REFUSED)
    refuse(config, {"logit_scale": "A scale of the logits"})
    _refuse_kind(config, attention)
    if number(attention, "alibi_bias_max", 8) != 8:  # `transformers` and the family's own code read it differently
        raise BadModel(
            "The slopes of ALiBi are not the usual ones.", expected="alibi_bias_max 8", got=str(attention["alibi_bias_max"])
        )
    d_model, n_heads = size(config, "d_model"), size(config, "n_heads")
    model = ModelConfig(
        n_layers=size(config, "n_layers"),
        n_heads=n_heads,
        d_model=d_model,
        d_head=head_size({}, d_model, n_heads),
        d_vocab=size(config, "vocab_size"),
        n_ctx=size(config, "max_seq_len"),
        d_mlp=size(config, "expansion_ratio") * d_model,
        positions="alibi",
        norm="layer",
        norm_eps=number(config, "layer_norm_epsilon"),
        activation="gelu",
        tied=flag(config, "tie_word_embeddings", True),
        score_scale=number(attention, "softmax_scale", 0.0),
        family="mpt",
    )
    scale = scale_note(model.score_scale, model.d_head, "softmax_scale, or the family's own")
    return model, (scale, *alibi_notes(model), *tied_note(model), *assumed)


def _refuse_kind(config: Mapping[str, object], attention: Mapping[str, object]) -> None:
    """Raise `BadModel`, each for its own reason, where an MPT is of a kind that is not read."""
    heads = attention.get("attn_type") or "multihead_attention"
    reasons = (
        (heads != "multihead_attention", "its queries share keys and values", "attn_type multihead_attention", f"{heads!s:.60}"),
        (not flag(attention, "alibi", True), "its positions are not ALiBi's", "alibi true", "alibi false"),
        (not flag(config, "no_bias", True), "it has biases", "no_bias true", "no_bias false"),
    )
    for applies, reason, expected, got in reasons:
        if applies:
            what = f"This MPT is of a kind that is not opened: {reason}."
            raise BadModel(
                what, expected=expected, got=got, remedy="Open another MPT, for instance mpt-7b, or import it with a map."
            )


def layout(config: ModelConfig) -> Layout:
    """Where MPT keeps its tensors."""
    ends = {"embed.W_E": stored("wte.weight"), **norm("unembed.norm", "norm_f", bias=False)}
    ends |= {} if config.tied else {"unembed.W_U": linear("lm_head")}
    at = "blocks.{i}."
    block: dict[str, Stored] = norm("attn_norm", f"{at}norm_1", bias=False) | norm("mlp_norm", f"{at}norm_2", bias=False)
    parts: tuple[Which, ...] = ("q", "k", "v")
    block |= {f"W_{which.upper()}": linear(f"{at}attn.Wqkv").beside(which).heads(which) for which in parts}
    block |= {"W_O": linear(f"{at}attn.out_proj").heads("o"), **mlp(config, f"{at}ffn.up_proj", f"{at}ffn.down_proj")}
    return Layout(ends, block, ("lm_head.weight",), _PREFIXES)


def _as_stored(read: Read, source: TensorSource) -> Read:
    """The configuration with the width that the MLP's tensors have: `transformers` reads no expansion_ratio and makes them
    4·d_model wide, MosaicML's own code makes them as wide as it says."""
    config, notes = read
    name = next((n for prefix in (*_PREFIXES, "") if (n := f"{prefix}blocks.0.ffn.up_proj.weight") in source.names()), None)
    width = config.d_mlp if name is None else matrix(source, name)[0]
    if width == config.d_mlp:
        return read
    note = f"the MLP is as wide as its tensors, {number_of(width, 'column')}, not the {config.d_mlp} of expansion_ratio"
    return replace(config, d_mlp=width), (*notes, note)


def _load(checkpoint: Checkpoint, keep: Keep) -> Opened:
    read = _as_stored(read_config(checkpoint.config), checkpoint.needed())
    return lay_out_and_open(read, layout(read[0]), checkpoint, keep, "MPT")


FAMILY = Family("mpt", "MPT", lambda f: f.model_type == "mpt", _load)
