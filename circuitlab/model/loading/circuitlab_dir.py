"""CircuitLab's own directories: `config.json` with `"format": "circuitlab-1"`, canonical tensor names."""

from __future__ import annotations

from pathlib import Path

from circuitlab.errors import BadModel, quoted
from circuitlab.model.config import ModelConfig
from circuitlab.model.files.tensors import copied
from circuitlab.model.lazy_weights import CanonicalParts, LazyWeights
from circuitlab.model.loading.checkpoint import Checkpoint, read_json
from circuitlab.model.loading.family import Family, Keep, Opened, find_tokenizer
from circuitlab.model.saving import FORMAT, ORIGIN

_LONGEST_CARD = 2**20  # characters


def _load(checkpoint: Checkpoint, keep: Keep) -> Opened:
    config = ModelConfig.from_json({name: value for name, value in checkpoint.config.items() if name != "format"})
    mapped = checkpoint.needed()
    parts = CanonicalParts(config, mapped)  # shapes are checked before anything is copied
    if keep == "resident":
        parts = CanonicalParts(config, copied(mapped))
    notes, weights = _origin(checkpoint.folder), LazyWeights(config, find_tokenizer(checkpoint.folder), parts)
    return Opened(weights, notes, checkpoint.files, card_of(checkpoint.folder), "CircuitLab")


def _origin(folder: Path) -> tuple[str, ...]:
    """Notes on what an import assumed; () for other models."""
    if not (folder / ORIGIN).is_file():
        return ()
    origin = read_json(folder / ORIGIN)
    if not all(isinstance(origin.get(name, []), list) for name in ("assumed", "unseen")):
        raise BadModel(f"{ORIGIN} cannot be read.", expected="lists of what was assumed", got=quoted(origin))
    listed = lambda name: [str(x)[:200] for x in origin.get(name) or () if isinstance(x, str)][:40]
    lines = [f"imported from {str(origin.get('from'))[:100]}"]
    lines += [f"assumed at its import: {', '.join(listed('assumed'))}"] if listed("assumed") else []
    return (*lines, *(f"not visible from shapes at its import: {x}" for x in listed("unseen")))


def card_of(folder: Path) -> str:
    """The text of the folder's `card.md`, "" without one."""
    card = folder / "card.md"
    if not card.is_file():
        return ""
    with card.open(encoding="utf-8", errors="replace") as file:
        return file.read(_LONGEST_CARD)


FAMILY = Family("circuitlab", "a CircuitLab directory", lambda f: f.config.get("format") == FORMAT, _load)
