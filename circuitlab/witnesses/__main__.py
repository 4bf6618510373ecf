"""`python -m circuitlab.witnesses MODEL --text FILES`: the table of a model, printed, and on request written beside it."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from circuitlab.disk.paths import model_dir
from circuitlab.errors import BadInput, CircuitLabError, cause

if TYPE_CHECKING:
    from circuitlab.model.text.tokenizer import Tokenizer
    from circuitlab.training.corpus import Stream

CONTROL = "attn-only-0l"


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m circuitlab.witnesses", description="What a model can be seen to do.")
    parser.add_argument("model", help="a shipped model's name or a model's folder")
    parser.add_argument("--text", nargs="+", required=True, metavar="FILE", help="prose it was trained on; NAME:SHARE")
    tip = "tokens-N.npz of its run's state, one for each text: read in place of tokenising the texts again"
    parser.add_argument("--tokens", nargs="+", type=Path, default=[], metavar="FILE", help=tip)
    parser.add_argument("--step", type=int, help="a step of its checkpoint series (default: the final weights)")
    parser.add_argument(
        "--control", help=f"a model without layers, of the same tokenizer (default: the shipped {CONTROL}, if it is)"
    )
    parser.add_argument("--pieces", type=int, default=64, help="pieces of prose (default 64)")
    parser.add_argument("--threads", type=int, default=1, help="torch threads (default 1)")
    parser.add_argument("--card", action="store_true", help="write witnesses.json and the section of card.md into the folder")
    return parser


def main(argv: list[str] | None = None) -> int:
    """See the module."""
    words = sys.argv[1:] if argv is None else argv
    args = _arguments().parse_args(words)
    try:
        _measure(args, words)
    except CircuitLabError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def _measure(args: argparse.Namespace, words: list[str]) -> None:
    import torch

    import circuitlab.api as lab
    from circuitlab.training.measure_command import folder_of
    from circuitlab.training.series_measuring import bos_of
    from circuitlab.witnesses.measuring import witnesses_of
    from circuitlab.witnesses.record import write_record
    from circuitlab.witnesses.table import describe, table

    torch.set_num_threads(args.threads)
    if args.card and args.step is not None:
        raise BadInput("A card is about the final weights.", expected="--card or --step", got="both", remedy="Drop one of them.")
    folder = folder_of(args.model)
    lab.progress(False)
    model = lab.open(str(folder), step=args.step)
    weights = model.engine.store.open(model.ref).opened.weights
    bos_of(weights.tokenizer, weights.config.d_vocab)
    tokenizer = weights.tokenizer
    assert tokenizer is not None  # else refused
    streams = _streams(args.text, args.tokens, tokenizer, model.config.n_ctx)
    control = _control(args.control, tokenizer)
    found = witnesses_of(model, streams, control, args.pieces, say=lambda line: print(line, file=sys.stderr))
    found = replace(found, model=folder.name, step=args.step)
    print("\n".join(table({folder.name + (f", step {args.step:,}" if args.step is not None else ""): found})))
    if args.card:
        write_record(folder, found)
        describe(folder, found, shlex.join(["python", "-m", "circuitlab.witnesses", folder.name, *_said(words, args.model)]))


def _said(words: list[str], model: str) -> list[str]:
    """The options as typed, without the model's path and the run's own files."""
    kept, skipping = [], False
    for word in words:
        skipping = word == "--tokens" or (skipping and not word.startswith("--"))
        if not skipping and word != model:
            kept.append(word)
    return kept


def _streams(text: list[str], tokens: list[Path], tokenizer: Tokenizer, n_ctx: int) -> tuple[Stream, ...]:
    """Streams of the texts; of `tokens` where they are given, in the order of the texts."""
    from circuitlab.training.corpus import Stream, find_sources, tokenised

    sources = find_sources(text)
    if not tokens:
        return tuple(tokenised(source, tokenizer, n_ctx) for source in sources)
    if len(tokens) != len(sources):
        got = f"{len(tokens)} for {len(sources)}"
        raise BadInput(
            "Texts and their tokens differ in number.", expected="one --tokens file a text", got=got, remedy="Give as many."
        )
    streams = []
    for source, file in zip(sources, tokens, strict=True):
        try:
            with file.open("rb") as opened, np.load(opened) as data:
                streams.append(Stream(source.label, source.share, data["train"][:0], data["held_out"]))
        except (OSError, ValueError, KeyError) as error:
            raise BadInput(
                "These are not the tokens of a run.",
                expected="tokens-N.npz of OUT/state",
                got=cause(error),
                remedy="Check the path.",
            ) from error
    return tuple(streams)


def _control(name: str | None, tokenizer: Tokenizer) -> str | None:
    """The source of the control; the shipped one only where it has the same tokenizer."""
    import circuitlab.api as lab

    if name is not None:
        return lab.open(name).ref.source
    if not (model_dir(CONTROL) / "config.json").is_file():
        return None
    shipped = lab.open(CONTROL)
    theirs = shipped.engine.store.open(shipped.ref).opened.weights.tokenizer
    return shipped.ref.source if theirs is not None and tokenizer.content == theirs.content else None


if __name__ == "__main__":
    sys.exit(main())
