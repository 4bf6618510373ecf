"""Older files of the same families: other names of tensors and fields, buffers that are no weights, no prefix; and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from circuitlab.errors import BadModel
from circuitlab.model.loading import open_model
from tests.unit.families import test_gpt2, test_gpt_neo, test_gpt_neox, test_gptj, test_opt, test_phi, test_stablelm
from tests.unit.families.agreement import assert_agrees, saved

MODULES: dict[str, Any] = {
    "gpt2": test_gpt2,
    "gpt_neo": test_gpt_neo,
    "gpt_neox": test_gpt_neox,
    "gptj": test_gptj,
    "opt": test_opt,
    "phi": test_phi,
    "stablelm": test_stablelm,
}
MASK = torch.ones(1, 1, 48, 48).tril().bool()
BUFFERS = {
    "gpt2": ("h.0.attn.bias", "h.1.attn.masked_bias"),
    "gpt_neo": ("h.0.attn.attention.bias", "h.1.attn.attention.masked_bias"),
    "gpt_neox": ("layers.0.attention.bias", "layers.1.attention.masked_bias", "layers.0.attention.rotary_emb.inv_freq"),
    "gptj": ("h.0.attn.bias", "h.1.attn.masked_bias"),
    "opt": ("decoder.version",),
    "phi": ("layers.0.self_attn.rotary_emb.inv_freq",),
    "stablelm": ("layers.0.self_attn.rotary_emb.inv_freq",),
}
PREFIX = {"opt": "model.decoder.", "phi": "model.", "stablelm": "model.", "gpt_neox": "gpt_neox."}


def rewritten(path: Path, tensors: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]], **fields: Any) -> Path:
    """The directory with other tensors and other fields; None takes a field out."""
    file = path / "model.safetensors"
    save_file({name: x.contiguous() for name, x in tensors(load_file(file)).items()}, file, {"format": "pt"})
    config = json.loads((path / "config.json").read_text())
    config = {k: v for k, v in {**config, **fields}.items() if v is not None}
    (path / "config.json").write_text(json.dumps(config))
    return path


def same(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return tensors


@pytest.mark.parametrize("name", MODULES)
def test_buffers_are_no_weights_and_names_need_no_prefix(tmp_path: Path, name: str) -> None:
    model = saved(tmp_path, MODULES[name].made({}))
    prefix = PREFIX.get(name, "transformer.")

    def older(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        assert any(n.startswith(prefix) for n in tensors)
        return {n.removeprefix(prefix): x for n, x in tensors.items()} | {n: MASK.clone() for n in BUFFERS[name]}

    opened = assert_agrees(rewritten(tmp_path, older), model)
    assert not any("unused tensors" in note for note in opened.notes), opened.notes


@pytest.mark.parametrize("name", MODULES)
def test_what_has_no_place_is_named_and_what_is_missing_refused(tmp_path: Path, name: str) -> None:
    saved(tmp_path, MODULES[name].made({}))
    rewritten(tmp_path, lambda tensors: tensors | {"adapter.weight": torch.ones(2)})
    assert any("unused tensors (1): adapter.weight" in note for note in open_model(tmp_path).notes)
    needed = max(load_file(tmp_path / "model.safetensors"), key=lambda n: ("1." in n, n))
    rewritten(tmp_path, lambda tensors: {n: x for n, x in tensors.items() if n != needed})
    with pytest.raises(BadModel, match="lack tensors") as caught:
        open_model(tmp_path)
    assert needed.endswith(caught.value.expected)


def test_pythia_as_it_was_first_saved(tmp_path: Path) -> None:
    half = {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}
    model = saved(tmp_path, test_gpt_neox.made({"rope_parameters": half}))
    older = lambda tensors: {n.replace("lm_head.", "embed_out."): x for n, x in tensors.items()}
    rewritten(tmp_path, older, rope_parameters=None, rotary_pct=0.5, rotary_emb_base=500)
    assert "embed_out.weight" in load_file(tmp_path / "model.safetensors")
    opened = assert_agrees(tmp_path, model)
    assert any("4 of 8 columns, base 500" in note for note in opened.notes)
    newer = lambda tensors: {n.replace("embed_out.", "lm_head."): x for n, x in tensors.items()}
    assert_agrees(rewritten(tmp_path, newer), model)


def test_partial_factor_outside_the_rotary_parameters(tmp_path: Path) -> None:
    half = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}}
    for name in ("phi", "stablelm"):
        model = saved(tmp_path, MODULES[name].made(half))
        rewritten(tmp_path, same, rope_parameters=None, rope_theta=500.0, partial_rotary_factor=0.5)
        assert_agrees(tmp_path, model)


def test_gpt_neo_by_the_short_form_alone(tmp_path: Path) -> None:
    model = saved(tmp_path, test_gpt_neo.made({"num_layers": 3, "attention_types": [[["global"], 1], [["local"], 2]]}))
    opened = assert_agrees(rewritten(tmp_path, same, attention_layers=None), model)
    assert opened.weights.config.windows == (0, 5, 5)


@pytest.mark.parametrize("name", MODULES)
def test_defaults_that_were_used_are_named(tmp_path: Path, name: str) -> None:
    saved(tmp_path, MODULES[name].made({}))
    without: dict[str, Any] = dict.fromkeys(("hidden_act", "activation_function", "layer_norm_eps", "layer_norm_epsilon"))
    notes = " ".join(open_model(rewritten(tmp_path, same, **without)).notes)
    assert "not stated, the family's own: " in notes
    assert "activation_function" in notes or "hidden_act" in notes


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("gpt2", {"add_cross_attention": True}, "Cross-attention"),
        ("gpt_neo", {"attention_layers": ["global", "diagonal"]}, "attention do not fit"),
        ("gpt_neo", {"attention_layers": ["global"]}, "attention do not fit"),
        ("gpt_neo", {"window_size": 0}, "window_size"),
        ("gpt_neo", {"attention_layers": None, "attention_types": [[[], 10**18]]}, "attention"),
        ("gpt_neo", {"attention_layers": None, "attention_types": [[["local"], 10**12]]}, "attention do not fit"),
        ("gpt_neo", {"attention_layers": None, "attention_types": None}, "attention_types"),
        ("gpt_neox", {"rope_parameters": {"partial_rotary_factor": 0.0}}, "No pair"),
        ("gpt_neox", {"rope_parameters": None, "rotary_pct": 0.0}, "No pair"),
        ("phi", {"rope_parameters": {"partial_rotary_factor": 0.4}}, "pair up"),
        ("stablelm", {"rope_parameters": [1]}, "rotary parameters"),
        ("stablelm", {"qk_layernorm": True}, "lack tensors"),
        ("gptj", {"rotary_dim": 0}, "rotary_dim"),
        ("gptj", {"rotary_dim": 64}, "rotary_dim"),
        ("opt", {"word_embed_proj_dim": 10}, "lack tensors"),
        ("opt", {"max_position_embeddings": 50}, "wrong shape"),
        ("opt", {"activation_function": "swishy"}, "activation"),
    ],
)
def test_files_that_contradict_themselves_are_refused(tmp_path: Path, name: str, fields: dict[str, Any], words: str) -> None:
    saved(tmp_path, MODULES[name].made({}))
    rewritten(tmp_path, same, **fields)
    with pytest.raises(BadModel, match=words):
        open_model(tmp_path)


def test_a_rotary_width_of_null_is_refused(tmp_path: Path) -> None:
    saved(tmp_path, test_gptj.made({}))
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "rotary_dim": None}))
    with pytest.raises(BadModel, match="rotary_dim"):
        open_model(tmp_path)
