"""Sweeps from Python: a declared grid of questions, answered into one table."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from circuitlab.api.long_work import working
from circuitlab.engine.answer_frame import imported
from circuitlab.engine.engine import GIB
from circuitlab.errors import BadInput
from circuitlab.sweep.arrays import arrays_of
from circuitlab.sweep.run import Report, crew_of, run
from circuitlab.sweep.spec import read_spec, spec_of
from circuitlab.sweep.summary import SUMMARY
from circuitlab.sweep.table import CELLS, TABLE
from circuitlab.sweep.work import Machine

if TYPE_CHECKING:
    import pandas as pd


class Sweep:
    """A finished sweep: its folder, and its tables as data frames. `counts`: its cells by status: done, refused, failed."""

    def __init__(self, folder: str | Path, report: Report | None = None) -> None:
        self.folder, self._report = Path(folder), report

    @property
    def counts(self) -> dict[str, int]:
        """How many of its cells are done, refused, failed, or not yet answered."""
        if self._report is not None:
            return dict(self._report.counts)
        return {str(status): int(n) for status, n in self.cells()["status"].value_counts().items()}

    def to_pandas(self) -> pd.DataFrame:
        """The table: one row for each number of each cell. Raises `BadMachine` without pandas, `BadInput` without a table."""
        return self._frame(TABLE)

    def cells(self) -> pd.DataFrame:
        """One row for each cell: prompt, request, hashes, versions, seconds, status; `cell` joins it to the table."""
        return self._frame(CELLS)

    def summary(self) -> pd.DataFrame:
        """n, mean, standard deviation and standard error over the prompts, of each number."""
        return self._frame(SUMMARY)

    def arrays(self, cell: str) -> dict[str, np.ndarray]:
        """All arrays of a cell, by name, where the sweep was told to keep them. Raises `BadInput` where it has none."""
        return arrays_of(self.folder, cell)

    def __repr__(self) -> str:
        counts = (
            ", ".join(f"{n:,} {status}" for status, n in sorted(self.counts.items())) if self._report else "read from its files"
        )
        return f"<Sweep {self.folder} · {counts}>"

    def _frame(self, name: str) -> pd.DataFrame:
        pandas = imported()
        try:
            text = (self.folder / name).read_text(encoding="utf-8")
        except OSError as error:
            remedy = "Run the sweep, or name its folder."
            raise BadInput("The folder holds no sweep.", expected=name, got=str(self.folder), remedy=remedy) from error
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)  # of an option that pandas 2 needs for exact numbers
            return pandas.read_csv(io.StringIO(text), float_precision="round_trip", dtype={"cell": str}, low_memory=False)


def sweep(
    spec: str | Path | Mapping[str, object],
    out: str | Path,
    workers: int = 1,
    budget: float = 4.0,
    device: str = "cpu",
    threads: int = 1,
    retry: bool = False,
    dask: int = 0,
    scheduler: str = "",
    parquet: bool = False,
    shelf: str | Path | None = None,
) -> Sweep:
    """Answer a declared grid of models, training steps, prompts, interventions and parameters, and write its tables to `out`.

        done = lab.sweep("copying.toml", "runs/copying", workers=4)
        done.to_pandas().query("metric == 'mean_loss'").groupby(["model", "step"])["value"].mean()

    `spec`: a TOML file (`circuitlab/sweep/spec.py` shows its keys), or the same as a mapping, whose paths are relative to the
    current folder. The same call resumes what was stopped. `workers`: processes, which share the memory budget of `budget` GiB;
    a script that asks for several begins with `if __name__ == "__main__":`. `retry`: ask again what was refused or failed.
    `dask`: as many processes that Dask starts; `scheduler`: the address of a Dask cluster, each worker of which has this budget
    (`pip install "circuitlab[cluster]"`). `parquet`: write `table.parquet`, too. `shelf`: a folder
    that all workers see, where models are put by the hash of their weights, for workers that lack them.

    Raises `BadInput` and `UsageError` for a declaration that cannot be, `KeyboardInterrupt` with what is done written. A cell
    that cannot be answered is a row that says why.
    """
    declared = spec_of(spec, Path.cwd(), json.dumps(spec, default=str)) if isinstance(spec, Mapping) else read_spec(Path(spec))
    machine = Machine(int(budget * GIB), device, threads, None if shelf is None else Path(shelf).absolute())
    with working(declared.title or "sweep") as ctx:
        crew = crew_of(machine, workers, dask, scheduler)
        return Sweep(out, run(declared, Path(out), machine, crew, retry, ctx, parquet))
