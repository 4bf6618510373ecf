"""Writing a model in CircuitLab's own directory form: config.json, model.safetensors, tokenizer.json, card.md."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from circuitlab.model.config import ModelConfig
from circuitlab.model.sourced import check_shapes
from circuitlab.model.tensors import ResidentTensors
from circuitlab.model.tokenizer import Tokenizer

FORMAT = "circuitlab-1"


def save_directory(
    path: Path, config: ModelConfig, tensors: Mapping[str, Tensor], tokenizer: Tokenizer | None = None, card: str = ""
) -> None:
    """Write a model directory; files are replaced whole. Raises `BadModel` where tensors do not fit `config`."""
    check_shapes(config, ResidentTensors(tensors))
    path.mkdir(parents=True, exist_ok=True)
    plain = {name: value.detach().contiguous().cpu() for name, value in tensors.items()}
    _replace(path / "model.safetensors", lambda fresh: save_file(plain, str(fresh), metadata={"format": FORMAT}))
    config_text = json.dumps({"format": FORMAT, **config.to_json()}, indent=1)
    _replace(path / "config.json", lambda fresh: fresh.write_text(config_text + "\n", encoding="utf-8"))
    if tokenizer is not None:
        _replace(path / "tokenizer.json", tokenizer.save)
    if card:
        _replace(path / "card.md", lambda fresh: fresh.write_text(card, encoding="utf-8"))


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write beside, then take its place."""
    fresh = path.with_name(path.name + ".new")
    write(fresh)
    os.replace(fresh, path)


def random_tensors(config: ModelConfig, seed: int = 0, scale: float = 0.1) -> dict[str, Tensor]:
    """Random weights of the right shapes (gains near 1), for tests and benchmarks."""
    from circuitlab.model.sourced import expected_shapes

    generator = torch.Generator().manual_seed(seed)
    made: dict[str, Tensor] = {}
    for name, shape in expected_shapes(config).items():
        value = torch.randn(shape, generator=generator) * scale
        made[name] = 1 + value if name.endswith(".gain") else value
    return made
