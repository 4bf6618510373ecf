"""The options of `circuitlab figure` for print, and the `Paper` they describe. Imports nothing heavy before it is needed."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from circuitlab.draw.look.paper import Paper


def add_arguments(parser: argparse.ArgumentParser, width: int = 84) -> None:
    """Add the options for width, height, font, caption, ink and resolution. `width`: mm, the default that is told."""
    paper = parser.add_argument_group("for print")
    paper.add_argument("--width", type=float, metavar="MM", help=f"width (default {width}; one column is 84, two are 174)")
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


def paper_of(args: argparse.Namespace, usual: Paper | None = None) -> Paper:
    """The `Paper` of these options; `usual`: where they say nothing. Raises `UsageError` for impossible values."""
    from circuitlab.draw.look.paper import Paper

    values = {"width_mm": args.width, "height_mm": args.height, "font_pt": args.font, "caption": args.caption}
    values |= {"ink": args.ink, "dpi": args.dpi, "text": args.lettering}
    return replace(usual or Paper(), **{name: value for name, value in values.items() if value is not None})
