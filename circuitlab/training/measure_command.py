"""`circuitlab measure MODEL --text FILES…`: curves of a training series, written beside the model's weights."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from circuitlab.counting import number_of
from circuitlab.errors import BadModel
from circuitlab.model.records.series_measures import FILE
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.paths import model_dir, shipped_models
from circuitlab.training.corpus import find_sources, tokenised
from circuitlab.training.series_adding import add_to_series
from circuitlab.training.series_measuring import bos_of, measure_series
from circuitlab.training.series_points import points_of


def run(args: argparse.Namespace) -> int:
    """Tokenise the texts, measure every point, write `series.safetensors`."""
    from circuitlab.model.loading import open_model

    torch.set_num_threads(args.threads)
    folder = folder_of(args.folder)
    points = points_of(folder, args.recipe)
    opened = open_model(folder).weights
    tokenizer = Tokenizer.from_file(args.tokenizer) if args.tokenizer else opened.tokenizer
    bos_of(tokenizer, opened.config.d_vocab)
    assert tokenizer is not None
    say(f"{number_of(len(points), 'point')}, steps {points[0].step:,} to {points[-1].step:,}")
    streams = tuple(tokenised(source, tokenizer, opened.config.n_ctx) for source in find_sources(args.text))
    for stream in streams:
        say(f"{stream.label}: {number_of(len(stream.held_out), 'token')} held out, share {stream.share:.2f}")
    if args.add:
        add_to_series(folder, streams, bos_of(tokenizer, opened.config.d_vocab), say)
        say(f"added to {folder / FILE}")
        return 0
    sizes = {"windows": args.windows, "context": args.context, "many": args.tokens}
    measure_series(folder, streams, tokenizer, recipe=args.recipe, say=say, **sizes)
    say(f"written to {folder / FILE}")
    return 0


def folder_of(name: str) -> Path:
    """A folder, or a shipped model's. Raises `BadModel`."""
    path = Path(name).expanduser()
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
    """One line of progress."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
