"""The run that a window started last, so that the next window finds it where it goes on: after a window that was killed, too."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path

from circuitlab.disk.files import made_folder, write_whole
from circuitlab.disk.paths import state_home
from circuitlab.errors import CircuitLabError
from circuitlab.gui.training.job import TrainingJob
from circuitlab.training.files import holder_of

log = logging.getLogger("circuitlab.training")


def _file() -> Path:
    return state_home() / "training.json"


def remember(job: TrainingJob) -> None:
    """Write down what is being trained; where that cannot be written, the next window does not find it by itself."""
    try:
        made_folder(state_home(), private=True)
        write_whole(_file(), json.dumps(dataclasses.asdict(job)).encode())
    except CircuitLabError as error:
        log.warning("the run is not found by the next window: %s", error)


def run_that_goes_on() -> TrainingJob | None:
    """The job that was started last, while a process still trains in its folder; None otherwise."""
    try:
        data = json.loads(_file().read_text(encoding="utf-8"))
        job = TrainingJob(**data | {"text": tuple((str(name), str(share)) for name, share in data["text"])})
        return job if holder_of(Path(job.out).expanduser() / "state") is not None else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
