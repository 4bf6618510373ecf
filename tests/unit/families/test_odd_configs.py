"""Every field of every family's configuration, given a value that it cannot have: a typed error, never another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from circuitlab.errors import BadModel
from circuitlab.model.files.tensors import ResidentTensors
from circuitlab.model.loading import families
from circuitlab.model.loading.checkpoint import Checkpoint

TYPES = (
    "gpt2 gpt_neo gpt_neox gptj opt llama mistral qwen2 qwen3 gemma gemma2 gemma3_text phi phi3 olmo olmo2 olmo3 stablelm "
    "smollm3 granite starcoder2 gpt_bigcode nemotron glm glm4 exaone4 cohere cohere2 openai-gpt bloom falcon mpt mixtral "
    "qwen2_moe qwen3_moe olmoe"
).split()
ODD: tuple[Any, ...] = ([], 0)
_LONG = ("layer_types", "attention_layers", "no_rope_layers", "no_rope_layer", "mlp_only_layers")


def _config(kind: str) -> dict[str, Any]:
    transformers = pytest.importorskip("transformers")
    result = json.loads(transformers.AutoConfig.for_model(kind).to_json_string(use_diff=False))
    result = {k: 1 if k in ("num_hidden_layers", "n_layer", "num_layers", "n_layers") else v for k, v in result.items()}
    result |= {"attention_types": [[["global"], 1]]} if kind == "gpt_neo" else {}
    return {k: v for k, v in result.items() if k not in _LONG}


@pytest.mark.parametrize("kind", TYPES)
def test_fields_that_cannot_be_are_refused_in_words(tmp_path: Path, kind: str) -> None:
    config = _config(kind)
    look = lambda c: Checkpoint(tmp_path, tmp_path, c, (), ResidentTensors({}))
    family = next(f for f in families() if f.claims(look(config)))
    for name in config:
        for value in ODD if name != "model_type" else ():
            with pytest.raises(BadModel):  # at the latest since there are no tensors
                family.load(look({**config, name: value}), "mapped")
