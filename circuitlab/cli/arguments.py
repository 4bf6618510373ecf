"""Parsing shared by all commands: each option is accepted once, and `--threads` is bounded."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from circuitlab.machine_limits import MOST_THREADS


class _Once(argparse.Action):
    """Stores a value; refuses a second one instead of letting it replace the first."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option: str | None = None,
    ) -> None:
        earlier = getattr(namespace, "_seen_options", frozenset[str]())
        if option is not None and self.dest in earlier:
            raise argparse.ArgumentError(self, "given twice")
        namespace._seen_options = earlier | {self.dest}
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """A parser that accepts each option once, also those of its subcommands."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.register("action", None, _Once)
        self.register("action", "store", _Once)

    def error(self, message: str) -> NoReturn:
        """The usage, what is wrong, and what to do; exit status 2."""
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: error: {message}\n  do:       Run `{self.prog} --help` for what it takes.\n")


def threads(text: str) -> int:
    """The value of `--threads`. Raises what argparse shows as a usage error."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= MOST_THREADS:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not a number of threads from 1 to {MOST_THREADS}")
    return value
