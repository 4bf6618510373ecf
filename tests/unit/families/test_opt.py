"""OPT against `transformers`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit.families.agreement import assert_agrees, assert_agrees_in_bfloat16, assert_analyses_work, configuration, saved

SMALL = {
    "vocab_size": 31, "hidden_size": 24, "ffn_dim": 40, "num_hidden_layers": 2, "num_attention_heads": 3,
    "max_position_embeddings": 48, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 2,
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "norms before": {},
    "norms after": {"do_layer_norm_before": False},
    "as 350m": {"do_layer_norm_before": False, "word_embed_proj_dim": 10},
    "projected, norms before": {"word_embed_proj_dim": 30},
    "projected, untied": {"word_embed_proj_dim": 10, "tie_word_embeddings": False},
    "without a final norm": {"_remove_final_layer_norm": True},
    "norms without gains, no biases": {"layer_norm_elementwise_affine": False, "enable_bias": False},
    "untied": {"tie_word_embeddings": False, "activation_function": "gelu"},
    "one layer, odd sizes": {
        "num_hidden_layers": 1, "hidden_size": 35, "num_attention_heads": 5, "ffn_dim": 17, "vocab_size": 7,
        "do_layer_norm_before": False,
    },
}  # fmt: skip


made = partial(configuration, "OPTConfig", SMALL)


@pytest.mark.parametrize("name", CASES)
def test_opt_agrees_with_transformers(tmp_path: Path, name: str) -> None:
    opened = assert_agrees(tmp_path, saved(tmp_path, made(CASES[name])))
    assert any(note.startswith("score scale") and "1/√d_head" in note for note in opened.notes)


@pytest.mark.parametrize("name", ["norms before", "as 350m"])
def test_bfloat16(tmp_path: Path, name: str) -> None:
    assert_agrees_in_bfloat16(tmp_path, made(CASES[name]))


@pytest.mark.parametrize("name", ["norms before", "projected, norms before", "without a final norm"])
def test_analyses_work(tmp_path: Path, name: str) -> None:
    saved(tmp_path, made(CASES[name]))
    assert_analyses_work(tmp_path)


def test_analyses_of_a_normalised_stream_say_why_not(tmp_path: Path) -> None:
    saved(tmp_path, made(CASES["as 350m"]))
    refused = ("composition", "ov_table", "qk_table", "direct_attribution", "path_expansion")
    assert_analyses_work(tmp_path, refused)
