"""Hugging Face GPT-NeoX directories: GPT-NeoX-20B (Black et al. 2022), Pythia (Biderman et al. 2023).

LayerNorms, rotary halves on the first columns of each head, queries, keys and values fused per head, attention and MLP in
parallel after two norms (or sequential, if `use_parallel_residual` is false).
"""

from __future__ import annotations

from collections.abc import Mapping

from circuitlab.disk.json_types import JsonDict, JsonObject
from circuitlab.model.config import ModelConfig
from circuitlab.model.loading.decoder_parts import filled, fused_attention, mlp, opener, rotary_sizes, tied_note
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.huggingface import activation, flag, scale_note
from circuitlab.model.loading.layout import Layout, Stored, linear, norm, stored

_DEFAULTS = {
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-5,
    "use_parallel_residual": True,
    "attention_bias": True,
    "tie_word_embeddings": False,
}


def read_config(config: JsonObject) -> tuple[ModelConfig, tuple[str, ...]]:
    """Our configuration of a GPT-NeoX `config.json`, with what was assumed."""
    config, assumed = filled(config, _DEFAULTS)
    fields, rotary_notes = rotary_sizes(config, _renamed(config), 0.25, 2048)
    model = ModelConfig(
        **{**fields, "n_kv_heads": fields["n_heads"]},  # no groups of heads, whatever fields of other families the file carries
        activation=activation(config, "hidden_act", "gelu"),
        parallel=flag(config, "use_parallel_residual", True),
        biases=("q", "k", "v", "o", "mlp") if flag(config, "attention_bias", True) else ("mlp",),
        family="gpt_neox",
    )
    return model, (scale_note(model.score_scale, model.d_head, "the family's own"), *rotary_notes, *tied_note(model), *assumed)


def _renamed(config: Mapping[str, object]) -> JsonDict:
    """The rotary fields of older files under their current names."""
    names = {"rotary_pct": "partial_rotary_factor", "rotary_emb_base": "rope_theta"}
    return {**config, **{new: config[old] for old, new in names.items() if config.get(old) is not None}}


def layout(config: ModelConfig) -> Layout:
    """Where GPT-NeoX keeps its tensors; the unembedding is called `embed_out` in older files, `lm_head` in newer ones."""
    ends = {"embed.W_E": stored("embed_in.weight"), **norm("unembed.norm", "final_layer_norm", bias=True)}
    ends |= {} if config.tied else {"unembed.W_U": linear("embed_out")}
    at = "layers.{i}."
    block: dict[str, Stored] = norm("attn_norm", f"{at}input_layernorm", bias=True)
    block |= norm("mlp_norm", f"{at}post_attention_layernorm", bias=True)
    block |= fused_attention(config, f"{at}attention.query_key_value", f"{at}attention.dense")
    block |= mlp(config, f"{at}mlp.dense_h_to_4h", f"{at}mlp.dense_4h_to_h")
    # the masks and frequencies that older files carry, and the second names of a tied embedding
    buffers = (".attention.bias", ".attention.masked_bias", "rotary_emb.inv_freq", "embed_out.weight", "lm_head.weight")
    return Layout(ends, block, buffers, ("gpt_neox.",), renamed={"embed_out.weight": "lm_head.weight"})


FAMILY = Family(
    "gpt_neox",
    "GPT-NeoX and Pythia",
    lambda f: f.model_type == "gpt_neox",
    opener(read_config, layout, "GPT-NeoX"),
)
