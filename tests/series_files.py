"""A measured series beside a model, with files in place of its checkpoints: nothing that reads the measures opens them."""

from __future__ import annotations

from pathlib import Path

from circuitlab.model.series import FOLDER
from circuitlab.model.series_measures import SeriesMeasures, write_series


def lay_beside(folder: Path, measures: SeriesMeasures) -> None:
    """Write the measures, and an empty file for each checkpoint that they say was kept."""
    write_series(folder, measures)
    (folder / FOLDER).mkdir(exist_ok=True)
    for step, kept in zip(measures.steps, measures.checkpoints, strict=True):
        if kept is not None and kept >= 0:
            (folder / FOLDER / f"step-{step:06d}.safetensors").touch()
