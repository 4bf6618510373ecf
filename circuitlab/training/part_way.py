"""An unfinished run as a model folder: its newest checkpoint, the tokenizer, and the earlier checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

from circuitlab.disk.files import made_folder
from circuitlab.errors import BadModel
from circuitlab.model.records.series import FOLDER, series_of
from circuitlab.model.saving import FORMAT
from circuitlab.training.files import linked, write_whole
from circuitlab.training.recipe import Recipe

NAME = "so-far"


def part_way(out: Path, recipe: Recipe) -> Path:
    """Create `OUT/so-far` from the run's checkpoints, and return it. The run itself is not changed.

    Raises `BadModel` where no checkpoint has been kept yet, `BadMachine` where the folder cannot be written.
    """
    checkpoints, tokenizer_file = series_of(out), out / "state" / "tokenizer.json"
    if not checkpoints or not tokenizer_file.is_file():
        raise BadModel(
            "The run has not kept a checkpoint yet.",
            expected=f"{FOLDER}/step-N.safetensors",
            got=str(out),
            remedy="Wait for the first checkpoint.",
        )
    folder = out / NAME
    made_folder(folder / FOLDER, within=out)
    for _, file in checkpoints:
        linked(file, folder / FOLDER / file.name)
    linked(tokenizer_file, folder / "tokenizer.json")
    config = json.dumps({"format": FORMAT, **recipe.config().to_json()}, indent=1) + "\n"
    write_whole(folder / "config.json", config.encode())
    step, newest = checkpoints[-1]
    linked(newest, folder / "model.safetensors")
    steps = recipe.optimiser.steps
    card = f"# {recipe.name}, after step {step:,} of {steps:,}\n\nWritten while it was trained.\n"
    write_whole(folder / "card.md", card.encode())
    return folder
