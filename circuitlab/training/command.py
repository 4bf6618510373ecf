"""`circuitlab train RECIPE --text FILES… --out DIR`: text to tokenizer to model, resumed where it was killed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from circuitlab.model.tokenizer import Tokenizer
from circuitlab.train_arguments import add_arguments
from circuitlab.training.bpe import train_tokenizer
from circuitlab.training.corpus import Source, Stream, find_sources, tokenised
from circuitlab.training.recipe import Recipe, read_recipe


def prepare(
    recipe: Recipe, sources: tuple[Source, ...], out: Path, tokenizer: Path | None
) -> tuple[Tokenizer, tuple[Stream, ...]]:
    """Tokenizer and token streams, made once and kept in `out/state`."""
    (out / "state").mkdir(parents=True, exist_ok=True)
    kept = out / "state" / "tokenizer.json"
    if not kept.is_file():
        made = Tokenizer.from_file(tokenizer) if tokenizer else train_tokenizer(sources, recipe.vocab, recipe.tokenizer_bytes)
        made.save(kept)
    words = Tokenizer.from_file(kept)
    streams = []
    for i, source in enumerate(sources):
        file = out / "state" / f"tokens-{i}.npz"
        if file.is_file():
            data = np.load(file)
            streams.append(Stream(source.label, source.share, data["train"], data["held_out"]))
            continue
        stream = tokenised(source, words, recipe.config().n_ctx)
        np.savez(file, train=stream.train, held_out=stream.held_out)
        streams.append(stream)
    return words, tuple(streams)


def run(args: argparse.Namespace) -> int:
    """Train, or go on training; then export the model directory to `OUT/model`."""
    import dataclasses

    import torch

    from circuitlab.training.card import export
    from circuitlab.training.loop import Trainer

    torch.set_num_threads(args.threads)
    recipe = read_recipe(args.recipe)
    recipe = recipe if args.seed is None else dataclasses.replace(recipe, seed=args.seed)
    sources = find_sources(args.text)
    tokenizer, streams = prepare(recipe, sources, args.out, args.tokenizer)
    for stream in streams:
        say(f"{stream.label}: {len(stream.train):,} tokens, share {stream.share:.2f}")
    trainer = Trainer(recipe, streams, args.out)
    if trainer.resume():
        say(f"resumed at step {trainer.step}")
    trainer.train(say, args.stop_at)
    export(trainer, tokenizer, args.out / "model", args.text)
    say(f"model written to {args.out / 'model'}")
    return 0


def say(line: str) -> None:
    """One line of progress."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="circuitlab train")
    add_arguments(parser)
    sys.exit(run(parser.parse_args()))
