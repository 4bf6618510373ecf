"""The options of `circuitlab measure`, in a module of their own so that `--help` loads neither torch nor numpy."""

from __future__ import annotations

import argparse
from pathlib import Path

from circuitlab.cli.arguments import threads


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


_count.__name__ = "number"  # argparse says: invalid number value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them to a parser."""
    parser.description = (
        "Measures every checkpoint of a model and its final weights: losses on held-out text, on repeated random tokens and on"
        " repeated text, scores of every head, and what zeroing it does. Writes series.safetensors beside the weights, from which"
        " the training panel draws. The same command resumes where it was stopped."
    )
    parser.add_argument(
        "folder", metavar="MODEL", help="a model's folder with checkpoints/step-N.safetensors, or a shipped model"
    )
    parser.add_argument(
        "--text",
        nargs="+",
        action="extend",
        required=True,
        metavar="FILE",
        help="the text it was trained on, as for train: files, folders or stdlib; NAME:SHARE",
    )
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json (default: the model's own)")
    parser.add_argument("--windows", type=_count, default=256, help="held-out windows (default 256)")
    parser.add_argument(
        "--context", type=_count, default=128, help="tokens of a window, at most the model's context (default 128)"
    )
    parser.add_argument(
        "--tokens",
        type=_count,
        help="texts of each of which one token's loss is stored (default 2048, or as many as the held-out text has)",
    )
    parser.add_argument(
        "--add",
        action="store_true",
        help="only add what an earlier file lacks: losses of each text that is still available, shares of own tokens",
    )
    parser.add_argument(
        "--recipe", metavar="NAME", help="recipe from which tokens per step are computed, where metrics.json does not state them"
    )
    parser.add_argument("--threads", type=threads, default=1, help="torch threads (default 1)")
