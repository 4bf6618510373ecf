"""The small files of real folders (`../shared/fixtures/real_folders`) around small random weights of their architecture.

What transformers makes of the configuration, with its sizes changed and nothing else, opens and has its logits; what
is not opened is called what it is. Tokenizers: ids of `TEXTS` and BOS, where the folder has a vocabulary or shares a public one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer as Inner

from circuitlab.errors import BadModel
from circuitlab.model.forward import forward
from circuitlab.model.loading import open_model
from circuitlab.model.loading.architectures import of_today
from circuitlab.model.loading.tokenizer_files import find_tokenizer
from tests.unit.families.agreement import saved
from tests.unit.families.test_sentencepiece import TEXTS, llama_s

pytestmark = pytest.mark.slow

OPENS = {
    "llama-7b-hf": "Llama", "Llama-2-7b-hf": "Llama", "tt_Llama-3.2-1B": "Llama", "Reflection-Llama-3.1-70B": "Llama",
    "Fine-tuned-Economics-QA-using-smolLM__model": "Llama", "openllama-chinese-english-3b": "Llama",
    "granite-3b-code-instruct-128k": "Llama", "TPU_Mistral-7B-Instruct-v0.2": "Mistral", "mistral-7b-v03-instruct": "Mistral",
    "yarn-mistral-flax": "Mistral", "mistralai-Devstral-Small-2507": "Mistral", "WizardLM-2-8x22B": "Mixtral",
    "TPU_Qwen2.5": "Qwen 2", "mlc__qwen2moe": "Qwen MoE", "TPU_Qwen3": "Qwen 3", "qwen3-mlx__Qwen3-14B-MLX-4bit": "Qwen 3",
    "gemma": "Gemma 1", "gemma2-poem": "Gemma 2", "LLM-TPU__models_Gemma3_config": "Gemma 3", "smolify": "Gemma 3",
    "3PRYMMAL-PHI3-3B-SLERP": "Phi-3", "mlc__phi-4": "Phi-3", "tt_phi-1": "Phi", "microsoft-DialoGPT-small": "GPT-2",
    "zenz-CoreML__tokenizer": "GPT-2", "protGPT2": "GPT-2", "swe-gpt": "GPT-2", "Multi-GPT2__gpt2-small": "GPT-2",
    "Multi-GPT2__openai-gpt": "GPT-1", "pythia-410m": "GPT-NeoX", "falcon-180B-chat": "Falcon", "falcon-40b": "Falcon",
    "bloom": "BLOOM", "https-huggingface.co-KoboldAI-OPT-6.7B-Erebus": "OPT", "WizardCoder-15B-1.0-GPTQ": "GPT-BigCode",
    "mlc__starcoder2": "StarCoder2", "mlc__stablelm-2-zephyr-1_6b": "StableLM", "stable-code-3b": "StableLM",
    "mlc__olmo2_7b": "OLMo 2", "tt_Olmo-3.1-32B": "OLMo 3", "mlc__aya-23": "Command R",
    "LG-AI-Research__exaone_baseline": "EXAONE 4", "base-gpt-j-6B": "GPT-J",
}  # fmt: skip
REFUSED = {  # what the error says it is, what of it is not computed, and what to do
    "Phi-2": ("Phi of 2023", "mixformer-sequential", "present files of microsoft/phi-1"),
    "replit-hiddensize": ("share keys and values", "grouped_query_attention", "another MPT"),
    "DeepSeek-R1": ("mixture of experts", "latent attention", "DeepSeek-R1-Distill"),
    "gpt-oss-20b": ("mixture of experts", "a sink in each head's softmax", "import its tensors"),
    "rtp-llm__rtp_llm_test_model_test_fake_test_testdata_glm45_to": ("mixture of experts", "by groups", "Open GLM-4"),
    "granite-3.1-1b-a400m-instruct": ("mixture of experts", "weights are fused", "granite-3.1-2b-instruct"),
    "Baichuan2-13B-Chat": ("not one of those that are opened", "W_pack", "with a map"),
    "TPU_chatglm2-6b": ("not one of those that are opened", "names of its own", "glm-4-9b-chat-hf"),
    "onnxruntime-extensions__test_data_models_whisper-large-v3": ("encoder-decoder", "encoder of sound", "decoder-only"),
    "model": ("images or sound", "recurrent layers", "Qwen 3 or Qwen 2.5"),
    "MiniMind2": ("not one of those that are opened", "Llama's architecture", "scripts of its repository"),
    "mlc__rwkv5_3b": ("state space", "rwkv5", "attention in every block"),
    "smart-tutor-phi2-model": ("adapter", "for microsoft/phi-2", "merge_and_unload"),
}
_SIZES = (
    dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "max_window_layers", "num_experts_per_tok"), 2)
    | dict.fromkeys(("hidden_size", "n_embd", "d_model", "word_embed_proj_dim", "n_embed", "dim"), 64)
    | dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "num_experts", "num_local_experts"), 4)
    | dict.fromkeys(("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "moe_intermediate_size"), 96)
    | {"shared_expert_intermediate_size": 64, "head_dim": 16, "rotary_dim": 8}
)


def _small(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration at a small size, and nothing else of it changed."""
    heads = config.get("num_attention_heads", config.get("n_head"))
    small = {n: _SIZES[n] if n in _SIZES and type(value) is int else value for n, value in config.items()}
    for name in ("num_key_value_heads", "num_kv_heads", "n_head_kv"):
        if isinstance(config.get(name), int):
            small[name] = 4 if config[name] == heads else min(2, config[name])
    if isinstance(config.get("layer_types"), list):
        small["layer_types"] = config["layer_types"][:2]
    scaling = config.get("rope_scaling")
    if isinstance(scaling, Mapping) and "short_factor" in scaling:
        n = int(16 * config.get("partial_rotary_factor", 1)) // 2
        small["rope_scaling"] = {**scaling, **{f: scaling[f][:n] for f in ("short_factor", "long_factor")}}
    if isinstance(config.get("text_config"), Mapping):
        small["text_config"] = _small(config["text_config"])
    return small


