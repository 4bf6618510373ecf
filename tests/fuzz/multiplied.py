"""Configurations and names whose sizes are each within bounds, and their product is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file


def _model(folder: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Path:
    folder.mkdir(parents=True)
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


_MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_key_value_heads": 2,
    "vocab_size": 8, "max_position_embeddings": 8, "num_experts_per_tok": 1, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
}  # fmt: skip
_ONE = {"model.embed_tokens.weight": torch.zeros(8, 8)}
_HOOKED = {"embed.W_E": torch.zeros(8, 4), "unembed.W_U": torch.zeros(4, 8), "pos_embed.W_pos": torch.zeros(8, 4)}
_LECTURE = {"token_embedding_table.weight": torch.zeros(8, 4), "lm_head.weight": torch.zeros(8, 4)}
_HEADS = {f"blocks.0.sa.heads.0.{k}.weight": torch.zeros(4, 4) for k in ("key", "query", "value")}


def multiplied(folder: Path) -> dict[str, Path]:
    """Sizes whose product no file has."""
    most, layers = {"num_hidden_layers": 10_000}, {"num_hidden_layers": 2}
    fused = {f"model.layers.0.mlp.experts.{n}": torch.zeros(1, 1, 1) for n in ("gate_up_proj", "down_proj")}
    made = {
        "layers × experts": (_MIXTRAL | most | {"num_local_experts": 60_000}, _ONE),
        "layers × experts, within the bound": (_MIXTRAL | most | {"num_local_experts": 13}, _ONE),
        "experts": (_MIXTRAL | layers | {"num_local_experts": 60_000}, _ONE),
        "experts in one tensor": (_MIXTRAL | layers | {"num_local_experts": 60_000}, _ONE | fused),
        "layers": (_MIXTRAL | most | {"model_type": "llama"}, _ONE),
        "layers × heads": (
            {
                "model_type": "stablelm", "hidden_size": 60_000, "intermediate_size": 8, "num_attention_heads": 60_000,
                "num_key_value_heads": 60_000, "vocab_size": 8, "max_position_embeddings": 8, "qk_layernorm": True,
                "partial_rotary_factor": 0.0, "layer_norm_eps": 1e-5, "rope_theta": 1e4,
            } | most,
            _ONE,
        ),
        "a far block": ({}, _HOOKED | {"blocks.99999999999.attn.W_Q": torch.zeros(2, 4, 2)}),
        "a far block and a near one": (
            {}, _HOOKED | {f"blocks.{i}.attn.W_{k}": torch.zeros(1, 4, 4) for i in (0, 99_999_999_999) for k in "QKVO"},
        ),
        "a far head": ({}, _LECTURE | _HEADS | {"blocks.0.sa.heads.99999999999.key.weight": torch.zeros(1, 1)}),
        "a far block of the lecture": ({}, _LECTURE | _HEADS | {"blocks.99999999999.sa.heads.0.key.weight": torch.zeros(1, 1)}),
        "far blocks × far heads": ({}, _LECTURE | _HEADS | {"blocks.9999.sa.heads.60000.key.weight": torch.zeros(1, 1)}),
        "canonical": (
            {
                "format": "circuitlab-1", "n_layers": 10_000, "n_heads": 1, "d_model": 8, "d_head": 8, "d_vocab": 8, "n_ctx": 8,
                "d_mlp": 8, "gated": True, "experts": {"n": 60_000, "active": 1},
            },
            _ONE,
        ),
    }  # fmt: skip
    return {name: _model(folder / str(i), *one) for i, (name, one) in enumerate(made.items())}
