"""Llama, Mistral, Qwen 2 against `transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.families.agreement import assert_agrees, saved

SMALL = {
    "vocab_size": 31, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16, "rope_theta": 500000.0,
}  # fmt: skip
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "llama 3 scaling": ("LlamaConfig", {"rope_parameters": LLAMA3}),
    "linear scaling": ("LlamaConfig", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}}),
    "biases": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "wide heads, one layer": ("LlamaConfig", {"head_dim": 10, "num_hidden_layers": 1, "tie_word_embeddings": True}),
    "multi-query, tiny vocabulary": ("LlamaConfig", {"num_key_value_heads": 1, "vocab_size": 7}),
    "mistral": ("MistralConfig", {"sliding_window": 5}),
    "mistral without window": ("MistralConfig", {"sliding_window": None}),
    "qwen2": ("Qwen2Config", {}),
    "qwen2 windows": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
}


@pytest.mark.parametrize("name", CASES)
def test_llama_kinds_agree_with_transformers(tmp_path: Path, name: str) -> None:
    transformers = pytest.importorskip("transformers")
    kind, changes = CASES[name]
    config = getattr(transformers, kind)(**{**SMALL, **changes})
    opened = assert_agrees(tmp_path, saved(tmp_path, config))
    assert any(note.startswith("score scale") for note in opened.notes)
