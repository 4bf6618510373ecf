"""A sweep from its declaration to its tables: plan, answer what the journal lacks, write.

Whenever it stops, by itself, by Ctrl+C or by an error, the tables are written from what is done; the same command goes on.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from circuitlab.analysis.base import Ctx, NullContext
from circuitlab.disk.files import write_together
from circuitlab.engine.engine import Engine
from circuitlab.interrupts import pass_on, uninterrupted
from circuitlab.sweep.cluster import Cluster
from circuitlab.sweep.crews import Alone, Crew, Processes
from circuitlab.sweep.journal import Journal
from circuitlab.sweep.orders import order_of
from circuitlab.sweep.parquet import need_pyarrow, write_parquet
from circuitlab.sweep.plan import Plan, plan_of
from circuitlab.sweep.record import PLAN, SPEC, Record, own_folder
from circuitlab.sweep.shelf import shelve
from circuitlab.sweep.spec import Spec
from circuitlab.sweep.summary import write_summary
from circuitlab.sweep.table import LEFT, Layout, line_of, write_table
from circuitlab.sweep.time_left import Pace
from circuitlab.sweep.work import DONE, REFUSED, Machine

CrewOf = Callable[[Engine], Crew]


@dataclass(frozen=True)
class Report:
    """What a sweep has come to. `counts`: cells by status; `why`: how often each reason was given for one that is not done."""

    folder: Path
    cells: int
    counts: dict[str, int]
    why: dict[str, int]

    @property
    def done(self) -> int:
        """The cells that have been answered."""
        return self.counts.get(DONE, 0)


def run(
    spec: Spec,
    folder: Path,
    machine: Machine,
    crew: CrewOf | None = None,
    retry: bool = False,
    ctx: Ctx | None = None,
    parquet: bool = False,
) -> Report:
    """Answer what is not yet in the folder, and write its tables. `retry`: ask again what was refused or failed; `parquet`: the
    table in that form, too.

    Raises `KeyboardInterrupt` and whatever broke it off, after what is done has been written; `UsageError`, `BadInput`,
    `BadMachine`, and `BadModel` for one that cannot be put on the machine's shelf.
    """
    with own_folder(folder, spec.text), uninterrupted():
        if parquet:
            need_pyarrow()
        engine = machine.engine()
        ctx = ctx or NullContext()
        ctx.tick(0, 1, "reading models and prompts")
        plan = plan_of(spec, engine)
        write_plan(folder, plan)
        if machine.shelf is not None:
            points = {cell.point.ref: cell.point.identity.weights for cell in plan.asked if cell.point.identity is not None}
            shelve(machine.shelf, points.items(), engine.store, ctx)
        with Record(folder) as record:
            try:
                _answer(plan, record, (crew or Alone)(engine), retry, ctx)
            finally:
                record.flush()
                ctx.tick(1, 1, "writing the tables")
                write_tables(folder, plan, record.journal, parquet)
            return report_of(folder, plan, record.journal)


def write_tables(folder: Path, plan: Plan, journal: Journal, parquet: bool) -> None:
    """Write all tables from the journal, each whole. Raises `BadMachine`."""
    layout = Layout(plan, journal)
    write_table(folder, plan, journal, layout)
    write_summary(folder, plan, journal, layout)
    if parquet:
        write_parquet(folder, plan, journal, layout)


def crew_of(machine: Machine, workers: int = 1, dask: int = 0, scheduler: str = "") -> CrewOf:
    """This process for one worker, as many of its own for more; `dask`: processes that Dask starts; `scheduler`: of a cluster.

    Raises `BadMachine` for a cluster without the library.
    """
    if dask or scheduler:
        cluster = Cluster(machine, scheduler, dask)
        return lambda engine: cluster
    return Alone if workers == 1 else lambda engine: Processes(workers, machine)


def _answer(plan: Plan, record: Record, crew: Crew, retry: bool, ctx: Ctx) -> None:
    again = (LEFT,) if not retry else (LEFT, REFUSED, "failed")
    left = [cell for cell in plan.asked if record.journal.status.get(cell.key, LEFT) in again]
    pace = Pace(left, len(plan.asked), crew.size, ctx)
    if not left:
        return
    with contextlib.closing(crew.outcomes([order_of(cell) for cell in left], pace)) as outcomes:
        for outcome in outcomes:
            record.add(outcome)
            pace.finished(outcome)
            pass_on()


def write_plan(folder: Path, plan: Plan) -> None:
    """Write the declaration as it was read, and the plan. Raises `BadMachine`."""
    asked = [cell.key for cell in plan.asked]
    about = {"title": plan.spec.title, "cells": len(plan.cells), "refused": sum(c.why is not None for c in plan.cells)}
    files = {folder / PLAN: json.dumps({**about, "asked": asked}, ensure_ascii=False).encode() + b"\n"}
    write_together(files | {folder / SPEC: plan.spec.text.encode("utf-8", "backslashreplace")})


def report_of(folder: Path, plan: Plan, journal: Journal) -> Report:
    """What has come of every cell."""
    lines = [line_of(cell, journal) for cell in plan.cells]
    why = Counter(line["error"] for line in lines if line.get("error"))
    return Report(folder, len(lines), dict(Counter(line["status"] for line in lines)), dict(why.most_common()))
