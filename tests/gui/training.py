"""A model with a training behind it: checkpoints with weights of their own, and what was measured of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from circuitlab.model.config import ModelConfig
from circuitlab.model.records.series_measures import HEAD_ARRAYS, SeriesMeasures, write_series
from circuitlab.model.subject import ModelRef
from tests.models import TINY, random_tensors
from tests.series_files import keep

TOKENS = 1000  # a step


def checkpoints(folder: Path, steps: tuple[int, ...] = (0, 100, 200, 300, 400), config: ModelConfig = TINY) -> list[ModelRef]:
    """Checkpoints beside a model's final weights; their references."""
    keep(folder, {step: random_tensors(config, 10 + i, 0.35) for i, step in enumerate(steps)})
    return [ModelRef(f"file:{folder}", i) for i in range(len(steps))]


def measures(folder: Path, steps: tuple[int, ...], final: int, fall: int) -> None:
    """What was measured at checkpoints of these steps and of the final weights: the repeated loss falls by 3 nats behind the
    point `fall`.
    """
    n = len(steps) + 1
    repeated = np.full((n, 8), 4.0)
    repeated[fall + 1 :, 4:] = 1.0
    flat = {name: np.full((n, 6), 4.0) for name in ("loss_by_index", "repeated_text_loss_by_index", "token_loss")}
    heads = {name: np.zeros((n, TINY.n_layers, TINY.n_heads)) for name in HEAD_ARRAYS}
    arrays = {**flat, **heads, "loss": np.full(n, 4.0), "repeated_loss_by_index": repeated}
    arrays = {name: a.astype(np.float32) for name, a in arrays.items()}
    every = (*steps, final)
    write_series(folder, SeriesMeasures(every, tuple(TOKENS * s for s in every), (*range(len(steps)), None), arrays, {}))
