"""`python -m circuitlab` and the installed commands: the environment first, then the command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    from circuitlab.launch import settle_environment

    settle_environment()
    from circuitlab.cli.parser import main as command_line

    return command_line(argv)


if __name__ == "__main__":
    sys.exit(main())
