"""The command line. Every command loads what it needs when it runs, so that `--help` and `--version` load nothing."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from circuitlab import __version__, terminal
from circuitlab.cli import machine_arguments, reading_arguments
from circuitlab.cli.arguments import Parser
from circuitlab.disk import paths
from circuitlab.disk.files import FULL
from circuitlab.disk.formats import DATA, FILMS, PICTURES, SESSION, is_session, listed, opens_as_session
from circuitlab.errors import BadMachine, CircuitLabError, UsageError, bounded, cause, quoted
from circuitlab.interrupts import starting
from circuitlab.step_names import refuse_step
from circuitlab.unforeseen import write_log

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"  # what `add_subparsers` gives
COMMANDS = (
    "open",
    "present",
    "compute",
    "analyses",
    "panels",
    "figure",
    "film",
    "info",
    "tokens",
    "generate",
    "get",
    "import",
    "train",
    "measure",
    "witnesses",
    "sweep",
    "lessons",
    "session",
    "report",
    "sheet",
    "doctor",
)
MODEL = (
    "a shipped model's name, one of `circuitlab get`, a folder, a weight file, or OWNER/NAME on the hub, perhaps with @REVISION"
)
TARGETS = 'next, an id such as 12, a difference 12-34, or texts: \'" cat"\', \'" cat" - " dog"\''
EXITS = "exit status: 0 done, 1 internal error, 2 usage, 3 bad model, input or machine, 4 over the memory budget, 130 cancelled"


def _assume_argument(parser: argparse.ArgumentParser) -> None:
    tip = "values that the model's files do not state, by the names that `circuitlab info` lists"
    parser.add_argument("--assume", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help=tip)


def _subject_arguments(parser: argparse.ArgumentParser, series: bool = False) -> None:
    parser.add_argument("model", nargs="?", help=f"{MODEL}; not with --at")
    at = "model, prompt, interventions and conventions of a session, of a step of its story, or of a picture; figures take its "
    at += "selection too"
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
    edit = "an intervention, once or more: 'zero z L1H1', 'mean z L1H1', 'scale z L1H1 by 0.5', 'freeze pattern L1', "
    edit += "'patch resid_pre L2 @5 from \"…\"', 'project_out resid_pre L1 on \" cat\"' (README, Interventions)"
    parser.add_argument("--edit", action="append", default=[], metavar="WORDS", help=edit)
    reading_arguments.add_arguments(parser)
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32", help="what is computed in")
    parser.add_argument("--raw", action="store_true", help="weights as they are stored: no norm folded in, nothing centred")
    machine_arguments.add_arguments(parser)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="circuitlab",
        description="A laboratory for transformer circuits. Without a command it opens the window.",
        epilog=EXITS,
    )
    parser.add_argument("--version", action="version", version=f"circuitlab {__version__}")
    plugin = "analyses, panels and families from a Python file or a folder of such files; before or after the command, repeatable"
    parser.add_argument("--plugin", action="append", metavar="FILE", help=plugin)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    window = commands.add_parser("open", help="open the window on a model, a session or what a picture shows")
    window.add_argument("model", nargs="?", help=f"{MODEL}; or a {SESSION} file, or a picture with its view")
    window.add_argument("--text", help="the prompt")
    window.add_argument("--lesson", metavar="NAME", help="begin a lesson: see `circuitlab lessons`")
    _assume_argument(window)
    _add_present(commands)
    _add_compute_and_figure(commands)
    for name, text in (("analyses", "list the analyses and their parameters"), ("panels", "list the panels and their controls")):
        commands.add_parser(name, help=text)
    info = commands.add_parser("info", help="describe a model: configuration, files, assumptions")
    info.add_argument("model", help=MODEL)
    _assume_argument(info)
    info.add_argument("--json", action="store_true", help="print JSON")
    _add_tokens(commands)
    _add_generate(commands)
    _add_get(commands)
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
    about = "list what is in a session file or a picture and whether its models are found; its story as a lesson, and back"
    session = commands.add_parser("session", help=about, epilog=EXITS)
    session.add_argument("file", metavar="FILE", help=f"a {SESSION} file, a picture with its view, or with -o a lesson")
    what = session.add_mutually_exclusive_group()
    what.add_argument("--json", action="store_true", help="print JSON")
    what.add_argument("--markdown", metavar="OUT.md", help="write the story as a lesson")
    session.add_argument(
        "--results",
        action="store_true",
        help="with -o: compute what the session shows, and store it inside, for use without its models",
    )
    what.add_argument(
        "-o", "--out", metavar=f"OUT{SESSION}", help="write a lesson as a session, which stands at its first step; see --results"
    )
    machine_arguments.add_arguments(session.add_argument_group("with --results"))
    report = commands.add_parser("report", help="write a session's story with its figures and numbers as one page", epilog=EXITS)
    from circuitlab.cli.report_command import add_arguments as add_report_arguments

    add_report_arguments(report)
    machine_arguments.add_arguments(report)
    sheet = commands.add_parser(
        "sheet", help="a step's panels as one figure of parts A, B, C, with caption and data", epilog=EXITS
    )
    from circuitlab.cli.sheet_arguments import add_arguments

    add_arguments(sheet)
    machine_arguments.add_arguments(sheet)
    doctor = commands.add_parser("doctor", help="check this installation: libraries, devices, display")
    doctor.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _add_compute_and_figure(commands: Commands) -> None:
    compute = commands.add_parser("compute", help="compute one analysis; print it or write it to files", epilog=EXITS)
    compute.add_argument("analysis", help="see `circuitlab analyses`")
    _subject_arguments(compute, series=True)
    compute.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="parameters")
    for form in DATA:
        words = f"write {form.name.upper()}{', - prints' if form.text else ''}"
        compute.add_argument(f"--{form.name}", metavar="FILE", help=words)
    paths = "say in these files in which folders the model and texts lie; else their names and hashes alone"
    compute.add_argument("--full-paths", action="store_true", help=paths)
    pictures = listed(PICTURES, " or ")
    figure = commands.add_parser("figure", help=f"draw a panel as {pictures}, without a window", epilog=EXITS)
    figure.add_argument("panel", nargs="?", help="see `circuitlab panels`; with --at, none: all that are shown, as one sheet")
    _subject_arguments(figure)
    figure.add_argument("-o", "--out", required=True, metavar="FILE", help=f"{pictures} by its suffix")
    figure.add_argument("--heads", default="", help="the selected heads: L1H3,L0H2")
    figure.add_argument("--destination", type=int, help="the destination position, which attends")
    figure.add_argument("--source", type=int, help="the source position, which is attended to")
    figure.add_argument("--target", default="next", help=f"the logit to measure: {TARGETS}")
    figure.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="the panel's controls")
    figure.add_argument("--whole", action="store_true", help="with --at: the whole figure where the step has zoomed into it")
    inside = "do not write into the file what it shows: with it, the window, --at and `circuitlab session` open the file"
    figure.add_argument("--no-view", action="store_true", help=inside)
    from circuitlab.cli.paper_arguments import add_arguments

    add_arguments(figure)
    _add_film(commands)


def _add_tokens(commands: Commands) -> None:
    tokens = commands.add_parser("tokens", help="how a model reads a text: ids, pieces, positions, words", epilog=EXITS)
    tokens.add_argument("model", help=MODEL)
    text = tokens.add_mutually_exclusive_group(required=True)
    text.add_argument("--text", help="the text")
    text.add_argument("--text-file", metavar="FILE", help="the text, from a UTF-8 file; - reads standard input")
    reading_arguments.add_arguments(tokens)
    tokens.add_argument("--json", action="store_true", help="print JSON")
    tokens.set_defaults(tokens=None)


def _add_generate(commands: Commands) -> None:
    from circuitlab.cli.generate_command import add_arguments

    generate = commands.add_parser("generate", help="what a model continues a prompt with", epilog=EXITS)
    _subject_arguments(generate)
    add_arguments(generate)


def _add_film(commands: Commands) -> None:
    films = listed(FILMS, " or ")
    film = commands.add_parser("film", help=f"write what a step plays as an animated picture ({films})", epilog=EXITS)
    film.add_argument("file", metavar="FILE#STEP", help="a session and one of its steps; without a step where it stands")
    film.add_argument("-o", "--out", required=True, metavar="OUT", help=f"{films} by its suffix")
    film.add_argument("--size", default="1280x720", metavar="WxH", help="in px (default 1280x720); text grows with the height")
    film.add_argument("--fps", type=float, default=4.0, metavar="N", help="frames a second (default 4)")
    film.add_argument("--theme", choices=("light", "dark"), default="light", help="of the slide (default light)")
    shown = "a panel of the film, up to four times (default: those that the step shows)"
    film.add_argument("--panel", action="append", default=[], metavar="NAME", help=shown)
    over = "in place of what the step plays a parameter of the constructed model, offset=1:8, or alpha=1:20:25 for 25 frames;"
    over += " checkpoint=0:final a training"
    film.add_argument("--over", default="", metavar="NAME=FIRST:LAST", help=over)
    film.add_argument("--once", action="store_true", help="stop at the end; otherwise it begins anew")
    machine_arguments.add_arguments(film)


def _add_present(commands: Commands) -> None:
    from circuitlab.cli.present_command import add_arguments

    add_arguments(commands.add_parser("present", help="present a session's story on a stage", epilog=EXITS))


def _add_get(commands: Commands) -> None:
    from circuitlab.cli.get_arguments import add_arguments

    add_arguments(
        commands.add_parser("get", help="get a known model by its name, or the checkpoints of a shipped one", epilog=EXITS)
    )


def _add_training(commands: Commands) -> None:
    train = commands.add_parser("train", help="train a small model from text")
    from circuitlab.cli.train_arguments import add_arguments

    add_arguments(train)
    measure = commands.add_parser("measure", help="losses and head scores along a model's checkpoints", epilog=EXITS)
    from circuitlab.cli.measure_arguments import add_arguments as add_measure_arguments

    add_measure_arguments(measure)
    witnesses = commands.add_parser(
        "witnesses", help="what models can be seen to do: copying, names, induction, heads", epilog=EXITS
    )
    from circuitlab.cli.witnesses_arguments import add_arguments as add_witnesses_arguments

    add_witnesses_arguments(witnesses, MODEL)
    sweep = commands.add_parser("sweep", help="answer a declared grid of questions into one table", epilog=EXITS)
    from circuitlab.cli.sweep_arguments import add_arguments as add_sweep_arguments

    add_sweep_arguments(sweep)
    machine_arguments.add_arguments(sweep)


_OF_WHOLE = {  # what is about a whole session, and what to do where a step is named
    "open": ("The window opens a whole session.", "Drop the step; it is one key away in the window: Story (F2)."),
    "present": ("A whole story is presented.", "Drop the step, and name it with --from."),
    "report": ("A report is about a whole session.", "Drop the step; `circuitlab sheet FILE#STEP` writes the figures of one."),
    "session": ("A whole session is listed.", "Drop the step."),
}


def _run(args: argparse.Namespace) -> int:
    if (place := getattr(args, "model" if args.command == "open" else "file", None)) and args.command in _OF_WHOLE:
        refuse_step(place, *_OF_WHOLE[args.command])
    if args.command == "doctor":
        with starting():
            from circuitlab import doctor

        return doctor.run(args.json)
    if getattr(args, "model", None) is not None:
        if not args.model.strip():
            raise UsageError("No model is named.", expected=MODEL, got=quoted(args.model), remedy="Name a model.")
        if args.command == "open" and opens_as_session(Path(args.model)):
            return _open_session(args)
        with starting():
            from circuitlab.cli.hub_terminal import fetch_if_needed

        fetch_if_needed(args.model)
    if args.command in (None, "open"):
        with starting():
            from circuitlab import launch

        model, assume = getattr(args, "model", None), getattr(args, "assume", [])
        text, lesson = getattr(args, "text", None), _lesson(getattr(args, "lesson", None))
        return launch.open_or_render(model, text, assume=_assumed(assume), lesson=lesson)
    if args.command == "present":
        from circuitlab.cli import present_command

        return present_command.run(args)
    if args.command == "get":
        with starting():
            from circuitlab.cli import get_command

        return get_command.run(args)
    if args.command == "train":
        with starting():
            from circuitlab.training.command import run

        return run(args)
    if args.command == "measure":
        with starting():
            from circuitlab.training.measure_command import run as measure

        return measure(args)
    if args.command == "witnesses":
        with starting():
            from circuitlab.cli import witnesses_command

        return witnesses_command.run(args)
    if args.command == "sweep":
        with starting():
            from circuitlab.cli import sweep_command

        return sweep_command.command(args)
    if args.command == "session":
        with starting():
            from circuitlab.cli import lesson_files, session_command

        if args.results:
            return session_command.write_results(args)
        if args.markdown is not None:
            return lesson_files.write_lesson(Path(args.file), Path(args.markdown))
        if args.out is not None:
            return lesson_files.write_session(Path(args.file), Path(args.out))
        return session_command.run(args.file, args.json)
    if args.command == "film":
        with starting():
            from circuitlab.cli import film_command

        return film_command.run(args)
    if args.command == "report":
        with starting():
            from circuitlab.cli import report_command, session_command

        return report_command.run(args)
    if args.command == "sheet":
        with starting():
            from circuitlab.cli import sheet_command

        return sheet_command.run(args)
    if args.command == "lessons":
        with starting():
            from circuitlab.cli import lessons_command

        return lessons_command.run(args.check or bool(args.files), tuple(args.files))
    with starting():
        from circuitlab.cli import commands

    return commands.RUN[args.command](args)


def _lesson(name: str | None) -> str:
    """The name of a lesson that is there, "" for None. Raises `UsageError`."""
    if name is None:
        return ""
    from circuitlab.lessons.lesson import files

    names = [path.stem for path in files()]
    if name not in names:
        raise UsageError(
            "There is no such lesson.",
            expected=" ".join(names),
            got=quoted(name),
            remedy="Name one of these; `circuitlab lessons` says what they show.",
        )
    return name


def _open_session(args: argparse.Namespace) -> int:
    """The window on a session or a picture, which say themselves what they show."""
    if named := [f"--{name}" for name in ("text", "lesson", "assume") if getattr(args, name) not in (None, [])]:
        raise UsageError(
            f"A {'session' if is_session(Path(args.model)) else 'picture'} has its own text, models and story.",
            expected=f"{Path(args.model).name} alone",
            got=" ".join(named),
            remedy="Change them in the window.",
        )
    from circuitlab import launch

    return launch.open_or_render(args.model)


def _assumed(items: list[str]) -> tuple[tuple[str, str], ...]:
    from circuitlab.model.loading.assumptions import pairs

    return pairs(items)


def _without_plugins(words: list[str]) -> list[str]:
    """The words without `--plugin FILE`, wherever they stand: these files are among the plug-ins from now on.

    Raises `UsageError`.
    """
    rest, files = list[str](), list[str]()
    every = iter(words)
    for word in every:
        if word == "--":
            rest += [word, *every]
        elif word == "--plugin":
            files.append(next(every, ""))
        elif word.startswith("--plugin="):
            files.append(word.partition("=")[2])
        else:
            rest.append(word)
    if files:
        from circuitlab.plugins import requested

        requested(*files)
    return rest


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
    details = write_log(f"{time.strftime('%Y-%m-%d %H:%M:%S')} ERROR circuitlab.cli.parser {' '.join(sys.argv)}\n{report}")
    _tell(f"This is a bug in {_whose(error)}: {bounded(f'{type(error).__name__}: {error}', 1000)}\n{details}")
    return 1


def _whose(error: Exception) -> str:
    """CircuitLab, or the plug-in whose code an exception came through."""
    from circuitlab.plugins import blamed

    plugin = blamed(error)
    return "CircuitLab" if plugin is None else f"the plug-in {plugin}"


def _tell(words: object) -> None:
    """Write to standard error; where that cannot be, the exit status says it alone."""
    with contextlib.suppress(OSError):
        print(words, file=sys.stderr, flush=True)


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
    with terminal.guarded():
        return _printed(argv)


def _printed(argv: Sequence[str] | None) -> int:
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
        _tell(BadMachine("The output could not be written.", got=cause(error), remedy=remedy))
        return BadMachine.exit_code


def _status(argv: Sequence[str] | None) -> int:
    """Run one command. Raises `OSError` if the output has no reader or the disk is full."""
    try:
        _need_current_folder()
        words = _without_plugins(list(sys.argv[1:] if argv is None else argv))
        return _run(_parser().parse_args(_with_command(words)))
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    except CircuitLabError as error:
        _tell(error)
        return error.exit_code
    except KeyboardInterrupt:
        _tell("Cancelled.")
        return 130
    except Exception as error:
        if isinstance(error, BrokenPipeError) or (isinstance(error, OSError) and error.errno in FULL):
            raise
        return _internal_error(error)


def _need_current_folder() -> None:
    """Raise `BadMachine` where the folder that the command runs in has been removed: libraries end the process there."""
    try:
        os.getcwd()
    except OSError as error:
        remedy = "Change to another folder, then run the command again."
        raise BadMachine(
            "The current folder is gone.", expected="a folder that is there", got=cause(error), remedy=remedy
        ) from error


def _print_no_more() -> None:
    """Discard the output that Python still buffers, which would fail once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
