"""Checkpoints beside a model's weights, and a measured series with empty files in their place: who reads measures opens none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from circuitlab.model.records.series import FOLDER
from circuitlab.model.records.series_measures import SeriesMeasures, write_series


def lay_beside(folder: Path, measures: SeriesMeasures, weights: bool = False) -> None:
    """Write the measures, and an empty file for each checkpoint that they say was kept; with `weights` the final ones."""
    write_series(folder, measures)
    (folder / FOLDER).mkdir(exist_ok=True)
    for step, kept in zip(measures.steps, measures.checkpoints, strict=True):
        if kept is not None and kept >= 0:
            place = folder / FOLDER / f"step-{step:06d}.safetensors"
            place.write_bytes((folder / "model.safetensors").read_bytes() if weights else b"")


def keep(folder: Path, checkpoints: Mapping[int, Mapping[str, torch.Tensor]]) -> None:
    """Write checkpoints, tensors by step."""
    (folder / FOLDER).mkdir()
    for step, tensors in checkpoints.items():
        save_file(dict(tensors), folder / FOLDER / f"step-{step:06d}.safetensors")


def keep_scaled(folder: Path, factors: Mapping[int, float], dtype: torch.dtype = torch.float16) -> None:
    """Write checkpoints that are the final weights times a factor each, by step."""
    final = load_file(folder / "model.safetensors")
    keep(folder, {step: {n: (t * factor).to(dtype) for n, t in final.items()} for step, factor in factors.items()})
