"""Mixtures of experts against `transformers`: Mixtral, Qwen 2 and 3 MoE, OLMoE. MLPs are exact as a whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from circuitlab.analysis.attribution.neurons import NeuronsParams
from circuitlab.analysis.checks.privileged_basis import PrivilegedBasisParams
from circuitlab.analysis.checks.rotation_invariance import RotationCheckParams
from circuitlab.analysis.composition.subspace_overlap import SubspaceOverlapParams
from circuitlab.analysis.composition.virtual_weight import VirtualWeightParams
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadModel, Refused
from circuitlab.model.loading import open_model
from circuitlab.model.subject import ModelRef, Subject
from circuitlab.model.weights import Mixture
from tests.unit.families.agreement import assert_agrees, assert_agrees_in_bfloat16, assert_analyses_work, configuration, saved
from tests.unit.families.test_decoders import SIZES

FEW = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "intermediate_size": 16}),
    "mixtral, a window, one of three": (
        "MixtralConfig",
        {"num_local_experts": 3, "num_experts_per_tok": 1, "sliding_window": 5, "intermediate_size": 16},
    ),
    "qwen2_moe": ("Qwen2MoeConfig", {**FEW, "shared_expert_intermediate_size": 8}),
    "qwen2_moe, renormalised, no biases": (
        "Qwen2MoeConfig",
        {**FEW, "shared_expert_intermediate_size": 8, "norm_topk_prob": True, "qkv_bias": False, "tie_word_embeddings": True},
    ),
    "qwen3_moe": ("Qwen3MoeConfig", {**FEW, "head_dim": 6}),
    "qwen3_moe, renormalised, a window": (
        "Qwen3MoeConfig",
        {**FEW, "norm_topk_prob": True, "use_sliding_window": True, "sliding_window": 5},
    ),
    "olmoe": ("OlmoeConfig", {"num_experts": 5, "num_experts_per_tok": 3, "intermediate_size": 16}),
}


def made(name: str) -> Any:
    kind, changes = CASES[name]
    return configuration(kind, SIZES, changes)


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_transformers(tmp_path: Path, name: str) -> None:
    opened = assert_agrees(tmp_path, saved(tmp_path, made(name)))
    assert any("experts for each token" in note for note in opened.notes)
    assert not any(note.startswith("unused") for note in opened.notes), opened.notes


def test_bfloat16(tmp_path: Path) -> None:
    assert_agrees_in_bfloat16(tmp_path, made("mixtral"))


@pytest.mark.parametrize("name", ["mixtral", "qwen2_moe"])
def test_analyses_work(tmp_path: Path, name: str) -> None:
    saved(tmp_path, made(name))
    assert_analyses_work(tmp_path)


@pytest.mark.parametrize("name", ["qwen3_moe", "olmoe"])
def test_older_names_of_the_number_of_experts(tmp_path: Path, name: str) -> None:
    model = saved(tmp_path, made(name))
    fields = json.loads((tmp_path / "config.json").read_text())
    n = {fields.pop(field) for field in ("num_experts", "num_local_experts") if field in fields}
    (tmp_path / "config.json").write_text(json.dumps({**fields, "num_experts": n.pop()}))
    assert_agrees(tmp_path, model)


@pytest.mark.parametrize("name", ["mixtral", "qwen2_moe"])
def test_experts_all_in_one_tensor(tmp_path: Path, name: str) -> None:
    """A state dict as newer code keeps it in memory."""
    model = saved(tmp_path, made(name))
    tensors = {key: value.contiguous().clone() for key, value in model.state_dict().items()}
    assert any(key.endswith("experts.gate_up_proj") for key in tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    assert_agrees(tmp_path, model)


def test_an_expert_is_converted_when_a_token_is_sent_to_it(tmp_path: Path) -> None:
    """Of a model in its file: a forward pass holds no more than one at a time."""
    saved(tmp_path, made("mixtral"), torch.bfloat16)
    mixture = open_model(tmp_path, "mapped").weights.layer(0).mlp
    assert isinstance(mixture, Mixture)
    assert {expert.W_in.dtype for expert in mixture.experts} == {torch.bfloat16}
    assert mixture.router.dtype == torch.float32


def test_layers_that_are_not_alike_are_refused(tmp_path: Path) -> None:
    for field, value in (("decoder_sparse_step", 2), ("mlp_only_layers", [0])):
        (tmp_path / "config.json").write_text(json.dumps({**made("qwen2_moe").to_dict(), field: value}))
        save_file({}, tmp_path / "model.safetensors")
        with pytest.raises(BadModel, match="experts"):
            open_model(tmp_path)


def test_what_reads_neurons_says_why_not(tmp_path: Path) -> None:
    saved(tmp_path, made("mixtral"))
    engine, ref = Engine(ModelStore()), ModelRef(f"file:{tmp_path}")
    subject = Subject(ref, (3, 1, 4, 1, 5))
    asked: dict[str, Any] = {
        "neurons": NeuronsParams(),
        "virtual_weight": VirtualWeightParams(writer="mlp", writer_layer=0, reader="unembedding"),
        "rotation_check": RotationCheckParams(),
    }
    for name, params in asked.items():
        with pytest.raises(Refused, match="router"):
            engine.answer(Request.named(name, params, subject))
    with pytest.raises(Refused, match="router"):  # and whoever forgets to ask
        _ = open_model(tmp_path).weights.layer(0).mlp.W_in  # type: ignore[union-attr]
    basis = engine.answer(Request.named("privileged_basis", PrivilegedBasisParams(), subject)).result
    overlap = engine.answer(Request.named("subspace_overlap", SubspaceOverlapParams(), subject)).result
    assert all("expert" in " ".join(result.conventions) for result in (basis, overlap))
