"""The command line. Every command loads what it needs when it runs, so that `--help` and `--version` load nothing."""

from __future__ import annotations

import argparse
import difflib
import io
import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from circuitlab import __version__, paths
from circuitlab.cli.arguments import Parser, threads
from circuitlab.errors import BadMachine, CircuitLabError, UsageError, bounded
from circuitlab.files import FULL
from circuitlab.formats import DATA, PICTURES, SESSION, is_session, listed

COMMANDS = (
    "open",
    "compute",
    "analyses",
    "panels",
    "figure",
    "info",
    "import",
    "train",
    "measure",
    "lessons",
    "session",
    "doctor",
)
MODEL = "a shipped model's name, a folder, a weight file, or OWNER/NAME on the hub, perhaps with @REVISION"
EXITS = "exit status: 0 done, 1 internal error, 2 usage, 3 bad model, input or machine, 4 over the memory budget, 130 cancelled"


def _gib(text: str) -> float:
    value = float(text)
    if not 0 < value <= 2**20:  # no machine has more memory than that
        raise ValueError(text)
    return value


_gib.__name__ = "memory in GiB"  # argparse says: invalid … value


def _assume_argument(parser: argparse.ArgumentParser) -> None:
    tip = "values that the model's files do not state, by the names that `circuitlab info` lists"
    parser.add_argument("--assume", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help=tip)


