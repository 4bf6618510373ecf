"""The options of `circuitlab figure` for print, and the `Paper` they describe. Imports nothing heavy before it is needed."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from circuitlab.draw.look.paper import Paper


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for width, height, font, caption, ink and resolution."""
    paper = parser.add_argument_group("for print")
    paper.add_argument("--width", type=float, metavar="MM", help="width (default 84, one column; two columns are 174)")
    paper.add_argument("--height", type=float, metavar="MM", help="height (default: as the content needs)")
    paper.add_argument("--font", type=float, metavar="PT", help="font size of axes, legends and captions (default 7)")
    paper.add_argument(
        "--caption", choices=("full", "short", "none"), help="the whole caption, three lines of it (default), or none"
    )
    paper.add_argument(
        "--ink", choices=("colour", "grey"), help="colours, or one grey ink that marks negative values (default colour)"
    )
    paper.add_argument("--dpi", type=int, metavar="N", help="dots per inch of a PNG (default 300)")
    lettering = "searchable text, or outlines of its letters (default: outlines in SVG, fonts in PDF)"
    paper.add_argument("--lettering", choices=("fonts", "outlines"), help=lettering)


def paper_of(args: argparse.Namespace) -> Paper:
    """The `Paper` of these options. Raises `UsageError` for impossible values."""
    from circuitlab.draw.look.paper import Paper

    values = {"width_mm": args.width, "height_mm": args.height, "font_pt": args.font, "caption": args.caption}
    values |= {"ink": args.ink, "dpi": args.dpi, "text": args.lettering}
    return Paper(**{name: value for name, value in values.items() if value is not None})
