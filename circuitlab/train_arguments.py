"""The options of `circuitlab train`, apart from what they start, so that `--help` loads neither torch nor numpy."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them to a parser."""
    parser.add_argument("recipe", help="a shipped recipe's name or a TOML file")
    parser.add_argument("--text", nargs="+", required=True, metavar="FILE", help="files, folders or stdlib; NAME:SHARE")
    parser.add_argument("--out", required=True, type=Path, help="where the run lives; the same again resumes it")
    parser.add_argument("--tokenizer", type=Path, help="use this tokenizer.json instead of training one")
    parser.add_argument("--threads", type=int, default=1, help="torch threads (default 1)")
    parser.add_argument("--seed", type=int, help="instead of the recipe's")
    parser.add_argument("--stop-at", type=int, help="stop after this step; the same command goes on later")
