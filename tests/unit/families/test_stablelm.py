"""StableLM against `transformers`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit.families.agreement import assert_agrees, assert_agrees_in_bfloat16, assert_analyses_work, configuration, saved

SMALL = {
    "vocab_size": 31, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 3,
    "num_key_value_heads": 3, "max_position_embeddings": 48, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "a quarter of the columns turns": {},
    "parallel, biases": {"use_parallel_residual": True, "use_qkv_bias": True},
    "norms of each head's queries and keys": {"qk_layernorm": True},
    "the same with grouped heads, parallel": {
        "qk_layernorm": True, "num_attention_heads": 6, "num_key_value_heads": 2, "use_parallel_residual": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    },
    "everything turns, another base": {
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 1.0}
    },
    "one layer, odd sizes": {
        "num_hidden_layers": 1, "hidden_size": 45, "num_attention_heads": 5, "num_key_value_heads": 1, "vocab_size": 7,
        "intermediate_size": 17,
    },
    "tied": {"tie_word_embeddings": True},
}  # fmt: skip


made = partial(configuration, "StableLmConfig", SMALL)


@pytest.mark.parametrize("name", CASES)
def test_stablelm_agrees_with_transformers(tmp_path: Path, name: str) -> None:
    opened = assert_agrees(tmp_path, saved(tmp_path, made(CASES[name])))
    assert any(note.startswith("score scale") and "1/√d_head" in note for note in opened.notes)


def test_bfloat16(tmp_path: Path) -> None:
    assert_agrees_in_bfloat16(tmp_path, made({}))


@pytest.mark.parametrize(
    "name", ["parallel, biases", "norms of each head's queries and keys", "the same with grouped heads, parallel"]
)
def test_analyses_work(tmp_path: Path, name: str) -> None:
    saved(tmp_path, made(CASES[name]))
    assert_analyses_work(tmp_path)
