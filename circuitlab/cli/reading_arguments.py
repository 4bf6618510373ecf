"""The options of every command that reads a text: what stands in front of it, and whether it spells special tokens.

Imports nothing heavy.
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them to a command."""
    front = parser.add_mutually_exclusive_group()
    front.add_argument("--bos", action="store_true", help="prepend the beginning-of-sequence token (default: as trained)")
    front.add_argument("--no-bos", action="store_true", help="do not prepend the beginning-of-sequence token")
    front.add_argument("--front", metavar="TOKEN", help="prepend this special token of the model, such as '<|endoftext|>'")
    letters = "read spellings of special tokens, such as <|im_start|>, as letters (default: as these tokens)"
    parser.add_argument("--no-special", action="store_true", help=letters)


def begins(args: argparse.Namespace) -> bool | str | None:
    """What is put in front of a text, as `circuitlab.api.open` takes it."""
    if args.front is not None:
        return str(args.front)
    return True if args.bos else False if args.no_bos else None


def given(args: argparse.Namespace) -> str:
    """The first of them that was given, "" if none was."""
    said = {"--no-bos": args.no_bos, "--bos": args.bos, "--front": args.front is not None, "--no-special": args.no_special}
    return next((option for option, on in said.items() if on), "")
