"""Downloading a model from the hub, with progress in the terminal, before a command opens it."""

from __future__ import annotations

import sys
import time

from circuitlab.counting import number_of
from circuitlab.disk.paths import shipped_models, typed_path
from circuitlab.model.catalogue.places import named_in_catalogue
from circuitlab.model.origin import Hub, origin_of
from circuitlab.model.sources.hub import HubName, looks_like_a_name, snapshot
from circuitlab.terminal import overwrite


def fetch_if_needed(model: str) -> None:
    """Download `model` if it names a model on the hub that is not in the cache yet. Ctrl+C stops it.

    Raises `CircuitLabError`, also for a model of the catalogue that is not here: it is got by a command of its own. The
    part already downloaded is kept for the next attempt.
    """
    if "/" not in model and model not in shipped_models() and not typed_path(model).exists():
        named_in_catalogue(model)
    is_hub_name = isinstance(origin_of(model), Hub) or (looks_like_a_name(model) and not typed_path(model).exists())
    if not is_hub_name or snapshot(name := HubName.parse(model)) is not None:
        return
    from circuitlab.model.sources.hub_download import Progress, fetch, plan

    download = plan(name)
    print(f"{name}: {number_of(len(download.files), 'file')}, {download.total / 2**20:,.1f} MiB from the hub", file=sys.stderr)
    last_print = 0.0

    def print_progress(progress: Progress) -> None:
        nonlocal last_print
        if time.monotonic() - last_print > 0.2 or progress.done == progress.total:
            last_print = time.monotonic()
            overwrite(str(progress))

    try:
        fetch(download, print_progress)
    finally:
        print(file=sys.stderr)
