"""A model's checkpoint series: the weights of earlier training steps, in `checkpoints/step-N.safetensors` beside the final ones.

Tensors have the names and shapes of the final weights; they may be stored in half precision. Those of a shipped model may
also lie in the person's data folder (`circuitlab get`), as if they were beside its weights.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from circuitlab.errors import BadModel, cause
from circuitlab.model.archives.index import FOLDER, STEP, archive_of
from circuitlab.model.archives.offering import need_checkpoints
from circuitlab.model.files.strict_json import read_object
from circuitlab.model.origin import File
from circuitlab.model.subject import ModelRef

METRICS = "metrics.json"  # a training's metrics of the final weights, beside them
_OTHERWISE = "Leave out the checkpoint to use the final weights; `circuitlab info MODEL` lists the steps."


def series_of(folder: Path) -> tuple[tuple[int, Path], ...]:
    """(step, file) of every checkpoint, in the order of training; () where there is no series. Raises `BadModel`."""
    archive = archive_of(folder)
    fetched = {} if archive is None else _steps_in(archive.fetched_folder / FOLDER)
    return tuple(sorted((fetched | _steps_in(folder / FOLDER)).items()))


def _steps_in(place: Path) -> dict[int, Path]:
    try:
        names = os.listdir(place) if place.is_dir() else []
    except OSError as error:
        raise BadModel(
            "The checkpoints cannot be listed.",
            expected="a readable folder",
            got=cause(error),
            remedy=_OTHERWISE,
        ) from error
    return {int(match[1]): place / name for name in names if (match := STEP.fullmatch(name))}


def index_of(steps: Sequence[int], step: int) -> int:
    """The index of the checkpoint of a training step. Raises `BadModel` listing the available steps."""
    if not steps:
        raise BadModel(
            "This model has no checkpoint series.",
            expected=f"{FOLDER}/step-N.safetensors in its folder",
            got=f"step {step}",
            remedy="Ask for its final weights, or open a model with checkpoints.",
        )
    if step not in steps:
        available = f"final, or one of {' '.join(map(str, steps))}"
        raise BadModel(
            "No checkpoint was kept at that step.",
            expected=available,
            got=str(step),
            remedy=_OTHERWISE,
        )
    return list(steps).index(step)


def final_step(folder: Path) -> int | None:
    """The training step of a model's final weights, None where no file states it. Raises `BadModel` for a damaged file."""
    path = folder / METRICS
    step = read_object(path).get("step") if path.is_file() else None
    return step if isinstance(step, int) and not isinstance(step, bool) and step >= 0 else None


def checkpoint_of(folder: Path, index: int) -> Path:
    """The weights of one checkpoint; a negative index counts from the last one. Raises `BadModel`."""
    points = series_of(folder)
    if not points:
        need_checkpoints(ModelRef.of(File(str(folder))), f"checkpoint {index}")
        raise BadModel(
            "This model has no checkpoint series.",
            expected=f"{FOLDER}/step-N.safetensors in its folder",
            got=f"checkpoint {index}",
            remedy=_OTHERWISE,
        )
    if not -len(points) <= index < len(points):
        raise BadModel(
            "There is no such checkpoint.",
            expected=f"0..{len(points) - 1}",
            got=str(index),
            remedy="This counts checkpoints; by training step it is --checkpoint STEP, or Model.at_step(STEP) in Python.",
        )
    return points[index][1]
