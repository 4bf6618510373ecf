"""CircuitLab's own directories: `config.json` with `"format": "circuitlab-1"`, canonical tensor names."""

from __future__ import annotations

from pathlib import Path

from circuitlab.model.config import ModelConfig
from circuitlab.model.loading.family import Family, Keep, Opened, find_tokenizer
from circuitlab.model.loading.found import Found
from circuitlab.model.saving import FORMAT
from circuitlab.model.sourced import CanonicalParts, SourcedWeights
from circuitlab.model.tensors import copied

_LONGEST_CARD = 2**20  # characters


def _load(found: Found, keep: Keep) -> Opened:
    made = ModelConfig.from_json({name: value for name, value in found.config.items() if name != "format"})
    mapped = found.needed()
    parts = CanonicalParts(made, mapped)  # shapes are checked before anything is copied
    if keep == "resident":
        parts = CanonicalParts(made, copied(mapped))
    return Opened(SourcedWeights(made, find_tokenizer(found.folder), parts), (), found.files, card_of(found.folder), "CircuitLab")


def card_of(folder: Path) -> str:
    """The text of the folder's `card.md`, "" without one."""
    card = folder / "card.md"
    if not card.is_file():
        return ""
    with card.open(encoding="utf-8", errors="replace") as file:
        return file.read(_LONGEST_CARD)


FAMILY = Family("circuitlab", "a CircuitLab directory", lambda f: f.config.get("format") == FORMAT, _load)
