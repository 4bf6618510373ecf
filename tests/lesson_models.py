"""Small random models under the names that lessons open: same vocabulary, same heads, toy trainings that were measured."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.torch import save_file

from circuitlab.model.config import ModelConfig
from circuitlab.model.records.series_measures import HEAD_ARRAYS, SeriesMeasures, write_series
from circuitlab.model.saving import random_tensors, save_directory
from circuitlab.model.text.tokenizer import Tokenizer
from tests.models import FULL, TINY

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ROOT / "models" / "attn-only-2l"
WIDTH, VOCABULARY = 24, json.loads((SHIPPED / "config.json").read_text())["d_vocab"]
SHAPE = {"n_heads": 4, "d_model": WIDTH, "d_head": 6, "d_vocab": VOCABULARY, "d_vocab_out": VOCABULARY, "n_ctx": 256}


def _heads_of(shipped: str) -> dict[str, int]:
    """As many heads as a shipped model has: lessons name some."""
    n_heads = json.loads((ROOT / "models" / shipped / "config.json").read_text())["n_heads"]
    return {"n_heads": n_heads, "d_head": WIDTH // n_heads}


# with these draws the heads that look back one position and at their own stand in the first layer, and the one that matches
# prefixes best in the last, as in the model that was trained; a draw depends on the sizes
SEEDS = {4: 10, 12: 2}  # by the number of heads
# (configuration, seed)
MODELS: dict[str, tuple[ModelConfig, int]] = {
    "attn-only-0l": (replace(TINY, n_layers=0, **SHAPE), 0),
    "attn-only-1l": (replace(TINY, n_layers=1, **SHAPE | _heads_of("attn-only-1l")), 0),
    "attn-only-1l-smeared": (replace(TINY, n_layers=1, smeared_keys=True, **SHAPE), 0),
    "attn-only-2l": (replace(TINY, n_layers=2, **SHAPE | _heads_of("attn-only-2l")), SEEDS[_heads_of("attn-only-2l")["n_heads"]]),
    "attn-only-2l-smeared": (replace(TINY, n_layers=2, smeared_keys=True, **SHAPE), 7),
    "gpt-mini": (replace(FULL, n_layers=4, d_mlp=32, **SHAPE), 74),
    # heads and groups of the catalogue's model, which the shipped ones have not
    "smollm2-135m": (
        replace(FULL, n_layers=30, d_mlp=32, **SHAPE | {"n_heads": 9, "n_kv_heads": 3, "d_model": 36, "d_head": 4}),
        0,
    ),
}
STEPS = (0, 64, 256, 1024, 2000, 3000, 3500, 4000, 4500, 5000, 7000)
# dense about the change, as the shipped series of the two-layer model is
LONG = (0, 64, 128, 256, 512, 1024, 2048, 2500, *range(3000, 6001, 250), 6500, 7000, 8192)
SAID = {"texts": 4, "context": 128, "early": [12, 24], "late": [116, 127], "block": 50, "samples": 2, "seed": 1, "half": 63}
SAID |= {"tokens": 64, "tokens_position": 127, "tokens_seed": 2, "sha256": {"tokens": "same", "held_out": "same"}}


def write_models(folder: Path) -> Path:
    """All of `MODELS` as directories in a folder, each with a series, a tokenizer and the counted bigrams."""
    tokenizer = Tokenizer.from_file(SHIPPED / "tokenizer.json")
    for name, (config, seed) in MODELS.items():
        save_directory(folder / name, config, random_tensors(config, seed, 0.35), tokenizer)
        shutil.copy(SHIPPED / "bigrams.safetensors", folder / name)
        (folder / name / "checkpoints").mkdir()
        kept = LONG if name == "attn-only-2l" else STEPS
        for i, step in enumerate(kept):
            tensors = {n: t.half() for n, t in random_tensors(config, 100 * seed + i, 0.05 + 0.3 * i / len(kept)).items()}
            save_file(tensors, folder / name / "checkpoints" / f"step-{step:06d}.safetensors")
        _measure(folder / name, config, seed, kept)
    return folder


def _measure(folder: Path, config: ModelConfig, seed: int, kept: tuple[int, ...]) -> None:
    """A phase change at step 4000, the same in all of them but for a little noise."""
    steps, rng = np.array([*kept, 14000]), np.random.default_rng(seed)
    risen = 1 / (1 + np.exp(-(steps - 4000) / 300))
    noise = lambda *shape: 0.01 * rng.standard_normal((len(steps), *shape))
    falling = lambda n, late: (8.3 - 4 * (steps / 14000) ** 0.3)[:, None] - 3 * risen[:, None] * (np.arange(n) >= late) + noise(n)
    heads = (config.n_layers, config.n_heads)
    arrays = {name: np.abs(risen[:, None, None] * rng.random(heads) + noise(*heads)) for name in HEAD_ARRAYS}
    arrays |= {"loss_by_index": falling(127, 30), "repeated_loss_by_index": falling(100, 50)}
    arrays |= {"repeated_text_loss_by_index": falling(126, 63), "token_loss": falling(64, 20), "loss": falling(1, 0)[:, 0]}
    arrays |= {"early_by_text": falling(40, 40), "late_by_text": falling(40, 0)}
    arrays = {name: a.astype(np.float32) for name, a in arrays.items()}
    every = tuple(int(s) for s in steps)
    points = (*range(len(kept)), None)
    write_series(folder, SeriesMeasures(every, tuple(2048 * s for s in every), points, arrays, SAID))
