"""Reading a recipe: a shipped one by its name, or a TOML file, checked field by field.

With `base = "NAME"` a recipe says only what it changes in another one, shipped or beside it: its values stand in place of the
base's, within a table key by key, a list as a whole. Matched recipes thus differ in what can be read in them, in nothing else.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from circuitlab.disk.files import read_at_most
from circuitlab.disk.json_types import JsonDict
from circuitlab.disk.paths import resource
from circuitlab.disk.toml_reading import toml_of
from circuitlab.errors import BadInput, advising, cause, quoted
from circuitlab.training.recipe import Checkpoints, Data, Export, Optimiser, Recipe, Stage
from circuitlab.training.recipe_checks import checked

LARGEST = 2**20  # bytes of a recipe
MOST_BASES = 16  # recipes that one builds on


def read_recipe(name_or_path: str) -> Recipe:
    """A shipped recipe by name, or a TOML file. Raises `BadInput`."""
    path = _found(name_or_path)
    with advising("Correct the recipe; circuitlab/training/recipe.py explains each of its keys."):
        return checked(_recipe(_with_base(path), path), path.name)


def _found(name_or_path: str, beside: Path | None = None) -> Path:
    """The file of a recipe; `beside`: a folder that is looked into before the shipped ones. Raises `BadInput`."""
    own = [beside / f"{name_or_path}.toml"] if beside else [Path(name_or_path)]
    for path in (*own, resource("recipes", f"{name_or_path}.toml")):
        if os.path.isfile(path):  # a name may be too long to be asked about
            return path
    shipped = " ".join(sorted(p.stem for p in resource("recipes").glob("*.toml")))
    remedy = "Check the spelling, or give the path of a TOML file."
    raise BadInput("There is no such recipe.", expected=f"a file or one of {shipped}", got=name_or_path, remedy=remedy)


def _with_base(path: Path, above: tuple[Path, ...] = ()) -> JsonDict:
    """The values of a file, over those of its base. Raises `BadInput` for a base that leads back to itself."""
    try:
        read = read_at_most(path, LARGEST)
        if read is None:
            raise ValueError(f"more than {LARGEST >> 20} MiB")
        data = toml_of(read.decode("utf-8-sig"))
    except (ValueError, RecursionError, OSError) as error:  # also a number of thousands of digits
        raise BadInput(f"{path.name} is not TOML.", expected="a recipe", got=cause(error)) from error
    if "base" not in data:
        return data
    base = data.pop("base")
    if not isinstance(base, str):
        raise BadInput(f"{path.name}: base cannot have this value.", expected="the name of a recipe", got=quoted(base))
    if len(above) == MOST_BASES:
        raise BadInput(
            f"{path.name}: base leads too far.", expected=f"at most {MOST_BASES} recipes below one another", got=quoted(base)
        )
    from_path = _found(base, path.parent)
    if from_path.resolve() in (*above, path.resolve()):
        raise BadInput(
            f"{path.name}: base leads back to it.", expected="a recipe that does not build on this one", got=quoted(base)
        )
    return _over(_with_base(from_path, (*above, path.resolve())), data)


def _over(base: JsonDict, own: JsonDict) -> JsonDict:
    """`own` in place of `base`; within tables key by key."""
    both = lambda name: isinstance(base.get(name), dict) and isinstance(own[name], dict)
    return base | {name: {**base[name], **own[name]} if both(name) else own[name] for name in own}


def _recipe(data: dict[str, object], path: Path) -> Recipe:
    parts: JsonDict = dict(data)
    for name, kind in (("data", Data), ("optimiser", Optimiser), ("checkpoints", Checkpoints), ("export", Export)):
        if name in parts:
            parts[name] = _section(kind, parts[name], f"{path.name}: [{name}]")
    stages = parts.get("stages", ())
    if not isinstance(stages, (list, tuple)):
        raise BadInput(f"{path.name}: stages is not a list.", expected="[[stages]]", got=quoted(stages))
    parts["stages"] = tuple(_section(Stage, s, f"{path.name}: [[stages]]") for s in stages)
    return _section(Recipe, {"name": path.stem, **parts}, path.name)


def _section(kind: type[Any], data: object, where: str) -> Any:
    names = {f.name for f in dataclasses.fields(kind)}
    if not isinstance(data, dict):
        raise BadInput(f"{where} is not a table.", expected=" ".join(sorted(names)), got=quoted(data))
    if unknown := sorted(set(data) - names):
        raise BadInput(f"{where} has fields that are not known.", expected=" ".join(sorted(names)), got=" ".join(unknown))
    needed = [f.name for f in dataclasses.fields(kind) if f.default is f.default_factory is dataclasses.MISSING]
    if missing := [name for name in needed if name not in data]:
        raise BadInput(f"{where} lacks something.", expected=" ".join(needed), got=f"no {', no '.join(missing)}")
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in data.items()})
