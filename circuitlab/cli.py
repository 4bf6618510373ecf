"""The command line. Every command loads what it needs when it runs, so that `--help` and `--version` load nothing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from circuitlab import __version__
from circuitlab.errors import CircuitLabError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="circuitlab", description="A laboratory for transformer circuits.")
    parser.add_argument("--version", action="version", version=f"circuitlab {__version__}")
    commands = parser.add_subparsers(dest="command")
    doctor = commands.add_parser("doctor", help="what this installation stands on")
    doctor.add_argument("--json", action="store_true", help="for a program")
    return parser


def _run(args: argparse.Namespace) -> int:
    if args.command == "doctor":
        from circuitlab import doctor

        return doctor.run(args.json)
    from circuitlab import launch

    return launch.open_or_render()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    args = _parser().parse_args(argv)
    try:
        return _run(args)
    except CircuitLabError as error:
        print(error, file=sys.stderr)
        return error.exit_code
