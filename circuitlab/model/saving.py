"""Writing a model in CircuitLab's own directory form: config.json, model.safetensors, tokenizer.json, card.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from circuitlab.disk.files import made_folder, whole, write_whole
from circuitlab.model.config import ModelConfig
from circuitlab.model.files.tensors import ResidentTensors
from circuitlab.model.lazy_weights import check_shapes, expected_shapes
from circuitlab.model.text.tokenizer import Tokenizer

FORMAT = "circuitlab-1"
ORIGIN = "import.json"  # of an imported model: its source and the assumptions


def save_directory(
    path: Path, config: ModelConfig, tensors: Mapping[str, Tensor], tokenizer: Tokenizer | None = None, card: str = ""
) -> None:
    """Write a model directory; files are replaced whole. Raises `BadModel` where tensors do not fit `config`,
    `BadMachine` where they cannot be written."""
    check_shapes(config, ResidentTensors(tensors))
    made_folder(path)
    plain = {name: value.detach().contiguous().cpu() for name, value in tensors.items()}
    with whole(path / "model.safetensors") as fresh:
        save_file(plain, str(fresh), metadata={"format": FORMAT})
    config_text = json.dumps({"format": FORMAT, **config.to_json()}, indent=1)
    write_whole(path / "config.json", (config_text + "\n").encode())
    if tokenizer is not None:
        tokenizer.save(path / "tokenizer.json")
    if card:
        write_whole(path / "card.md", card.encode())


def random_tensors(config: ModelConfig, seed: int = 0, scale: float = 0.1) -> dict[str, Tensor]:
    """Random weights of the right shapes (gains near 1), for tests and benchmarks."""
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    for name, shape in expected_shapes(config).items():
        value = torch.randn(shape, generator=generator) * scale
        tensors[name] = 1 + value if name.endswith(".gain") else value
    return tensors
