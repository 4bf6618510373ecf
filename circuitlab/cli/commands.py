"""The commands that compute: each a function of its parsed arguments that returns the exit status."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from circuitlab import api
from circuitlab.analysis.base import AnyAnalysis, analyses, find_analysis
from circuitlab.cli import import_command, info_command
from circuitlab.cli.drawing import load_drawing
from circuitlab.cli.machine_arguments import engine_of
from circuitlab.cli.output import print_answer, print_head, print_table, progress
from circuitlab.cli.paper_arguments import paper_of
from circuitlab.cli.reading_arguments import begins, given
from circuitlab.counting import number_of
from circuitlab.disk.files import need_writable, write_whole
from circuitlab.disk.formats import DATA
from circuitlab.draw.look.paper import Paper, format_of, height_remark
from circuitlab.engine.codec import describe, parse, parse_params
from circuitlab.engine.export_data import AnswerExport, data_bytes, export_of
from circuitlab.engine.export_series import joined_table, series_bytes
from circuitlab.engine.request import Request, needs
from circuitlab.engine.texts import text_of
from circuitlab.errors import BadInput, UsageError, cause
from circuitlab.model.archives.offering import need_checkpoints
from circuitlab.model.loading.assumptions import pairs
from circuitlab.model.subject import Head, Subject
from circuitlab.plugins import failures, problems
from circuitlab.state.cuts import ablation
from circuitlab.state.edit_syntax import read_edits
from circuitlab.story.text_in_parameters import target_of_text, with_numbers
from circuitlab.terminal import on_one_line

if TYPE_CHECKING:
    from circuitlab.report.saved_session import SavedStep

LONGEST_PROMPT = 16 << 20  # bytes; longer than any context


def _open(args: argparse.Namespace) -> api.Model:
    if args.model is None:
        raise UsageError("No model is named.", expected="MODEL, or --at FILE", got="neither", remedy="Name one of them.")
    engine = engine_of(args)
    presented = {"dtype": args.dtype, "raw": args.raw, "bos": begins(args), "special": not args.no_special}
    model = api.open(args.model, use=engine, assume=dict(pairs(args.assume)), **presented)
    return model if args.checkpoint in ("final", "all") else model.at_step(parse(int, args.checkpoint, "--checkpoint"))


def _need_one_checkpoint(args: argparse.Namespace, what: str, remedy: str) -> None:
    if args.checkpoint == "all":
        raise UsageError(what, expected="a training step or final", got="all", remedy=remedy)


def _all_steps(model: api.Model) -> list[int | None]:
    """Every checkpoint and the final weights. Raises `BadInput` without a series, `BadModel` where it is not on this machine."""
    if not model.steps:
        need_checkpoints(model.ref, "all of them")
        remedy = "Leave out --checkpoint to use the final weights."
        raise BadInput(
            "This model has no checkpoint series.", expected="checkpoints/step-N.safetensors", got=model.ref.name, remedy=remedy
        )
    return [*model.steps, None]


def _prompt(args: argparse.Namespace) -> tuple[str | None, tuple[int, ...] | None]:
    """The prompt as text or as ids; (None, None) without one. Raises `UsageError`, `BadInput`."""
    if args.tokens is not None and (option := given(args)):
        remedy = f"Drop {option}: {'ids are not spelled' if option == '--no-special' else 'nothing is prepended to ids'}."
        raise UsageError(
            "Token ids are taken as they are.", expected=f"{option} with a text", got=f"{option} with --tokens", remedy=remedy
        )
    if args.tokens is not None:
        return None, parse(tuple[int, ...], args.tokens, "--tokens")
    if args.text_file is None:
        return args.text, None
    try:
        return text_of(_bytes_of(args.text_file)), None
    except (OSError, ValueError) as error:
        remedy = "Check the path, and save the file as UTF-8."
        raise BadInput("The text cannot be read.", expected="a UTF-8 file", got=cause(error), remedy=remedy) from error


def _bytes_of(name: str) -> bytes:
    """The bytes of a prompt's file; "-" is standard input. Raises `BadInput` if it is too long, `OSError`."""
    if not name:
        remedy = "Name a file."
        raise UsageError("No file is named.", expected="--text-file FILE, or - for standard input", got="nothing", remedy=remedy)
    if name == "-" and sys.stdin is None:
        remedy = "Send a text to it, or name a file."
        raise BadInput("Standard input is closed.", expected="a text", got="no standard input", remedy=remedy)
    with contextlib.nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as file:
        data = file.read(LONGEST_PROMPT + 1)
    if len(data) > LONGEST_PROMPT:
        raise BadInput(
            "The text is too long for a prompt.",
            expected=f"at most {LONGEST_PROMPT >> 20} MiB",
            got="more" if name == "-" else f"more in {name}",
            remedy="Give a part of it; the analyses over_prompts and in_context read whole files.",
        )
    return data


