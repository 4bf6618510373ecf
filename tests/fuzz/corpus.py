"""The small valid models that are mutated, one of each kind of file that CircuitLab reads."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from circuitlab.model.config import Rotary
from tests.gguf_files import Kind, byte_tokenizer, converted, plain
from tests.hooked_models import held_in, own_form, plain_values
from tests.models import TINY, directory

SMALL = replace(TINY, n_heads=2, n_kv_heads=2, d_model=8, d_head=4, d_vocab=260, n_ctx=12)
_GPT2: dict[str, Any] = {"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 8, "vocab_size": 11, "n_positions": 12}
_LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 2,
    "intermediate_size": 12,
    "vocab_size": 11,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
}


def _made(shapes: dict[str, tuple[int, ...]], dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)
    return {name: (0.3 * torch.randn(shape, generator=generator)).to(dtype) for name, shape in shapes.items()}


def gpt2_tensors() -> dict[str, Tensor]:
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (11, 8), "wpe.weight": (12, 8), "ln_f.weight": (8,), "ln_f.bias": (8,)}
    widths = {"attn.c_attn": (8, 24), "attn.c_proj": (8, 8), "mlp.c_fc": (8, 32), "mlp.c_proj": (32, 8)}
    for i in range(2):
        for name, shape in widths.items():
            shapes |= {f"h.{i}.{name}.weight": shape, f"h.{i}.{name}.bias": shape[1:]}
        for name in ("ln_1", "ln_2"):
            shapes |= {f"h.{i}.{name}.weight": (8,), f"h.{i}.{name}.bias": (8,)}
    return _made(shapes)


def llama_tensors(dtype: torch.dtype) -> dict[str, Tensor]:
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (11, 8),
        "model.norm.weight": (8,),
        "lm_head.weight": (11, 8),
    }
    widths = {"self_attn.q_proj": (8, 8), "self_attn.k_proj": (4, 8), "self_attn.v_proj": (4, 8), "self_attn.o_proj": (8, 8)}
    widths |= {"mlp.gate_proj": (12, 8), "mlp.up_proj": (12, 8), "mlp.down_proj": (8, 12)}
    for i in range(2):
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in widths.items()}
        shapes |= {f"model.layers.{i}.{name}.weight": (8,) for name in ("input_layernorm", "post_attention_layernorm")}
    return _made(shapes, dtype)


def _config(path: Path, config: dict[str, Any]) -> None:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config, indent=1))


def _shards(
    path: Path, tensors: dict[str, Tensor], stem: str, ending: str, save: Callable[[dict[str, Tensor], Path], None]
) -> None:
    names = sorted(tensors)
    halves = {f"{stem}-00001-of-00002{ending}": names[::2], f"{stem}-00002-of-00002{ending}": names[1::2]}
    for file, part in halves.items():
        save({n: tensors[n] for n in part}, path / file)
    table = {name: file for file, part in halves.items() for name in part}
    index = json.dumps({"metadata": {"total_size": 1}, "weight_map": table}, indent=1)
    (path / f"{stem}{ending}.index.json").write_text(index)


def _circuitlab(path: Path) -> Path:
    return directory(path, SMALL)


def _circuitlab_rotary(path: Path) -> Path:
    return directory(path, SMALL, tokenizer=False, positions="rotary", rotary=Rotary(), norm="layer", d_mlp=12, windows=(2, 0))


def _gpt2(path: Path) -> Path:
    _config(path, _GPT2)
    save_file(gpt2_tensors(), path / "model.safetensors")
    return path


def _gpt2_sharded(path: Path) -> Path:
    _config(path, _GPT2)
    _shards(path, gpt2_tensors(), "model", ".safetensors", save_file)
    return path


def _gpt2_bin(path: Path, **how: Any) -> Path:
    _config(path, _GPT2)
    torch.save(gpt2_tensors(), path / "pytorch_model.bin", **how)
    return path


def _gpt2_bin_older(path: Path) -> Path:
    return _gpt2_bin(path, _use_new_zipfile_serialization=False)


def _gpt2_bin_sharded(path: Path) -> Path:
    _config(path, _GPT2)
    _shards(path, gpt2_tensors(), "pytorch_model", ".bin", torch.save)
    return path


def _llama(path: Path, dtype: torch.dtype = torch.bfloat16) -> Path:
    _config(path, _LLAMA)
    save_file(llama_tensors(dtype), path / "model.safetensors")
    return path


def _llama_pt(path: Path) -> Path:
    _config(path, _LLAMA)
    torch.save(llama_tensors(torch.float16), path / "weights.pt")
    return path


def _nano(path: Path) -> Path:
    path.mkdir(parents=True)
    args = {"n_layer": 2, "n_head": 2, "n_embd": 8, "block_size": 12, "bias": True, "vocab_size": 11, "dropout": 0.0}
    tensors = {}
    for name, value in gpt2_tensors().items():
        turned = value.T.contiguous() if "c_" in name and name.endswith("weight") else value
        tensors[f"_orig_mod.transformer.{name}"] = turned
    tensors["_orig_mod.lm_head.weight"] = tensors["_orig_mod.transformer.wte.weight"]
    torch.save({"model": tensors, "model_args": args, "iter_num": 3, "best_val_loss": torch.tensor(1.0)}, path / "ckpt.pt")
    return path / "ckpt.pt"


def _llama2c(path: Path) -> Path:
    path.mkdir(parents=True)
    dim, hidden, layers, heads, groups, vocab, length = 8, 12, 2, 2, 1, 11, 16
    kv = dim // heads * groups
    n = vocab * dim + layers * (2 * dim + 2 * dim * dim + 2 * dim * kv + 3 * dim * hidden) + dim + length * (dim // heads)
    values = 0.3 * torch.randn(n, generator=torch.Generator().manual_seed(6))
    head = struct.pack("<7i", dim, hidden, layers, heads, groups, vocab, length)
    (path / "model.bin").write_bytes(head + values.numpy().tobytes())
    return path / "model.bin"


def _gguf(path: Path) -> Path:
    """Llama in packed kinds, with a tokenizer of bytes."""
    folder = path.with_name(f"{path.name}-folder")
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 32, "vocab_size": 260}
    _config(folder, {**{k: v for k, v in _LLAMA.items() if k != "rope_scaling"}, **sizes})
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (260, 32), "model.norm.weight": (32,)}
    for i in range(2):
        at = f"model.layers.{i}."
        shapes |= {f"{at}self_attn.{x}_proj.weight": (16 if x in "kv" else 32, 32) for x in "qkvo"}
        shapes |= {f"{at}mlp.{x}_proj.weight": (32, 32) for x in ("gate", "up", "down")}
        shapes |= {f"{at}{x}_layernorm.weight": (32,) for x in ("input", "post_attention")}
    save_file(_made(shapes), folder / "model.safetensors")
    path.mkdir()
    kinds = (Kind.Q8_0, Kind.Q4_0, Kind.F16)
    converted(folder, path / "model.gguf", lambda name, x: plain(kinds[len(name) % 3])(name, x), more=byte_tokenizer())
    return path / "model.gguf"


def _transformer_lens(path: Path) -> Path:
    """As its author's own models are on the hub."""
    return own_form(path, "shortformer")


def _transformer_lens_pt(path: Path) -> Path:
    """A state dict with its configuration in one pickle."""
    path.mkdir(parents=True)
    held = held_in("gelu")
    torch.save({"model": held["model"], "cfg": plain_values(held["cfg"])}, path / "hooked.pt")
    return path / "hooked.pt"


CORPUS: dict[str, Callable[[Path], Path]] = {
    "circuitlab": _circuitlab,
    "circuitlab-rotary": _circuitlab_rotary,
    "gpt2": _gpt2,
    "gpt2-sharded": _gpt2_sharded,
    "gpt2-bin": _gpt2_bin,
    "gpt2-bin-older": _gpt2_bin_older,
    "gpt2-bin-sharded": _gpt2_bin_sharded,
    "llama-bf16": _llama,
    "llama-pt-f16": _llama_pt,
    "nano": _nano,
    "llama2c": _llama2c,
    "gguf": _gguf,
    "transformer-lens": _transformer_lens,
    "transformer-lens-pt": _transformer_lens_pt,
}
