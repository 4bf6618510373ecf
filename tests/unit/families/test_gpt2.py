"""GPT-2 against `transformers`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit.families.agreement import assert_agrees, assert_agrees_in_bfloat16, assert_analyses_work, configuration, saved

SMALL = {
    "vocab_size": 31, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 48, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied": {"tie_word_embeddings": False, "activation_function": "relu"},
    "unscaled scores": {"scale_attn_weights": False},
    "scores divided by the layer": {"scale_attn_by_inverse_layer_idx": True, "n_layer": 3},
    "unscaled and divided": {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True},
    "one layer, odd sizes": {"n_layer": 1, "n_embd": 35, "n_head": 5, "vocab_size": 7, "n_inner": 17},
}


made = partial(configuration, "GPT2Config", SMALL)


@pytest.mark.parametrize("name", CASES)
def test_gpt2_agrees_with_transformers(tmp_path: Path, name: str) -> None:
    opened = assert_agrees(tmp_path, saved(tmp_path, made(CASES[name])))
    divided = any("divided by layer + 1" in note for note in opened.notes)
    assert divided == ("divided" in name)
    assert any(note.startswith("score scale") for note in opened.notes)


def test_bfloat16(tmp_path: Path) -> None:
    assert_agrees_in_bfloat16(tmp_path, made({"scale_attn_by_inverse_layer_idx": True}))


def test_analyses_work(tmp_path: Path) -> None:
    saved(tmp_path, made({"scale_attn_by_inverse_layer_idx": True}))
    assert_analyses_work(tmp_path)
