"""Devices to compute on: the CPU, a CUDA device, an Apple GPU (mps).

Names are torch's: `cpu`, `cuda` (the first one), `cuda:1`, `mps`. An Apple GPU has no float64.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from circuitlab.counting import number_of
from circuitlab.errors import BadMachine

NAMES = ("cpu", "cuda", "mps")


@dataclass(frozen=True)
class Device:
    """An available device: torch's name, a name for people, and its memory in bytes (0: unknown)."""

    name: str
    title: str
    memory: int = 0


def devices() -> tuple[Device, ...]:
    """The devices of this machine, the CPU first."""
    present = [Device("cpu", f"CPU, {number_of(os.cpu_count() or 1, 'core')}", _main_memory())]
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(i)
            present.append(Device("cuda" if i == 0 else f"cuda:{i}", properties.name, properties.total_memory))
    if torch.backends.mps.is_available():
        present.append(Device("mps", "Apple GPU", torch.mps.recommended_max_memory()))
    return tuple(present)


def _main_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return 0


def checked(name: str) -> str:
    """`name`, checked to be an available device. Raises `BadMachine` listing those that are."""
    names = [device.name for device in devices()]
    canonical = "cuda" if name == "cuda:0" else name
    if canonical not in names:
        raise BadMachine(
            f"There is no device {name} here.",
            expected=" ".join(names),
            got=name,
            remedy="`circuitlab doctor` lists the devices; a GPU needs its driver and a torch that was built for it.",
        )
    return canonical


def memory_of(name: str) -> int:
    """Bytes of a device's memory, 0 if unknown."""
    return next((device.memory for device in devices() if device.name == name), 0)


def has_doubles(name: str) -> bool:
    """Whether the device computes in float64."""
    return not name.startswith("mps")


def making_on(name: str) -> AbstractContextManager[object]:
    """A context in which this thread creates new tensors on the device.

    Does nothing for the CPU: the context costs a little at every call. Work within it that belongs on another device (a part
    computed on the CPU) uses `torch.device` itself.
    """
    return nullcontext() if name == "cpu" else torch.device(name)
