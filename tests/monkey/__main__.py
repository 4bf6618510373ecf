"""`python -m tests.monkey [--events 10000] [--seed 0] [--replay FILE] [--tries 60]`: exit code 1 and a short list on failure."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.monkey.events import as_text, drawn, from_text
from tests.monkey.runner import played, shortest


def main() -> int:
    """Play, and where it fails print the report and the shortest list found, to be given to --replay."""
    parser = argparse.ArgumentParser(prog="python -m tests.monkey")
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replay", type=Path, help="play a list that was printed")
    parser.add_argument("--tries", type=int, default=60, help="plays spent on making a failing list short")
    wanted = parser.parse_args()
    events = from_text(wanted.replay.read_text("utf-8")) if wanted.replay else drawn(wanted.seed, wanted.events)
    outcome = played(events)
    if outcome.code == 0:
        print(f"{len(events):,} events: nothing uncaught, nothing hangs, State and undo whole, nothing left behind")
        return 0
    print(f"failed (exit {outcome.code}) at event {outcome.at}\n{outcome.report}")
    short = shortest(events, outcome, wanted.tries)
    print(f"# seed {wanted.seed}; {len(short)} events fail alike:\n{as_text(short)}", end="")
    return 1


if __name__ == "__main__":
    sys.exit(main())
