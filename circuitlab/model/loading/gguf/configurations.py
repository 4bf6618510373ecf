"""The configuration of each architecture of llama.cpp, as the Hugging Face folder of the same model would have it."""

from __future__ import annotations

from typing import Any

from circuitlab.errors import BadModel
from circuitlab.model.files.gguf.tensors import GgufTensors
from circuitlab.model.loading.gguf.configuration import (
    Config,
    assumed_window,
    common,
    d_head,
    layer_eps,
    rms_eps,
    rotary,
    stated_window,
    window_pattern,
)
from circuitlab.model.loading.gguf.said import Said

_STATED_BY_NONE = "the format stores none for this architecture"


def _gated(said: Said, tensors: GgufTensors, model_type: str, **more: Any) -> Config:
    """A decoder with RMSNorms and a gated MLP of SiLU."""
    fields = common(said, model_type=model_type, rms_norm_eps=rms_eps(said), hidden_act="silu")
    return {**fields, **rotary(said, tensors), **more}


def llama(said: Said, tensors: GgufTensors) -> Config:
    """Llama, Mistral or Mixtral, which the format does not tell apart."""
    if said.size("expert_count", 0):
        return {**_gated(said, tensors, "mixtral"), **_experts(said), "sliding_window": assumed_window(said) or None}
    window = assumed_window(said)
    return _gated(said, tensors, "mistral", sliding_window=window) if window else _gated(said, tensors, "llama")


def _experts(said: Said) -> Config:
    used = said.size("expert_used_count")
    return {"num_local_experts": said.size("expert_count"), "num_experts_per_tok": used}


def _qwen_experts(said: Said, renormalised: str) -> Config:
    why = f"{_STATED_BY_NONE}; {renormalised} in the models of its authors"
    chosen = said.ask.choice("norm_topk_prob", renormalised, ("true", "false"), why)
    width = said.columns("blk.0.ffn_down_exps.weight", "blk.0.ffn_down.0.weight")
    return {**_experts(said), "moe_intermediate_size": width, "norm_topk_prob": chosen == "true"}


def granite(said: Said, tensors: GgufTensors) -> Config:
    """Its four multipliers; the last divides the logits."""
    names = {
        "attention_multiplier": "attention.scale",
        "embedding_multiplier": "embedding_scale",
        "residual_multiplier": "residual_scale",
        "logits_scaling": "logit_scale",
    }
    factors = {ours: said.number(theirs, 1.0) for ours, theirs in names.items()}
    if not said.has("attention.scale"):
        factors["attention_multiplier"] = d_head(said) ** -0.5
    return _gated(said, tensors, "granite", **factors)


def smollm3(said: Said, tensors: GgufTensors) -> Config:
    """Without positions in every fourth layer, which is not stored."""
    every = said.ask.size("no_rope_layer_interval", 4, f"SmolLM3's own; {_STATED_BY_NONE}")
    return _gated(said, tensors, "smollm3", no_rope_layer_interval=every)


def olmo(said: Said, tensors: GgufTensors) -> Config:
    """Without gains of norms."""
    clamp = said.number("attention.clamp_kqv", 0.0)
    return {**common(said, model_type="olmo", hidden_act="silu", clip_qkv=clamp or None), **rotary(said, tensors)}


def olmo2(said: Said, tensors: GgufTensors) -> Config:
    """OLMo 2; with a sliding window OLMo 3."""
    window = stated_window(said)
    if window is None:
        return _gated(said, tensors, "olmo2")
    kinds = window_pattern(said, [bool((i + 1) % 4) for i in range(said.n_layers)])
    return _gated(said, tensors, "olmo3", sliding_window=window, layer_types=kinds)


def olmoe(said: Said, tensors: GgufTensors) -> Config:
    """Experts whose weights are not renormalised."""
    return {**_gated(said, tensors, "olmoe"), **_experts(said), "norm_topk_prob": False}


def qwen2(said: Said, tensors: GgufTensors) -> Config:
    """Windows, which its files state and do not use, are not stored."""
    return _gated(said, tensors, "qwen2", use_sliding_window=False)


