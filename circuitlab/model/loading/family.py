"""The contract of a checkpoint family, and the door through which every model comes in."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from circuitlab.errors import BadModel
from circuitlab.model.subject import ModelRef
from circuitlab.model.tokenizer import Tokenizer
from circuitlab.model.weights import Weights
from circuitlab.paths import model_dir, shipped_models

Keep = Literal["resident", "mapped"]
_LARGEST_JSON = 64 * 2**20


@dataclass(frozen=True)
class Opened:
    """An opened model. `notes` say what was assumed or left unused; `files` are what its identity is made from."""

    weights: Weights
    notes: tuple[str, ...]
    files: tuple[Path, ...]
    card: str = ""
    family: str = ""


@dataclass(frozen=True)
class Family:
    """A checkpoint family. `claims(config)` looks at the parsed config.json; `load` raises `BadModel`."""

    name: str
    title: str
    claims: Callable[[dict[str, Any]], bool]
    load: Callable[[Path, dict[str, Any], Keep], Opened]


def families() -> tuple[Family, ...]:
    """Every family, found by walking this package."""
    import circuitlab.model.loading as package

    found = []
    for module in sorted(m.name for m in pkgutil.iter_modules(package.__path__)):
        loaded = importlib.import_module(f"{package.__name__}.{module}")
        if hasattr(loaded, "FAMILY"):
            found.append(loaded.FAMILY)
    return tuple(found)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises `BadModel`."""
    if not path.is_file():
        raise BadModel(
            f"{path.name} is not there.",
            expected=f"a model directory with {path.name}",
            got=str(path.parent) if path.parent.is_dir() else f"no directory {path.parent}",
            remedy="Open the folder that holds the model's config.json and its weights.",
        )
    if path.stat().st_size > _LARGEST_JSON:
        raise BadModel(f"{path.name} is too large.", expected="at most 64 MiB", got=f"{path.stat().st_size} bytes")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadModel(f"{path.name} is not JSON.", expected="a JSON object", got=str(error)[:200]) from error
    if not isinstance(data, dict):
        raise BadModel(f"{path.name} is not a JSON object.", expected="an object", got=type(data).__name__)
    return data


def find_tokenizer(path: Path, bos: int | None = None) -> Tokenizer | None:
    """The directory's tokenizer, None without one."""
    file = path / "tokenizer.json"
    return Tokenizer.from_file(file, bos) if file.is_file() else None


def open_directory(path: Path, keep: Keep = "resident") -> Opened:
    """Open a model directory. Raises `BadModel` with what was expected, what came and what to do."""
    config = read_json(path / "config.json")
    for family in families():
        if family.claims(config):
            return family.load(path, config, keep)
    known = ", ".join(f.title for f in families())
    kind = config.get("model_type") or config.get("format") or "none stated"
    raise BadModel(
        "The model's family is not known.",
        expected=known,
        got=f"model_type {kind!r} in {path / 'config.json'}",
        remedy="Convert it to one of these families.",
    )


def resolve(ref: ModelRef) -> Path:
    """The directory of a reference. Raises `BadModel`."""
    kind, _, rest = ref.source.partition(":")
    if kind == "builtin":
        if rest not in shipped_models():
            raise BadModel(
                "There is no such shipped model.", expected=" ".join(shipped_models()) or "none shipped", got=repr(rest)
            )
        return model_dir(rest)
    if kind == "file":
        return Path(rest)
    raise BadModel("That is no model reference.", expected="file:PATH or builtin:NAME", got=repr(ref.source))
