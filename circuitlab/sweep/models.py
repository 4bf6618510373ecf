"""The models of a sweep: names, folders and patterns, each at the training steps that are asked for."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from circuitlab.disk.paths import shipped_models
from circuitlab.engine.engine import Engine
from circuitlab.engine.fingerprint import ModelIdentity
from circuitlab.engine.open_model import OpenModel, steps_trained
from circuitlab.engine.store import reference
from circuitlab.errors import BadInput, BadModel, CircuitLabError
from circuitlab.model.archives.offering import need_checkpoints
from circuitlab.model.config import ModelConfig
from circuitlab.model.records.series import index_of
from circuitlab.model.subject import ModelRef
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.sweep.spec import ALL, FINAL, Spec, Step, is_pattern


@dataclass(frozen=True, eq=False)
class Point:
    """A model at one step. `step`: training steps done, None where no file states it. `why`: why it cannot be opened; it then has
    neither `config` nor `identity`."""

    name: str
    ref: ModelRef
    step: int | None
    final: bool
    config: ModelConfig | None = None
    tokenizer: Tokenizer | None = None
    identity: ModelIdentity | None = None
    why: CircuitLabError | None = None


def points_of(spec: Spec, engine: Engine) -> list[Point]:
    """Every model at every step, in the order of the declaration. Raises `BadInput` for a pattern that nothing matches."""
    refs = list(dict.fromkeys(ref for text in spec.models for ref in _named(text, spec.folder)))
    names = _names(refs)
    return [point for ref in refs for point in _points(ref, names[ref], spec.steps, engine)]


def _named(text: str, folder: Path) -> list[ModelRef]:
    """The models that a text names: one, or all folders and files that a pattern matches, sorted."""
    if is_pattern(text):
        if not (result := sorted(glob.glob(text, root_dir=folder))):
            remedy = "Check the pattern; it is relative to the folder of the declaration."
            raise BadInput("A pattern of models matches nothing.", expected="folders of models", got=text, remedy=remedy)
        return [reference(str(folder / one)) for one in result]
    if text not in shipped_models() and ":" not in text and (folder / text).exists():
        return [reference(str(folder / text))]
    return [reference(text)]


def _names(refs: list[ModelRef]) -> dict[ModelRef, str]:
    """A name for each, of as few parts of its path as tell all apart."""
    for parts in range(1, 6):
        names = {ref: ref.named(parts) for ref in refs}
        if len(set(names.values())) == len(refs):
            return names
    return {ref: ref.source for ref in refs}


def _points(ref: ModelRef, name: str, steps: tuple[Step, ...], engine: Engine) -> Iterator[Point]:
    try:
        model = engine.store.open(ref)
    except CircuitLabError as error:
        yield Point(name, ref, None, True, why=error)
        return
    seen = set[ModelRef]()
    for step in steps:
        for point in _of_step(model, name, step):
            if point.why is not None:  # of a step that is not there; its `ref` is that of the final weights
                yield point
            elif point.ref not in seen:
                seen.add(point.ref)
                yield _identified(point, model, engine)


def _of_step(model: OpenModel, name: str, step: Step) -> list[Point]:
    """The points that one entry of `steps` asks for; one that says why, where there are none."""
    ref, steps = model.ref, model.opened.steps
    final = Point(name, ref, steps_trained(ref), True)
    at = lambda i: Point(name, replace(ref, checkpoint=i), steps[i], False)
    try:
        if step == FINAL:
            return [final]
        if not steps:
            need_checkpoints(ref, "the steps that this sweep asks for")
        if step == ALL:
            return [*map(at, range(len(steps))), final]
        if isinstance(step, int):
            return [at(index_of(steps, step))]
        first, last = step
        if inside := [at(i) for i, one in enumerate(steps) if int(first) <= one <= int(last)]:
            return inside
        raise BadModel(
            "No checkpoint was kept between these steps.",
            expected=" ".join(map(str, steps)) or "a model with checkpoints",
            got=f"{first}..{last}",
            remedy="Ask for other steps; `circuitlab info MODEL` lists them.",
        )
    except CircuitLabError as error:
        return [replace(final, step=step if isinstance(step, int) else None, final=False, why=error)]


def _identified(point: Point, model: OpenModel, engine: Engine) -> Point:
    """With what the key of its cells needs: the hash of its weights is read, and nothing is opened."""
    tokenizer = model.opened.weights.tokenizer
    try:
        weights = engine.store.sha256_unopened(point.ref)
    except CircuitLabError as error:
        return replace(point, why=error)
    identity = ModelIdentity(weights, model.config_sha256, "" if tokenizer is None else tokenizer.vocabulary)
    return replace(point, config=model.opened.weights.config, tokenizer=tokenizer, identity=identity)