def qwen3(said: Said, tensors: GgufTensors) -> Config:
    """As Qwen 2."""
    return _gated(said, tensors, "qwen3", use_sliding_window=False)


def qwen2moe(said: Said, tensors: GgufTensors) -> Config:
    """With a shared expert."""
    experts, shared = _qwen_experts(said, "false"), said.columns("blk.0.ffn_down_shexp.weight")
    biased = said.tensor("blk.0.attn_q.bias")
    return {**_gated(said, tensors, "qwen2_moe"), **experts, "shared_expert_intermediate_size": shared, "qkv_bias": biased}


def qwen3moe(said: Said, tensors: GgufTensors) -> Config:
    """Without one."""
    return {**_gated(said, tensors, "qwen3_moe"), **_qwen_experts(said, "true")}


def _gemma(said: Said, tensors: GgufTensors, model_type: str, **more: Any) -> Config:
    return {**_gated(said, tensors, model_type), "hidden_activation": "gelu_pytorch_tanh", "hidden_act": None, **more}


def gemma(said: Said, tensors: GgufTensors) -> Config:
    """Gemma 1."""
    return _gemma(said, tensors, "gemma")


def _query_scalar(said: Said, layers_of_27b: int) -> float:
    """What scores are divided by, squared: the width of a head but in the model of 27 billion."""
    largest = said.n_layers == layers_of_27b
    value = said.size("embedding_length") / said.size("attention.head_count") if largest else d_head(said)
    why = "the width divided by the heads, as in the model of 27 billion" if largest else "the width of a head"
    return said.ask.number("query_pre_attn_scalar", value, f"{why}; {_STATED_BY_NONE}")


def gemma2(said: Said, tensors: GgufTensors) -> Config:
    """Soft caps, and a window in every other layer."""
    return _gemma(
        said,
        tensors,
        "gemma2",
        query_pre_attn_scalar=_query_scalar(said, 46),
        attn_logit_softcapping=said.number("attn_logit_softcapping", 0.0) or None,
        final_logit_softcapping=said.number("final_logit_softcapping", 0.0) or None,
        sliding_window=stated_window(said),
        layer_types=window_pattern(said, [i % 2 == 0 for i in range(said.n_layers)]),
    )


def gemma3(said: Said, tensors: GgufTensors) -> Config:
    """A window and another rotary base in five of six layers."""
    return _gemma(
        said,
        tensors,
        "gemma3_text",
        query_pre_attn_scalar=_query_scalar(said, 62),
        attn_logit_softcapping=said.number("attn_logit_softcapping", 0.0) or None,
        final_logit_softcapping=said.number("final_logit_softcapping", 0.0) or None,
        sliding_window=stated_window(said),
        rope_local_base_freq=said.number("rope.freq_base_swa", 10000.0),
        layer_types=window_pattern(said, [bool((i + 1) % 6) for i in range(said.n_layers)]),
    )


def gpt2(said: Said, tensors: GgufTensors) -> Config:
    """Under GPT-2's own names."""
    return {
        "model_type": "gpt2",
        "n_embd": said.size("embedding_length"),
        "n_head": said.size("attention.head_count"),
        "n_layer": said.n_layers,
        "n_inner": said.columns("blk.0.ffn_down.weight"),
        "n_positions": said.rows("position_embd.weight"),
        "vocab_size": said.rows("token_embd.weight"),
        "activation_function": "gelu_new",
        "layer_norm_epsilon": layer_eps(said),
        "tie_word_embeddings": not said.tensor("output.weight"),
    }


def starcoder(said: Said, tensors: GgufTensors) -> Config:
    """GPT-BigCode: one key-value head or as many as query heads, by the rows of the tensor."""
    width = said.size("embedding_length")
    one = said.rows("blk.0.attn_qkv.weight") != 3 * width or said.size("attention.head_count") == 1
    heads = {"num_key_value_heads": 1 if one else said.size("attention.head_count")}
    return {
        **gpt2(said, tensors),
        **heads,
        "model_type": "gpt_bigcode",
        "multi_query": one,
        "activation_function": "gelu_pytorch_tanh",
    }


