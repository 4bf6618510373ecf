"""CircuitLab's own directories: `config.json` with `"format": "circuitlab-1"`, canonical tensor names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from circuitlab.model.config import ModelConfig
from circuitlab.model.loading.family import Family, Keep, Opened, find_tokenizer
from circuitlab.model.saving import FORMAT
from circuitlab.model.sourced import CanonicalParts, SourcedWeights
from circuitlab.model.tensors import MappedTensors, copied


def _load(path: Path, config: dict[str, Any], keep: Keep) -> Opened:
    fields = {name: value for name, value in config.items() if name != "format"}
    made = ModelConfig.from_json(fields)
    file = path / "model.safetensors"
    mapped = MappedTensors(file)
    parts = CanonicalParts(made, mapped)  # shapes are checked before anything is copied
    if keep == "resident":
        parts = CanonicalParts(made, copied(mapped))
    card = path / "card.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    return Opened(SourcedWeights(made, find_tokenizer(path), parts), (), (file,), text, "CircuitLab")


FAMILY = Family("circuitlab", "a CircuitLab directory", lambda c: c.get("format") == FORMAT, _load)
