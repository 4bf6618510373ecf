"""Hugging Face directories of GPT-BigCode: SantaCoder, StarCoder (Li et al. 2023): GPT-2 with one key-value head for all heads.

`c_attn` holds all queries, then the key and the value; without `multi_query`, query, key and value of each head are adjacent.
Unlike GPT-2's, its weights are stored [out, in].
"""

from __future__ import annotations

from collections.abc import Mapping

from circuitlab.model.config import ModelConfig
from circuitlab.model.loading.decoder_parts import filled, fused_attention, mlp, opener, tied_note
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.gated_decoder import Read
from circuitlab.model.loading.huggingface import activation, flag, head_size, number, refuse, scale_note, size
from circuitlab.model.loading.layout import Layout, Stored, linear, norm, stored

_DEFAULTS = {
    "n_positions": 1024,
    "activation_function": "gelu_pytorch_tanh",
    "layer_norm_epsilon": 1e-5,
    "multi_query": True,
    "tie_word_embeddings": True,
}


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of a GPT-BigCode `config.json`, with what was assumed."""
    refuse(config, {"add_cross_attention": "Cross-attention"})
    config, assumed = filled(config, _DEFAULTS)
    d_model, n_heads = size(config, "n_embd"), size(config, "n_head")
    model = ModelConfig(
        n_layers=size(config, "n_layer"),
        n_heads=n_heads,
        n_kv_heads=1 if flag(config, "multi_query", True) else n_heads,
        d_model=d_model,
        d_head=head_size({}, d_model, n_heads),
        d_vocab=size(config, "vocab_size"),
        n_ctx=size(config, "n_positions"),
        d_mlp=size(config, "n_inner", 4 * d_model),
        positions="learned",
        norm="layer",
        norm_eps=number(config, "layer_norm_epsilon"),
        activation=activation(config, "activation_function", ""),
        biases=("q", "k", "v", "o", "mlp"),
        tied=flag(config, "tie_word_embeddings", True),
        score_scale=0.0 if flag(config, "scale_attn_weights", True) else 1.0,
        family="gpt_bigcode",
    )
    return model, (scale_note(model.score_scale, model.d_head, "from scale_attn_weights"), *tied_note(model), *assumed)


def layout(config: ModelConfig) -> Layout:
    """Where GPT-BigCode keeps its tensors."""
    ends = {"embed.W_E": stored("wte.weight"), "embed.W_pos": stored("wpe.weight"), **norm("unembed.norm", "ln_f", bias=True)}
    ends |= {} if config.tied else {"unembed.W_U": linear("lm_head")}
    block: dict[str, Stored] = {**norm("attn_norm", "h.{i}.ln_1", bias=True), **norm("mlp_norm", "h.{i}.ln_2", bias=True)}
    block |= fused_attention(config, "h.{i}.attn.c_attn", "h.{i}.attn.c_proj")
    block |= mlp(config, "h.{i}.mlp.c_fc", "h.{i}.mlp.c_proj")
    # the causal mask that older files carry, and the second name of a tied embedding
    return Layout(ends, block, (".attn.bias", ".attn.masked_bias", "lm_head.weight"), ("transformer.",))


FAMILY = Family("gpt_bigcode", "GPT-BigCode", lambda f: f.model_type == "gpt_bigcode", opener(read_config, layout, "GPT-BigCode"))
