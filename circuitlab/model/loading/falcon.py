"""Hugging Face directories of Falcon (Almazrouei et al. 2023): GPT-NeoX's block with grouped heads, rotary or with ALiBi.

Falcon-7B has one key-value head, and attention and MLP in parallel after one norm; Falcon-40B has grouped heads and two norms;
Falcon-RW has sequential sublayers and ALiBi. Its ALiBi bias is added before the scores are scaled, so the slopes here include the
factor 1/√d_head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from circuitlab.model.config import ModelConfig, alibi_slopes
from circuitlab.model.loading.checkpoint import Checkpoint
from circuitlab.model.loading.decoder_parts import (
    alibi_notes,
    filled,
    fused_attention,
    lay_out_and_open,
    mlp,
    shared_norm,
    tied_note,
)
from circuitlab.model.loading.family import Family, Keep, Opened
from circuitlab.model.loading.gated_decoder import Read
from circuitlab.model.loading.huggingface import activation, flag, head_size, number, scale_note, size
from circuitlab.model.loading.layout import Layout, Stored, linear, norm, stored
from circuitlab.model.loading.rotary_scaling import context, rotary

_DEFAULTS = {
    "layer_norm_epsilon": 1e-5,
    "alibi": False,
    "new_decoder_architecture": False,
    "multi_query": True,
    "parallel_attn": True,
    "bias": False,
    "activation": "gelu",
    "tie_word_embeddings": True,
}


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of a Falcon `config.json`, with what was assumed."""
    config, assumed = filled(config, _DEFAULTS)
    d_model, n_heads = size(config, "hidden_size"), size(config, "num_attention_heads")
    d_head = head_size(config, d_model, n_heads)
    newer = flag(config, "new_decoder_architecture", False)
    n_ctx, limited = context(config, 2048)
    one_key_value_head = 1 if flag(config, "multi_query", True) else n_heads
    model = ModelConfig(
        n_layers=size(config, "num_hidden_layers"),
        n_heads=n_heads,
        n_kv_heads=size(config, "num_kv_heads", n_heads) if newer else one_key_value_head,
        d_model=d_model,
        d_head=d_head,
        d_vocab=size(config, "vocab_size"),
        n_ctx=n_ctx,
        d_mlp=size(config, "ffn_hidden_size", 4 * d_model),
        positions="none",
        norm="layer",
        norm_eps=number(config, "layer_norm_epsilon"),
        activation=activation(config, "activation", "gelu"),
        parallel=newer or flag(config, "parallel_attn", True),
        biases=("q", "k", "v", "o", "mlp") if flag(config, "bias", False) else (),
        tied=flag(config, "tie_word_embeddings", True),
        family="falcon",
    )
    model, position_notes = _with_positions(config, model, limited)
    return model, (scale_note(model.score_scale, d_head, "the family's own"), *position_notes, *tied_note(model), *assumed)


def _with_positions(config: Mapping[str, object], model: ModelConfig, limited: tuple[str, ...]) -> Read:
    """The configuration with its positions, and notes on them."""
    if not flag(config, "alibi", False):
        rotary_positions, rotary_notes = rotary(config, model.d_head)
        return replace(model, positions="rotary", rotary=rotary_positions), (*rotary_notes, *limited)
    slopes = tuple(m * model.score_scale for m in alibi_slopes(model.n_heads))
    model = replace(model, positions="alibi", slopes=slopes)
    scaled = "the slopes include 1/√d_head, as the bias is added before the scores are scaled"
    return model, (*alibi_notes(model), scaled, "a program that computes the bias in bfloat16 differs at long distances")


def layout(config: ModelConfig, norms: int) -> Layout:
    """Where Falcon keeps its tensors. `norms`: the number of norms before parallel attention and MLP."""
    ends = {"embed.W_E": stored("word_embeddings.weight"), **norm("unembed.norm", "ln_f", bias=True)}
    ends |= {} if config.tied else {"unembed.W_U": linear("lm_head")}
    at = "h.{i}."
    if not config.parallel:
        block: dict[str, Stored] = norm("attn_norm", f"{at}input_layernorm", bias=True)
        block |= norm("mlp_norm", f"{at}post_attention_layernorm", bias=True)
    elif norms == 2:
        block = norm("attn_norm", f"{at}ln_attn", bias=True) | norm("mlp_norm", f"{at}ln_mlp", bias=True)
    else:
        block = shared_norm(f"{at}input_layernorm")
    block |= fused_attention(config, f"{at}self_attention.query_key_value", f"{at}self_attention.dense")
    block |= mlp(config, f"{at}mlp.dense_h_to_4h", f"{at}mlp.dense_4h_to_h")
    return Layout(ends, block, ("rotary_emb.inv_freq", ".maybe_rotary.inv_freq", "lm_head.weight"), ("transformer.",))


def _load(checkpoint: Checkpoint, keep: Keep) -> Opened:
    read = read_config(checkpoint.config)
    newer = flag(checkpoint.config, "new_decoder_architecture", False)
    norms = size(checkpoint.config, "num_ln_in_parallel_attn", 2) if newer else 1
    return lay_out_and_open(read, layout(read[0], norms), checkpoint, keep, "Falcon")


FAMILY = Family("falcon", "Falcon", lambda f: f.model_type == "falcon", _load)
