"""`python -m circuitlab` and the installed commands: the environment first, then the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def _leave_start_folder() -> None:
    """`python -m` looks for modules in the folder it was started in first, which may be a stranger's: not where we are not."""
    home = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    try:
        start, here = os.path.realpath(sys.path[0]) if sys.path else home, os.path.realpath(os.curdir)
    except FileNotFoundError:  # the folder is gone, and no module is in it
        return
    if not sys.flags.safe_path and start == here != home:
        del sys.path[0]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Without `argv` the process is the command's own, and ends here: Ctrl+C ends it with status 130 whenever it comes.
    """
    if argv is None:
        _leave_start_folder()
    try:
        from circuitlab.interrupts import starting

        with starting():
            from circuitlab.launch import settle_environment

            settle_environment()
            from circuitlab.cli.parser import main as command_line
        status = command_line(argv)
        if argv is None:
            from circuitlab.interrupts import finish

            finish(status)
        return status
    except KeyboardInterrupt:  # in the moments before and after the command line's own care
        if argv is None:
            from circuitlab.interrupts import STATUS, finish

            finish(STATUS)
        return 130


if __name__ == "__main__":
    sys.exit(main())
