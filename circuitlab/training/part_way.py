"""A run that is not over as a model folder: its newest checkpoint, the tokenizer, and the checkpoints before it."""

from __future__ import annotations

import json
from pathlib import Path

from circuitlab.errors import BadModel
from circuitlab.files import made_folder
from circuitlab.model.records.series import FOLDER, series_of
from circuitlab.model.saving import FORMAT
from circuitlab.training.files import linked, write_whole
from circuitlab.training.recipe import Recipe

NAME = "so-far"


def part_way(out: Path, recipe: Recipe) -> Path:
    """Make `OUT/so-far` from what the run has kept, and return it. Nothing of the run itself is changed.

    Raises `BadModel` where no checkpoint has been kept yet, `BadMachine` where the folder cannot be written.
    """
    found, words = series_of(out), out / "state" / "tokenizer.json"
    if not found or not words.is_file():
        raise BadModel("The run has not kept a checkpoint yet.", expected=f"{FOLDER}/step-N.safetensors", got=str(out))
    folder = out / NAME
    made_folder(folder / FOLDER)
    for _, file in found:
        linked(file, folder / FOLDER / file.name)
    linked(words, folder / "tokenizer.json")
    config = json.dumps({"format": FORMAT, **recipe.config().to_json()}, indent=1) + "\n"
    write_whole(folder / "config.json", config.encode())
    step, newest = found[-1]
    linked(newest, folder / "model.safetensors")
    steps = recipe.optimiser.steps
    card = f"# {recipe.name}, after step {step:,} of {steps:,}\n\nWritten while it was trained.\n"
    write_whole(folder / "card.md", card.encode())
    return folder
