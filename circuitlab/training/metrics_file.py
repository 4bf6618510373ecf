"""`metrics.json`: the metrics measured during training, written and read here.

    OUT/metrics.json          {"recipe", "seed", "checkpoints": [{"step", "tokens", …}, …]}, replaced at every checkpoint
    OUT/model/metrics.json    {"step", "tokens", …} of the exported weights

The other entries are explained in `training/metrics.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

from circuitlab.disk.json_types import JsonDict
from circuitlab.model.loading.checkpoint import read_json
from circuitlab.training.files import write_whole
from circuitlab.training.recipe import Recipe

FILE = "metrics.json"


def write_run(out: Path, recipe: Recipe, history: list[dict[str, object]]) -> None:
    """Write the metrics of all checkpoints of a run. Raises `BadMachine`."""
    text = json.dumps({"recipe": recipe.name, "seed": recipe.seed, "checkpoints": history})
    write_whole(out / FILE, text.encode())


def write_model(folder: Path, metrics: dict[str, object]) -> None:
    """Write the metrics of the weights of a model folder. Raises `BadMachine`."""
    write_whole(folder / FILE, (json.dumps(metrics, indent=1) + "\n").encode())


def tokens_by_step(folder: Path) -> dict[int, int]:
    """Step -> tokens seen, as stated in a model folder and in the run that contains it. Raises `BadModel` for a damaged file."""
    by_step: dict[int, int] = {}
    of_run = [folder.parent / FILE] if folder.name == "model" else []
    for path in (*of_run, folder / FILE):
        if path.is_file():
            data = read_json(path)
            for point in (*_checkpoints(data), data):
                if _is_count(point.get("step")) and _is_count(point.get("tokens")):
                    by_step[point["step"]] = point["tokens"]
    return by_step


def _checkpoints(data: JsonDict) -> list[JsonDict]:
    checkpoints = data.get("checkpoints")
    return [point for point in checkpoints if isinstance(point, dict)] if isinstance(checkpoints, list) else []


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
