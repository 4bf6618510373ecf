"""`circuitlab film FILE#STEP -o OUT.webp`: what a step of a session plays, as a film to take along."""

from __future__ import annotations

import argparse
from pathlib import Path

from circuitlab.cli.machine_arguments import engine_of
from circuitlab.cli.output import progress
from circuitlab.counting import number_of
from circuitlab.disk.files import need_writable
from circuitlab.draw.export.animation import need_pillow
from circuitlab.draw.look.slide import Slide, film_format, size_of
from circuitlab.report.film import FilmPlan, write_plan
from circuitlab.report.saved_session import step_at
from circuitlab.terminal import on_one_line


def run(args: argparse.Namespace) -> int:
    """Write the film. Raises `BadInput` where nothing plays, `BadMachine` without Pillow, `UsageError`."""
    slide, out = slide_of(args), Path(args.out)
    film_format(out)
    need_writable(out)
    need_pillow()
    step = step_at(args.file, engine_of(args))
    plan = step.film_plan(tuple(args.panel), args.over)
    with progress(f"film {out.name}") as ctx:
        remarks = write_plan(step.of.engine, plan, out, slide, ctx)
    lines = [f"{out}: {_words(plan, slide)}", *(f"  not in it: {remark}" for remark in remarks)]
    print("\n".join(map(on_one_line, lines)))
    return 0


def _words(plan: FilmPlan, slide: Slide) -> str:
    """What was written."""
    frames = number_of(len(plan.scenes), "frame")
    seconds = sum(slide.durations(len(plan.scenes))) / 1000
    return f"{frames}, {slide.width} × {slide.height} px, {seconds:.1f} s; {plan.scenes[0].words} to {plan.scenes[-1].words}"


def slide_of(args: argparse.Namespace) -> Slide:
    """The `Slide` of these options. Raises `UsageError` for impossible values."""
    width, height = size_of(args.size)
    return Slide(width, height, args.fps, args.theme, not args.once)
