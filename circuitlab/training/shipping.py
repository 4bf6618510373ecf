"""A model folder from a training run: final model, chosen checkpoints, their measures, and a card that documents them.

    python -m circuitlab.training.shipping RUN DIR --steps 0 64 128 1000 --text corpus/en_novels:0.27 … stdlib:0.45

copies `RUN/model` and the checkpoints of these steps (all without --steps) to DIR, measures them as `circuitlab measure` does,
and writes the section on the series into DIR's card (`series_card.py`) and that on its tokens (`token_counts.py`); without --text
only what is copied. Steps whose weights stay behind keep the measures that the run made of them. The tokens of the run are taken
where they stand. --half: the final weights in float16, like the checkpoints; --bigrams: pairs of tokens of the text beside them
(`bigrams.py`). With --measures-only the weights of all earlier steps are left out when they have been measured.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from circuitlab.counting import number_of
from circuitlab.disk.files import made_folder, whole
from circuitlab.errors import BadInput, CircuitLabError
from circuitlab.model.loading import open_model
from circuitlab.model.records.corpus_bigrams import FILE as BIGRAMS
from circuitlab.model.records.series import FOLDER, final_step, series_of
from circuitlab.model.records.series_measures import FILE, GONE, read_series, write_series
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.training.bigrams import count_bigrams
from circuitlab.training.bigrams import write as write_bigrams
from circuitlab.training.corpus import Source, Stream, find_sources, tokenised
from circuitlab.training.files import beside, write_whole
from circuitlab.training.measure_command import say
from circuitlab.training.measured_texts import CONTEXT
from circuitlab.training.series_card import describe
from circuitlab.training.series_measuring import measure_series
from circuitlab.training.token_counts import describe_tokens, lines_in_tables, section

WEIGHTS = "model.safetensors"


def ship(run: Path, folder: Path, steps: Iterable[int] | None = None, half: bool = False) -> Path:
    """Copy the final model of a run and the checkpoints of `steps` (None: all). The final step's are the final weights already.

    `half`: the final weights in float16. Checkpoints of `folder` that are not asked for are left alone.
    Raises `BadInput` for a run without a model or without a step.
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
    made_folder(folder / FOLDER, within=folder)
    for file in sorted(p for p in model.iterdir() if p.is_file()):
        _copy(file, folder / file.name)
    for step in sorted(chosen - {final}):
        _copy(checkpoints[step], folder / FOLDER / checkpoints[step].name)
    if half:
        _halve(folder / WEIGHTS)
    if (folder / FILE).is_file():
        _keep_measures(folder)
    return folder


def _halve(path: Path) -> None:
    """The tensors of a file in float16, its metadata as they are."""
    with safe_open(str(path), framework="pt") as file:
        metadata = file.metadata()
    halved = {name: value.half() for name, value in load_file(str(path)).items()}
    with whole(path, fresh=beside(path)) as fresh:
        save_file(halved, str(fresh), metadata=metadata)
    path.chmod(0o644)


def _keep_measures(folder: Path) -> None:
    """In the run's measures, mark the steps whose weights are not in `folder`: they stay as they were measured."""
    here = {step: i for i, (step, _) in enumerate(series_of(folder))}
    m = read_series(folder)
    points = zip(m.steps, m.checkpoints, strict=True)
    write_series(folder, replace(m, checkpoints=tuple(None if c is None else here.get(step, GONE) for step, c in points)))


def tokens_of(run: Path, tokenizer: Tokenizer, text: list[str]) -> tuple[tuple[Source, ...], tuple[Stream, ...]]:
    """The texts of a run, and their tokens: as the run keeps them, else made again. Raises `BadInput` where it has others."""
    sources, folder = find_sources(text), run / "state"
    files = sorted(folder.glob("tokens-*.npz"))
    if not files:
        n_ctx = open_model(run / "model").weights.config.n_ctx
        return sources, tuple(tokenised(source, tokenizer, n_ctx) for source in sources)
    if len(files) != len(sources):
        raise BadInput(
            "The run was trained on other texts.",
            expected=f"{number_of(len(files), 'text')} of {run.name}",
            got=number_of(len(sources), "text"),
            remedy="Give the --text that it was trained with.",
        )
    streams = []
    for i, source in enumerate(sources):
        with np.load(folder / f"tokens-{i}.npz") as data:
            streams.append(Stream(source.label, source.share, data["train"], data["held_out"]))
    return sources, tuple(streams)


def describe_all(run: Path, folder: Path, text: list[str], recipe: str | None, measures_only: bool, bigrams: bool) -> None:
    """Measure a shipped folder and write its card. Raises `CircuitLabError`."""
    own = run / "state" / "tokenizer.json"
    tokenizer = Tokenizer.from_file(own if own.is_file() else folder / "tokenizer.json")
    sources, streams = tokens_of(run, tokenizer, text)
    context = (read_series(folder).protocol if (folder / FILE).is_file() else {}).get("context", CONTEXT)
    measure_series(folder, streams, tokenizer, context=context, recipe=recipe, say=say)
    if measures_only:
        leave_weights_out(folder)
    if bigrams:
        labels = ", ".join(f"{s.label} {s.share:g}" for s in streams)
        write_bigrams(folder / BIGRAMS, count_bigrams(streams, tokenizer.n_tokens), labels)
    card = folder / "card.md"
    if card.is_file():
        write_whole(card, re.sub(r"\A# .*", f"# {folder.name}", card.read_text(encoding="utf-8")).encode())
    filtered = lines_in_tables(sources) if any(source.installed for source in sources) else None
    describe_tokens(folder, section(streams, tokenizer, filtered))
    describe(folder)


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
    parser.add_argument("--half", action="store_true", help="the final weights in float16, too")
    parser.add_argument("--bigrams", action="store_true", help="write the text's pairs of tokens beside them")
    args = parser.parse_args(argv)
    try:
        ship(args.run, args.folder, args.steps, args.half)
        if args.text:
            describe_all(args.run, args.folder.resolve(), args.text, args.recipe, args.measures_only, args.bigrams)
    except CircuitLabError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