def _subject_arguments(parser: argparse.ArgumentParser, series: bool = False) -> None:
    parser.add_argument("model", nargs="?", help=f"{MODEL}; not with --at")
    at = "model, prompt, interventions and conventions of a session, or of a step of its story; figures take its selection too"
    parser.add_argument("--at", metavar="FILE[#STEP]", help=at)
    _assume_argument(parser)
    which = "the weights of a training step, `final` (default)" + (
        ", or `all`: the whole series and the final ones" if series else ""
    )
    parser.add_argument("--checkpoint", default="final", metavar="STEP", help=which)
    text = parser.add_mutually_exclusive_group()
    text.add_argument("--text", help="the prompt")
    text.add_argument("--text-file", metavar="FILE", help="the prompt, from a UTF-8 file; - reads standard input")
    text.add_argument("--tokens", metavar="1,2,3", help="the prompt as token ids")
    parser.add_argument("--cut", default="", metavar="HEADS", help="heads to ablate (zero): L1H3,L0H2")
    parser.add_argument("--no-bos", action="store_true", help="do not prepend the beginning-of-sequence token")
    device = "the device to compute on: cpu, cuda, cuda:1, mps (default cpu; `circuitlab doctor` lists this machine's)"
    parser.add_argument("--device", default="cpu", metavar="NAME", help=device)
    parser.add_argument("--budget", type=_gib, default=4.0, metavar="GIB", help="memory budget (default 4)")
    parser.add_argument("--threads", type=threads, default=1, help="torch threads (default 1: bit-equal results)")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="circuitlab",
        description="A laboratory for transformer circuits. Without a command it opens the window.",
        epilog=EXITS,
    )
    parser.add_argument("--version", action="version", version=f"circuitlab {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    window = commands.add_parser("open", help="open the window on a model or a session")
    window.add_argument("model", nargs="?", help=f"{MODEL}; or a {SESSION} file")
    window.add_argument("--text", help="the prompt")
    _assume_argument(window)
    _add_compute_and_figure(commands)
    for name, text in (("analyses", "list the analyses and their parameters"), ("panels", "list the panels and their controls")):
        commands.add_parser(name, help=text)
    info = commands.add_parser("info", help="describe a model: configuration, files, assumptions")
    info.add_argument("model", help=MODEL)
    _assume_argument(info)
    info.add_argument("--json", action="store_true", help="print JSON")
    imported = commands.add_parser(
        "import", help="convert a checkpoint of an unknown family by a map of its tensor names", epilog=EXITS
    )
    imported.add_argument("file", metavar="FILE", help="a safetensors file, a state dict, or a folder of them")
    imported.add_argument("--map", required=True, metavar="MAP", help="a TOML file: see README, Any other checkpoint")
    imported.add_argument("--output", metavar="DIR", help="a new folder (default: beside FILE, its name with -circuitlab)")
    imported.add_argument(
        "--tokenizer", metavar="PATH", help="a tokenizer.json or a shipped model (default: the one beside FILE)"
    )
    imported.add_argument(
        "--check", action="store_true", help="only report what fits, is missing, unused or assumed; write nothing"
    )
    _add_training(commands)
    lessons = commands.add_parser("lessons", help="list the guided tours of the window, or check their files", epilog=EXITS)
    lessons.add_argument("files", nargs="*", metavar="FILE", help="lessons to check (default: all of them)")
    lessons.add_argument("--check", action="store_true", help="report what is wrong with them")
    about = "list what is in a session file and whether its models are found; its story as a lesson, and back"
    session = commands.add_parser("session", help=about, epilog=EXITS)
    session.add_argument("file", metavar="FILE", help="a .circuitlab file, or with -o a lesson")
    what = session.add_mutually_exclusive_group()
    what.add_argument("--json", action="store_true", help="print JSON")
    what.add_argument("--markdown", metavar="OUT.md", help="write the story as a lesson")
    what.add_argument("-o", "--out", metavar=f"OUT{SESSION}", help="write a lesson as a session, which stands at its first step")
    doctor = commands.add_parser("doctor", help="check this installation: libraries, devices, display")
    doctor.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _add_compute_and_figure(commands: Any) -> None:
    compute = commands.add_parser("compute", help="compute one analysis; print it or write it to files", epilog=EXITS)
    compute.add_argument("analysis", help="see `circuitlab analyses`")
    _subject_arguments(compute, series=True)
    compute.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="parameters")
    for form in DATA:
        words = f"write {form.name.upper()}{', - prints' if form.text else ''}"
        compute.add_argument(f"--{form.name}", metavar="FILE", help=words)
    pictures = listed(PICTURES, " or ")
    figure = commands.add_parser("figure", help=f"draw a panel as {pictures}, without a window", epilog=EXITS)
    figure.add_argument("panel", help="see `circuitlab panels`")
    _subject_arguments(figure)
    figure.add_argument("-o", "--out", required=True, metavar="FILE", help=f"{pictures} by its suffix")
    figure.add_argument("--heads", default="", help="the selected heads: L1H3,L0H2")
    figure.add_argument("--destination", type=int, help="the destination position, which attends")
    figure.add_argument("--source", type=int, help="the source position, which is attended to")
    figure.add_argument("--target", default="next", help="the logit to measure: next, an id such as 12, or a difference 12-34")
    figure.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="the panel's controls")
    from circuitlab.cli.paper_arguments import add_arguments

    add_arguments(figure)


def _add_training(commands: Any) -> None:
    train = commands.add_parser("train", help="train a small model from text")
    from circuitlab.cli.train_arguments import add_arguments

    add_arguments(train)
    measure = commands.add_parser("measure", help="losses and head scores along a model's checkpoints", epilog=EXITS)
    from circuitlab.cli.measure_arguments import add_arguments as add_measure_arguments

    add_measure_arguments(measure)


