"""The options of `circuitlab sweep`, in a module of their own so that `--help` loads neither torch nor numpy."""

from __future__ import annotations

import argparse
from pathlib import Path

MOST_WORKERS = 1024


def _workers(text: str) -> int:
    value = int(text)
    if not 1 <= value <= MOST_WORKERS:
        raise ValueError(text)
    return value


_workers.__name__ = f"number of workers from 1 to {MOST_WORKERS}"  # argparse says: invalid … value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them to a parser."""
    parser.description = (
        "Answers a declared grid of models, training steps, prompts, interventions and parameters, and writes one table:"
        " DIR/table.csv, a row for each number, and DIR/cells.csv, a row for each question. The same command resumes it where"
        " it was stopped, also by a crash; a question that cannot be answered is a row that says why."
    )
    parser.add_argument("spec", metavar="SPEC.toml", help="the declaration: README, Sweeps; with --status the folder of a sweep")
    parser.add_argument("-o", "--out", type=Path, metavar="DIR", help="the folder of its results")
    parser.add_argument(
        "--workers", type=_workers, default=1, metavar="N", help="processes, which share the memory budget (default 1)"
    )
    parser.add_argument("--dask", type=_workers, metavar="N", help="the same by Dask, which starts the processes")
    cluster = "the scheduler of a Dask cluster, HOST:8786; --budget is then that of each worker"
    parser.add_argument("--scheduler", default="", metavar="ADDRESS", help=cluster)
    shelf = "a folder that all workers see: models are put there by the hash of their weights, for workers that lack them"
    parser.add_argument("--shelf", type=Path, metavar="DIR", help=shelf)
    dry = "say how many cells there are and what they take, by answering one of each kind; write nothing"
    parser.add_argument("--dry-run", action="store_true", help=dry)
    parser.add_argument("--status", action="store_true", help="say how far the sweep in a folder is")
    parser.add_argument("--parquet", action="store_true", help="write DIR/table.parquet, too")
    parser.add_argument("--retry", action="store_true", help="ask again what was refused or failed")
