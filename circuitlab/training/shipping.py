"""A model folder from a training run: final model, chosen checkpoints, their measures, and a card that documents them.

    python -m circuitlab.training.shipping RUN DIR --steps 0 64 128 1000 --text corpus/en_novels:0.27 … stdlib:0.45

copies `RUN/model` and the checkpoints of these steps (all without --steps) to DIR, measures them as `circuitlab measure` does,
and writes the section on the series into DIR's card (`series_card.py`); without --text only what is copied. With --measures-only
the weights of earlier steps are left out when they have been measured.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from circuitlab.errors import BadInput, CircuitLabError
from circuitlab.files import whole
from circuitlab.model.records.series import FOLDER, final_step, series_of
from circuitlab.model.records.series_measures import GONE, read_series, write_series
from circuitlab.training.files import beside
from circuitlab.training.measure_command import measure_folder
from circuitlab.training.series_card import describe


def ship(run: Path, folder: Path, steps: Iterable[int] | None = None) -> Path:
    """Copy the final model of a run and the checkpoints of `steps` (None: all). The final step's are the final weights already.

    Checkpoints of `folder` that are not asked for are left alone. Raises `BadInput` for a run without a model or without a step.
    """
    model, checkpoints = run / "model", dict(series_of(run))
    if not (model / "config.json").is_file():
        raise BadInput(
            "The run has no finished model.",
            expected=f"{run.name}/model/config.json",
            got="none",
            remedy="Train it to its end first.",
        )
    chosen = set(checkpoints if steps is None else steps)
    if missing := sorted(chosen - set(checkpoints)):
        got = " ".join(map(str, missing))
        raise BadInput(
            "The run has no checkpoints of these steps.",
            expected=" ".join(map(str, checkpoints)),
            got=got,
            remedy="Choose among these.",
        )
    final = final_step(model)
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    for file in sorted(p for p in model.iterdir() if p.is_file()):
        _copy(file, folder / file.name)
    for step in sorted(chosen - {final}):
        _copy(checkpoints[step], folder / FOLDER / checkpoints[step].name)
    return folder


def _copy(source: Path, target: Path) -> None:
    """Copy whole or not at all, readable by everyone."""
    with whole(target, fresh=beside(target)) as fresh:
        shutil.copyfile(source, fresh)
    target.chmod(0o644)


def leave_weights_out(folder: Path) -> None:
    """Keep the measures of earlier steps, not their weights."""
    m = read_series(folder)
    write_series(folder, replace(m, checkpoints=tuple(None if c is None else GONE for c in m.checkpoints)))
    shutil.rmtree(folder / FOLDER)


def main(argv: list[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m circuitlab.training.shipping")
    parser.add_argument("run", type=Path, help="the --out of circuitlab train")
    parser.add_argument("folder", type=Path, help="the model folder to make")
    parser.add_argument("--steps", type=int, nargs="+", help="which checkpoints (default: all)")
    parser.add_argument("--text", nargs="+", metavar="FILE", help="what it was trained on: files, folders or stdlib; NAME:SHARE")
    parser.add_argument("--recipe", metavar="NAME", help="recipe of the run (default: the one that is called like the folder)")
    parser.add_argument("--measures-only", action="store_true", help="leave the weights of earlier steps out")
    args = parser.parse_args(argv)
    try:
        ship(args.run, args.folder, args.steps)
        if args.text:
            measure_folder(args.folder.resolve(), args.text, recipe=args.recipe)
            if args.measures_only:
                leave_weights_out(args.folder)
            describe(args.folder)
    except CircuitLabError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
