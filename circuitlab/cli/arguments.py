"""Parsing shared by all commands: each option is accepted once, and `--threads` is bounded."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any


class _Once(argparse.Action):
    """Stores a value; refuses a second one instead of letting it replace the first."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option: str | None = None,
    ) -> None:
        seen_names = getattr(namespace, "_given", frozenset[str]())
        if option is not None and self.dest in seen_names:
            raise argparse.ArgumentError(self, "given twice")
        namespace._given = seen_names | {self.dest}
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """A parser that accepts each option once, also those of its subcommands."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.register("action", None, _Once)
        self.register("action", "store", _Once)


# more are of no use on any machine, and asking a library for a hundred thousand kills the process
MOST_THREADS = max(256, 4 * (os.cpu_count() or 1))


def threads(text: str) -> int:
    """The value of `--threads`. Raises what argparse shows as a usage error."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= MOST_THREADS:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not a number of threads from 1 to {MOST_THREADS}")
    return value
