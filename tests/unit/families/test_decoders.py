"""Decoders that differ from Llama's or GPT-2's block in a few fields, against `transformers`: one walk over all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from circuitlab.errors import BadModel
from circuitlab.model.loading import open_model
from tests.unit.families.agreement import assert_agrees, assert_agrees_in_bfloat16, assert_analyses_work, configuration, saved

SIZES = {
    "vocab_size": 31, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GPT = {"vocab_size": 31, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 48, "bos_token_id": 1, "eos_token_id": 2}
YARN = {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0, "original_max_position_embeddings": 16, "attention_factor": 1.1}
SHARE = lambda share: {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": share}}
MULTIPLIED = {
    "embedding_multiplier": 3.0, "attention_multiplier": 0.3, "residual_multiplier": 0.22, "logits_scaling": 7.0,
}  # fmt: skip
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "olmo": ("OlmoConfig", {}),
    "olmo, tied, biases": ("OlmoConfig", {"tie_word_embeddings": True, "attention_bias": True}),
    "olmo3": ("Olmo3Config", {"num_hidden_layers": 4, "sliding_window": 5}),
    "olmo3, rescaled where all is seen": (
        "Olmo3Config",
        {
            "sliding_window": 5,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
                "full_attention": YARN,
            },
        },
    ),
    "smollm3": ("SmolLM3Config", {"num_hidden_layers": 4}),
    "smollm3, listed, windows": (
        "SmolLM3Config",
        {"no_rope_layers": [0, 1], "use_sliding_window": True, "sliding_window": 5, "tie_word_embeddings": False},
    ),
    "smollm3, nothing turns": ("SmolLM3Config", {"no_rope_layers": [0, 0]}),
    "granite": ("GraniteConfig", MULTIPLIED),
    "granite, tied, biases": (
        "GraniteConfig",
        {**MULTIPLIED, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
    ),
    "starcoder2": ("Starcoder2Config", {"sliding_window": 5}),
    "starcoder2, no biases, untied": ("Starcoder2Config", {"use_bias": False, "tie_word_embeddings": False}),
    "gpt_bigcode": ("GPTBigCodeConfig", GPT),
    "gpt_bigcode, every head its own": ("GPTBigCodeConfig", {**GPT, "multi_query": False, "n_inner": 17}),
    "gpt_bigcode, unscaled": ("GPTBigCodeConfig", {**GPT, "scale_attn_weights": False, "tie_word_embeddings": False}),
    "nemotron": ("NemotronConfig", SHARE(0.5)),
    "nemotron, biases": ("NemotronConfig", {"attention_bias": True, "mlp_bias": True, "head_dim": 8}),
    "glm": ("GlmConfig", {"head_dim": 8}),
    "glm4": ("Glm4Config", {"head_dim": 8, "attention_bias": False, **SHARE(1.0)}),
    "exaone4": ("Exaone4Config", {"num_hidden_layers": 4, "sliding_window": 5}),
    "exaone4, no window": (
        "Exaone4Config",
        {"sliding_window": None, "layer_types": ["full_attention"] * 2, "tie_word_embeddings": True},
    ),
    "cohere": ("CohereConfig", {}),
    "cohere, norms of queries and keys": ("CohereConfig", {"use_qk_norm": True, "attention_bias": True, "logit_scale": 0.3}),
    "cohere2": ("Cohere2Config", {"num_hidden_layers": 4, "sliding_window": 5, "tie_word_embeddings": False}),
    "openai-gpt": ("OpenAIGPTConfig", GPT),
    "openai-gpt, relu": ("OpenAIGPTConfig", {**GPT, "afn": "relu", "n_layer": 1}),
}  # fmt: skip
# what a norm behind the addition leaves without a meaning
BEHIND = ("composition", "ov_table", "qk_table", "direct_attribution", "path_expansion")
# one case of each mechanism
ANALYSED = {
    "olmo": (), "smollm3": (), "granite": (), "gpt_bigcode": (), "glm4": (), "exaone4": (),
    "cohere, norms of queries and keys": (), "cohere2": (), "openai-gpt": BEHIND,
}  # fmt: skip


def made(name: str) -> Any:
    kind, changes = CASES[name]
    return configuration(kind, {} if "n_embd" in changes else SIZES, changes)


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_transformers(tmp_path: Path, name: str) -> None:
    opened = assert_agrees(tmp_path, saved(tmp_path, made(name)))
    assert any(note.startswith("score scale") for note in opened.notes)
    assert not any(note.startswith("unused") for note in opened.notes), opened.notes


@pytest.mark.parametrize("name", ["olmo", "granite, tied, biases", "nemotron", "cohere"])
def test_bfloat16(tmp_path: Path, name: str) -> None:
    assert_agrees_in_bfloat16(tmp_path, made(name))


@pytest.mark.parametrize("name", ANALYSED)
def test_analyses_work(tmp_path: Path, name: str) -> None:
    saved(tmp_path, made(name))
    assert_analyses_work(tmp_path, ANALYSED[name])


EXAONE = {
    "transformer.wte": "model.embed_tokens", "transformer.ln_f": "model.norm", "transformer.h.": "model.layers.",
    "attn.attention.out_proj": "self_attn.o_proj", "attn.attention.": "self_attn.", "mlp.c_fc_0": "mlp.gate_proj",
    "mlp.c_fc_1": "mlp.up_proj", "mlp.c_proj": "mlp.down_proj", "ln_1": "input_layernorm", "ln_2": "post_attention_layernorm",
}  # fmt: skip


def renamed_to_exaone(folder: Path) -> None:
    """A folder of Llama as one of EXAONE 3."""
    tensors = load_file(folder / "model.safetensors")
    for theirs, ours in EXAONE.items():
        tensors = {name.replace(ours, theirs): value for name, value in tensors.items()}
    save_file(tensors, folder / "model.safetensors")
    fields = {**json.loads((folder / "config.json").read_text()), "model_type": "exaone", "activation_function": "silu"}
    for theirs, ours in {"num_layers": "num_hidden_layers", "layer_norm_epsilon": "rms_norm_eps"}.items():
        fields[theirs] = fields.pop(ours)
    del fields["hidden_act"]
    (folder / "config.json").write_text(json.dumps(fields))


@pytest.mark.parametrize("tied", [False, True])
def test_exaone_3_is_llama_under_other_names(tmp_path: Path, tied: bool) -> None:
    """`transformers` has no code for it: Llama with the same tensors is the reference."""
    transformers = pytest.importorskip("transformers")
    llama = saved(tmp_path, transformers.LlamaConfig(**SIZES, tie_word_embeddings=tied, rms_norm_eps=1e-5))
    renamed_to_exaone(tmp_path)
    opened = assert_agrees(tmp_path, llama)
    assert opened.weights.config.family == "exaone"


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "clipping": ("OlmoConfig", {"clip_qkv": 8.0}, "Clipping"),
    "cross-attention": ("GPTBigCodeConfig", {**GPT, "multi_query": False, "add_cross_attention": True}, "Cross-attention"),
    "no rope, too few": ("SmolLM3Config", {"no_rope_layers": [1, 0]}, "no_rope_layers"),
    "no multiplier": ("GraniteConfig", {"residual_multiplier": 0.0}, "residual_multiplier"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_represented_is_refused(tmp_path: Path, name: str) -> None:
    transformers = pytest.importorskip("transformers")
    kind, changes, word = REFUSED[name]
    config = getattr(transformers, kind)(**({} if "n_embd" in changes else SIZES) | changes)
    fields = {**config.to_dict(), **({"num_hidden_layers": 3} if name == "no rope, too few" else {})}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    save_file({}, tmp_path / "model.safetensors")
    with pytest.raises(BadModel, match=word):
        open_model(tmp_path)


DERIVED = ("layer_types", "no_rope_layers", "head_dim", "partial_rotary_factor")


@pytest.mark.parametrize("name", ["olmo3", "smollm3", "exaone4", "cohere2", "nemotron, biases", "glm"])
def test_a_file_that_leaves_to_the_family_what_follows_from_it(tmp_path: Path, name: str) -> None:
    """Files of the hub state neither the kind of each layer nor `rope_parameters`."""
    model = saved(tmp_path, made(name))
    fields = json.loads((tmp_path / "config.json").read_text())
    kept = ("head_dim",) if name in ("nemotron, biases", "glm") else ()
    fields = {name: value for name, value in fields.items() if name not in DERIVED or name in kept}
    stated = fields.pop("rope_parameters")
    fields["rope_theta"] = stated.get("full_attention", stated)["rope_theta"]
    (tmp_path / "config.json").write_text(json.dumps(fields))
    assert_agrees(tmp_path, model)


def test_windowed_layers_of_older_olmo3_files_are_not_rescaled(tmp_path: Path) -> None:
    model = saved(tmp_path, made("olmo3, rescaled where all is seen"))
    fields = json.loads((tmp_path / "config.json").read_text())
    del fields["rope_parameters"]
    fields |= {"rope_theta": YARN["rope_theta"], "rope_scaling": {n: v for n, v in YARN.items() if n != "rope_theta"}}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    assert_agrees(tmp_path, model)
