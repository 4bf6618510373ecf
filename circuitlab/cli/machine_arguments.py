"""The options of every command that computes: device, memory and threads, and the `Engine` they describe.

Imports nothing heavy before it is needed.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from circuitlab.cli.arguments import threads
from circuitlab.machine_limits import MOST_GIB

if TYPE_CHECKING:
    from circuitlab.engine.engine import Engine


def _gib(text: str) -> float:
    value = float(text)
    if not 0 < value <= MOST_GIB:
        raise ValueError(text)
    return value


_gib.__name__ = "memory in GiB"  # argparse says: invalid … value


def add_arguments(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add them to a command, or to a group of its options."""
    device = "the device to compute on: cpu, cuda, cuda:1, mps (default cpu; `circuitlab doctor` lists this machine's)"
    parser.add_argument("--device", default="cpu", metavar="NAME", help=device)
    parser.add_argument("--budget", type=_gib, default=4.0, metavar="GIB", help="memory budget (default 4)")
    parser.add_argument("--threads", type=threads, default=1, help="torch threads (default 1: bit-equal results)")


def engine_of(args: argparse.Namespace) -> Engine:
    """An engine without models, as these options say; sets the threads of the process. Raises `UsageError` for the device."""
    from circuitlab.engine.engine import GIB, Engine, use_threads
    from circuitlab.engine.store import ModelStore

    use_threads(args.threads)
    return Engine(ModelStore(), int(args.budget * GIB), args.device)
