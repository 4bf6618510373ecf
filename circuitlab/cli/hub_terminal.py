"""Downloads a model of the hub that is not in the cache before a command opens it, with progress in the terminal."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from circuitlab.counting import number_of
from circuitlab.model.sources.hub import HubName, looks_like_a_name, snapshot


def fetch_if_needed(model: str) -> None:
    """Download `model` if it names a model of the hub that is not in the cache yet. Ctrl+C stops it.

    Raises `CircuitLabError`. The part already downloaded is kept for the next attempt.
    """
    is_hub_name = model.startswith("hub:") or (looks_like_a_name(model) and not Path(model).expanduser().exists())
    if not is_hub_name or snapshot(name := HubName.parse(model)) is not None:
        return
    from circuitlab.model.sources.hub_download import Progress, fetch, plan

    download = plan(name)
    print(f"{name}: {number_of(len(download.files), 'file')}, {download.total / 2**20:,.1f} MiB from the hub", file=sys.stderr)
    shown = 0.0

    def say(progress: Progress) -> None:
        nonlocal shown
        if time.monotonic() - shown > 0.2 or progress.done == progress.total:
            shown = time.monotonic()
            print(f"\r{progress}".ljust(70), end="", file=sys.stderr, flush=True)

    try:
        fetch(download, say)
    finally:
        print(file=sys.stderr)
