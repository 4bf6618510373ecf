"""What is not opened says what it is, why not and what works instead, before any weight is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from circuitlab.errors import BadModel, UnknownFamily
from circuitlab.model.forward import forward
from circuitlab.model.loading import families, open_model
from circuitlab.model.loading.architectures import of_today
from circuitlab.model.loading.checkpoint import Checkpoint
from circuitlab.model.loading.refusals import TABLE
from tests.fuzz.corpus import CORPUS
from tests.unit.families.agreement import assert_agrees, saved

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
    "pictures under another name": ({"model_type": "new", "mm_vision_tower": "openai/clip"}, "images"),
    "sound": ({"model_type": "new", "audio_config": {"layers": 2}}, "sound"),
    "a phi of 2023": ({"model_type": "mixformer-sequential"}, "Phi of 2023"),
    "bert of 2019": ({"architectures": ["BertForMaskedLM"]}, "encoder"),
    "t5 of 2019": ({"architectures": ["T5ForConditionalGeneration"]}, "encoder-decoder"),
    "rwkv": ({"model_type": "rwkv5"}, "state space"),
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
    assert config.get("model_type", "model_type") in refused.value.got


STATED: dict[str, dict[str, dict[str, Any]]] = {
    "gptq": {"config": {"quantization_config": {"quant_method": "gptq", "bits": 4}}},
    "not an object": {"config": {"quantization_config": "gptq"}},
    "bitsandbytes": {"config": {"quantization_config": {"load_in_4bit": True}}},
    "mlx": {"config": {"quantization": {"group_size": 64, "bits": 4}}},
    "gptq of 2023": {"quantize_config": {"bits": 4, "group_size": 128}},
    "awq of 2023": {"quant_config": {"w_bit": 4}},
    "nothing stated": {},
}


def _written(folder: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor] | None = None, **files: Any) -> Path:
    """A small GPT-2, with these fields added to its configuration, and other tensors where some are given."""
    path = CORPUS["gpt2"](folder)
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    stated = json.loads((path / "config.json").read_text()) | config
    (path / "config.json").write_text(json.dumps({k: v for k, v in stated.items() if v is not None}))
    if tensors is not None:
        save_file(tensors, path / "model.safetensors")
    return path


@pytest.mark.parametrize("stated", STATED)
@pytest.mark.parametrize("part", ["qweight", "weight.absmax", "scales", "SCB", "weight_scale_inv"])
def test_packed_weights_are_called_quantised_whatever_is_stated(tmp_path: Path, stated: str, part: str) -> None:
    tensors = {"transformer.wte.weight": torch.ones(4, 4), f"transformer.h.0.attn.c_attn.{part}": torch.ones(4, 4)}
    with pytest.raises(BadModel, match="quantised") as refused:
        open_model(_written(tmp_path / "m", tensors=tensors, **{"config": {}, **STATED[stated]}))
    assert part in refused.value.got
    assert all(len(said.split()) > 3 for said in (refused.value.what, refused.value.expected, refused.value.remedy))
    assert stated == "nothing stated" or ".json" in refused.value.got


@pytest.mark.parametrize("stated", [name for name in STATED if name != "nothing stated"])
def test_weights_that_are_plain_numbers_open_whatever_is_stated(tmp_path: Path, stated: str) -> None:
    """As transformers leaves the configuration of what it has unpacked."""
    plain = open_model(CORPUS["gpt2"](tmp_path / "plain"))
    opened = open_model(_written(tmp_path / "m", **{"config": {}, **STATED[stated]}))
    assert any("the tensors are float32" in note for note in opened.notes)
    assert not any("the tensors are" in note for note in plain.notes)
    assert torch.equal(forward(opened.weights, (1, 2, 3)).logits(), forward(plain.weights, (1, 2, 3)).logits())


def test_integers_in_place_of_weights_are_not_read_as_plain_numbers(tmp_path: Path) -> None:
    tensors = {"transformer.wte.weight": torch.ones(4, 4, dtype=torch.int8)}
    with pytest.raises(BadModel, match="quantised"):
        open_model(_written(tmp_path / "m", {"quantization_config": {"quant_method": "fp8"}}, tensors))


def test_an_architecture_stands_in_for_a_missing_type(tmp_path: Path) -> None:
    plain = open_model(CORPUS["gpt2"](tmp_path / "plain"))
    opened = open_model(_written(tmp_path / "m", {"model_type": None, "architectures": ["GPT2LMHeadModel"]}))
    assert opened.family == plain.family
    assert any("states no model_type" in note for note in opened.notes)
    assert torch.equal(forward(opened.weights, (1, 2, 3)).logits(), forward(plain.weights, (1, 2, 3)).logits())


@pytest.mark.parametrize("architectures", [None, [], [3], "GPT2LMHeadModel", ["x" * 10_000], ["NewForCausalLM"], {}, [None]])
def test_an_architecture_that_says_nothing_is_an_unknown_family(tmp_path: Path, architectures: Any) -> None:
    with pytest.raises(UnknownFamily) as refused:
        open_model(_written(tmp_path / "m", {"model_type": None, "architectures": architectures}))
    said = str(refused.value)
    assert "no model_type" in refused.value.got
    assert said.index("no model_type") < said.index("do:") < said.index("import:") < said.index("Llama")


def test_architectures_are_those_of_transformers(tmp_path: Path) -> None:
    auto = pytest.importorskip("transformers.models.auto.modeling_auto")
    classes = dict(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    read = {name: of_today({"architectures": [name]})[0].get("model_type") for name in classes.values() if isinstance(name, str)}
    opened = {k for k in classes if any(f.claims(Checkpoint(tmp_path, tmp_path, {"model_type": k})) for f in families())}
    assert [(name, kind) for name, kind in read.items() if kind in opened and classes[kind] != name] == []
    assert opened - set(read.values()) == {"gemma3_text"}  # whose files have always stated it


HEADS = {
    "score.weight": "classifier",
    "classifier.weight": "classifier",
    "qa_outputs.weight": "classifier",
    "": "body of a model",
}


@pytest.mark.parametrize("head", HEADS)
def test_a_model_without_an_unembedding_is_called_what_it_is(tmp_path: Path, head: str) -> None:
    names = ["GPT2ForSequenceClassification"]
    whole = open_model(_written(tmp_path / "tied", {"architectures": names}))
    assert any("saved with another head" in note for note in whole.notes)
    tensors = load_file(CORPUS["gpt2"](tmp_path / "a") / "model.safetensors")
    tensors = {n: t for n, t in tensors.items() if n != "lm_head.weight"} | ({head: torch.ones(2, 4)} if head else {})
    with pytest.raises(BadModel, match=HEADS[head]) as refused:
        open_model(_written(tmp_path / "m", {"architectures": names, "tie_word_embeddings": False}, tensors))
    assert "lm_head" in refused.value.expected and head in refused.value.got


def test_experts_that_are_switched_off_are_no_mixture(tmp_path: Path) -> None:
    with pytest.raises(UnknownFamily):
        open_model(_written(tmp_path / "m", {"model_type": "minimind", "n_routed_experts": 4, "use_moe": False}))
    with pytest.raises(BadModel, match="mixture"):
        open_model(_written(tmp_path / "n", {"model_type": "minimind", "n_routed_experts": 4, "use_moe": True}))


def test_a_model_as_its_makers_give_it_away_is_named(tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text('{"dim": 8, "n_layers": 2}')
    for name in ("consolidated.00.pth", "consolidated.01.pth", "consolidated.safetensors"):
        (tmp_path / name).write_bytes(b"never read")
    for path in (tmp_path, tmp_path / "consolidated.00.pth"):
        with pytest.raises(BadModel, match="as its makers give it away"):
            open_model(path)
    folder = _written(tmp_path / "m", {})
    for name in ("params.json", "consolidated.safetensors"):
        (folder / name).write_bytes((tmp_path / name).read_bytes())
    assert open_model(folder).family == "GPT-2"


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"attn_config": {"attn_type": "grouped_query_attention"}}, "share keys and values"),
        ({"attn_config": {"alibi": False}}, "not ALiBi"),
        ({"no_bias": False}, "has biases"),
    ],
)
def test_each_reason_why_an_mpt_is_not_opened_is_said_apart(tmp_path: Path, field: dict[str, Any], said: str) -> None:
    with pytest.raises(BadModel, match=said):
        open_model(_written(tmp_path / "m", {"model_type": "mpt", **field}))


def test_older_names_are_read_as_their_families(tmp_path: Path) -> None:
    """Falcon and StableLM as they were called by code of their own, against the same weights under the names of today."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "vocab_size": 50, "bos_token_id": 1, "eos_token_id": 2, "layer_norm_epsilon": 1e-4}
    today = {"num_hidden_layers": 2, "num_attention_heads": 4}
    older = {"n_layer": 2, "n_head": 4}
    stable = {"num_key_value_heads": 4, "intermediate_size": 40, "rope_theta": 500.0, "max_position_embeddings": 64}
    old_code = {"multi_query": False, "parallel_attn": False, "bias": True}
    each: tuple[tuple[dict[str, Any], dict[str, Any], str], ...] = (
        ({"num_kv_heads": 2, "new_decoder_architecture": True}, {"n_head_kv": 2}, "RefinedWeb"),
        ({"multi_query": True, "parallel_attn": True}, {"multi_query": True, "parallel_attn": True}, "RefinedWebModel"),
        (old_code, {"bias": True}, "RefinedWebModel"),
        (
            {**stable, "layer_norm_eps": 1e-4, "partial_rotary_factor": 0.5},
            {**stable, "norm_eps": 1e-4, "rope_pct": 0.5, **today},
            "stablelm_epoch",
        ),
    )
    for now, then, name in each:
        folder = tmp_path / f"{name}{len(then)}"
        kind = "stablelm" if name == "stablelm_epoch" else "falcon"
        model = saved(folder, transformers.AutoConfig.for_model(kind, **sizes, **today, **now))
        written = sizes | ({} if kind == "stablelm" else older) | then | {"model_type": name}
        (folder / "config.json").write_text(json.dumps(written))
        opened = assert_agrees(folder, model)
        assert any("older name" in note for note in opened.notes)


def test_no_family_that_is_opened_is_refused(tmp_path: Path) -> None:
    refused = [name for refusal in TABLE for name in refusal.model_types]
    assert len(refused) == len(set(refused))
    opened = [n for n in refused if any(f.claims(Checkpoint(tmp_path, tmp_path, {"model_type": n})) for f in families())]
    assert opened == []
