"""The options of `circuitlab train`, in a module of their own so that `--help` loads neither torch nor numpy."""

from __future__ import annotations

import argparse
from pathlib import Path

from circuitlab.cli.arguments import threads

EXITS = "exit status: 0 done, 2 usage, 3 bad text, recipe or machine, 130 stopped (the state is saved)"


def _step(text: str) -> int:
    value = int(text)
    if not 0 <= value < 2**63:
        raise ValueError(text)
    return value


_step.__name__ = "number"  # argparse says: invalid … value


class _Epilog(argparse.RawDescriptionHelpFormatter):
    """Lists the shipped recipes, only when the help is printed."""

    def add_text(self, text: str | None) -> None:
        if text != EXITS:  # only the epilog lists the recipes, not the usage line of an error
            return super().add_text(text)
        from circuitlab.disk.paths import shipped_recipes

        titles = shipped_recipes()
        wide = max(map(len, titles), default=0)
        lines = [f"  {name:<{wide}}  {title}" for name, title in titles.items()]
        what = "A recipe is a TOML file; circuitlab/training/recipe.py explains each of its keys."
        return super().add_text("\n".join(("shipped recipes:", *lines, "", what, EXITS)))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them to a parser."""
    parser.formatter_class, parser.epilog = _Epilog, EXITS
    parser.add_argument("recipe", help="a shipped recipe's name or a TOML file")
    parser.add_argument(
        "--text", nargs="+", action="extend", required=True, metavar="FILE", help="files, folders or stdlib; NAME:SHARE"
    )
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder of the run; the same command resumes it")
    parser.add_argument("--tokenizer", type=Path, metavar="FILE", help="use this tokenizer.json instead of training one")
    device = "auto (CUDA where there is one, default), cpu, cuda, cuda:1, mps; bit-equal results on the CPU alone"
    parser.add_argument("--device", default="auto", metavar="NAME", help=device)
    parser.add_argument("--threads", type=threads, default=1, metavar="N", help="torch threads (default 1)")
    parser.add_argument("--seed", type=_step, metavar="N", help="seed, in place of the recipe's")
    parser.add_argument("--stop-at", type=_step, metavar="STEP", help="stop after this step; the same command resumes later")
    parser.add_argument("--no-measure", action="store_true", help="do not measure the checkpoints at the end")
