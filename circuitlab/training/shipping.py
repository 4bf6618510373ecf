"""A model folder out of a training run: final model, chosen checkpoints, what was measured of them, and a card that says so.

    python -m circuitlab.training.shipping RUN DIR --steps 0 64 128 1000 --text corpus/en_novels:0.27 … stdlib:0.45

copies `RUN/model` and the checkpoints of these steps (all without --steps) to DIR, measures them as `circuitlab measure` does,
and writes the section on the series into DIR's card; without --text only what is copied. With --measures-only the weights of
earlier steps are left out when they have been measured.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from circuitlab.errors import BadInput, CircuitLabError
from circuitlab.measure_arguments import add_arguments
from circuitlab.model.loading.found import read_json
from circuitlab.model.series import FOLDER, series_of
from circuitlab.model.series_measures import FILE, GONE, SeriesMeasures, read_series, write_series
from circuitlab.training.measure_command import run as measure
from circuitlab.training.series_measuring import in_context, rep1_rep2

HEADING = "## Checkpoint series"


def ship(run: Path, folder: Path, steps: Iterable[int] | None = None) -> Path:
    """Copy the final model of a run and the checkpoints of `steps` (None: all). The final step's are the final weights already.

    Checkpoints of `folder` that are not asked for are left alone. Raises `BadInput` for a run without a model or without a step.
    """
    model, there = run / "model", dict(series_of(run))
    if not (model / "config.json").is_file():
        raise BadInput("The run has no finished model.", expected=f"{run.name}/model/config.json", got="none")
    wanted = set(there if steps is None else steps)
    if missing := sorted(wanted - set(there)):
        got = " ".join(map(str, missing))
        raise BadInput("The run has no checkpoints of these steps.", expected=" ".join(map(str, there)), got=got)
    final = read_json(model / "metrics.json").get("step")
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    for file in sorted(p for p in model.iterdir() if p.is_file()):
        _copy(file, folder / file.name)
    for step in sorted(wanted - {final}):
        _copy(there[step], folder / FOLDER / there[step].name)
    return folder


def _copy(source: Path, target: Path) -> None:
    """Whole or not at all, and readable by everyone."""
    fresh = target.with_name(target.name + ".new")
    shutil.copyfile(source, fresh)
    fresh.chmod(0o644)
    fresh.replace(target)


def leave_weights_out(folder: Path) -> None:
    """Keep what was measured of earlier steps, not their weights."""
    m = read_series(folder)
    write_series(folder, replace(m, checkpoints=tuple(None if c is None else GONE for c in m.checkpoints)))
    shutil.rmtree(folder / FOLDER)


def describe(folder: Path) -> None:
    """Write what `series.safetensors` holds into the folder's `card.md`, in place of what an earlier one said."""
    card = folder / "card.md"
    text = card.read_text(encoding="utf-8") if card.is_file() else f"# {folder.name}\n"
    before, _, rest = text.partition(HEADING)
    after = rest[at:] if (at := rest.find("\n## ")) >= 0 else "\n"
    card.write_text(
        f"{before.rstrip()}\n\n{section(read_series(folder))}\n{after.lstrip(chr(10))}".rstrip() + "\n", encoding="utf-8"
    )


def section(m: SeriesMeasures) -> str:
    """The card's section: what was measured, a row a point, and where induction came, if it did."""
    rep1, rep2 = rep1_rep2(m["repeated_loss_by_index"])
    text1, text2 = rep1_rep2(m["repeated_text_loss_by_index"])
    columns = [m["loss"], in_context(m["loss_by_index"], m.said), rep1, rep2, text1, text2]
    best = [" | ".join(_best(m[name][i]) for name in ("prefix_matching", "previous_token")) for i in range(len(m.steps))]
    numbers = [" | ".join(f"{column[i]:.3f}" for column in columns) for i in range(len(m.steps))]
    rows = [f"| {a:,} | {b:,} | {c} | {d} |" for a, b, c, d in zip(m.steps, m.tokens, numbers, best, strict=True)]
    head = "| step | tokens | loss | in context | rep1 | rep2 | text1 | text2 | prefix matching | previous token |"
    return "\n".join([HEADING, "", textwrap.fill(_words(m), 130), "", head, "|---" * 10 + "|", *rows, ""])


