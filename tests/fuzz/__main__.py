"""`python -m tests.fuzz [--count 2000] [--seed 0] [--only SEED] [--verbose]`: a table of outcomes; exit code 1 on failure.

Models first, then a tenth as many files of each kind of text (`texts`), in a process of their own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from tests.fuzz import bombs
from tests.fuzz.runner import rows, run, seeds


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one case, as a failure names it: 0:117")
    parser.add_argument("--verbose", action="store_true")
    wanted = parser.parse_args()
    report = run(iter([wanted.only]) if wanted.only else seeds(wanted.count, wanted.seed), print if wanted.verbose else None)
    print(report.table(), flush=True)
    if wanted.only:
        return 1 if report.failures else 0
    kinds, failures = bombs.run(max(10, wanted.count // 10), wanted.seed)
    print("\n".join(["", *rows(kinds, "steps"), *(f"\nFAILED {one}" for one in failures)]), flush=True)
    words = ["-m", "tests.fuzz.texts", "--count", str(wanted.count // 10), "--seed", str(wanted.seed)]
    texts = subprocess.run([sys.executable, *words], check=False)
    return 1 if report.failures or failures or texts.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
