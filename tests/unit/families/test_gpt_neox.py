"""GPT-NeoX and Pythia against `transformers`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit.families.agreement import assert_agrees, assert_agrees_in_bfloat16, assert_analyses_work, configuration, saved

SMALL = {
    "vocab_size": 31, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 3,
    "max_position_embeddings": 48, "bos_token_id": 1, "eos_token_id": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "parallel": {},
    "sequential": {"use_parallel_residual": False},
    "a quarter turns": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.25}},
    "everything turns": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}},
    "linear scaling": {
        "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    },
    "a field of other families": {"num_key_value_heads": 1},  # as files that were written by other programs carry
    "no attention biases, tied": {"attention_bias": False, "tie_word_embeddings": True},
    "one layer, odd sizes": {
        "num_hidden_layers": 1, "hidden_size": 50, "num_attention_heads": 5, "intermediate_size": 17, "vocab_size": 7,
        "hidden_act": "gelu_new",
    },
}  # fmt: skip


made = partial(configuration, "GPTNeoXConfig", SMALL)


@pytest.mark.parametrize("name", CASES)
def test_gpt_neox_agrees_with_transformers(tmp_path: Path, name: str) -> None:
    changes = CASES[name]
    if name == "one layer, odd sizes":  # d_head 10: 4 of 10 columns turn
        changes = {**changes, "rope_parameters": {**SMALL["rope_parameters"], "partial_rotary_factor": 0.4}}
    opened = assert_agrees(tmp_path, saved(tmp_path, made(changes)))
    assert any(note.startswith("score scale") for note in opened.notes)


@pytest.mark.parametrize("name", ["parallel", "sequential", "a quarter turns"])
def test_analyses_work(tmp_path: Path, name: str) -> None:
    saved(tmp_path, made(CASES[name]))
    assert_analyses_work(tmp_path)


@pytest.mark.parametrize("parallel", [True, False])
def test_bfloat16(tmp_path: Path, parallel: bool) -> None:
    assert_agrees_in_bfloat16(tmp_path, made({"use_parallel_residual": parallel}))