def _words(m: SeriesMeasures) -> str:
    said, kept, gone = m.said, sum(c not in (None, GONE) for c in m.checkpoints), m.checkpoints.count(GONE)
    (a, b), (c, d) = said["early"], said["late"]
    weights = f"`{FOLDER}/` holds the weights of {kept} earlier step{'s' * (kept != 1)} in float16, "
    if gone:
        weights = "The weights of earlier steps were not kept; "
    measured = f"at {gone} steps" if gone else "at each of them"
    return (
        f"{weights}`{FILE}` holds what `circuitlab measure` found {measured} and of the final weights. Losses in"
        f" nats: on {said['texts']} held-out windows of {said['context']} tokens"
        f" (loss; in context: mean of positions {c}–{d} minus mean of {a}–{b}), on {said['samples']} × {said['block']} random"
        f" tokens twice (rep1, rep2), on {said['texts']} × {said['half']} held-out tokens twice (text1, text2; second pieces"
        f" without their first token), of the last token of {said['tokens']:,} fixed texts; scores of every head, and what"
        f" zeroing it does. {phase(m)}"
    )


def phase(m: SeriesMeasures) -> str:
    """Where the second repetition's loss falls fastest a step, and when a head first matches prefixes; or that none does."""
    _, rep2 = rep1_rep2(m["repeated_loss_by_index"])
    heads = m["prefix_matching"].reshape(len(m.steps), -1)
    best = heads.max(1) if heads.shape[1] else np.zeros(len(m.steps))
    crossed = np.flatnonzero(best >= 0.5)
    if not len(crossed):
        shown = f", no head's prefix matching is above {best.max():.2f}" if heads.shape[1] else ""
        return f"There is no phase change: rep2 is never below {rep2.min():.2f} nats{shown}."
    i, at = steepest(m.steps, rep2), int(crossed[0])
    since = f"between steps {m.steps[at - 1]:,} and {m.steps[at]:,}" if at else "from the first point on"
    return (
        f"Phase change: rep2 falls fastest between steps {m.steps[i]:,} and {m.steps[i + 1]:,} ({rep2[i]:.2f} → {rep2[i + 1]:.2f}"
        f" nats); the best prefix-matching score passes 0.5 {since}."
    )


def steepest(steps: tuple[int, ...], values: np.ndarray) -> int:
    """The point from which on `values` [point] fall fastest a step."""
    return int(np.argmin(np.diff(values) / np.maximum(np.diff(steps), 1)))


def _best(scores: np.ndarray) -> str:
    """The largest of [layer, head] with its head."""
    if not scores.size:
        return "no heads"
    layer, head = np.unravel_index(int(np.argmax(scores)), scores.shape)
    return f"{scores[layer, head]:.2f} L{layer}H{head}"


def main(argv: list[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m circuitlab.training.shipping")
    parser.add_argument("run", type=Path, help="the --out of circuitlab train")
    parser.add_argument("folder", type=Path, help="the model folder to make")
    parser.add_argument("--steps", type=int, nargs="+", help="which checkpoints (default: all)")
    parser.add_argument("--text", nargs="+", metavar="FILE", help="what it was trained on: files, folders or stdlib; NAME:SHARE")
    parser.add_argument("--measures-only", action="store_true", help="leave the weights of earlier steps out")
    args = parser.parse_args(argv)
    measuring = argparse.ArgumentParser()
    add_arguments(measuring)
    try:
        ship(args.run, args.folder, args.steps)
        if args.text:
            measure(measuring.parse_args([str(args.folder), "--text", *args.text]))
            if args.measures_only:
                leave_weights_out(args.folder)
            describe(args.folder)
    except CircuitLabError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
