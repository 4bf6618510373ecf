"""The options of `circuitlab get`, in a module of their own so that `--help` loads nothing."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them to a parser."""
    parser.description = (
        "Gets the checkpoints of a shipped model's training, which an installed CircuitLab does not carry: downloaded, or from a"
        " file brought from another machine, compared with their hashes, and put in place together. Where they are here already"
        " they are verified and nothing is fetched. A download that was stopped goes on where it stopped."
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="a shipped model (default: list all)")
    where = "the archive as a file, a folder that holds it, or its address on the web (default: where this version comes from)"
    parser.add_argument("--from", dest="source", default="", metavar="PLACE", help=where)
    parser.add_argument("--check", action="store_true", help="only verify what is here; fetch nothing. Without NAME: of all")
    parser.add_argument("--list", action="store_true", help="list the archives, and what of them is here")
    parser.add_argument("--json", action="store_true", help="print the list as JSON")
