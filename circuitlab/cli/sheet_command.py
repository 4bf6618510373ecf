"""`circuitlab sheet FILE#STEP -o fig1.pdf`: the panels of a step as one figure of parts A, B, C, with its caption and data.

`circuitlab sheet FILE -o DIR/` writes every step of the story.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from circuitlab.cli.machine_arguments import engine_of
from circuitlab.cli.output import progress
from circuitlab.cli.paper_arguments import paper_of
from circuitlab.counting import number_of
from circuitlab.disk.files import made_folder, need_folder
from circuitlab.disk.formats import PICTURES
from circuitlab.draw.look.paper import Paper, format_of, height_remark
from circuitlab.engine.engine import Engine
from circuitlab.errors import BadInput, CircuitLabError, UsageError
from circuitlab.report.saved_session import SavedStep, opened_session, step_at
from circuitlab.report.sheet import MOST, WIDE, refuse_others
from circuitlab.step_names import refuse_step
from circuitlab.terminal import on_one_line
from circuitlab.unforeseen import met, part


def run(args: argparse.Namespace) -> int:
    """Write it. Raises `UsageError`, `BadInput`, `BadModel`, `BadMachine`."""
    paper, engine, out = paper_of(args, WIDE), engine_of(args), Path(args.out)
    if args.columns is not None and not 1 <= args.columns <= MOST:
        got = str(args.columns)
        raise UsageError("There are no such columns.", expected=f"1 to {MOST}", got=got, remedy="Name such a number, or none.")
    if args.out.endswith(("/", "\\")) or os.path.isdir(out):
        return _write_all(args, paper, engine, out)
    if args.format is not None:
        raise UsageError(
            "The file has a format already.", expected="--format with a folder", got=args.out, remedy="Drop --format."
        )
    format_of(out)
    refuse_others(out, args.data)
    _write(args, step_at(args.file, engine), paper, out, args.columns)
    return 0


def _write_all(args: argparse.Namespace, paper: Paper, engine: Engine, folder: Path) -> int:
    """Every step; one that has no sheet is named, and keeps no other from being written."""
    what, remedy = "A folder gets every step.", "Drop the step, or name a file for it: -o fig.pdf"
    refuse_step(args.file, what, remedy)
    need_folder(folder)
    session = opened_session(args.file, engine)
    if not session.steps:
        remedy = "Name a file to draw where it stands: -o fig.pdf"
        raise BadInput(f"{session.name} has no story.", expected="steps", got="none", remedy=remedy)
    made_folder(folder)
    suffix, status = f".{args.format or PICTURES[0].name}", 0
    with met():
        for number, step in enumerate(session.steps, 1):
            try:
                with part():
                    _write(args, step, paper, folder / f"fig{number}{suffix}", named=False)
            except CircuitLabError as error:
                status = error.exit_code
                print(f"Step {number}, {on_one_line(step.title)}: {error}", file=sys.stderr)
    return status


def _write(
    args: argparse.Namespace, step: SavedStep, paper: Paper, out: Path, columns: int | None = None, named: bool = True
) -> None:
    """`columns` None: those of the arguments, or as many as there are parts. `named`: as in `Sheet.save`."""
    panels = tuple(name.strip() for name in args.panels.split(",") if name.strip())
    with progress(out.name) as ctx:
        sheet = step.sheet(paper, panels, columns, ctx)
        if columns is None and args.columns is not None:
            sheet = sheet.on(paper, min(args.columns, len(sheet.cells)))
        output = sheet.save(out, args.data, not args.no_view, named)
    high = output.height_mm
    fewer = f" (--panels {sheet.cells[0].panel} draws fewer parts)" if len(sheet.cells) > 1 and paper.height_mm is None else ""
    remark = f": {words}{fewer}" if (words := height_remark(high)) else ""
    parts = number_of(len(sheet.cells), "part")
    print(f"{out}: {parts}, {paper.width_mm:g} × {high:.0f} mm{remark}; {', '.join(file.name for file in [*output.files][1:])}")
