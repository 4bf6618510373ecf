"""`circuitlab train RECIPE --text FILES… --out DIR`: text to tokenizer to model, resumed where it was killed.

All arguments are checked before anything is written. In DIR: `state/` (tokens, tokenizer, the state a run resumes from),
`checkpoints/`, `metrics.json`, `progress.json`, and at the end `model/`, which can be opened anywhere and is named like DIR.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import shlex
import signal
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from circuitlab.counting import number_of
from circuitlab.disk.files import made_folder, need_folder
from circuitlab.disk.paths import without_folders
from circuitlab.errors import BadInput, BadMachine, cause
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.training.bpe import train_tokenizer
from circuitlab.training.corpus import Source, Stream, find_sources, tokenised
from circuitlab.training.files import alone_in, write_whole
from circuitlab.training.identity import claim, identity
from circuitlab.training.output import Output
from circuitlab.training.progress import Progress
from circuitlab.training.recipe import Recipe
from circuitlab.training.recipe_file import read_recipe

Say = Callable[[str], None]


def run(args: argparse.Namespace) -> int:
    """Train, or resume; then export the model directory to `OUT/model`. Raises `CircuitLabError`."""
    with Interrupts() as interrupts:
        need_folder(args.out)
        recipe = read_recipe(args.recipe)
        recipe = recipe if args.seed is None else dataclasses.replace(recipe, seed=args.seed)
        sources = find_sources(args.text)
        device = device_of(args.device)
        own_tokenizer = None if args.tokenizer is None else fitting(Tokenizer.from_file(args.tokenizer), recipe, args.tokenizer)
        ours = identity(recipe, sources, args.tokenizer)
        made_folder(args.out / "state", within=args.out)
        with alone_in(args.out / "state"):
            claim(args.out / "state", ours)
            progress = Progress(args.out, recipe.optimiser.steps)
            try:
                progress.update("tokenising")
                tokenizer, streams = prepare(recipe, sources, args.out, own_tokenizer)
                with room_on(device, recipe):
                    hashes = [one["content"] for one in ours["text"]]
                    _train(args, recipe, (tokenizer, streams, hashes), device, progress, interrupts)
            except (Exception, KeyboardInterrupt) as error:
                progress.failed(str(error) or "Stopped.")
                raise
    return 0


class Interrupts:
    """Ctrl-C, SIGTERM and the end of its terminal while a run trains: the first asks it to stop after the current step, so that
    nothing is lost.

    A context manager. `deferred`: set while training, so that a signal only sets `requested`. Otherwise, and for the second
    signal, KeyboardInterrupt is raised. Outside the main thread, where Python allows no handlers, it does nothing.
    """

    def __init__(self) -> None:
        self.requested, self.deferred = False, False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {n: signal.signal(n, self._handle) for n in (signal.SIGINT, signal.SIGTERM, *_hangup())}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.deferred and not self.requested:
            self.requested = True
        else:
            raise KeyboardInterrupt


def _hangup() -> tuple[signal.Signals, ...]:
    """The signal that the terminal is gone, unless whoever started the run had it ignored."""
    if sys.platform == "win32" or signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        return ()
    return (signal.SIGHUP,)


_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")  # CUDA and Metal; torch on a CPU; on Windows


@contextlib.contextmanager
def room_on(device: str, recipe: Recipe) -> Iterator[None]:
    """Turns torch's out-of-memory errors into a `BadMachine` that says what did not fit; other errors pass unchanged.

    The last saved state stands: a step interrupted in the optimiser may have updated only some of the weights.
    """
    try:
        yield
    except RuntimeError as error:  # torch.OutOfMemoryError is one, but only CUDA's is of that class
        if not any(phrase in str(error) for phrase in _OUT_OF_MEMORY):
            raise
        most = max(recipe.stages, key=lambda s: s.batch * s.context)
        raise BadMachine(
            "There is not enough memory to train this model.",
            expected=f"room for {most.batch} × {most.context} tokens on {device}",
            got=cause(error),
            remedy="Free memory, and the same command resumes from the last saved state; or use a smaller batch in a recipe of "
            "your own, or another --device.",
        ) from error


def prepare(
    recipe: Recipe, sources: tuple[Source, ...], out: Path, own_tokenizer: Tokenizer | None
) -> tuple[Tokenizer, tuple[Stream, ...]]:
    """Tokenizer and token streams, computed once and stored in `out/state`; `own_tokenizer` None: one is trained."""
    tokenizer_file = out / "state" / "tokenizer.json"
    if not tokenizer_file.is_file():
        train = lambda: train_tokenizer(sources, recipe.vocab, int(recipe.tokenizer_bytes))
        tokenizer = train() if own_tokenizer is None else own_tokenizer
        write_whole(tokenizer_file, tokenizer.file_text().encode())
    tokenizer = fitting(Tokenizer.from_file(tokenizer_file), recipe, tokenizer_file)
    n_ctx = recipe.config().n_ctx
    return tokenizer, tuple(_stream(s, tokenizer, n_ctx, out / "state" / f"tokens-{i}.npz") for i, s in enumerate(sources))


def fitting(tokenizer: Tokenizer, recipe: Recipe, path: Path) -> Tokenizer:
    """The tokenizer, checked: it has the recipe's size, and BOS is id 0. Raises `BadInput`."""
    if tokenizer.n_tokens != recipe.vocab:
        raise BadInput(
            "The tokenizer is not of the recipe's size.",
            expected=f"{number_of(recipe.vocab, 'token')} (vocab of {recipe.name})",
            got=f"{tokenizer.n_tokens:,} in {path}",
            remedy=f"Give another tokenizer, or vocab = {tokenizer.n_tokens} in a recipe of your own.",
        )
    if tokenizer.bos != 0:
        got = f"id {tokenizer.bos} in {path}" if tokenizer.bos is not None else f"no BOS in {path}"
        raise BadInput(
            "The tokenizer's BOS is not where training puts it.",
            expected="BOS as id 0",
            got=got,
            remedy="Give another --tokenizer, or none: one is trained then.",
        )
    return tokenizer


