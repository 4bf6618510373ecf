"""`python -m tests.benchmarks [NAME …] [--quick]`: one table, kept in bench-results/ too."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from dataclasses import asdict

from tests.benchmarks import circuits, forward, larger, loading, opening, presenting, sessions, training, weights, window
from tests.benchmarks.common import THREADS, WORK, Row

BENCHMARKS = {
    "forward": forward.rows,
    "window": window.rows,
    "sessions": sessions.rows,
    "presenting": presenting.rows,
    "weights": weights.rows,
    "circuits": circuits.rows,
    "loading": loading.rows,
    "opening": opening.rows,
    "larger": larger.rows,
    "training": training.rows,
}


def main() -> int:
    """Run the chosen benchmarks."""
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], help="all by default")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, shorter prompts")
    args = parser.parse_args()
    WORK.mkdir(exist_ok=True)
    found: list[Row] = []
    for name in args.names or BENCHMARKS:
        print(f"running {name} …", file=sys.stderr)
        found += BENCHMARKS[name](args.quick)
    print(f"\n{platform.machine()}, {THREADS} thread(s), Python {platform.python_version()}; medians of the same run\n")
    print("| measured | against | result | target | met |\n|---|---|---|---|---|")
    for row in found:
        met = "" if row.met is None else "yes" if row.met else "no"
        print(f"| {row.what} | {row.against} | {row.measured} | {row.target} | {met} |")
    (WORK / "latest.json").write_text(json.dumps([asdict(r) for r in found], indent=1))
    return 0


sys.exit(main())
