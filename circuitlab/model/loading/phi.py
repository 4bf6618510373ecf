"""Hugging Face directories of Phi-1, Phi-1.5 and Phi-2 (Gunasekar et al. 2023; Li et al. 2023): `"model_type": "phi"`.

Attention and MLP are parallel and read the output of one LayerNorm; rotary halves on the first columns of each head; biases
everywhere, the unembedding included; optionally a LayerNorm of queries and keys, one for all heads. (Phi-3 is another family.)
"""

from __future__ import annotations

from circuitlab.disk.json_types import JsonObject
from circuitlab.model.config import ModelConfig
from circuitlab.model.loading.decoder_parts import attention, filled, mlp, opener, rotary_sizes, shared_norm, tied_note
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.huggingface import activation, flag, scale_note
from circuitlab.model.loading.layout import Layout, Stored, linear, norm, stored

_DEFAULTS = {
    "hidden_act": "gelu_new",
    "layer_norm_eps": 1e-5,
    "qk_layernorm": False,
    "tie_word_embeddings": False,
}


def read_config(config: JsonObject) -> tuple[ModelConfig, tuple[str, ...]]:
    """Our configuration of a Phi `config.json`, with what was assumed."""
    config, assumed = filled(config, _DEFAULTS)
    fields, rotary_notes = rotary_sizes(config, config, 0.5, 2048)
    model = ModelConfig(
        **fields,
        activation=activation(config, "hidden_act", "gelu_new"),
        parallel=True,
        qk_norm="layer" if flag(config, "qk_layernorm", False) else "none",
        biases=("q", "k", "v", "o", "mlp", "unembed"),
        family="phi",
    )
    notes = (scale_note(model.score_scale, model.d_head, "the family's own"), "one norm for attention and MLP")
    return model, (*notes, *rotary_notes, *tied_note(model), *assumed)


def layout(config: ModelConfig) -> Layout:
    """Where Phi keeps its tensors."""
    ends = {"embed.W_E": stored("embed_tokens.weight"), **norm("unembed.norm", "final_layernorm", bias=True)}
    ends |= {"unembed.b_U": stored("lm_head.bias")} | ({} if config.tied else {"unembed.W_U": linear("lm_head")})
    at = "layers.{i}."
    block: dict[str, Stored] = shared_norm(f"{at}input_layernorm")
    block |= attention(config, *(f"{at}self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "dense")))
    block |= mlp(config, f"{at}mlp.fc1", f"{at}mlp.fc2")
    if config.qk_norm == "layer":
        block |= norm("q_norm", f"{at}self_attn.q_layernorm", bias=True) | norm("k_norm", f"{at}self_attn.k_layernorm", bias=True)
    return Layout(ends, block, ("rotary_emb.inv_freq", "lm_head.weight"), ("model.",))


FAMILY = Family("phi", "Phi-1 and 2", lambda f: f.model_type == "phi", opener(read_config, layout, "Phi"))
