"""State dicts in torch's pickle format (`.bin`, `.pt`, `.pth`, `.ckpt`), read without running anything that is in them.

Only `torch.load(weights_only=True)` is used: it knows tensors and plain containers and refuses everything else. Archives of the
current format are memory-mapped, so that opening one does not read its weights.
"""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from circuitlab.errors import BadModel
from circuitlab.model.tensors import ResidentTensors

_NESTED = ("model", "state_dict", "model_state_dict", "module")  # where trainers keep the weights beside their own state
_PROTOCOL = b"\x80"  # the first byte of a pickle, of torch's older format too


def read_pickle(path: Path) -> tuple[ResidentTensors, Mapping[str, Any]] | None:
    """Tensors by name and what was stored beside them; None for a file that is no pickle at all. Raises `BadModel`."""
    with path.open("rb") as file:
        first = file.read(1)
    zipped = zipfile.is_zipfile(path)
    if not zipped and first != _PROTOCOL:
        return None
    try:
        held = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except (pickle.UnpicklingError, RuntimeError, OSError, ValueError, EOFError, KeyError, AttributeError, TypeError) as error:
        raise BadModel(
            f"{path.name} cannot be read as weights alone.",
            expected="a state dict: tensors by name, nothing that runs code",
            got=str(error).splitlines()[0][:200] if str(error) else type(error).__name__,
            remedy="Save the model's state_dict, or convert it to safetensors.",
        ) from error
    if not isinstance(held, Mapping):
        raise BadModel(f"{path.name} holds no state dict.", expected="tensors by name", got=type(held).__name__)
    return _apart(path, held)


def _apart(path: Path, held: Mapping[Any, Any]) -> tuple[ResidentTensors, Mapping[str, Any]]:
    """The tensors, and the rest."""
    inner = next((held[k] for k in _NESTED if isinstance(held.get(k), Mapping)), held)
    tensors = {str(name): value.detach() for name, value in inner.items() if isinstance(value, Tensor)}
    if not tensors:
        raise BadModel(f"{path.name} holds no tensors.", expected="tensors by name", got=", ".join(map(str, list(held)[:6])))
    rest = {str(k): v for k, v in held.items() if v is not inner and not isinstance(v, Tensor)}
    return ResidentTensors(tensors), rest
