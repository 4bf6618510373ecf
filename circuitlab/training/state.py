"""The state of a run in `OUT/state/state.pt`, with the previous one beside it; damage and states of other runs are detected.

The file is one line, `circuitlab-state-1 SHA-256`, and then what `torch.save` wrote; the digest is that of the rest, so that a
truncated or changed file is detected before it is unpickled. All tensors are on the CPU: the run can be resumed on any device.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from circuitlab.errors import BadInput
from circuitlab.training.files import write_whole

FILE, PREVIOUS = "state.pt", "state.previous.pt"
_HEAD = b"circuitlab-state-1 "


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Write the state whole; the one before it becomes the previous one. Raises `BadMachine`."""
    buffer = io.BytesIO()
    torch.save(tree_map(lambda x: x.detach().cpu() if isinstance(x, Tensor) else x, state), buffer)
    data = buffer.getvalue()
    head = _HEAD + hashlib.sha256(data).hexdigest().encode() + b"\n"
    write_whole(folder / FILE, head + data, previous=folder / PREVIOUS)


def read_state(folder: Path) -> tuple[dict[str, Any] | None, str]:
    """The last intact state, None without any; and a line on the states that were skipped, "" if none was.

    Raises `BadInput` where there are states and none is intact.
    """
    damaged = []
    for name in (FILE, PREVIOUS):
        if not (folder / name).is_file():
            continue
        try:
            state = _read(folder / name)
        except (OSError, ValueError, RuntimeError, KeyError, EOFError) as error:
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


def _read(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    head, _, rest = data.partition(b"\n")
    if not head.startswith(_HEAD):
        raise ValueError("no state of a training run")
    if hashlib.sha256(rest).hexdigest().encode() != head[len(_HEAD) :]:
        raise ValueError("cut off or changed")
    return torch.load(io.BytesIO(rest), weights_only=True, map_location="cpu")