def starcoder2(said: Said, tensors: GgufTensors) -> Config:
    """LayerNorms and a window that is not stored."""
    biased = said.tensor("blk.0.attn_q.bias")
    window = assumed_window(said, 4096, f"StarCoder2's own; {_STATED_BY_NONE}") or None
    more = {"norm_epsilon": layer_eps(said), "hidden_act": "gelu_pytorch_tanh", "use_bias": biased, "sliding_window": window}
    return {**common(said, model_type="starcoder2"), **rotary(said, tensors), **more}


def gptneox(said: Said, tensors: GgufTensors) -> Config:
    """GPT-NeoX and Pythia."""
    config = {
        **common(said, model_type="gpt_neox", layer_norm_eps=layer_eps(said), hidden_act="gelu"),
        **rotary(said, tensors, base_of="GPT-NeoX's and Pythia's own"),
    }
    return {**config, "use_parallel_residual": said.flag("use_parallel_residual", True)}


def bloom(said: Said, tensors: GgufTensors) -> Config:
    """ALiBi."""
    return {
        "model_type": "bloom",
        "hidden_size": said.size("embedding_length"),
        "n_head": said.size("attention.head_count"),
        "n_layer": said.n_layers,
        "vocab_size": said.rows("token_embd.weight"),
        "seq_length": said.size("context_length"),
        "layer_norm_epsilon": layer_eps(said),
        "tie_word_embeddings": not said.tensor("output.weight"),
    }


def falcon(said: Said, tensors: GgufTensors) -> Config:
    """7B with one key-value head, 40B with groups of them and two norms."""
    heads, kv = said.size("attention.head_count"), said.size("attention.head_count_kv", 1)
    two = said.tensor("blk.0.attn_norm_2.weight")
    newer = two or kv not in (1, heads)
    fields = common(said, model_type="falcon", layer_norm_epsilon=layer_eps(said), activation="gelu", alibi=False)
    shape = {
        "num_key_value_heads": kv,
        "num_kv_heads": kv,
        "multi_query": kv == 1,
        "new_decoder_architecture": newer,
        "num_ln_in_parallel_attn": 2 if two else 1,
        "parallel_attn": True,
        "ffn_hidden_size": fields["intermediate_size"],
        "bias": said.tensor("blk.0.attn_qkv.bias"),
    }
    return {**fields, **shape, **rotary(said, tensors, base_of="Falcon's own")}


def mpt(said: Said, tensors: GgufTensors) -> Config:
    """ALiBi, and no biases."""
    width, inner = said.size("embedding_length"), said.columns("blk.0.ffn_down.weight")
    if not width or inner % width:
        raise BadModel("The MLP is not a multiple of the width.", expected=f"a multiple of {width}", got=str(inner))
    alibi, clamp = said.number("attention.max_alibi_bias", 0.0), said.number("attention.clamp_kqv", 0.0)
    return {
        "model_type": "mpt",
        "d_model": width,
        "n_heads": said.size("attention.head_count"),
        "n_layers": said.n_layers,
        "expansion_ratio": inner // width,
        "max_seq_len": said.size("context_length"),
        "vocab_size": said.rows("token_embd.weight"),
        "layer_norm_epsilon": layer_eps(said),
        "no_bias": not said.tensor("blk.0.attn_qkv.bias"),
        "attn_config": {"alibi": alibi > 0, "alibi_bias_max": alibi or 8, "clip_qkv": clamp or None},
        "tie_word_embeddings": not said.tensor("output.weight"),
    }


def phi2(said: Said, tensors: GgufTensors) -> Config:
    """Phi 1 and 2."""
    fields = common(said, model_type="phi", layer_norm_eps=layer_eps(said), hidden_act="gelu_new")
    return {**fields, **rotary(said, tensors, base_of="Phi's own")}


