"""Every rotary rescaling against `transformers`, in newer and older field names; contexts that end where frequencies change."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from circuitlab.errors import BadModel
from circuitlab.model.loading import open_model
from circuitlab.model.loading.rotary_scaling import context, rotary
from tests.unit.families.agreement import assert_agrees, saved
from tests.unit.families.test_llama import SMALL

SCALINGS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    "yarn, a ramp within the pairs": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096},
    "yarn, its own numbers": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 4.0, "beta_slow": 0.5,
        "attention_factor": 0.7, "truncate": False,
    },
    "yarn, two scales": {
        "rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 32, "mscale": 0.707, "mscale_all_dim": 0.5,
    },
    "longrope": {
        "rope_type": "longrope", "original_max_position_embeddings": 16, "short_factor": [1.0, 1.1, 1.2, 1.3],
        "long_factor": [2.0, 3.0, 4.0, 5.0],
    },
    "longrope, its factor": {
        "rope_type": "longrope", "original_max_position_embeddings": 16, "short_factor": [1.0, 1.1, 1.2, 1.3],
        "long_factor": [2.0, 3.0, 4.0, 5.0], "factor": 2.5,
    },
}  # fmt: skip
SHAPE = {**SMALL, "hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 1}


def theirs(config: Any, n: int, layer_type: str = "") -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [pos, d_head] of `transformers` for a prompt of n tokens."""
    from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    module = (Gemma3RotaryEmbedding if layer_type else LlamaRotaryEmbedding)(config)
    kind = {"layer_type": layer_type} if layer_type else {}
    cos, sin = module(torch.zeros(1), torch.arange(n)[None], **kind)
    return cos[0], sin[0]


def ours(config: dict[str, Any], d_head: int, n: int, **about: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The same from the file's fields, a pair's two columns half a head apart."""
    turning, _ = rotary(config, d_head, **about)
    angle = torch.arange(n)[:, None].double() * torch.tensor(turning.frequencies(d_head), dtype=torch.float64)
    angle = torch.cat([angle, angle], dim=1)
    return turning.amplitude * angle.cos(), turning.amplitude * angle.sin()


def assert_same(found: tuple[torch.Tensor, torch.Tensor], wanted: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Equal within what float32 angles of a few dozen positions allow."""
    for a, b in zip(found, wanted, strict=True):
        assert float((a - b.double()).abs().max()) < 2e-5


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("base", [10000.0, 500000.0])
def test_frequencies_and_amplitude_are_those_of_transformers(name: str, base: float) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(**SHAPE, rope_parameters={**SCALINGS[name], "rope_theta": base})
    fields = config.to_dict()
    n, _ = context(fields, 2048)
    assert n == (16 if name.startswith("longrope") else 64)
    assert_same(ours(fields, 8, n), theirs(config, n))


@pytest.mark.parametrize("name", SCALINGS)
def test_older_field_names_say_the_same(name: str) -> None:
    newer = {**SHAPE, "rope_parameters": {**SCALINGS[name], "rope_theta": 5e4}}
    scaling = {"type" if field == "rope_type" else field: value for field, value in SCALINGS[name].items()}
    older = {**SHAPE, "rope_theta": 5e4, "rope_scaling": None if name == "default" else scaling}
    assert rotary(older, 8) == rotary(newer, 8)
    assert context(older, 2048) == context(newer, 2048)


@pytest.mark.parametrize("kind", ["full_attention", "sliding_attention"])
@pytest.mark.parametrize("name", [n for n in SCALINGS if "truncate" not in SCALINGS[n] and "longrope" not in n])
def test_each_kind_of_layer_may_have_its_own(kind: str, name: str) -> None:
    transformers = pytest.importorskip("transformers")
    other = {"rope_type": "default", "rope_theta": 777.0}
    parameters = {"full_attention": dict(other), "sliding_attention": dict(other)}
    parameters[kind] = {**SCALINGS[name], "rope_theta": 5e4}
    layers = {"num_hidden_layers": 2, "layer_types": list(parameters)}
    config = transformers.Gemma3TextConfig(**{**SHAPE, **layers}, head_dim=8, rope_parameters=parameters)
    for one in parameters:
        assert_same(ours(config.to_dict(), 8, 40, kind=one), theirs(config, 40, one))


def test_a_prompt_as_long_as_the_context_of_a_dynamic_rotation_agrees(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    parameters = {**SCALINGS["dynamic"], "rope_theta": 10000.0}
    config = transformers.LlamaConfig(**{**SHAPE, "max_position_embeddings": 24}, rope_parameters=parameters)
    opened = assert_agrees(tmp_path, saved(tmp_path, config))
    assert any("context of 24 positions" in note for note in opened.notes)


@pytest.mark.parametrize("name", ["llama3", "yarn", "longrope"])
def test_whole_models_with_a_rescaling_agree(tmp_path: Path, name: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(**SHAPE, rope_parameters={**SCALINGS[name], "rope_theta": 10000.0})
    opened = assert_agrees(tmp_path, saved(tmp_path, config))
    assert any(note.startswith("rotary frequencies rescaled") for note in opened.notes)
    assert any("two sets of attention patterns" in note for note in opened.notes) == (name == "longrope")


@pytest.mark.parametrize("older", ["su", "yarn"])
def test_phi3_s_older_names_of_longrope(older: str) -> None:
    long = SCALINGS["longrope"]
    fields = {**SHAPE, "original_max_position_embeddings": 16}
    named = {**fields, "rope_scaling": {"type": older, "short_factor": long["short_factor"], "long_factor": long["long_factor"]}}
    assert rotary(named, 8) == rotary({**fields, "rope_parameters": long}, 8)


HOSTILE: dict[str, dict[str, Any]] = {
    "unknown": {"rope_type": "wavy"},
    "no factor": {"rope_type": "linear"},
    "no division": {"rope_type": "linear", "factor": 0},
    "equal ends of the ramp": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 2.0, "high_freq_factor": 2.0},
    "base 1": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1.0},
    "base below zero": {"rope_theta": -3.0},
    "too few factors": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]},
    "factors of text": {"rope_type": "longrope", "short_factor": ["1"] * 4},
    "factors of nothing": {"rope_type": "longrope", "short_factor": [0.0] * 4},
    "context of one": {"rope_type": "longrope", "short_factor": [1.0] * 4, "original_max_position_embeddings": 1},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_impossible_rescalings_are_typed_errors(name: str) -> None:
    with pytest.raises(BadModel):
        rotary({**SHAPE, "rope_parameters": HOSTILE[name]}, 8)


def test_a_file_without_a_base_says_which_one_is_used(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = saved(tmp_path, transformers.LlamaConfig(**SHAPE))
    file = tmp_path / "config.json"
    fields = json.loads(file.read_text())
    del fields["rope_parameters"]
    file.write_text(json.dumps(fields))
    assert_agrees(tmp_path, model)
    assert "rotary base 10000, as the file states none" in open_model(tmp_path).notes
