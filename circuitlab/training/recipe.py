"""A recipe: everything that decides a trained model but the text, read from TOML."""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.paths import resource


@dataclass(frozen=True)
class Stage:
    """From step `start` on, sequences are `context` tokens long (BOS included), `batch` of them a step."""

    start: int
    context: int
    batch: int


@dataclass(frozen=True)
class Data:
    """What is done to the text. All shares are said on the model's card.

    random_repeat: share of sequences that are a block of uniformly random tokens repeated; self_copy: share of the others in
    which a segment of `segment` (shortest, longest) tokens is copied to a later place of the same sequence.
    """

    random_repeat: float = 0.0
    self_copy: float = 0.0
    block: tuple[int, int] = (8, 63)
    segment: tuple[int, int] = (16, 63)


@dataclass(frozen=True)
class Optimiser:
    """AdamW (Loshchilov and Hutter 2019), linear warm-up, cosine to `final` of the rate at the last step."""

    steps: int
    rate: float = 3e-3
    warmup: int = 200
    final: float = 0.1
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.01
    clip: float = 1.0


@dataclass(frozen=True)
class Checkpoints:
    """Steps that are kept: 0, powers of two from `first`, every `every` within `band`, and the last."""

    first: int = 64
    band: tuple[int, int] = (0, 0)
    every: int = 250

    def steps(self, last: int) -> tuple[int, ...]:
        """The steps, sorted."""
        kept = {0, last}
        step = self.first
        while step < last:
            kept.add(step)
            step *= 2
        kept.update(range(self.band[0], min(self.band[1], last) + 1, self.every) if self.band[1] else ())
        return tuple(sorted(kept))


@dataclass(frozen=True)
class Recipe:
    """See the module. `vocab` is the tokenizer's size; `init` standard deviations by tensor name."""

    name: str
    seed: int
    vocab: int
    model: dict[str, Any]
    init: dict[str, float]
    stages: tuple[Stage, ...]
    optimiser: Optimiser
    data: Data = Data()
    checkpoints: Checkpoints = Checkpoints()
    title: str = ""
    positions_amplitude: float = 1.0
    tokenizer_bytes: int = 20_000_000
    notes: tuple[str, ...] = field(default=())

    def config(self) -> ModelConfig:
        """The model's configuration."""
        n_ctx = max(s.context for s in self.stages)
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in self.model.items()}
        return ModelConfig(d_vocab=self.vocab, n_ctx=n_ctx, prepend_bos=True, family="circuitlab", **values)

    def stage(self, step: int) -> Stage:
        """The stage that `step` belongs to."""
        return max((s for s in self.stages if s.start <= step), key=lambda s: s.start)


def _made(kind: type[Any], data: dict[str, Any], where: str) -> Any:
    known = {f.name for f in dataclasses.fields(kind)}
    if unknown := sorted(set(data) - known):
        raise BadInput(f"{where} has fields that are not known.", expected=" ".join(sorted(known)), got=" ".join(unknown))
    try:
        return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in data.items()})
    except TypeError as error:
        raise BadInput(f"{where} lacks something.", expected=" ".join(sorted(known)), got=str(error)) from error


def read_recipe(name_or_path: str) -> Recipe:
    """A shipped recipe by name, or a TOML file. Raises `BadInput`."""
    path = Path(name_or_path)
    if not path.is_file():
        path = resource("recipes", f"{name_or_path}.toml")
    if not path.is_file():
        shipped = sorted(p.stem for p in resource("recipes").glob("*.toml"))
        raise BadInput("There is no such recipe.", expected=f"a file or one of {' '.join(shipped)}", got=name_or_path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path.name} is not TOML.", expected="a recipe", got=str(error)) from error
    return _recipe(data, path)


def _recipe(data: dict[str, Any], path: Path) -> Recipe:
    parts: dict[str, Any] = dict(data)
    for name, kind in (("data", Data), ("optimiser", Optimiser), ("checkpoints", Checkpoints)):
        if name in parts:
            parts[name] = _made(kind, parts[name], f"{path.name}: [{name}]")
    parts["stages"] = tuple(_made(Stage, s, f"{path.name}: [[stages]]") for s in parts.get("stages", ()))
    recipe: Recipe = _made(Recipe, {"name": path.stem, **parts}, path.name)
    if not recipe.stages or min(s.start for s in recipe.stages) != 0:
        raise BadInput(f"{path.name} has no stage from step 0.", expected="[[stages]] with start = 0", got="none")
    recipe.config()
    return recipe
