"""OLMo 2 against `transformers`: norms behind the sublayers, and over all heads' queries and keys at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.families.agreement import assert_agrees, assert_agrees_in_bfloat16, assert_analyses_work, configuration, saved
from tests.unit.families.test_llama import ODD, SMALL

CASES: dict[str, dict[str, Any]] = {"olmo2": {}, "odd": ODD, "biases": {"attention_bias": True, "tie_word_embeddings": True}}


def made(name: str) -> Any:
    return configuration("Olmo2Config", SMALL, CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_olmo2_agrees_with_transformers(tmp_path: Path, name: str) -> None:
    config = assert_agrees(tmp_path, saved(tmp_path, made(name))).weights.config
    assert (config.norm_placement, config.qk_norm_over) == ("post_sublayer", "all")


def test_olmo2_in_bfloat16(tmp_path: Path) -> None:
    assert_agrees_in_bfloat16(tmp_path, made("olmo2"))


def test_analyses_work_on_olmo2(tmp_path: Path) -> None:
    saved(tmp_path, made("olmo2"))
    assert_analyses_work(tmp_path)
