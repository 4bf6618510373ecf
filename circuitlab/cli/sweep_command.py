"""`circuitlab sweep SPEC.toml -o DIR`: a declared grid of questions, answered into one table."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from circuitlab.cli.output import progress
from circuitlab.counting import number_of
from circuitlab.engine.engine import GIB
from circuitlab.errors import BadInput, UsageError
from circuitlab.sweep.forecast import forecast
from circuitlab.sweep.plan import plan_of
from circuitlab.sweep.run import CrewOf, Report, crew_of, run
from circuitlab.sweep.spec import Spec, read_spec
from circuitlab.sweep.status import finished, status_of
from circuitlab.sweep.table import CELLS, TABLE
from circuitlab.sweep.time_left import duration
from circuitlab.sweep.work import FAILED, Machine
from circuitlab.terminal import on_one_line
from circuitlab.unforeseen import Unforeseen

REASONS = 5  # that are printed; the tables have all


def command(args: argparse.Namespace) -> int:
    """Answer it, go on with it, or say what it takes or how far it is. Raises `CircuitLabError`, `KeyboardInterrupt`."""
    if args.status:
        return _print_status(Path(args.out or args.spec))
    spec = read_spec(Path(args.spec))
    machine = Machine(int(args.budget * GIB), args.device, args.threads, args.shelf and args.shelf.absolute())
    crew, workers = _crew(args, machine)
    if args.dry_run:
        return _print_forecast(args, spec, machine, workers)
    if args.out is None:
        raise UsageError("No folder is named.", expected="-o DIR", got="nothing", remedy="Name a folder for the results.")
    try:
        with progress(f"sweep {Path(args.spec).name}") as ctx:
            report = run(spec, args.out, machine, crew, args.retry, ctx, args.parquet)
    except KeyboardInterrupt:
        print(on_one_line(f"{args.out}: what is done is kept; the same command goes on from there."), file=sys.stderr)
        raise
    return _told(report)


def _crew(args: argparse.Namespace, machine: Machine) -> tuple[CrewOf, int]:
    """Who answers the cells, and how many of them work on this machine. Raises `UsageError` for two answers to that."""
    asked = {"--workers": args.workers > 1, "--dask": args.dask, "--scheduler": args.scheduler}
    given = [name for name, one in asked.items() if one]
    if len(given) > 1:
        raise UsageError(
            "Only one kind of workers can answer a sweep.",
            expected="--workers, --dask or --scheduler",
            got=" and ".join(given),
            remedy="Drop all but one.",
        )
    return crew_of(machine, args.workers, args.dask or 0, args.scheduler), args.dask or args.workers


def _print_status(folder: Path) -> int:
    status = status_of(folder)
    counts = ", ".join(f"{n:,} {what}" for what, n in sorted(status.counts.items()))
    title = f" · {status.title}" if status.title else ""
    print(on_one_line(f"{folder}{title}: {number_of(status.questions, 'question')}: {counts}"))
    if status.unasked:
        print(f"  {number_of(status.unasked, 'cell')} cannot be asked")
    now = f"in the works by {status.holder}" if status.holder else "nobody is at work on it"
    print(f"  {duration(status.seconds)} of computing; {now}")
    return 0


def _print_forecast(args: argparse.Namespace, spec: Spec, machine: Machine, workers: int) -> int:
    """Print what is left of a sweep and what it takes."""
    engine = machine.engine()
    done = finished(args.out, args.retry)
    with progress(f"sweep {Path(args.spec).name}") as ctx:
        found = forecast(plan_of(spec, engine), engine, done, ctx)
    for line in found.lines(workers, machine.memory):
        print(on_one_line(line))
    print("nothing was written")
    return 0


def _told(report: Report) -> int:
    """Print what has come of it. The exit status: that something went wrong in the program, or that nothing was answered."""
    counts = ", ".join(f"{n:,} {status}" for status, n in sorted(report.counts.items()))
    print(on_one_line(f"{report.folder}: {number_of(report.cells, 'cell')}: {counts}; {TABLE}, {CELLS}"))
    for why, times in list(report.why.items())[:REASONS]:
        print(on_one_line(f"  {times:,} × {why}"))
    if len(report.why) > REASONS:
        print(f"  and {number_of(len(report.why) - REASONS, 'other reason')}; see {CELLS}")
    if report.counts.get(FAILED):
        return Unforeseen.exit_code
    return 0 if report.done or not report.cells else BadInput.exit_code