def phi3(said: Said, tensors: GgufTensors) -> Config:
    """Phi 3 and 4; a window of 0 is none."""
    return _gated(said, tensors, "phi3", sliding_window=stated_window(said))


def stablelm(said: Said, tensors: GgufTensors) -> Config:
    """Parallel where there is no second norm."""
    fields = common(said, model_type="stablelm", layer_norm_eps=layer_eps(said), hidden_act="silu")
    more = {
        "use_parallel_residual": not said.tensor("blk.0.ffn_norm.weight"),
        "use_qkv_bias": said.tensor("blk.0.attn_q.bias"),
        "qk_layernorm": said.tensor("blk.0.attn_q_norm.weight"),
    }
    return {**fields, **more, **rotary(said, tensors, base_of="StableLM's own")}


def _cohere(said: Said, tensors: GgufTensors, model_type: str, **more: Any) -> Config:
    """Its scale multiplies the logits."""
    fields = common(said, model_type=model_type, layer_norm_eps=layer_eps(said), hidden_act="silu")
    return {**fields, "logit_scale": said.number("logit_scale"), **rotary(said, tensors), **more}


def command_r(said: Said, tensors: GgufTensors) -> Config:
    """Command R and R+."""
    return _cohere(said, tensors, "cohere", use_qk_norm=said.tensor("blk.0.attn_q_norm.weight"))


def cohere2(said: Said, tensors: GgufTensors) -> Config:
    """Command R7B: three of four layers have a window."""
    kinds = window_pattern(said, [bool((i + 1) % 4) for i in range(said.n_layers)])
    return _cohere(said, tensors, "cohere2", sliding_window=stated_window(said), layer_types=kinds)


def nemotron(said: Said, tensors: GgufTensors) -> Config:
    """LayerNorms whose gains are stored minus one."""
    return {**common(said, model_type="nemotron", norm_eps=layer_eps(said), hidden_act="relu2"), **rotary(said, tensors)}


def exaone(said: Said, tensors: GgufTensors) -> Config:
    """EXAONE 3: its RMSNorms' number is stored as that of LayerNorms."""
    eps = rms_eps(said) if said.has("attention.layer_norm_rms_epsilon") else layer_eps(said)
    fields = common(said, model_type="exaone", layer_norm_epsilon=eps, activation_function="silu")
    return {**fields, **rotary(said, tensors)}


def exaone4(said: Said, tensors: GgufTensors) -> Config:
    """Windows in some layers, and positions in these only."""
    window = stated_window(said)
    if window is None:
        return _gated(said, tensors, "exaone4", sliding_window=None)
    kinds = window_pattern(said, [bool((i + 1) % 4) for i in range(said.n_layers)])
    return _gated(said, tensors, "exaone4", sliding_window=window, layer_types=kinds)


def chatglm(said: Said, tensors: GgufTensors) -> Config:
    """GLM-4 of 2024: base, number of the norms and context are written alike for every model, and asked."""
    written = "files of this architecture say the same of every model"
    if not said.ask.chosen("rotary_base"):
        raise BadModel(
            "The file does not say the model's rotary base.",
            expected="the base, as the model's config.json states it (rope_theta, or 10000 times rope_ratio)",
            got=f"{said.number('rope.freq_base', 10000.0):g}: {written}",
            remedy="State it: --assume rotary_base=NUMBER.",
            asks={"rotary_base": ("10000", "5000000")},
        )
    base = said.ask.number("rotary_base", 10000.0, written)
    eps = said.ask.number("norm_eps", 1.5625e-07, f"GLM-4's own; {written}")
    context = said.ask.size("context", 131072, f"GLM-4's own; {written}")
    config = {**_gated(said, tensors, "glm"), "rope_theta": base, "rms_norm_eps": eps, "max_position_embeddings": context}
    return {**config, "attention_bias": said.tensor("blk.0.attn_q.bias") or said.tensor("blk.0.attn_qkv.bias")}


def glm4(said: Said, tensors: GgufTensors) -> Config:
    """GLM-4 of 2025, with norms around its sublayers."""
    return _gated(said, tensors, "glm4")
