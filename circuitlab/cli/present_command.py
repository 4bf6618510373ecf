"""`circuitlab present FILE`: a story on the stage. What can be refused without a window is refused before one is opened."""

from __future__ import annotations

import argparse
from pathlib import Path

from circuitlab.disk.formats import SESSION, is_session
from circuitlab.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them to a parser."""
    parser.description = (
        "Opens a session, computes what the steps of its story show, and shows them on a stage: on the other screen where there"
        " are two, with notes, the next picture and the time on this one. F1 in the window lists the keys."
    )
    parser.add_argument("file", metavar="FILE", help=f"a {SESSION} file")
    parser.add_argument(
        "--screen", type=int, metavar="N", help="the screen of the stage, counted from 1 (default: the other one)"
    )
    parser.add_argument("--windowed", action="store_true", help="the stage in a window, not over all of a screen")
    parser.add_argument("--from", type=int, default=1, dest="first", metavar="N", help="the step to begin with (default 1)")
    parser.add_argument("--dark", action="store_true", help="on a black ground (default: white, for a projector)")
    parser.add_argument("--minutes", type=int, metavar="N", help="length of the talk, of which the speaker sees what is left")


def run(args: argparse.Namespace) -> int:
    """Open the window and present. Raises `UsageError` for what is no session; the rest as `launch.present` raises it."""
    path = Path(args.file)
    if not is_session(path):
        raise UsageError(
            "Only a session can be presented.",
            expected=f"a {SESSION} file",
            got=path.name,
            remedy=f"Save the window's session, or make a session of a lesson: circuitlab session LESSON.md -o TALK{SESSION}",
        )
    from circuitlab import launch

    return launch.present(path, args.screen, args.windowed, args.first, args.dark, args.minutes)