def _step_at(args: argparse.Namespace) -> SavedStep | None:
    """The step of a session that --at names, None without it. Raises `UsageError` beside options that say the same."""
    from circuitlab.report.saved_session import refuse_beside, step_at

    if args.at is None:
        return None
    options = {"MODEL": args.model, "--assume": args.assume, "--text": args.text is not None, "--text-file": args.text_file}
    options |= {"--tokens": args.tokens, "--cut": args.cut, "--edit": args.edit, "--no-bos": args.no_bos}
    options |= {
        "--no-special": args.no_special,
        "--front": args.front is not None,
        "--bos": args.bos,
        "--raw": args.raw,
        "--dtype": args.dtype != "float32",
    }
    options |= {"--checkpoint": args.checkpoint != "final"}
    options |= {f"--{name}": getattr(args, name, None) is not None for name in ("destination", "source")}
    options |= {"--heads": getattr(args, "heads", ""), "--target": getattr(args, "target", "next") != "next"}
    refuse_beside(args.at, options)
    return step_at(args.at, engine_of(args))


def _need_readable(args: argparse.Namespace) -> None:
    """Raise `UsageError` for interventions that cannot be read, before a model is opened."""
    for words in args.edit:
        read_edits(words)
    parse(tuple[Head, ...], args.cut, "--cut")


def _remark_on_cuts(analysis: AnyAnalysis, params: object, subject: Subject) -> None:
    """Say that interventions change nothing where they are not read."""
    if subject.edits and needs(analysis, params) == "weights":
        print(f"{analysis.name} reads no interventions: its numbers are those without them", file=sys.stderr)


def _pairs(items: list[str]) -> dict[str, str]:
    pairs = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals:
            raise UsageError("A parameter has no value.", expected="KEY=VALUE", got=item, remedy="Write = and a value after it.")
        if key in pairs:
            raise UsageError("A parameter is given twice.", expected=f"one value of {key}", got=item, remedy="Drop one of them.")
        pairs[key] = value
    return pairs


def compute(args: argparse.Namespace) -> int:
    """`circuitlab compute`."""
    analysis = find_analysis(args.analysis)
    values = _pairs(args.set)
    params = parse_params(analysis.params, with_numbers(analysis.params, values, None))
    targets = _targets(args)
    _need_readable(args)
    step = _step_at(args)
    if step is not None:
        engine, subject = step.of.engine, step.state.subject
        params = _of_model(analysis.params, values, api.Model(subject.model, engine), subject)
    else:
        model = _open(args)
        text, tokens = _prompt(args)
        engine = model.engine
        subject = model.subject(text, tokens, edits=args.edit, cut=args.cut)
        params = _of_model(analysis.params, values, model, subject)
        if args.checkpoint == "all":
            _remark_on_cuts(analysis, params, subject)
            return _compute_series(model, Request(analysis, params, subject), targets, args.full_paths)
    _remark_on_cuts(analysis, params, subject)
    with progress(args.analysis) as ctx:
        answer = engine.answer(Request(analysis, params, subject), ctx, fresh=True)
    for form, target in targets.items():
        _put(data_bytes(export_of(engine, answer, folders=args.full_paths), form), target)
    if not targets:
        print_answer(export_of(engine, answer, identified=False))
    return 0