def _folder(shared: Path, name: str, into: Path) -> tuple[Path, dict[str, Any]]:
    """A copy of a real folder's small files, and its configuration at a small size."""
    real = shared / "fixtures" / "real_folders" / name
    if not real.is_dir():
        pytest.skip(f"needs ../shared/fixtures/real_folders/{name}")
    shutil.copytree(real, into, ignore=shutil.ignore_patterns("*.index.json"))
    for file in into.iterdir():
        file.chmod(0o644)
    config = into / "config.json"
    small = _small(json.loads(config.read_text())) if config.exists() else {}
    if small:
        config.write_text(json.dumps(small))
    return into, small


@pytest.mark.parametrize("name", OPENS)
def test_a_real_folder_opens_with_the_logits_of_transformers(shared_dir: Path, tmp_path: Path, name: str) -> None:
    transformers = pytest.importorskip("transformers")
    folder, small = _folder(shared_dir, name, tmp_path / "m")
    today = {n: v for n, v in of_today(small)[0].items() if n not in ("quantization_config", "auto_map", "model_type")}
    config = transformers.AutoConfig.for_model(of_today(small)[0]["model_type"], **today)
    model = saved(tmp_path / "made", getattr(config, "text_config", config))
    shutil.copy(tmp_path / "made" / "model.safetensors", folder)
    opened = open_model(folder)
    assert opened.family == OPENS[name]
    ids = torch.randint(0, opened.weights.config.d_vocab, (24,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        theirs = model(ids[None]).logits[0].float()
    off = (forward(opened.weights, tuple(ids.tolist())).logits() - theirs).abs().max()
    print(f"{name}: {opened.family}, {float(off / max(1.0, float(theirs.abs().max()))):.1e}")
    assert float(off) <= 1e-4 * max(1.0, float(theirs.abs().max()))


@pytest.mark.parametrize("name", REFUSED)
def test_a_real_folder_that_is_not_opened_is_called_what_it_is(shared_dir: Path, tmp_path: Path, name: str) -> None:
    folder, small = _folder(shared_dir, name, tmp_path / "m")
    lora = "base_model.model.layers.0.q_proj.lora_A.weight"
    file, tensor = ("model.safetensors", "any.weight") if small else ("adapter_model.safetensors", lora)
    save_file({tensor: torch.zeros(2, 2)}, folder / file)
    with pytest.raises(BadModel) as refused:
        open_model(folder)
    what, lacks, instead = REFUSED[name]
    assert what in refused.value.what and lacks in refused.value.got and instead in refused.value.remedy


def test_a_real_classifier_is_called_one(shared_dir: Path, tmp_path: Path) -> None:
    folder, _ = _folder(shared_dir, "pythia-410m", tmp_path / "m")
    transformers = pytest.importorskip("transformers")
    made = transformers.AutoModelForSequenceClassification.from_config(transformers.AutoConfig.from_pretrained(folder))
    made.save_pretrained(tmp_path / "made")
    shutil.copy(tmp_path / "made" / "model.safetensors", folder)
    with pytest.raises(BadModel, match="This is a classifier"):
        open_model(folder)


@pytest.mark.parametrize("name", ["Phi-2", "base-gpt-j-6B", "microsoft-DialoGPT-small", "protGPT2"])
def test_ids_of_vocabulary_and_merges_are_those_of_transformers(shared_dir: Path, tmp_path: Path, name: str) -> None:
    transformers = pytest.importorskip("transformers")
    folder, _ = _folder(shared_dir, name, tmp_path / "m")
    if not (folder / "vocab.json").is_file():  # GPT-2's, which these folders have
        inner = json.loads((shared_dir / "tokenizers" / "gpt2" / "tokenizer.json").read_text(encoding="utf-8"))["model"]
        (folder / "vocab.json").write_text(json.dumps(inner["vocab"]))
        merges = (pair if isinstance(pair, str) else " ".join(pair) for pair in inner["merges"])
        (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    ours, theirs = find_tokenizer(folder), transformers.GPT2Tokenizer.from_pretrained(folder, local_files_only=True)
    assert ours is not None
    for text in (*TEXTS, "def f(x):\n        return x"):
        assert list(ours.encode(text)) == theirs.encode(text, add_special_tokens=False, split_special_tokens=True), text
    assert list(ours.encode("time", bos=ours.adds_bos)) == theirs("time").input_ids


def test_ids_of_a_real_tokenizer_json_are_those_of_the_file(shared_dir: Path, tmp_path: Path) -> None:
    folder, _ = _folder(shared_dir, "zenz-CoreML__tokenizer", tmp_path / "m")
    ours, theirs = find_tokenizer(folder), Inner.from_file(str(folder / "tokenizer.json"))
    assert ours is not None
    theirs.encode_special_tokens = True
    for text in TEXTS:
        assert list(ours.encode(text)) == theirs.encode(text, add_special_tokens=False).ids, text


LONE = {
    "llama-7b-hf": 1, "Llama-2-7b-hf": 1, "WizardLM-2-8x22B": 1, "openllama-chinese-english-3b": 2,
    "TPU_Mistral-7B-Instruct-v0.2": 1,
}  # fmt: skip


@pytest.mark.parametrize("name", LONE)
def test_a_lone_sentencepiece_model_puts_the_bos_in_front_that_the_folder_says(
    shared_dir: Path, tmp_path: Path, name: str
) -> None:
    library = pytest.importorskip("sentencepiece")
    folder, _ = _folder(shared_dir, name, tmp_path / "m")
    data = llama_s(shared_dir)
    (folder / "tokenizer.model").write_bytes(data)
    ours, theirs = find_tokenizer(folder), library.SentencePieceProcessor(model_proto=data)
    assert ours is not None
    assert (ours.bos, ours.adds_bos) == (LONE[name], True)
    for text in TEXTS:
        assert list(ours.encode(text)) == theirs.encode(text), text
