"""`circuitlab report FILE -o OUT`: a session's story with its figures and numbers as one page."""

from __future__ import annotations

import argparse
from pathlib import Path

from circuitlab.disk.formats import REPORTS, SESSION, listed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("file", metavar="FILE", help=f"a {SESSION} file, or a picture with its view")
    parser.add_argument("-o", "--out", required=True, metavar="OUT", help=f"{listed(REPORTS, ' or ')} by its suffix")
    parser.add_argument("--asides", action="store_true", help="with the asides, which are the speaker's own")
    paper = parser.add_argument_group("figures")
    paper.add_argument("--width", type=float, metavar="MM", help="width that they are laid out for (default 174)")
    paper.add_argument("--font", type=float, metavar="PT", help="font size of their axes and legends (default 8)")
    paper.add_argument("--ink", choices=("colour", "grey"), help="colours, or one grey ink that marks negative values")


def run(args: argparse.Namespace) -> int:
    """Write it. What could not be computed stands in its place, and is listed; a step that could not be set up or names a
    panel that there is not, and a fault of the program, are errors.

    Raises `BadInput`, `BadModel`, `UsageError`.
    """
    import sys
    from dataclasses import replace

    from circuitlab.cli.drawing import load_drawing
    from circuitlab.cli.machine_arguments import engine_of
    from circuitlab.cli.output import progress
    from circuitlab.cli.session_command import refuse_lesson
    from circuitlab.counting import number_of
    from circuitlab.disk.paths import log_file
    from circuitlab.errors import BadInput
    from circuitlab.report.content import named_error
    from circuitlab.report.report_files import REPORT_PAPER, writer_of
    from circuitlab.report.saved_session import opened_session
    from circuitlab.story.arrangements import FRONTS
    from circuitlab.terminal import on_one_line
    from circuitlab.unforeseen import Unforeseen, met

    path, out = Path(args.file), Path(args.out)
    writer_of(out)
    refuse_lesson(args.file)
    load_drawing()
    changes: dict[str, object] = {"width_mm": args.width, "font_pt": args.font, "ink": args.ink}
    paper = replace(REPORT_PAPER, **{name: value for name, value in changes.items() if value is not None})
    session = opened_session(path, engine_of(args), FRONTS)
    with met() as faults, progress(f"report of {path.name}") as ctx:
        content = session.report(out, args.asides, paper, ctx)
    whole = sum(section.error is None for section in content.sections)
    counted = number_of(len(content.sections), "step")
    lines, status = [f"{out}: {counted}" if whole == len(content.sections) else f"{out}: {whole} of {counted}"], 0
    for number, section in enumerate(content.sections, start=1):
        lines += [f"  not in it: step {number}, {why}" for why in section.lacking if section.error is None]
        if section.unfollowed:
            status = BadInput.exit_code
        if section.error is not None:
            status = section.error.exit_code
            print(named_error(content, number), file=sys.stderr)
        for fault in section.faults:
            print(named_error(content, number, fault), file=sys.stderr)
    for fault in faults:
        if fault.name:  # met while it was drawn
            print(fault, file=sys.stderr)
    if faults:
        status = Unforeseen.exit_code
        print(f"The details are in {log_file()}.", file=sys.stderr)  # a report and what it says name no folder
    print("\n".join(map(on_one_line, lines)))
    return status
