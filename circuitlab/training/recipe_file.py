"""Reading a recipe: a shipped one by its name, or a TOML file, checked field by field."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from circuitlab.errors import BadInput, advising
from circuitlab.paths import resource
from circuitlab.training.recipe import Checkpoints, Data, Export, Optimiser, Recipe, Stage
from circuitlab.training.recipe_checks import checked


def read_recipe(name_or_path: str) -> Recipe:
    """A shipped recipe by name, or a TOML file. Raises `BadInput`."""
    path = Path(name_or_path)
    if not path.is_file():
        path = resource("recipes", f"{name_or_path}.toml")
    if not path.is_file():
        shipped = " ".join(sorted(p.stem for p in resource("recipes").glob("*.toml")))
        remedy = "Check the spelling, or give the path of a TOML file."
        raise BadInput("There is no such recipe.", expected=f"a file or one of {shipped}", got=name_or_path, remedy=remedy)
    with advising("Correct the recipe; circuitlab/training/recipe.py explains each of its keys."):
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except (ValueError, RecursionError, OSError) as error:  # also a number of thousands of digits
            raise BadInput(f"{path.name} is not TOML.", expected="a recipe", got=str(error)) from error
        return checked(_recipe(data, path), path.name)


def _recipe(data: dict[str, Any], path: Path) -> Recipe:
    parts: dict[str, Any] = dict(data)
    for name, kind in (("data", Data), ("optimiser", Optimiser), ("checkpoints", Checkpoints), ("export", Export)):
        if name in parts:
            parts[name] = _section(kind, parts[name], f"{path.name}: [{name}]")
    stages = parts.get("stages", ())
    if not isinstance(stages, (list, tuple)):
        raise BadInput(f"{path.name}: stages is not a list.", expected="[[stages]]", got=repr(stages)[:80])
    parts["stages"] = tuple(_section(Stage, s, f"{path.name}: [[stages]]") for s in stages)
    return _section(Recipe, {"name": path.stem, **parts}, path.name)


def _section(kind: type[Any], data: Any, where: str) -> Any:
    names = {f.name for f in dataclasses.fields(kind)}
    if not isinstance(data, dict):
        raise BadInput(f"{where} is not a table.", expected=" ".join(sorted(names)), got=repr(data)[:80])
    if unknown := sorted(set(data) - names):
        raise BadInput(f"{where} has fields that are not known.", expected=" ".join(sorted(names)), got=" ".join(unknown))
    try:
        return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in data.items()})
    except TypeError as error:
        raise BadInput(f"{where} lacks something.", expected=" ".join(sorted(names)), got=str(error)) from error
