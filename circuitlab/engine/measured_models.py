"""Models with a training series: the open model and the shipped ones, or those of a list. Only checks that the file exists."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from circuitlab.analysis.base import SeriesRef
from circuitlab.disk.paths import shipped_models
from circuitlab.engine.store import reference
from circuitlab.engine.texts import series_folder
from circuitlab.errors import BadInput, CircuitLabError
from circuitlab.model.records.series_measures import FILE, has_series
from circuitlab.model.subject import ModelRef

_REMEDY = "Leave it out, or measure its checkpoints: circuitlab measure MODEL --text FILES."


def measured_models(own: str, names: str = "", elsewhere: Collection[str] = ()) -> tuple[str, ...]:
    """Sources of models with a training series, each once: `own` first if it has one, then those of `names` (separated by
    commas), or without names the shipped ones that have one. `elsewhere`: sources of models that have one and whose files are
    not here.

    Raises `BadInput` for a name in the list that is not a model or has no training series.
    """
    requested = [name.strip() for name in names.split(",") if name.strip()]
    folder_of = lambda source: Path(source) if source in elsewhere else _folder(source)
    sources = {folder: own for folder in [folder_of(own)] if folder is not None}
    for name in requested or shipped_models():
        source = reference(name).source
        folder = folder_of(source)
        if folder is not None:
            sources.setdefault(folder, source)
        elif requested:
            expected = f"a shipped model or a folder with {FILE}"
            raise BadInput(f"{ModelRef(source).name} has no training series.", expected=expected, got=name, remedy=_REMEDY)
    return tuple(sources.values())


def _folder(source: str) -> Path | None:
    """The folder of a model with a training series, None for any other."""
    try:
        folder = series_folder(SeriesRef(source))
        return folder.resolve() if has_series(folder) else None
    except (CircuitLabError, OSError, ValueError):
        return None
