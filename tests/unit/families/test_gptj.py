"""GPT-J against `transformers`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit.families.agreement import assert_agrees, assert_agrees_in_bfloat16, assert_analyses_work, configuration, saved

SMALL = {
    "vocab_size": 31, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 48, "rotary_dim": 4, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "half of the columns turn": {},
    "all columns turn": {"rotary_dim": 8},
    "one layer, odd sizes": {"n_layer": 1, "n_embd": 50, "n_head": 5, "rotary_dim": 2, "vocab_size": 7, "n_inner": 17},
    "tied, exact gelu": {"tie_word_embeddings": True, "activation_function": "gelu"},
}  # fmt: skip


made = partial(configuration, "GPTJConfig", SMALL)


@pytest.mark.parametrize("name", CASES)
def test_gptj_agrees_with_transformers(tmp_path: Path, name: str) -> None:
    opened = assert_agrees(tmp_path, saved(tmp_path, made(CASES[name])))
    assert any(note.startswith("score scale") and "1/√d_head" in note for note in opened.notes)


def test_bfloat16(tmp_path: Path) -> None:
    assert_agrees_in_bfloat16(tmp_path, made({}))


def test_analyses_work(tmp_path: Path) -> None:
    saved(tmp_path, made({}))
    assert_analyses_work(tmp_path)