def _of_model(cls: type[object], values: Mapping[str, str], model: api.Model, subject: Subject) -> object:
    """The parameters, with ids and positions in the place of texts."""
    return parse_params(cls, with_numbers(cls, values, model.engine.store.open(model.ref), subject.tokens))


def _compute_series(model: api.Model, request: Request, targets: dict[str, str], folders: bool) -> int:
    """The same request for every checkpoint: one file, or one table."""
    answers: list[AnswerExport] = []
    for step in _all_steps(model):
        subject = replace(request.subject, model=model.at_step(step).ref)
        with progress(f"{request.analysis.name} · {'final' if step is None else f'step {step}'}") as ctx:
            answer = model.engine.answer(replace(request, subject=subject), ctx, fresh=True)
        answers.append(export_of(model.engine, answer, identified=bool(targets), folders=folders))
    for form, target in targets.items():
        _put(series_bytes(answers, form), target)
    if not targets:
        print_head(answers[-1], number_of(len(answers), "checkpoint"))
        print_table(joined_table(answers))
    return 0


def _put(data: bytes, target: str) -> None:
    """Write to a file; "-" prints."""
    if target != "-":
        return write_whole(Path(target), data, named=True)
    if sys.stdout.isatty() and b"\0" not in data:  # a text, for somebody's eyes
        print(data.decode("utf-8"), end="")
        return None
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.flush()
    return None


def _targets(args: argparse.Namespace) -> dict[str, str]:
    """The file of each format: the option determines the format, whatever the suffix.

    Raises `UsageError`, and `BadMachine` where one of them could not be written.
    """
    targets = {form.name: t for form in DATA if (t := getattr(args, form.name)) is not None}
    if list(targets.values()).count("-") > 1:
        raise UsageError(
            "Only one format can be printed.",
            expected="one - among " + " ".join(f"--{form.name}" for form in DATA),
            got="several",
            remedy="Name a file for the others.",
        )
    if "" in targets.values():
        raise UsageError("The data cannot be written.", expected="the name of a file, or -", got="nothing", remedy="Name one.")
    files = [Path(target) for target in targets.values() if target != "-"]
    need_writable(*files)
    if len(set(map(os.path.realpath, files))) < len(files):
        raise UsageError(
            "Two formats go to one file.", expected="a file each", got=" ".join(targets.values()), remedy="Change one of them."
        )
    return targets


def list_analyses(args: argparse.Namespace) -> int:
    """`circuitlab analyses`."""
    for name, entry in analyses().items():
        if entry.derived:
            continue
        of = "" if entry.plugin is None else f", of {entry.plugin}"
        print(f"{name}  ({entry.needs}, {entry.lane}, version {entry.version}{of})\n    {entry.summary}")
        _print_fields(entry.params)
    return _plugins_that_failed()


def _plugins_that_failed() -> int:
    """Name the plug-ins of which nothing could be listed."""
    for error in failures().values():
        print(error, file=sys.stderr)
    for problem in problems():
        print(f"A plug-in cannot be read: {on_one_line(problem)}", file=sys.stderr)
    return 0


def _print_fields(cls: type[object]) -> None:
    for field in describe(cls):
        print(f"    --set {field.name}={field.default_text}  {field.type_name}" + (f"  {field.tip}" if field.tip else ""))


def list_panels(args: argparse.Namespace) -> int:
    """`circuitlab panels`."""
    from circuitlab.figures.contracts.panel import with_plugins

    for name, panel in with_plugins().items():
        of = "" if panel.plugin is None else f"  (of {panel.plugin})"
        print(f"{name}  {panel.title}{of}\n    {panel.help}")
        _print_fields(panel.view)
    return _plugins_that_failed()


