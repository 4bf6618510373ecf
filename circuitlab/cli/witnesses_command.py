"""`circuitlab witnesses MODEL…`: what models can be seen to do, as one table; on request written beside a model."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

import circuitlab.api as lab
from circuitlab.api.model import Model
from circuitlab.cli.hub_terminal import fetch_if_needed
from circuitlab.cli.machine_arguments import engine_of
from circuitlab.counting import number_of
from circuitlab.disk.files import need_writable
from circuitlab.disk.paths import shipped_models, without_folders
from circuitlab.engine.codec import parse
from circuitlab.engine.engine import Engine
from circuitlab.errors import BadInput, UsageError, cause, quoted
from circuitlab.terminal import on_one_line
from circuitlab.training.corpus import Stream, find_sources, tokenised
from circuitlab.training.measure_command import folder_of
from circuitlab.witnesses.measuring import witnesses_of
from circuitlab.witnesses.record import FILE, Witnesses, as_json, write_record
from circuitlab.witnesses.table import describe, table

CONTROL = "attn-only-0l"  # of the shipped models


class _Subject(NamedTuple):
    """A model with the title of its column."""

    title: str
    model: Model


def run(args: argparse.Namespace) -> int:
    """Measure every model, and print the table or JSON. All are opened first: a wrong name costs no work."""
    names = tuple(dict.fromkeys(args.models)) or shipped_models()
    if not names:
        raise UsageError("No model is named.", expected="MODEL…, where none ships", got="none", remedy="Name a model.")
    folder = _card_folder(args) if args.card else None
    if args.tokens and len(names) != 1:
        raise UsageError(
            "Tokens are those of one model.",
            expected="--tokens with one MODEL",
            got=number_of(len(names), "model"),
            remedy="Name one.",
        )
    engine = engine_of(args)
    step = None if args.checkpoint == "final" else parse(int, args.checkpoint, "--checkpoint")
    subjects = _titled([_opened(name, engine, step) for name in names])
    control = None if args.control is None else _need_control(_opened(args.control, engine, None))
    texts = _Texts(args.text, args.tokens)
    witnesses = dict[str, Witnesses]()
    try:
        for title, model in subjects:
            beside = _control(model, control, [one.model for one in subjects], engine)
            say = lambda part, title=title: print(on_one_line(f"{title}: {part}"), file=sys.stderr, flush=True)
            witnesses[title] = replace(witnesses_of(model, texts.of(model), beside, args.pieces, say), model=title, step=step)
    finally:  # what was measured until an interrupt or an error is not lost
        if witnesses:
            _print(args, witnesses, step)
    if folder is not None:
        (one,) = witnesses.values()
        measured = replace(one, model=folder.name)
        write_record(folder, measured)
        describe(folder, measured, _command(args, folder))
    return 0


def _print(args: argparse.Namespace, witnesses: Mapping[str, Witnesses], step: int | None) -> None:
    if args.json:
        print(json.dumps({title: as_json(one) for title, one in witnesses.items()}, ensure_ascii=False, indent=1))
        return
    columns = {title + ("" if step is None else f", step {step:,}"): one for title, one in witnesses.items()}
    print("\n".join(map(on_one_line, table(columns))))


def _card_folder(args: argparse.Namespace) -> Path:
    """The folder of the model whose card is written. Raises `UsageError` for several, `BadInput` for a checkpoint."""
    if len(args.models) != 1:
        got = number_of(len(args.models), "model")
        raise UsageError("A card is about one model.", expected="one MODEL with --card", got=got, remedy="Name one.")
    if args.checkpoint != "final":
        raise BadInput(
            "A card is about the final weights.", expected="--card or --checkpoint", got="both", remedy="Drop one of them."
        )
    folder = folder_of(args.models[0])
    need_writable(folder / FILE, folder / "card.md")
    return folder


def _command(args: argparse.Namespace, folder: Path) -> str:
    """The command as somebody else would type it: without the model's path and a run's own files."""
    words = ["circuitlab", "witnesses", folder.name]
    words += ["--text", *map(without_folders, args.text)] if args.text else []
    words += ["--control", without_folders(args.control)] if args.control else []
    return shlex.join([*words, "--pieces", str(args.pieces), "--card"])


def _opened(name: str, engine: Engine, step: int | None) -> Model:
    if not name.strip():
        raise UsageError("No model is named.", expected="the name of a model", got=quoted(name), remedy="Name a model.")
    fetch_if_needed(name)
    return lab.open(name, step=step, use=engine)


def _titled(models: Sequence[Model]) -> list[_Subject]:
    """Names by as many parts of their paths as tell them apart."""
    for parts in range(1, 9):
        titles = [model.ref.named(parts) for model in models]
        if len(set(titles)) == len(titles):
            return list(map(_Subject, titles, models))
    return [_Subject(model.ref.source, model) for model in models]


def _need_control(model: Model) -> Model:
    """Raise `BadInput` for a control with layers."""
    if model.config.n_layers:
        raise BadInput(
            "The control sees more than the previous token.",
            expected="a model without layers",
            got=number_of(model.config.n_layers, "layer"),
            remedy="Name such a model, or leave out --control.",
        )
    return model


def _control(model: Model, named: Model | None, beside: Sequence[Model], engine: Engine) -> str | None:
    """The source of a control that reads the tokens of this model; None without one, and for a model without layers."""
    mine = model.engine.store.open(model.ref).opened.weights.tokenizer
    if mine is None or not model.config.n_layers:
        return None
    for other in [named] if named is not None else _candidates(beside, engine):
        theirs = other.engine.store.open(other.ref).opened.weights.tokenizer
        if not other.config.n_layers and theirs is not None and theirs.content == mine.content:
            return other.ref.source
    return None


def _candidates(beside: Sequence[Model], engine: Engine) -> Iterator[Model]:
    """Models beside this one, then the one that ships."""
    yield from beside
    if CONTROL in shipped_models():
        yield lab.open(CONTROL, use=engine)


class _Texts:
    """The texts of `--text` in tokens, once for each tokenizer; of `--tokens` where they are given, in the order of the texts."""

    def __init__(self, text: list[str], tokens: Sequence[Path]) -> None:
        self._sources = find_sources(text) if text else ()
        self._read = dict[object, tuple[Stream, ...]]()
        if tokens and len(tokens) != len(self._sources):
            raise BadInput(
                "Texts and their tokens differ in number.",
                expected="one --tokens file a text",
                got=f"{len(tokens)} for {number_of(len(self._sources), 'text')}",
                remedy="Give as many.",
            )
        self._tokens = tuple(tokens)

    def of(self, model: Model) -> tuple[Stream, ...] | None:
        """Those of a model; None where no text is given, or the model reads none. Raises `BadInput`."""
        tokenizer = model.engine.store.open(model.ref).opened.weights.tokenizer
        if not self._sources or tokenizer is None:
            return None
        key = tokenizer.content, model.config.n_ctx
        if key not in self._read:
            self._read[key] = self._stored() or tuple(tokenised(s, tokenizer, model.config.n_ctx) for s in self._sources)
        return self._read[key]

    def _stored(self) -> tuple[Stream, ...]:
        streams = list[Stream]()
        for source, file in zip(self._sources, self._tokens, strict=False):
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