def _run(args: argparse.Namespace) -> int:
    if args.command == "doctor":
        from circuitlab import doctor

        return doctor.run(args.json)
    if getattr(args, "model", None) is not None:
        if not args.model.strip():
            raise UsageError("No model is named.", expected=MODEL, got=repr(args.model), remedy="Name a model.")
        if args.command == "open" and is_session(Path(args.model)):
            return _open_session(args)
        from circuitlab.cli.hub_terminal import fetch_if_needed

        fetch_if_needed(args.model)
    if args.command in (None, "open"):
        from circuitlab import launch

        model, assume = getattr(args, "model", None), getattr(args, "assume", [])
        source, text = model, getattr(args, "text", None)
        return launch.open_or_render(source, text, assume=_assumed(assume)) if assume else launch.open_or_render(source, text)
    if args.command == "train":
        from circuitlab.training.command import run

        return run(args)
    if args.command == "measure":
        from circuitlab.training.measure_command import run as measure

        return measure(args)
    if args.command == "session":
        from circuitlab.cli import lesson_files, session_command

        if args.markdown is not None:
            return lesson_files.write_lesson(Path(args.file), Path(args.markdown))
        if args.out is not None:
            return lesson_files.write_session(Path(args.file), Path(args.out))
        return session_command.run(args.file, args.json)
    if args.command == "lessons":
        from circuitlab.cli import lessons_command

        return lessons_command.run(args.check or bool(args.files), tuple(args.files))
    from circuitlab.cli import commands

    return commands.RUN[args.command](args)


def _open_session(args: argparse.Namespace) -> int:
    """The window on a session, which says itself what it shows."""
    if args.text is not None or args.assume:
        raise UsageError(
            "A session has its own text and models.",
            expected=f"{Path(args.model).name} alone",
            got="--text" if args.text is not None else "--assume",
            remedy="Change them in the window.",
        )
    from circuitlab import launch

    return launch.open_or_render(args.model)


def _assumed(items: list[str]) -> tuple[tuple[str, str], ...]:
    from circuitlab.model.loading.assumptions import pairs

    return pairs(items)


def _with_command(words: list[str]) -> list[str]:
    """A bare `circuitlab MODEL` is `open MODEL`. Raises `UsageError` for what looks like a mistyped command."""
    if not words or words[0].startswith("-") or words[0] in COMMANDS:
        return words
    near = difflib.get_close_matches(words[0], COMMANDS, 1, 0.75)
    if near and not Path(words[0]).exists() and words[0] not in paths.shipped_models():
        raise UsageError(
            "There is no such command or model.",
            expected=f"perhaps {near[0]}",
            got=words[0],
            remedy="Run `circuitlab --help` for the commands.",
        )
    return ["open", *words]


def _internal_error(error: Exception) -> int:
    """One line on the screen, the traceback in the log."""
    report = "".join(traceback.format_exception(error))
    where = paths.log_file()
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        with where.open("a", encoding="utf-8", errors="backslashreplace") as log:
            log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} ERROR circuitlab.cli.parser {' '.join(sys.argv)}\n{report}")
        details = f"The details are in {where}."
    except OSError:
        details = report
    print(f"This is a bug in CircuitLab: {bounded(f'{type(error).__name__}: {error}', 1000)}\n{details}", file=sys.stderr)
    return 1


def _printable() -> None:
    """Let a console that cannot show a character print its escape instead of failing."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    _printable()
    try:
        status = _status(argv)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # `circuitlab … | head`: the reader has closed the pipe, which is no fault; write nothing more
        _print_no_more()
        return 0
    except OSError as error:
        _print_no_more()
        remedy = "Free space or redirect the output elsewhere, then run the command again: results are not kept."
        print(BadMachine("The output could not be written.", got=error.strerror or str(error), remedy=remedy), file=sys.stderr)
        return BadMachine.exit_code


def _status(argv: Sequence[str] | None) -> int:
    """Run one command. Raises `OSError` if the output has no reader or the disk is full."""
    try:
        return _run(_parser().parse_args(_with_command(list(sys.argv[1:] if argv is None else argv))))
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    except CircuitLabError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("Cancelled.", file=sys.stderr)
        return 130
    except Exception as error:
        if isinstance(error, BrokenPipeError) or (isinstance(error, OSError) and error.errno in FULL):
            raise
        return _internal_error(error)


def _print_no_more() -> None:
    """Discard the output that Python still buffers, which would fail once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
