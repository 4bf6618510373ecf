"""The arguments of `circuitlab sheet`. Imports nothing heavy before it is needed."""

from __future__ import annotations

import argparse

from circuitlab.disk.formats import PICTURES, listed, suffixes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    from circuitlab.cli.paper_arguments import add_arguments as add_paper

    pictures = listed(PICTURES, " or ")
    parser.add_argument("file", metavar="FILE[#STEP]", help="a session, a step of its story, or a picture with its view")
    out = f"{pictures} by its suffix; a folder: every step of the story as fig1, fig2 …"
    parser.add_argument("-o", "--out", required=True, metavar="FILE|DIR/", help=out)
    parser.add_argument("--panels", default="", metavar="A,B", help="these panels, in this order (default: those that are shown)")
    parser.add_argument("--columns", type=int, metavar="N", help="parts side by side (default: two, where they can be read so)")
    parser.add_argument("--data", action="store_true", help="write the numbers of every part, too: fig1.zip")
    parser.add_argument("--no-view", action="store_true", help="do not write into the picture what it shows")
    parser.add_argument(
        "--format",
        choices=[one.name for one in PICTURES],
        help=f"of the pictures in a folder (default {suffixes(PICTURES)[0][1:]})",
    )
    add_paper(parser, width=174)
