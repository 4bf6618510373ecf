"""Hugging Face directories of BLOOM (Le Scao et al. 2022): ALiBi, and a norm on the embedding itself.

The norm acts directly on the embedding, so that the two are one table here: row t is LayerNorm(W_E[t]). The unembedding is tied
to the table before the norm.
"""

from __future__ import annotations

from collections.abc import Mapping

from circuitlab.model.config import ModelConfig
from circuitlab.model.loading.checkpoint import Checkpoint
from circuitlab.model.loading.decoder_parts import alibi_notes, filled, fused_attention, lay_out_and_open, mlp
from circuitlab.model.loading.family import Family, Keep, Opened
from circuitlab.model.loading.gated_decoder import Read
from circuitlab.model.loading.huggingface import flag, head_size, number, refuse, scale_note, size
from circuitlab.model.loading.layout import Layout, Stored, linear, norm, stored

_DEFAULTS = {"layer_norm_epsilon": 1e-5, "seq_length": 2048, "tie_word_embeddings": True}
_OLDER = {"n_embed": "hidden_size", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}


def read_config(config: Mapping[str, object]) -> Read:
    """Our configuration of a BLOOM `config.json`, with what was assumed."""
    refuse(config, {"apply_residual_connection_post_layernorm": "A residual stream that continues after the norm"})
    older = {new: config[old] for old, new in _OLDER.items() if config.get(old) is not None}
    config, assumed = filled({**older, **config}, _DEFAULTS)
    d_model, n_heads = size(config, "hidden_size"), size(config, "n_head")
    model = ModelConfig(
        n_layers=size(config, "n_layer"),
        n_heads=n_heads,
        d_model=d_model,
        d_head=head_size({}, d_model, n_heads),
        d_vocab=size(config, "vocab_size"),
        n_ctx=size(config, "seq_length"),
        d_mlp=4 * d_model,
        positions="alibi",
        norm="layer",
        norm_eps=number(config, "layer_norm_epsilon"),
        activation="gelu_new",
        biases=("q", "k", "v", "o", "mlp"),
        family="bloom",
    )
    embedding_note = "the norm of the embedding is included in W_E; the unembedding is " + (
        "tied to the table before the norm" if flag(config, "tie_word_embeddings", True) else "separate"
    )
    return model, (scale_note(model.score_scale, model.d_head, "the family's own"), *alibi_notes(model), embedding_note, *assumed)


def layout(config: ModelConfig, one_table: bool) -> Layout:
    """Where BLOOM keeps its tensors. `one_table`: the unembedding is the embedding before its norm."""
    table, its_norm = stored("word_embeddings.weight"), "word_embeddings_layernorm"
    ends = {"embed.W_E": table.normed(f"{its_norm}.weight", f"{its_norm}.bias", config.norm_eps)}
    ends |= {"unembed.W_U": linear("word_embeddings" if one_table else "lm_head"), **norm("unembed.norm", "ln_f", bias=True)}
    at = "h.{i}."
    block: dict[str, Stored] = norm("attn_norm", f"{at}input_layernorm", bias=True)
    block |= norm("mlp_norm", f"{at}post_attention_layernorm", bias=True)
    block |= fused_attention(config, f"{at}self_attention.query_key_value", f"{at}self_attention.dense")
    block |= mlp(config, f"{at}mlp.dense_h_to_4h", f"{at}mlp.dense_4h_to_h")
    return Layout(ends, block, ("lm_head.weight",), ("transformer.",))


def _load(checkpoint: Checkpoint, keep: Keep) -> Opened:
    read = read_config(checkpoint.config)
    return lay_out_and_open(
        read, layout(read[0], flag(checkpoint.config, "tie_word_embeddings", True)), checkpoint, keep, "BLOOM"
    )


FAMILY = Family("bloom", "BLOOM", lambda f: f.model_type == "bloom", _load)
