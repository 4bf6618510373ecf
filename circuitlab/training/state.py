"""The state of a run in `OUT/state/state.pt`, with the previous one beside it; damage and states of other runs are detected.

The file is one line, `circuitlab-state-1 SHA-256`, and then what `torch.save` wrote; the digest is that of the rest, so that a
truncated or changed file is detected before it is unpickled. The digest is no seal, as whoever sends a folder can write it: the
file is read as those of strangers are, in memory of its size. All tensors are on the CPU: the run can be resumed on any device.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from circuitlab.disk.json_types import JsonDict
from circuitlab.disk.regular_file import PIECE
from circuitlab.errors import BadInput, BadModel
from circuitlab.model.files.saved_values import saved_values
from circuitlab.model.files.whole_file import WholeFile
from circuitlab.training.files import write_whole

FILE, PREVIOUS = "state.pt", "state.previous.pt"
_HEAD = b"circuitlab-state-1 "
_LENGTH = len(_HEAD) + 64 + 1  # of the line
_KEYS = ("tensors", "step", "seconds", "tokens", "history")


def write_state(folder: Path, state: dict[str, object]) -> None:
    """Write the state whole; the one before it becomes the previous one. Raises `BadMachine`."""
    buffer = io.BytesIO()
    torch.save(tree_map(lambda x: x.detach().cpu() if isinstance(x, Tensor) else x, state), buffer)
    data = buffer.getvalue()
    head = _HEAD + hashlib.sha256(data).hexdigest().encode() + b"\n"
    write_whole(folder / FILE, head + data, previous=folder / PREVIOUS)


def read_state(folder: Path) -> tuple[JsonDict | None, str]:
    """The last intact state, None without any; and a line on the states that were skipped, "" if none was.

    Raises `BadInput` where there are states and none is intact.
    """
    damaged = []
    for name in (FILE, PREVIOUS):
        if not (folder / name).is_file():
            continue
        try:
            state = _read(folder / name)
        except (BadModel, OSError, ValueError) as error:
            damaged.append(f"{name}: {str(error).splitlines()[0][:120]}")
            continue
        return state, f"{'; '.join(damaged)}: resumed from {name}" if damaged else ""
    if damaged:
        raise BadInput(
            "The state of this run is damaged.",
            expected=f"a whole {FILE} or {PREVIOUS} in {folder}",
            got="; ".join(damaged),
            remedy="Restore the file from a copy, or start again in another folder.",
        )
    return None, ""


def _read(path: Path) -> JsonDict:
    file = WholeFile(path)
    head, start = file.read(0, min(file.size, _LENGTH)), _LENGTH
    if not head.startswith(_HEAD) or not head.endswith(b"\n"):
        raise ValueError("no state of a training run")
    digest = hashlib.sha256()
    while start < file.size:
        stop = min(file.size, start + PIECE)
        digest.update(file.read(start, stop))
        start = stop
    if digest.hexdigest().encode() != head[len(_HEAD) : -1]:
        raise ValueError("cut off or changed")
    state = saved_values(file)
    if not isinstance(state, dict) or any(key not in state for key in _KEYS):
        raise ValueError("no state of a training run")
    return state