def _stream(source: Source, tokenizer: Tokenizer, n_ctx: int, file: Path) -> Stream:
    """The stored tokens of a source, tokenised again where the file is missing or damaged."""
    try:
        with file.open("rb") as opened, np.load(opened) as data:
            return Stream(source.label, source.share, data["train"], data["held_out"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        stream = tokenised(source, tokenizer, n_ctx)
        write_whole(file, lambda opened: np.savez(opened, train=stream.train, held_out=stream.held_out))
        return stream


def device_of(name: str) -> str:
    """torch's name of a device; "auto" is CUDA where available, else the CPU. Raises `BadMachine`."""
    import torch

    from circuitlab.model.devices import checked

    return checked("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else checked(name)


def _train(
    args: argparse.Namespace,
    recipe: Recipe,
    data: tuple[Tokenizer, tuple[Stream, ...], list[str]],
    device: str,
    progress: Progress,
    interrupts: Interrupts,
) -> None:
    import torch

    from circuitlab.training.card import device_words, export, lasted
    from circuitlab.training.loop import Trainer
    from circuitlab.training.repeats import name_pieces
    from circuitlab.training.series_measuring import set_outdated_aside

    torch.set_num_threads(args.threads)
    say = Output(args.out)
    tokenizer, streams, hashes = data
    for stream in streams:
        say(f"{stream.label}: {number_of(len(stream.train), 'token')}, share {stream.share:.2f}")
    pieces = name_pieces(tokenizer) if recipe.data.names else None
    trainer = Trainer(recipe, streams, args.out, device, progress, pieces)
    say(f"on {device_words(device)}")
    if trainer.resume(say):
        say(f"resumed at step {trainer.step}")
    interrupts.deferred = True
    trainer.train(say, args.stop_at, lambda: interrupts.requested)
    interrupts.deferred = False
    if interrupts.requested:  # in the last step, or while its checkpoint was measured
        raise trainer.stopped()
    if trainer.seconds:
        speed = trainer.tokens_seen / trainer.seconds
        tokens, long = number_of(trainer.tokens_seen, "token"), lasted(trainer.seconds)
        say(f"trained on {tokens} in {long}: {speed:,.0f} tokens/s, measuring apart")
    progress.update("measuring")
    export(trainer, tokenizer, args.out / "model", command_words(args, recipe), hashes)
    say(f"model written to {args.out / 'model'}")
    set_outdated_aside(args.out / "model")
    if not args.no_measure:
        measure_checkpoints(args.out / "model", streams, tokenizer, min(s.context for s in recipe.stages), say)
    progress.update("done")


def measure_checkpoints(model: Path, streams: tuple[Stream, ...], tokenizer: Tokenizer, shortest: int, say: Say) -> None:
    """Measure the series; text too short for it is reported and changes nothing. Raises `BadMachine`.

    `shortest`: the context of the shortest stage. In longer texts a checkpoint of that stage meets positions that it has never
    seen, and what it has learnt would show only where the next stage begins.
    """
    from circuitlab.training.measured_texts import CONTEXT
    from circuitlab.training.series_measuring import measure_series

    try:
        context = min(CONTEXT, shortest)
        measure_series(model, streams, tokenizer, context=context, say=lambda line: say(f"measured {line}"))
    except BadInput as error:
        say(f"not measured: {error.what} expected {error.expected}, got {error.got}")


def command_words(args: argparse.Namespace, recipe: Recipe) -> str:
    """The command to type again beside its files, with the output folder left open: the card goes to others, so that files have
    their names here, and their hashes in the card."""
    words = ["circuitlab", "train", without_folders(args.recipe), "--text", *map(without_folders, args.text)]
    words += ["--tokenizer", without_folders(str(args.tokenizer))] if args.tokenizer else []
    words += ["--seed", str(recipe.seed)] if args.seed is not None else []
    words += ["--threads", str(args.threads)] if args.threads != 1 else []
    return f"{shlex.join(words)} --out DIR"
