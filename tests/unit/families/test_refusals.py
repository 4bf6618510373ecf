"""What is not opened says what it is, why not and what works instead, before any weight is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from circuitlab.errors import BadModel
from circuitlab.model.loading import families, open_model
from circuitlab.model.loading.checkpoint import Checkpoint
from circuitlab.model.loading.refusals import TABLE

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "deepseek": ({"model_type": "deepseek_v3", "n_routed_experts": 8}, "mixture of experts"),
    "granitemoe": ({"model_type": "granitemoe"}, "mixture of experts"),
    "experts in a family that has none": ({"model_type": "llama", "num_local_experts": 4}, "mixture of experts"),
    "bert": ({"model_type": "bert"}, "encoder"),
    "roberta": ({"model_type": "roberta"}, "encoder"),
    "gemma made an encoder": ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, "encoder"),
    "t5": ({"model_type": "t5"}, "encoder-decoder"),
    "unknown with two stacks": ({"model_type": "new", "is_encoder_decoder": True}, "encoder-decoder"),
    "mamba": ({"model_type": "mamba"}, "state space"),
    "vit": ({"model_type": "vit"}, "images"),
    "pictures in a family that has none": ({"model_type": "llama", "vision_config": {}}, "images"),
    "gptq": ({"model_type": "llama", "quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantised"),
    "awq": ({"model_type": "mistral", "quantization_config": {"quant_method": "awq"}}, "quantised"),
    "bitsandbytes": ({"model_type": "gpt2", "quantization_config": {"load_in_4bit": True}}, "quantised"),
    "fp8": ({"model_type": "qwen3", "quantization_config": {"quant_method": "fp8"}}, "quantised"),
    "not an object": ({"model_type": "llama", "quantization_config": "gptq"}, "quantised"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_what_why_and_what_instead(tmp_path: Path, name: str) -> None:
    config, what = REFUSED[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"never read")
    with pytest.raises(BadModel) as refused:
        open_model(tmp_path)
    assert what in refused.value.what
    assert all(len(said.split()) > 3 for said in (refused.value.what, refused.value.expected, refused.value.remedy))
    assert str(config["model_type"]) in refused.value.got or "quantization_config" in refused.value.got


def test_no_family_that_is_opened_is_refused(tmp_path: Path) -> None:
    refused = [name for refusal in TABLE for name in refusal.model_types]
    assert len(refused) == len(set(refused))
    opened = [n for n in refused if any(f.claims(Checkpoint(tmp_path, tmp_path, {"model_type": n})) for f in families())]
    assert opened == []
