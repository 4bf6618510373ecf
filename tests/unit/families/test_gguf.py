"""Each architecture of llama.cpp: a random folder of `transformers` against the GGUF file that is made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from circuitlab.model.forward import logits
from circuitlab.model.loading import open_model
from tests.gguf_files import Kind, converted, plain
from tests.unit.families.agreement import saved
from tests.unit.families.test_decoders import renamed_to_exaone

pytest.importorskip("gguf")
SIZES = {
    "vocab_size": 41, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GPT = {"vocab_size": 41, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 48, "bos_token_id": 1, "eos_token_id": 2}
THETA = lambda base, **more: {"rope_parameters": {"rope_type": "default", "rope_theta": base, **more}}
MULTIPLIED = {
    "embedding_multiplier": 3.0, "attention_multiplier": 0.3, "residual_multiplier": 0.22, "logits_scaling": 7.0,
}  # fmt: skip
EXPERTS = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SHORT = [1.0 + 0.1 * i for i in range(8)]
LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": SHORT, "long_factor": [2.0] * 8}
WINDOWED = {"head_dim": 32, "sliding_window": 5}
YARN = {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0, "original_max_position_embeddings": 16}
ALIKE = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]

# name: configuration of `transformers`, its changes, what a file does not say
CASES: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "llama": ("LlamaConfig", THETA(5000.0), {}),
    "llama, biases, wide heads, tied": (
        "LlamaConfig", {"attention_bias": True, "mlp_bias": True, "head_dim": 32, "tie_word_embeddings": True}, {},
    ),
    "llama 3": ("LlamaConfig", {"rope_parameters": {**LLAMA3, "original_max_position_embeddings": 8192}}, {}),
    "llama, linear": ("LlamaConfig", {"rope_parameters": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 4.0}}, {}),
    "mistral": ("MistralConfig", {"sliding_window": 5}, {"sliding_window": "5"}),
    "mixtral": ("MixtralConfig", {**EXPERTS, "sliding_window": None}, {}),
    "granite": ("GraniteConfig", MULTIPLIED, {}),
    "smollm3": ("SmolLM3Config", {"num_hidden_layers": 4}, {}),
    "olmo": ("OlmoConfig", {}, {}),
    "olmo2": ("Olmo2Config", THETA(500000.0), {}),
    "olmo3": ("Olmo3Config", {"num_hidden_layers": 4, "sliding_window": 5}, {}),
    "olmoe": ("OlmoeConfig", {**EXPERTS, "rms_norm_eps": 1e-5}, {}),
    "qwen2": ("Qwen2Config", {"tie_word_embeddings": True}, {}),
    "qwen2, yarn": ("Qwen2Config", {"rope_parameters": YARN}, {}),
    "qwen3": ("Qwen3Config", {"head_dim": 32}, {}),
    "qwen2 experts": ("Qwen2MoeConfig", {**EXPERTS, "shared_expert_intermediate_size": 64}, {}),
    "qwen3 experts": ("Qwen3MoeConfig", {**EXPERTS, "norm_topk_prob": True, "head_dim": 32}, {}),
    "gemma": ("GemmaConfig", {"head_dim": 32}, {}),
    "gemma2": ("Gemma2Config", {**WINDOWED, "query_pre_attn_scalar": 20}, {"query_pre_attn_scalar": "20"}),
    "gemma3": ("Gemma3TextConfig", {**WINDOWED, "num_hidden_layers": 6, "query_pre_attn_scalar": 32}, {}),
    "gpt2": ("GPT2Config", GPT, {}),
    "gpt2, untied": ("GPT2Config", {**GPT, "tie_word_embeddings": False, "n_inner": 96}, {}),
    "gpt_bigcode": ("GPTBigCodeConfig", GPT, {}),
    "gpt_bigcode, every head its own": ("GPTBigCodeConfig", {**GPT, "multi_query": False}, {}),
    "starcoder2": ("Starcoder2Config", {"sliding_window": 5}, {"sliding_window": "5"}),
    "gpt_neox": ("GPTNeoXConfig", {}, {}),
    "gpt_neox, one after the other": ("GPTNeoXConfig", {"use_parallel_residual": False, "rotary_pct": 0.5}, {}),
    "bloom": ("BloomConfig", {"n_head": 4, "n_layer": 2, "seq_length": 48}, {}),
    "falcon": ("FalconConfig", {}, {}),
    "falcon, groups, two norms": ("FalconConfig", {"new_decoder_architecture": True, "num_kv_heads": 2}, {}),
    "mpt": ("MptConfig", {"d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 48, "expansion_ratio": 2}, {}),
    "phi": ("PhiConfig", {}, {}),
    "phi3": ("Phi3Config", {"sliding_window": None}, {}),
    "phi3, windows, longrope": (
        "Phi3Config", {"sliding_window": 5, "rope_parameters": LONG, "original_max_position_embeddings": 16}, {},
    ),
    "stablelm": ("StableLmConfig", {"use_qkv_bias": True}, {}),
    "stablelm, parallel, norms": ("StableLmConfig", {"use_parallel_residual": True, "qk_layernorm": True}, {}),
    "cohere": ("CohereConfig", {"logit_scale": 0.3}, {}),
    "cohere, norms of queries and keys": ("CohereConfig", {"use_qk_norm": True}, {}),
    "cohere2": ("Cohere2Config", {"num_hidden_layers": 4, "sliding_window": 5}, {}),
    "nemotron": ("NemotronConfig", THETA(10000.0, partial_rotary_factor=0.5), {}),
    "exaone4": ("Exaone4Config", {"num_hidden_layers": 4, "sliding_window": 5, "layer_types": ALIKE}, {}),
    "exaone4, no window": ("Exaone4Config", {"sliding_window": None, "layer_types": ["full_attention"] * 2}, {}),
    "glm": ("GlmConfig", {"head_dim": 16, **THETA(5000.0, partial_rotary_factor=0.5)}, {"rotary_base": "5000", "context": "64"}),
    "glm4": ("Glm4Config", {"head_dim": 16, **THETA(5000.0, partial_rotary_factor=0.5)}, {}),
}  # fmt: skip
KINDS = {"F32": Kind.F32, "F16": Kind.F16, "Q8_0": Kind.Q8_0, "Q4_0": Kind.Q4_0}


def folder_of(path: Path, name: str) -> Any:
    """A random folder of one case, and its model."""
    transformers = pytest.importorskip("transformers")
    kind, changes, _ = CASES[name]
    sizes = {} if "n_embd" in changes or "d_model" in changes else SIZES
    return saved(path, getattr(transformers, kind)(**sizes | {"vocab_size": 41} | changes))


@pytest.mark.parametrize("name", CASES)
def test_the_file_made_of_a_folder_computes_the_same(tmp_path: Path, name: str) -> None:
    from transformers import AutoModelForCausalLM

    folder_of(tmp_path / "m", name)
    ids = torch.randint(0, 41, (1, 23), generator=torch.Generator().manual_seed(1))
    for kind in KINDS:
        file = tmp_path / f"{kind}.gguf"
        converted(tmp_path / "m", file, plain(KINDS[kind]))
        reference = AutoModelForCausalLM.from_pretrained(tmp_path / "m", attn_implementation="eager").eval()
        opened = open_model(file, assume=CASES[name][2])
        ids = ids[:, : opened.weights.config.n_ctx]
        with torch.no_grad():
            expected = reference(ids).logits
        assert torch.allclose(logits(opened.weights, ids), expected, atol=1e-4, rtol=1e-5), kind
        assert not any(note.startswith("unused") for note in opened.notes), opened.notes
        assert bool(opened.weights.config.dequantised) is kind.startswith("Q")


@pytest.mark.parametrize("tied", [False, True])
def test_exaone_3_is_llama_under_other_names(tmp_path: Path, tied: bool) -> None:
    """`transformers` has no code for it: Llama with the same tensors is the reference."""
    transformers = pytest.importorskip("transformers")
    llama = saved(tmp_path / "m", transformers.LlamaConfig(**SIZES, tie_word_embeddings=tied, rms_norm_eps=1e-5))
    renamed_to_exaone(tmp_path / "m")
    said = converted(tmp_path / "m", tmp_path / "m.gguf")
    assert "exaone.attention.layer_norm_epsilon" in said  # as today's converter has it
    ids = torch.randint(0, 41, (1, 23), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = llama(ids).logits
    opened = open_model(tmp_path / "m.gguf")
    assert torch.allclose(logits(opened.weights, ids), expected, atol=1e-4, rtol=1e-5)
    assert opened.weights.config.family == "exaone"
