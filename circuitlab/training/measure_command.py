"""`circuitlab measure MODEL --text FILES…`: curves of a training series, written beside the model's weights."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from circuitlab.counting import number_of
from circuitlab.disk.files import need_writable
from circuitlab.disk.paths import model_dir, shipped_models, typed_path
from circuitlab.errors import BadModel
from circuitlab.model.loading import open_model
from circuitlab.model.records.series_measures import FILE
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.training.corpus import find_sources, tokenised
from circuitlab.training.measured_texts import CONTEXT, WINDOWS
from circuitlab.training.series_adding import add_to_series
from circuitlab.training.series_measuring import bos_of, measure_series
from circuitlab.training.series_points import points_of


def run(args: argparse.Namespace) -> int:
    """Tokenise the texts, measure every point, write `series.safetensors`."""
    measure_folder(
        folder_of(args.folder),
        args.text,
        args.tokenizer,
        windows=args.windows,
        context=args.context,
        many=args.tokens,
        recipe=args.recipe,
        add=args.add,
        threads=args.threads,
    )
    return 0


def measure_folder(
    folder: Path,
    text: list[str],
    tokenizer_file: Path | None = None,
    *,
    windows: int = WINDOWS,
    context: int = CONTEXT,
    many: int | None = None,
    recipe: str | None = None,
    add: bool = False,
    threads: int = 1,
) -> None:
    """Measure the series of a model folder on `text` (files, folders or stdlib; NAME:SHARE), with lines of progress.

    `add`: only add what an earlier file lacks. Raises `CircuitLabError`.
    """
    torch.set_num_threads(threads)
    points = points_of(folder, recipe)
    need_writable(folder / FILE, named=False)
    weights = open_model(folder).weights
    tokenizer = Tokenizer.from_file(tokenizer_file) if tokenizer_file else weights.tokenizer
    bos = bos_of(tokenizer, weights.config.d_vocab)
    assert tokenizer is not None
    say(f"{number_of(len(points), 'point')}, steps {points[0].step:,} to {points[-1].step:,}")
    streams = tuple(tokenised(source, tokenizer, weights.config.n_ctx) for source in find_sources(text))
    for stream in streams:
        say(f"{stream.label}: {number_of(len(stream.held_out), 'token')} held out, share {stream.share:.2f}")
    if add:
        add_to_series(folder, streams, bos, say)
        say(f"added to {folder / FILE}")
        return
    measure_series(folder, streams, tokenizer, windows=windows, context=context, many=many, recipe=recipe, say=say)
    say(f"written to {folder / FILE}")


def folder_of(name: str) -> Path:
    """The folder of this path, or that of a shipped model. Raises `BadModel`."""
    path = typed_path(name)
    if path.is_dir():
        return path.resolve()
    if name in shipped_models():
        return model_dir(name)
    raise BadModel(
        "There is no such model folder.",
        expected=f"a folder, or one of {' '.join(shipped_models())}",
        got=name,
        remedy="Check the path.",
    )


def say(line: str) -> None:
    """Print one line of progress."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
