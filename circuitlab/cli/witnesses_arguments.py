"""The options of `circuitlab witnesses`, in a module of their own so that `--help` loads neither torch nor numpy."""

from __future__ import annotations

import argparse
from pathlib import Path

from circuitlab.cli import machine_arguments

PIECES = 32


def _pieces(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 100_000:
        raise ValueError(text)
    return value


_pieces.__name__ = "number of pieces"  # argparse says: invalid … value


def add_arguments(parser: argparse.ArgumentParser, model: str) -> None:
    """Add them to a parser. `model`: what can be named as a model."""
    parser.description = (
        "What models can be seen to do: copying and names in made prompts, induction on prose said twice and on random blocks,"
        " in-context learning, own tokens, heads that rest, sources of skip-trigrams, words that are split. One table with"
        " standard errors; – is what cannot be measured of a model, with the reason below."
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"{model} (default: all that ship)")
    parser.add_argument(
        "--checkpoint", default="final", metavar="STEP", help="the weights of a training step (default: the final)"
    )
    text = (
        "texts that the models were trained on, whose held-out part is read; NAME:SHARE (default: prose that ships, new to any)"
    )
    parser.add_argument("--text", nargs="+", action="extend", default=[], metavar="FILE", help=text)
    tokens = "tokens-N.npz of a run's state, one for each text: read in place of tokenising the texts again"
    parser.add_argument("--tokens", nargs="+", action="extend", type=Path, default=[], metavar="FILE", help=tokens)
    control = "a model without layers, beside which in-context scores of models with its tokenizer are given"
    parser.add_argument("--control", metavar="MODEL", help=f"{control} (default: one among the models, or one that ships)")
    parser.add_argument(
        "--pieces", type=_pieces, default=PIECES, metavar="N", help=f"pieces of prose, at most (default {PIECES})"
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument(
        "--card", action="store_true", help="write witnesses.json and the section of card.md into the model's folder"
    )
    machine_arguments.add_arguments(parser)
