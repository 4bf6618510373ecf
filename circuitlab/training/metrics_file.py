"""`metrics.json`: the metrics measured during training, written and read here.

    OUT/metrics.json          {"recipe", "seed", "checkpoints": [{"step", "tokens", …}, …]}, replaced at every checkpoint
    OUT/model/metrics.json    {"step", "tokens", …} of the exported weights

The other entries are explained in `training/metrics.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from circuitlab.model.loading.checkpoint import read_json
from circuitlab.training.files import write_whole
from circuitlab.training.recipe import Recipe

FILE = "metrics.json"


def write_run(out: Path, recipe: Recipe, history: list[dict[str, Any]]) -> None:
    """Write the metrics of all checkpoints of a run. Raises `BadMachine`."""
    text = json.dumps({"recipe": recipe.name, "seed": recipe.seed, "checkpoints": history})
    write_whole(out / FILE, text.encode())


def write_model(folder: Path, metrics: dict[str, Any]) -> None:
    """Write the metrics of the weights of a model folder. Raises `BadMachine`."""
    write_whole(folder / FILE, (json.dumps(metrics, indent=1) + "\n").encode())


def tokens_by_step(folder: Path) -> dict[int, int]:
    """Tokens seen by step, as stated in a model folder and in the run that contains it. Raises `BadModel` for a damaged file."""
    by_step: dict[int, int] = {}
    places = [folder.parent / FILE] if folder.name == "model" else []
    for path in (*places, folder / FILE):
        if path.is_file():
            data = read_json(path)
            for one in (*_listed(data), data):
                if _whole(one.get("step")) and _whole(one.get("tokens")):
                    by_step[one["step"]] = one["tokens"]
    return by_step


def _listed(data: dict[str, Any]) -> list[dict[str, Any]]:
    checkpoints = data.get("checkpoints")
    return [one for one in checkpoints if isinstance(one, dict)] if isinstance(checkpoints, list) else []


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
