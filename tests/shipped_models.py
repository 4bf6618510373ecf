"""What the models that ship are, read from their files: sizes, and which head does what by what training measured."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from circuitlab.disk.paths import model_dir
from circuitlab.model.subject import Head

TWO = "attn-only-2l"


def config_of(name: str) -> dict[str, Any]:
    """Sizes under the names of this package's format, of GPT-2's file too."""
    said = json.loads((model_dir(name) / "config.json").read_text(encoding="utf-8"))
    if "n_layer" not in said:
        return said
    sizes = {"n_layers": "n_layer", "n_heads": "n_head", "d_model": "n_embd", "d_vocab": "vocab_size", "n_ctx": "n_positions"}
    return {own: said[theirs] for own, theirs in sizes.items()}


def heads_of(name: str) -> list[Head]:
    """Layer by layer."""
    c = config_of(name)
    return [Head(layer, head) for layer in range(c["n_layers"]) for head in range(c["n_heads"])]


def score_of(name: str, score: str) -> np.ndarray:
    """[layer, head] as training measured the final weights on repeated random tokens."""
    return np.array(json.loads((model_dir(name) / "metrics.json").read_text(encoding="utf-8"))["heads"][score])


def best(name: str, score: str) -> Head:
    """The head of the largest score."""
    scores = score_of(name, score)
    layer, head = np.unravel_index(scores.argmax(), scores.shape)
    return Head(int(layer), int(head))


def induction_head(name: str = TWO) -> Head:
    return best(name, "prefix_matching")


def previous_token_head(name: str = TWO) -> Head:
    return best(name, "previous_token")
