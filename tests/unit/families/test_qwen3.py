"""Qwen 3 against `transformers`: norms over each head's queries and keys, heads wider than d_model / heads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from circuitlab.model.loading import qwen2, qwen3
from tests.unit.families.agreement import assert_agrees, assert_agrees_in_bfloat16, assert_analyses_work, configuration, saved
from tests.unit.families.test_llama import ODD, SMALL

CASES: dict[str, dict[str, Any]] = {
    "qwen3": {},
    "biases": {"attention_bias": True},
    "odd": {**ODD, "head_dim": 6, "tie_word_embeddings": True},
    "windows": {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1},
}


def made(name: str) -> Any:
    return configuration("Qwen3Config", {**SMALL, "head_dim": 10}, CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_qwen3_agrees_with_transformers(tmp_path: Path, name: str) -> None:
    opened = assert_agrees(tmp_path, saved(tmp_path, made(name)))
    assert opened.weights.config.qk_norm == "rms"
    assert opened.weights.config.windows == ((0, 3) if name == "windows" else ())


@pytest.mark.parametrize(("read", "kind"), [(qwen2.read_config, "Qwen2Config"), (qwen3.read_config, "Qwen3Config")])
@pytest.mark.parametrize("full", [0, 1, 2, 3])
def test_upper_layers_slide_where_the_file_lists_no_kinds(read: Any, kind: str, full: int) -> None:
    transformers = pytest.importorskip("transformers")
    changes = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": full, "num_hidden_layers": 3}
    fields = getattr(transformers, kind)(**{**SMALL, **changes}).to_dict()
    wanted = tuple(3 if layer == "sliding_attention" else 0 for layer in fields.pop("layer_types"))
    assert read(fields)[0].windows == (wanted if any(wanted) else ())
    assert read({**fields, "use_sliding_window": False})[0].windows == ()


def test_qwen3_in_bfloat16(tmp_path: Path) -> None:
    assert_agrees_in_bfloat16(tmp_path, made("qwen3"))


def test_analyses_work_on_qwen3(tmp_path: Path) -> None:
    saved(tmp_path, made("qwen3"))
    assert_analyses_work(tmp_path)
