"""Llama, Mistral, Qwen 2 against `transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from circuitlab.model.loading import mistral
from tests.unit.families.agreement import assert_agrees, assert_agrees_in_bfloat16, assert_analyses_work, configuration, saved

SMALL = {
    "vocab_size": 31, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
ODD = {"num_hidden_layers": 1, "num_attention_heads": 3, "num_key_value_heads": 1, "vocab_size": 7}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "biases": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "wide heads, one layer": ("LlamaConfig", {"head_dim": 10, "num_hidden_layers": 1, "tie_word_embeddings": True}),
    "multi-query, tiny vocabulary": ("LlamaConfig", ODD),
    "mistral": ("MistralConfig", {"sliding_window": 5}),
    "mistral without window": ("MistralConfig", {"sliding_window": None}),
    "mistral, wide heads": ("MistralConfig", {"sliding_window": None, "head_dim": 10, **ODD}),
    "qwen2": ("Qwen2Config", {}),
    "qwen2, tied": ("Qwen2Config", {"tie_word_embeddings": True, **ODD}),
    "qwen2 windows": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
}


def made(name: str) -> Any:
    kind, changes = CASES[name]
    return configuration(kind, SMALL, changes)


@pytest.mark.parametrize("name", CASES)
def test_llama_kinds_agree_with_transformers(tmp_path: Path, name: str) -> None:
    opened = assert_agrees(tmp_path, saved(tmp_path, made(name)))
    assert any(note.startswith("score scale") for note in opened.notes)
    assert ("unembedding tied to the embedding" in opened.notes) == opened.weights.config.tied


def test_a_mistral_without_a_width_has_the_family_s_own() -> None:
    fields = made("mistral").to_dict()
    del fields["sliding_window"]
    config, notes = mistral.read_config(fields)
    assert config.windows == (4096, 4096)
    assert "not stated, the family's own: sliding_window 4096" in notes


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2"])
def test_llama_kinds_in_bfloat16(tmp_path: Path, name: str) -> None:
    assert_agrees_in_bfloat16(tmp_path, made(name))


def test_analyses_work_on_llama(tmp_path: Path) -> None:
    saved(tmp_path, made("llama"))
    assert_analyses_work(tmp_path)