def figure(args: argparse.Namespace) -> int:
    """`circuitlab figure`."""
    from circuitlab.figures.contracts.panel import find_panel
    from circuitlab.figures.contracts.unasked import without_choice
    from circuitlab.report.render import figure_of, view_text, with_marks, write
    from circuitlab.session_files.picture_view import PictureView

    if args.panel is None:
        return _sheet(args)
    panel, paper, out = find_panel(args.panel), paper_of(args), Path(args.out)
    format_of(out)
    need_writable(out)
    controls = _pairs(args.set)
    view = parse_params(panel.view, controls)
    _need_readable(args)
    target_of_text(args.target, None)
    load_drawing()
    step = _step_at(args)
    if step is not None:
        picture = step.figure(panel.name, None, paper, controls, args.whole)
        with_marks(panel, picture.figure)
        return _written(out, paper, picture.write(out, paper, not args.no_view))
    if args.whole:
        remedy = "Drop --whole: without --at a figure is drawn whole."
        raise UsageError("There is no part to draw.", expected="--whole with --at", got="--whole alone", remedy=remedy)
    heads = parse(tuple[Head, ...], args.heads, "--heads")
    _need_one_checkpoint(args, "A figure shows one checkpoint.", "Draw one figure per checkpoint.")
    model = _open(args)
    text, tokens = _prompt(args)
    target = target_of_text(args.target, model.engine.store.open(model.ref))
    state = model.state(text, tokens, None, heads, args.destination, args.source, target, args.cut, args.edit)
    state = state.with_view(panel.name, view)
    chosen = {"heads": bool(heads), "places": args.destination is not None or args.source is not None}
    unchosen = tuple(kind for kind, one in chosen.items() if not one)
    figure = with_marks(panel, figure_of(model.engine, panel, state))
    drawn = without_choice(figure, "heads" in unchosen, "places" in unchosen)
    inside = "" if args.no_view else view_text(model.engine, PictureView(state, panel.name, unchosen=unchosen))
    return _written(out, paper, write(drawn, out, paper, view=inside))


def _written(out: Path, paper: Paper, height_mm: float) -> int:
    """Say of a picture that has been written what must be known of it."""
    if remark := height_remark(height_mm):
        print(on_one_line(f"{out}: {paper.width_mm:g} × {height_mm:.0f} mm, {remark}"), file=sys.stderr)
    return 0


def _sheet(args: argparse.Namespace) -> int:
    """All panels of a step in one picture."""
    from circuitlab.report.sheet import WIDE

    if args.at is None:
        expected, remedy = "PANEL MODEL, or --at FILE#STEP", "Name a panel; `circuitlab panels` lists them."
        raise UsageError("No panel is named.", expected=expected, got="none", remedy=remedy)
    if args.set or args.whole:
        got = "--set" if args.set else "--whole"
        raise UsageError(
            "A sheet has several panels.", expected=f"PANEL with {got}", got=got, remedy=f"Name a panel, or drop {got}."
        )
    out = Path(args.out)
    format_of(out)
    need_writable(out)
    step = _step_at(args)
    assert step is not None
    paper = paper_of(args, WIDE)
    sheet = step.sheet(paper)
    picture = sheet.drawn(out.suffix.lower(), "" if args.no_view else sheet.view_text())
    write_whole(out, picture.data, named=True)
    return _written(out, paper, picture.height_mm)


def tokens(args: argparse.Namespace) -> int:
    """`circuitlab tokens`."""
    from circuitlab.cli import tokens_command

    return tokens_command.run(args, _prompt(args)[0])


def generate(args: argparse.Namespace) -> int:
    """`circuitlab generate`."""
    from circuitlab.api.generation import need_sampling
    from circuitlab.cli import generate_command

    need_sampling(args.n, args.temperature, args.seed)
    _need_readable(args)
    _need_one_checkpoint(args, "One checkpoint continues a prompt.", "Run it for each checkpoint.")
    if (step := _step_at(args)) is not None:
        subject = step.state.subject
        model = api.Model(subject.model, step.of.engine, conventions=subject.conventions)
        return generate_command.run(args, model, tokens=subject.tokens, edits=subject.edits)
    model = _open(args)
    text, tokens = _prompt(args)
    cuts = map(ablation, parse(tuple[Head, ...], args.cut, "--cut"))
    return generate_command.run(args, model, text, tokens, (*args.edit, *cuts))


RUN: dict[str, Callable[[argparse.Namespace], int]] = {
    "compute": compute,
    "analyses": list_analyses,
    "panels": list_panels,
    "figure": figure,
    "generate": generate,
    "tokens": tokens,
    "info": info_command.run,
    "import": import_command.run,
}
