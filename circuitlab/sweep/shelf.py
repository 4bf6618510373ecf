"""Models in a folder that all workers see, by the sha256 of their weights, for workers that have no such file at their own path.

    SHELF/<sha256>/NAME/config.json, tokenizer.json, …, model.safetensors

Each is one point of a training, its weights those of the folder; a name is what captions call it. A worker reads there what it
cannot read under the model's own path, or finds changed; nothing is looked up by name alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from circuitlab.analysis.base import Ctx, Result
from circuitlab.disk.files import made_folder, writing
from circuitlab.disk.unfinished_folder import remove_abandoned_folders, unfinished_folder
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore, resolve
from circuitlab.errors import BadMachine, CircuitLabError
from circuitlab.model.loading.checkpoint import look
from circuitlab.model.origin import Constructed, File
from circuitlab.model.records.series_measures import FILE as SERIES
from circuitlab.model.subject import ModelRef

WEIGHTS = "model.safetensors"


def shelve(shelf: Path, models: Iterable[tuple[ModelRef, str]], store: ModelStore, ctx: Ctx) -> None:
    """Copy each model, with the sha256 of its weights, to the shelf unless it stands there; one with other weights, as a disk
    that lost power leaves them, is replaced. Raises `BadMachine`, `BadModel`."""
    made_folder(shelf)
    remove_abandoned_folders(shelf)
    kept = lambda ref, sha256: not sha256 or isinstance(ref.origin, Constructed) or _stands(shelf, sha256, store)
    missing = [(ref, sha256) for ref, sha256 in models if not kept(ref, sha256)]
    for i, (ref, sha256) in enumerate(missing):
        ctx.tick(i, len(missing), f"putting {ref.name} on the shelf")
        _copy(shelf, ref, sha256, store)


def shelved(shelf: Path, sha256: str) -> ModelRef | None:
    """The model with weights of this sha256 on the shelf, None where there is none."""
    models = sorted((shelf / sha256).glob("*")) if sha256 else []
    return ModelRef.of(File(str(models[0]))) if models else None


def _stands(shelf: Path, sha256: str, store: ModelStore) -> bool:
    """Whether the model on the shelf has the weights that its folder names."""
    there = shelved(shelf, sha256)
    try:
        return there is not None and store.sha256_unopened(there) == sha256
    except CircuitLabError:
        return False


def within_reach(request: Request[Result], sha256: str, shelf: Path | None, store: ModelStore) -> Request[Result]:
    """The request, of the model on the shelf where its own path has no weights of this sha256 and the shelf has."""
    ref = request.subject.model
    if shelf is None or not sha256 or isinstance(ref.origin, Constructed):
        return request
    try:
        if store.sha256_unopened(ref) == sha256:
            return request
    except CircuitLabError:
        pass  # what is wrong with the path is said by the request itself, if the shelf cannot help
    there = shelved(shelf, sha256)
    return (
        request if there is None else replace(request, subject=replace(request.subject, model=replace(there, assume=ref.assume)))
    )


def _copy(shelf: Path, ref: ModelRef, sha256: str, store: ModelStore) -> None:
    with writing(shelf), unfinished_folder(shelf) as staged:
        place = staged / sha256 / resolve(ref).name
        place.mkdir(parents=True)
        _fill(place, ref)
        copied = ModelRef.of(File(str(place)), assume=ref.assume)
        if (got := store.sha256_unopened(copied)) != sha256:
            raise BadMachine(
                "A model on the shelf is not the one that was copied.",
                expected=f"sha256 {sha256[:12]}…",
                got=f"{got[:12]}…",
                remedy="Run the same command again; check the disk if it says so again.",
            )
        if not _stands(shelf, sha256, store):  # else another sweep was first
            _publish(staged / sha256, shelf / sha256, staged / "damaged")


def _publish(made: Path, place: Path, aside: Path) -> None:
    """Put a folder in its place; what is there goes `aside`."""
    with contextlib.suppress(FileNotFoundError):
        os.rename(place, aside)
    try:
        os.rename(made, place)
    except OSError:
        if not place.is_dir():  # else another sweep was first
            raise


def _fill(place: Path, ref: ModelRef) -> None:
    """Copy what belongs to a point of a model: its weights, and what describes them."""
    path = resolve(ref)
    if not path.is_dir():
        shutil.copyfile(path, place / path.name)
        return
    final, weights = look(path, dict(ref.assume)).files, look(path, dict(ref.assume), ref.checkpoint).files
    for file in path.iterdir():
        if file.is_file() and file not in final and file.name != SERIES:
            shutil.copyfile(file, place / file.name)
    for file in weights:
        shutil.copyfile(file, place / (file.name if ref.checkpoint is None else WEIGHTS))
