"""GGUF files made of Hugging Face folders as llama.cpp's converter makes them: names by the package `gguf`, rows reordered.

What is written here follows the converter's published transformations, each in its own direction; the reader undoes them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file

Kind = gguf.GGMLQuantizationType
Layout = Callable[[Any, str, np.ndarray], np.ndarray]
_TURNED = {"llama", "mistral", "mixtral", "granite", "smollm3", "olmo"}
_SKIPPED = (".attention.bias", ".attention.masked_bias", ".attn.bias", ".attn.masked_bias", "inv_freq")
ARCHITECTURES = {
    "llama": "llama", "mistral": "llama", "mixtral": "llama", "granite": "granite", "smollm3": "smollm3", "olmo": "olmo",
    "olmo2": "olmo2", "olmo3": "olmo2", "olmoe": "olmoe", "qwen2": "qwen2", "qwen3": "qwen3", "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe", "gemma": "gemma", "gemma2": "gemma2", "gemma3_text": "gemma3", "gpt2": "gpt2",
    "gpt_bigcode": "starcoder", "starcoder2": "starcoder2", "gpt_neox": "gptneox", "bloom": "bloom", "falcon": "falcon",
    "mpt": "mpt", "phi": "phi2", "phi3": "phi3", "stablelm": "stablelm", "cohere": "command-r", "cohere2": "cohere2",
    "nemotron": "nemotron", "exaone": "exaone", "exaone4": "exaone4", "glm": "chatglm", "glm4": "glm4",
}  # fmt: skip


def _heads(config: Any) -> tuple[int, int, int]:
    """Query heads, key-value heads, columns of a head."""
    n = config.get("num_attention_heads") or config.get("n_head") or config["n_heads"]
    kv = config.get("num_key_value_heads") or n
    if config["model_type"] in ("gpt_neox", "bloom"):  # which have no groups, whatever else their configuration says
        kv = n
    if config["model_type"] == "falcon":
        kv = config["num_kv_heads"] if config["new_decoder_architecture"] else 1 if config["multi_query"] else n
    width = config.get("hidden_size") or config.get("n_embd") or config["d_model"]
    return n, kv, config.get("head_dim") or width // n


def _interleaved(x: np.ndarray, n: int) -> np.ndarray:
    """The converter's `permute`."""
    return x.reshape(n, 2, x.shape[0] // n // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def _laid_out(config: Mapping[str, Any], name: str, x: np.ndarray) -> np.ndarray:
    """A tensor of the folder as the converter lays it out."""
    (n, kv, d), kind = _heads(config), config["model_type"]
    if kind in _TURNED and re.search(r"[qk]_proj\.(weight|bias)$", name):
        return _interleaved(x, n if "q_proj" in name else kv)
    if kind == "gpt2" and re.search(r"(c_attn|c_proj|c_fc)\.weight$", name):
        return x.T
    if kind in ("gpt_neox", "bloom") and "query_key_value" in name:
        parts = x.reshape(n, 3, d, *x.shape[1:])
        return np.concatenate([parts[:, i].reshape(n * d, *x.shape[1:]) for i in range(3)])
    if kind == "falcon" and "query_key_value" in name:
        parts = x.reshape(kv, n // kv + 2, d, *x.shape[1:])
        q, k, v = parts[:, :-2], parts[:, [-2]], parts[:, [-1]]
        return np.concatenate([part.reshape(-1, *x.shape[1:]) for part in (q, k, v)])
    return x


def _stacked(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Experts, and norms that a folder stores head by head, in one tensor each; the folder's names joined by blanks."""
    groups: dict[str, list[str]] = {}
    for name in tensors:
        match = re.fullmatch(r"(.*\.)(experts|norms)\.(\d+)\.(?:(\w+)\.)?weight", name)
        key = f"{match[1]}{match[2]}.{match[4]}.weight" if match and match[4] else f"{match[1]}weight" if match else name
        groups.setdefault(key, []).append(name)
    number = lambda name: int(re.findall(r"(?:experts|norms)\.(\d+)", name)[0])
    return {
        key if len(names) == 1 and names[0] == key else key + " " + " ".join(sorted(names, key=number)): tensors[names[0]]
        if names[0] == key
        else np.stack([tensors[name] for name in sorted(names, key=number)])
        for key, names in groups.items()
    }


def metadata(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that the converter writes, but for `general.architecture` and the tokenizer."""
    n, kv, d = _heads(config)
    kind, get = config["model_type"], config.get
    width = get("hidden_size") or get("n_embd") or config["d_model"]
    said: dict[str, Any] = {
        "context_length": get("max_position_embeddings") or get("n_positions") or get("max_seq_len") or get("seq_length") or 2048,
        "embedding_length": width,
        "feed_forward_length": get("intermediate_size") or get("n_inner") or 4 * width,
        "block_count": get("num_hidden_layers") or get("num_layers") or get("n_layer") or config["n_layers"],
        "attention.head_count": n,
        "attention.head_count_kv": kv,
    }
    if get("head_dim") and get("head_dim") * n != width:
        said |= {"attention.key_length": d, "attention.value_length": d}
    for name in ("rms_norm_eps",):
        if get(name) is not None:
            said["attention.layer_norm_rms_epsilon"] = get(name)
    for name in ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"):
        if get(name) is not None:
            said["attention.layer_norm_epsilon"] = get(name)
    rope = get("rope_parameters") or {}
    rope = rope.get("full_attention", rope) if isinstance(rope, dict) else {}
    if rope.get("rope_theta") and kind not in ("gpt_neox", "falcon", "phi", "stablelm", "bloom", "mpt"):
        said["rope.freq_base"] = float(rope["rope_theta"])
    share = rope.get("partial_rotary_factor") or get("partial_rotary_factor") or 1.0
    if rope:
        said["rope.dimension_count"] = int(d * share)
    if rope.get("rope_type") in ("linear", "yarn"):
        said |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": float(rope["factor"])}
        if rope["rope_type"] == "yarn":
            said["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
            if rope.get("attention_factor"):
                said["rope.scaling.attn_factor"] = float(rope["attention_factor"])
    if rope.get("rope_type") == "longrope":
        said["rope.scaling.original_context_length"] = (
            get("original_max_position_embeddings") or rope["original_max_position_embeddings"]
        )
        factor = said["context_length"] / said["rope.scaling.original_context_length"]
        said["rope.scaling.attn_factor"] = math.sqrt(
            1 + math.log(factor) / math.log(said["rope.scaling.original_context_length"])
        )
    return said | _own(config)


def _own(config: Mapping[str, Any]) -> dict[str, Any]:
    """Those of one architecture."""
    kind, get = config["model_type"], config.get
    said: dict[str, Any] = {}
    if kind == "granite":
        said = {
            "attention.scale": config["attention_multiplier"],
            "embedding_scale": config["embedding_multiplier"],
            "residual_scale": config["residual_multiplier"],
            "logit_scale": config["logits_scaling"],
        }
    if kind in ("cohere", "cohere2"):
        said = {"logit_scale": config["logit_scale"]}
    if kind == "gpt_neox":
        said = {"use_parallel_residual": config["use_parallel_residual"]}
    if kind == "mpt":
        said = {"attention.max_alibi_bias": 8.0}
    if kind == "glm":
        said = {"rope.freq_base": 10000.0, "attention.layer_norm_rms_epsilon": 1e-5, "context_length": config["hidden_size"]}
    if kind in ("gemma2", "gemma3_text", "olmo3", "cohere2", "exaone4", "phi3") and get("sliding_window"):
        said["attention.sliding_window"] = config["sliding_window"]
    if kind == "exaone4" and get("sliding_window"):
        said["attention.sliding_window_pattern"] = [k == "sliding_attention" for k in config["layer_types"]]
    if kind == "gemma2":
        said |= {
            "attn_logit_softcapping": config["attn_logit_softcapping"],
            "final_logit_softcapping": config["final_logit_softcapping"],
        }
    if kind == "gemma3_text":
        local = (config["rope_parameters"] or {}).get("sliding_attention", {}).get("rope_theta")
        said |= {"rope.freq_base_swa": float(local)} if local else {}
    experts = get("num_local_experts") or get("num_experts")
    if experts:
        said |= {"expert_count": experts, "expert_used_count": config["num_experts_per_tok"]}
    return said


def _extra(config: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Tensors that the converter adds: divisors of the rotary frequencies."""
    rope = config.get("rope_parameters") or {}
    if rope.get("rope_type") == "llama3":
        d = _heads(config)[2]
        low, high = 8192 / rope["low_freq_factor"], 8192 / rope["high_freq_factor"]
        divisors = []
        for i in range(0, d, 2):
            length = 2 * math.pi * rope["rope_theta"] ** (i / d)
            smooth = (8192 / length - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
            ramp = 1 / ((1 - smooth) / rope["factor"] + smooth)
            divisors.append(1.0 if length < high else rope["factor"] if length > low else ramp)
        return {"rope_freqs.weight": np.array(divisors, np.float32)}
    if rope.get("rope_type") == "longrope":
        return {f"rope_factors_{n}.weight": np.array(rope[f"{n}_factor"], np.float32) for n in ("short", "long")}
    return {}


def add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    """One key, of the type that the converter uses for such a value."""
    kinds = {
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
    }
    kinds[type(value)](key, value)


Packer = Callable[[str, np.ndarray], tuple[np.ndarray, Kind]]


def plain(kind: Kind) -> Packer:
    """Every matrix as this kind, by the package's own quantisation."""
    return lambda name, x: (gguf.quants.quantize(x, kind), kind)


UNPACKED = plain(Kind.F32)


def converted(folder: Path, file: Path, pack: Packer = UNPACKED, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Write the folder's model as a GGUF file; the folder then has the weights that were written, dequantised.

    `more`: further keys, whole. Returns the keys of the architecture.
    """
    config = json.loads((folder / "config.json").read_text())
    stored = load_file(folder / "model.safetensors")
    tensors = {name: value.float().numpy() for name, value in stored.items() if not name.endswith(_SKIPPED)}
    said, arch = metadata(config), ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(file, arch)
    for key, value in said.items():
        add(writer, f"{arch}.{key}", value)
    for key, value in (more or {}).items():
        add(writer, key, value)
    number = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    table = gguf.get_tensor_name_map(number, said["block_count"])
    for joined, x in _stacked(tensors).items():
        names, key = joined.split(" ")[1:] or [joined], joined.split(" ")[0]
        name = _name(table, config["model_type"], key)
        laid_out = np.ascontiguousarray(_laid_out(config, key, x))
        if config["model_type"] in ("gemma", "gemma2", "gemma3_text", "nemotron") and key.endswith("norm.weight"):
            writer.add_tensor(name, laid_out + np.float32(1))
        elif laid_out.ndim == 1 or "norm" in name or "position_embd" in name or "gate_inp" in name:
            writer.add_tensor(name, laid_out)
        else:
            packed, kind = pack(name, laid_out)
            writer.add_tensor(name, packed, raw_dtype=kind)
            values = gguf.quants.dequantize(packed, kind).reshape(laid_out.shape)
            whole = np.empty(x.shape, np.float32)  # where each number of the folder has gone
            at = _laid_out(config, key, np.arange(x.size).reshape(x.shape)).ravel()
            whole.ravel()[at] = values.ravel()
            parts = [whole] if names == [key] else list(whole)
            tensors |= dict(zip(names, parts, strict=True))
    for name, x in _extra(config).items():
        writer.add_tensor(name, x)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file({name: torch.from_numpy(x).contiguous() for name, x in tensors.items()}, folder / "model.safetensors")
    return {f"{arch}.{key}": value for key, value in said.items()}


def small(file: Path) -> None:
    """A model of one layer with a tokenizer of bytes."""
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=260,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
    )
    with TemporaryDirectory() as folder:
        transformers.LlamaForCausalLM(config).save_pretrained(folder)
        converted(Path(folder), file, more=byte_tokenizer())


def split(file: Path, paths: Sequence[Path]) -> None:
    """Write the model of a file in parts: the keys in the first one, the tensors by turns."""
    reader = gguf.GGUFReader(file)
    for i, path in enumerate(paths):
        writer = gguf.GGUFWriter(path, "llama")
        for field in reader.fields.values() if i == 0 else ():
            if field.name.startswith(("llama.", "tokenizer.")):
                inner = field.types[1] if len(field.types) > 1 else None
                writer.add_key_value(field.name, field.contents(), field.types[0], inner)
        writer.add_key_value("split.no", i, gguf.GGUFValueType.UINT16)
        writer.add_key_value("split.count", len(paths), gguf.GGUFValueType.UINT16)
        for tensor in reader.tensors[i :: len(paths)]:
            writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
        for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
            write()


def _name(table: Any, kind: str, key: str) -> str:
    """The file's name of a tensor of the folder, by the package's table."""
    key = key.removeprefix("transformer.") if kind == "bloom" else key
    key = re.sub(r"block_sparse_moe\.experts\.(w\d)", r"feed_forward.experts.\1", key) if kind == "mixtral" else key
    result = table.get_name(key, try_suffixes=(".weight", ".bias"))
    if result is None and kind == "mixtral":
        result = table.get_name(key.removeprefix("model."), try_suffixes=(".weight", ".bias"))
    assert result is not None, f"no name for {key}"
    return result


def random_blocks(kind: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Bytes of a packed kind for numbers of this shape, at random, with scales near 0.01."""
    rng = np.random.default_rng(5)
    theirs, rows = Kind(kind.id), int(np.prod(shape[:-1]))
    n = shape[-1] // kind.block
    data = rng.integers(0, 256, (rows, n, kind.nbytes), dtype=np.uint8)
    scale = lambda: rng.uniform(0.005, 0.02, (rows, n, 1)).astype(np.float16).view(np.uint8)
    first = {"Q2_K": 80, "Q3_K": 108, "Q6_K": 208, "TQ1_0": 52, "TQ2_0": 64}.get(theirs.name, 0)
    if theirs.name == "IQ1_M":  # whose scale lies in the upper bits of four numbers
        data[..., 49::2] = data[..., 49::2] & 0x0F | np.array([0x00, 0x20, 0x10, 0x20], np.uint8)
    elif theirs.name in ("MXFP4", "NVFP4"):
        data[..., : 1 if theirs.name == "MXFP4" else 4] = 122 if theirs.name == "MXFP4" else 0x20
    else:
        data[..., first : first + 2] = scale()
        if theirs.name in ("Q4_1", "Q5_1", "Q4_K", "Q5_K"):
            data[..., 2:4] = scale()
        if theirs.name == "Q2_K":
            data[..., 82:84] = scale()
    return data.reshape(*shape[:-1], n * kind.nbytes)


def byte_tokenizer(**more: Any) -> dict[str, Any]:
    """Keys of a byte-level tokenizer of 260 tokens: two merges, and two special tokens at the end."""
    plain_bytes = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(b) for b in plain_bytes] + [chr(256 + i) for i in range(256 - len(plain_bytes))]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*letters, "th", "the", "<|bos|>", "<|user|>"],
        "tokenizer.ggml.token_type": [1] * 258 + [3, 4],
        "tokenizer.ggml.merges": ["t h", "th e"],
        "tokenizer.ggml.bos_token_id": 258,
        **{f"tokenizer.ggml.{name}": value for name, value in more.items()},
    }
