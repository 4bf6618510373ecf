"""Phi-3 against `transformers`: fused projections, windows, LongRoPE within the original context."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.families.agreement import assert_agrees, assert_agrees_in_bfloat16, assert_analyses_work, configuration, saved
from tests.unit.families.test_llama import ODD, SMALL

LONG = {
    "original_max_position_embeddings": 16,
    "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.3], "long_factor": [2.0, 5.0],
    },
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "phi3": {},
    "window": {"sliding_window": 5},
    "a window wider than the context": {"sliding_window": 262144},
    "odd": {**ODD, "tie_word_embeddings": True},
    "partial rotary": {"num_attention_heads": 3, "num_key_value_heads": 3, "partial_rotary_factor": 0.5},
    "longrope": LONG,
}


def made(name: str) -> Any:
    return configuration("Phi3Config", SMALL, CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_phi3_agrees_with_transformers(tmp_path: Path, name: str) -> None:
    opened = assert_agrees(tmp_path, saved(tmp_path, made(name)))
    limited = [note for note in opened.notes if note.startswith("context limited to 16 positions of 64")]
    assert bool(opened.weights.config.windows) == (name == "window")
    assert bool(limited) == (name == "longrope") == (opened.weights.config.n_ctx == 16)


def test_phi3_in_bfloat16(tmp_path: Path) -> None:
    assert_agrees_in_bfloat16(tmp_path, made("phi3"))


def test_analyses_work_on_phi3(tmp_path: Path) -> None:
    saved(tmp_path, made("phi3"))
    assert_analyses_work(tmp_path)
