"""The points of a training series: which weights, after how many steps and how many tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from circuitlab.disk.paths import resource
from circuitlab.errors import BadInput, BadModel
from circuitlab.model.records.series import FOLDER, final_step, series_of
from circuitlab.model.records.series_measures import GONE, read_series
from circuitlab.training.metrics_file import FILE as METRICS
from circuitlab.training.metrics_file import tokens_by_step
from circuitlab.training.recipe import Recipe
from circuitlab.training.recipe_file import read_recipe


@dataclass(frozen=True)
class Point:
    """`checkpoint`: index into the checkpoint series, None for the final weights, `GONE` where the weights were not kept.

    `tokens` seen after `step` optimiser steps.
    """

    step: int
    tokens: int
    checkpoint: int | None


def points_of(folder: Path, recipe: str | None = None) -> tuple[Point, ...]:
    """The checkpoints of a model folder in the order of training, then its final weights.

    The final weights alone, if the checkpoints were measured and not kept. A checkpoint of the final step is left out: it holds
    the final weights. Without `metrics.json` the last checkpoint's step is the final one. Tokens are those of `metrics.json`, or
    computed from the recipe (by default the one named like the folder). Raises `BadModel` where there are no checkpoints,
    `BadInput` where nothing says how many tokens were seen.
    """
    series = series_of(folder)
    by_step, final = tokens_by_step(folder), final_step(folder)
    if not series and final is not None and any(point.checkpoint == GONE for point in measured_points(folder)):
        return (Point(final, _tokens(final, by_step, _recipe(folder, recipe)), None),)
    if not series:
        raise BadModel(
            "This model has no checkpoint series to measure.",
            expected=f"{FOLDER}/step-N.safetensors in {folder.name}",
            got="none",
            remedy="Measure the model of a training: `circuitlab train` writes the series beside it.",
        )
    last = series[-1][0] if final is None else final
    if series[-1][0] > last:
        raise BadModel(
            "There are checkpoints after the final weights.",
            expected=f"steps up to {last}",
            got=str(series[-1][0]),
            remedy="Remove them: they belong to another run.",
        )
    read = _recipe(folder, recipe)
    tokens = lambda step: _tokens(step, by_step, read)
    before = [Point(step, tokens(step), i) for i, (step, _) in enumerate(series) if step != last]
    return (*before, Point(last, tokens(last), None))


def measured_points(folder: Path) -> tuple[Point, ...]:
    """The points of the folder's measures, () without measures that can be read."""
    try:
        m = read_series(folder)
    except BadModel:
        return ()
    return tuple(Point(*point) for point in zip(m.steps, m.tokens, m.checkpoints, strict=True))


def _recipe(folder: Path, name: str | None) -> Recipe | None:
    if name is None and not resource("recipes", f"{folder.name}.toml").is_file():
        return None
    return read_recipe(name or folder.name)


def _tokens(step: int, by_step: dict[int, int], recipe: Recipe | None) -> int:
    if step == 0 or step in by_step:
        return by_step.get(step, 0)
    if recipe is None:
        raise BadInput(
            f"Nothing says how many tokens step {step} had seen.",
            expected=f"{METRICS} of the run, or a recipe",
            got="neither",
            remedy="Name the recipe: --recipe NAME.",
        )
    return tokens_after(recipe, step)


def tokens_after(recipe: Recipe, step: int) -> int:
    """Tokens of the first `step` batches of a recipe, BOS included."""
    stages = sorted(recipe.stages, key=lambda s: s.start)
    ends = [*(s.start for s in stages[1:]), step]
    return sum(max(0, min(end, step) - s.start) * s.batch * s.context for s, end in zip(stages, ends, strict=True))
