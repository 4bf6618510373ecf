"""GPT-Neo against `transformers`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit.families.agreement import assert_agrees, assert_agrees_in_bfloat16, assert_analyses_work, configuration, saved

SMALL = {
    "vocab_size": 31, "hidden_size": 24, "num_layers": 2, "num_heads": 3, "max_position_embeddings": 48, "window_size": 5,
    "attention_types": [[["global", "local"], 1]], "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "alternating": {},
    "three layers, two kinds of runs": {"num_layers": 3, "attention_types": [[["local"], 2], [["global"], 1]]},
    "global only, tiny vocabulary": {"attention_types": [[["global"], 2]], "vocab_size": 7},
    "one layer, odd sizes": {
        "num_layers": 1, "attention_types": [[["local"], 1]], "window_size": 1, "hidden_size": 35, "num_heads": 5,
        "intermediate_size": 17,
    },
    "untied": {"tie_word_embeddings": False, "activation_function": "gelu"},
}  # fmt: skip


made = partial(configuration, "GPTNeoConfig", SMALL)


@pytest.mark.parametrize("name", CASES)
def test_gpt_neo_agrees_with_transformers(tmp_path: Path, name: str) -> None:
    opened = assert_agrees(tmp_path, saved(tmp_path, made(CASES[name])))
    assert any(note.startswith("score scale 1 (none") for note in opened.notes)


def test_analyses_work(tmp_path: Path) -> None:
    saved(tmp_path, made({}))
    assert_analyses_work(tmp_path)


def test_bfloat16(tmp_path: Path) -> None:
    assert_agrees_in_bfloat16(tmp_path, made({}))
