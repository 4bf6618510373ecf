"""Gemma 1, 2 and 3 against `transformers`; the text part of a Gemma 3 that also reads pictures; fields left out of files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from circuitlab.model.forward import forward
from circuitlab.model.loading import gemma2, gemma3, open_model
from tests.unit.families.agreement import assert_agrees, assert_agrees_in_bfloat16, assert_analyses_work, configuration, saved
from tests.unit.families.test_llama import ODD, SMALL

BASE = {**SMALL, "head_dim": 10, "pad_token_id": 0}
SCALED = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 5e3},
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma": ("GemmaConfig", {}),
    "gemma, multi-query": ("GemmaConfig", ODD),
    "gemma, biases, untied": ("GemmaConfig", {"attention_bias": True, "tie_word_embeddings": False}),
    "gemma2": ("Gemma2Config", {"sliding_window": 5, "query_pre_attn_scalar": 7}),
    "gemma2, low caps": (
        "Gemma2Config",
        {**ODD, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0, "sliding_window": 4},
    ),
    "gemma2, no caps": ("Gemma2Config", {"attn_logit_softcapping": None, "final_logit_softcapping": None}),
    "gemma3": ("Gemma3TextConfig", {"sliding_window": 5, "query_pre_attn_scalar": 7}),
    "gemma3, seven layers": ("Gemma3TextConfig", {"sliding_window": 3, "num_hidden_layers": 7, "rope_parameters": SCALED}),
    "gemma3, odd": ("Gemma3TextConfig", {**ODD, "sliding_window": 4, "layer_types": ["full_attention"]}),
}


def made(name: str) -> Any:
    kind, changes = CASES[name]
    return configuration(kind, BASE, changes)


@pytest.mark.parametrize("name", CASES)
def test_gemma_agrees_with_transformers(tmp_path: Path, name: str) -> None:
    opened = assert_agrees(tmp_path, saved(tmp_path, made(name)))
    config = opened.weights.config
    assert config.embed_scale == 24**0.5
    assert any(" 4.90625" in note for note in opened.notes)  # √24 in bfloat16
    if name == "gemma3, seven layers":
        assert config.windows == (3, 3, 3, 3, 3, 0, 3)


@pytest.mark.parametrize("name", ["gemma", "gemma2", "gemma3"])
def test_gemma_in_bfloat16(tmp_path: Path, name: str) -> None:
    assert_agrees_in_bfloat16(tmp_path, made(name))


@pytest.mark.parametrize("name", ["gemma", "gemma2", "gemma3"])
def test_analyses_work_on_gemma(tmp_path: Path, name: str) -> None:
    saved(tmp_path, made(name))
    assert_analyses_work(tmp_path)


def test_the_first_gemma_files_say_gelu_and_mean_its_tanh_form(tmp_path: Path) -> None:
    model = saved(tmp_path, made("gemma"))
    edit(tmp_path, hidden_act="gelu")
    opened = assert_agrees(tmp_path, model)
    assert opened.weights.config.activation == "gelu_new"


def edit(path: Path, *without: str, **changes: Any) -> None:
    """Change fields of `config.json`."""
    file = path / "config.json"
    config = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({name: value for name, value in config.items() if name not in without}))


def test_fields_that_gemma3_files_leave_out_are_the_family_s_own(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    wide = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "hidden_size": 16, "num_hidden_layers": 1}
    model = saved(tmp_path, transformers.Gemma3TextConfig(**{**BASE, **wide, "max_position_embeddings": 131072}))
    left_out = "num_attention_heads num_key_value_heads head_dim rms_norm_eps query_pre_attn_scalar tie_word_embeddings "
    left_out += "max_position_embeddings hidden_activation rope_parameters layer_types sliding_window"
    edit(tmp_path, *left_out.split())
    opened = open_model(tmp_path)
    ids = (3, 1, 4, 1, 5, 9)
    with torch.no_grad():
        theirs = model(torch.tensor([ids])).logits[0]
    assert torch.allclose(forward(opened.weights, ids).logits(), theirs, atol=1e-3)
    assert any("num_attention_heads 8" in note and "head_dim 256" in note for note in opened.notes)


@pytest.mark.parametrize("n", [1, 2, 5, 7])
def test_windowed_layers_where_the_file_lists_no_kinds(n: int) -> None:
    transformers = pytest.importorskip("transformers")
    for read, kind in ((gemma2.read_config, "Gemma2Config"), (gemma3.read_config, "Gemma3TextConfig")):
        fields = getattr(transformers, kind)(**{**BASE, "sliding_window": 9, "num_hidden_layers": n}).to_dict()
        wanted = tuple(9 if layer == "sliding_attention" else 0 for layer in fields.pop("layer_types"))
        assert read(fields)[0].windows == wanted


def test_older_gemma3_files_state_a_local_base(tmp_path: Path) -> None:
    model = saved(tmp_path, made("gemma3, seven layers"))
    scaling = {"rope_type": "linear", "factor": 8.0}
    edit(tmp_path, "rope_parameters", "layer_types", rope_theta=1e6, rope_local_base_freq=5e3, rope_scaling=scaling)
    edit(tmp_path, sliding_window_pattern=6)
    assert_agrees(tmp_path, model)


@pytest.mark.parametrize("older", [False, True])
def test_the_text_part_of_a_gemma3_that_reads_pictures(tmp_path: Path, older: bool) -> None:
    transformers = pytest.importorskip("transformers")
    from safetensors.torch import load_file, save_file

    text = made("gemma3, seven layers")
    model = saved(tmp_path / "text", text)
    inner = text.to_dict()
    tensors = load_file(tmp_path / "text" / "model.safetensors")
    place = (lambda n: "language_model." + n) if older else (lambda n: n.replace("model.", "model.language_model.", 1))
    tensors = {place(name): value for name, value in tensors.items()}
    tensors["multi_modal_projector.mm_soft_emb_norm.weight"] = torch.zeros(24)
    folder = tmp_path / "whole"
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    config = {"model_type": "gemma3", "text_config": inner, "vision_config": {"hidden_size": 8}}
    (folder / "config.json").write_text(json.dumps(config))
    opened = assert_agrees(folder, model)
    assert any("text model" in note for note in opened.notes)
    assert any("multi_modal_projector" in note for note in opened.notes)
    assert transformers.AutoConfig.from_pretrained(folder, local_files_only=True).text_config.head_dim == 10
    shutil.rmtree(folder)
