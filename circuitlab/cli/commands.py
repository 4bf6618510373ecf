"""The commands that compute: each a function of its parsed arguments that returns the exit status."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from circuitlab import api
from circuitlab.analysis.base import analyses, find_analysis
from circuitlab.analysis.checks.model_facts import ModelFactsParams, model_facts
from circuitlab.cli.output import print_answer, print_table, progress
from circuitlab.cli.paper_arguments import paper_of
from circuitlab.counting import number_of
from circuitlab.draw.look.paper import format_of
from circuitlab.engine.codec import describe, parse, parse_params, to_json
from circuitlab.engine.engine import GIB, Engine
from circuitlab.engine.export_data import AnswerExport, data_bytes, export_of
from circuitlab.engine.export_series import joined_table, series_bytes
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.engine.texts import text_of
from circuitlab.errors import BadInput, BadMachine, UsageError, bounded
from circuitlab.files import write_whole
from circuitlab.formats import DATA
from circuitlab.model.intervention import Intervention
from circuitlab.model.loading.assumptions import Assumption, pairs
from circuitlab.model.records.known_heads import KnownHeads, complaints, known_heads
from circuitlab.model.subject import Head, Target
from circuitlab.session.cuts import ablation

if TYPE_CHECKING:
    from circuitlab.report.saved_session import SavedStep

LONGEST_PROMPT = 16 << 20  # bytes; longer than any context


def _engine(args: argparse.Namespace) -> Engine:
    torch.set_num_threads(args.threads)
    return Engine(ModelStore(), int(args.budget * GIB), args.device)


def _open(args: argparse.Namespace) -> api.Model:
    if args.model is None:
        raise UsageError("No model is named.", expected="MODEL, or --at FILE", got="neither", remedy="Name one of them.")
    engine = _engine(args)
    model = api.open(args.model, use=engine, assume=dict(pairs(args.assume)))
    return model if args.checkpoint in ("final", "all") else model.at_step(parse(int, args.checkpoint, "--checkpoint"))


def _all_steps(model: api.Model) -> list[int | None]:
    """Every checkpoint and the final weights. Raises `BadInput` without a series."""
    if not model.steps:
        remedy = "Leave out --checkpoint to use the final weights."
        raise BadInput(
            "This model has no checkpoint series.", expected="checkpoints/step-N.safetensors", got=model.ref.name, remedy=remedy
        )
    return [*model.steps, None]


def _prompt(args: argparse.Namespace) -> tuple[str | None, tuple[int, ...] | None]:
    """The prompt as text or as ids; (None, None) without one. Raises `UsageError`, `BadInput`."""
    if args.tokens is not None and args.no_bos:
        remedy = "Drop --no-bos: no BOS is prepended to ids."
        raise UsageError(
            "Token ids are taken as they are.", expected="--no-bos with a text", got="--no-bos with --tokens", remedy=remedy
        )
    if args.tokens is not None:
        return None, parse(tuple[int, ...], args.tokens, "--tokens")
    if args.text_file is None:
        return args.text, None
    try:
        return text_of(_bytes_of(args.text_file)), None
    except (OSError, UnicodeDecodeError) as error:
        remedy = "Check the path, and save the file as UTF-8."
        raise BadInput("The text cannot be read.", expected="a UTF-8 file", got=str(error), remedy=remedy) from error


def _bytes_of(name: str) -> bytes:
    """The bytes of a prompt's file; "-" is standard input. Raises `BadInput` if it is too long, `OSError`."""
    if not name:
        remedy = "Name a file."
        raise UsageError("No file is named.", expected="--text-file FILE, or - for standard input", got="nothing", remedy=remedy)
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
    given = {"MODEL": args.model, "--assume": args.assume, "--text": args.text is not None, "--text-file": args.text_file}
    given |= {"--tokens": args.tokens, "--cut": args.cut, "--no-bos": args.no_bos}
    given |= {"--checkpoint": args.checkpoint != "final"}
    given |= {f"--{name}": getattr(args, name, None) is not None for name in ("destination", "source")}
    given |= {"--heads": getattr(args, "heads", ""), "--target": getattr(args, "target", "next") != "next"}
    refuse_beside(args.at, given)
    return step_at(args.at, _engine(args))


def _cuts(args: argparse.Namespace) -> tuple[Intervention, ...]:
    return tuple(ablation(h) for h in (parse(tuple[Head, ...], args.cut, "--cut") if args.cut else ()))


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
    params = parse_params(analysis.params, _pairs(args.set))
    targets = _targets(args)
    step = _step_at(args)
    if step is not None:
        engine, subject = step.of.engine, step.state.subject
    else:
        model = _open(args)
        text, tokens = _prompt(args)
        engine = model.engine
        subject = model.subject(text, tokens, False if args.no_bos and text is not None else None, _cuts(args))
        if args.checkpoint == "all":
            return _compute_series(model, Request(analysis, params, subject), targets)
    with progress(args.analysis) as ctx:
        answer = engine.answer(Request(analysis, params, subject), ctx, fresh=True)
    for form, target in targets.items():
        _put(data_bytes(export_of(engine, answer), form), target)
    if not targets:
        print_answer(export_of(engine, answer, identified=False))
    return 0


def _compute_series(model: api.Model, request: Request, targets: dict[str, str]) -> int:
    """The same request for every checkpoint: one file, or one table."""
    answers: list[AnswerExport] = []
    for step in _all_steps(model):
        subject = replace(request.subject, model=model.at_step(step).ref)
        with progress(f"{request.analysis.name} · {'final' if step is None else f'step {step}'}") as ctx:
            answer = model.engine.answer(replace(request, subject=subject), ctx, fresh=True)
        answers.append(export_of(model.engine, answer, identified=bool(targets)))
    for form, target in targets.items():
        _put(series_bytes(answers, form), target)
    if not targets:
        print(
            " · ".join(
                (
                    request.analysis.name,
                    model.ref.name,
                    number_of(len(answers), "checkpoint"),
                    *answers[-1].answer.result.conventions,
                )
            )
        )
        print_table(joined_table(answers))
    return 0


def _put(data: bytes, target: str) -> None:
    """Write to a file; "-" prints."""
    if target != "-":
        return write_whole(Path(target), data)
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.flush()
    return None


def _targets(args: argparse.Namespace) -> dict[str, str]:
    """The file of each format: the option determines the format, whatever the suffix. Folders are checked before the work."""
    targets = {form.name: t for form in DATA if (t := getattr(args, form.name)) is not None}
    if list(targets.values()).count("-") > 1:
        raise UsageError(
            "Only one format can be printed.",
            expected="one - among " + " ".join(f"--{form.name}" for form in DATA),
            got="several",
            remedy="Name a file for the others.",
        )
    files = [str(Path(target).absolute()) for target in targets.values() if target != "-"]
    if len(set(files)) < len(files):
        raise UsageError(
            "Two formats go to one file.", expected="a file each", got=" ".join(targets.values()), remedy="Change one of them."
        )
    for target in targets.values():
        if not target:
            raise UsageError(
                "The data cannot be written.", expected="the name of a file, or -", got="nothing", remedy="Name one."
            )
        if target != "-" and not os.path.isdir(Path(target).absolute().parent):  # a name may be too long to be asked about
            remedy = "Create the folder, or choose another."
            raise BadMachine("The data cannot be written.", expected="an existing folder", got=bounded(target), remedy=remedy)
        if target != "-" and os.path.isdir(target):
            remedy = "Add the name of a file."
            raise BadMachine(
                "The data cannot be written.", expected="the name of a file", got=f"{target}, a folder", remedy=remedy
            )
    return targets


def list_analyses(args: argparse.Namespace) -> int:
    """`circuitlab analyses`."""
    for name, entry in analyses().items():
        if entry.derived:
            continue
        print(f"{name}  ({entry.needs}, {entry.lane}, version {entry.version})\n    {entry.summary}")
        _print_fields(entry.params)
    return 0


def _print_fields(cls: type[Any]) -> None:
    for field in describe(cls):
        print(f"    --set {field.name}={field.default_text}  {field.type_name}" + (f"  {field.tip}" if field.tip else ""))


def list_panels(args: argparse.Namespace) -> int:
    """`circuitlab panels`."""
    from circuitlab.figures.contracts.panel import panels

    for name, panel in panels().items():
        print(f"{name}  {panel.title}\n    {panel.help}")
        _print_fields(panel.view)
    return 0


def figure(args: argparse.Namespace) -> int:
    """`circuitlab figure`."""
    from circuitlab.figures.contracts.panel import find_panel
    from circuitlab.figures.contracts.unasked import without_choice
    from circuitlab.report.render import figure_of, write

    panel, paper, out = find_panel(args.panel), paper_of(args), Path(args.out)
    format_of(out)
    controls = _pairs(args.set)
    view = parse_params(panel.view, controls)
    step = _step_at(args)
    if step is not None:
        write(figure_of(step.of.engine, panel, step.with_controls(panel.name, controls)), out, paper)
        return 0
    heads = parse(tuple[Head, ...], args.heads, "--heads")
    if args.checkpoint == "all":
        remedy = "Draw one figure per checkpoint."
        raise UsageError("A figure shows one checkpoint.", expected="a training step or final", got="all", remedy=remedy)
    model = _open(args)
    text, tokens = _prompt(args)
    target = parse(Target, args.target, "--target")
    state = model.state(text, tokens, False if args.no_bos else None, heads, args.destination, args.source, target)
    state = replace(state, edits=tuple((e, True) for e in _cuts(args)))
    drawn = figure_of(model.engine, panel, state.with_view(panel.name, view))
    write(without_choice(drawn, not heads, args.destination is None and args.source is None), out, paper)
    return 0


def info(args: argparse.Namespace) -> int:
    """`circuitlab info`."""
    model = api.open(args.model, use=Engine(ModelStore()), assume=dict(pairs(args.assume)))
    opened = model.engine.store.open(model.ref)
    measured = model.engine.answer(Request(model_facts, ModelFactsParams(), model.subject())).result
    facts = measured.facts
    if args.json:
        tokenizer = opened.opened.weights.tokenizer
        about = {
            "source": model.ref.source,
            "family": opened.opened.family,
            "config": model.config.to_json(),
            "n_parameters": measured.n_parameters,
            "exactness": measured.exactness,
            "notes": list(opened.opened.notes),
            "assumptions": to_json(opened.opened.assumptions),
            "published_heads": _published(known_heads(model.config, model.ref.source, model.engine.store.sha256(model.ref))),
            "tokenizer": None if tokenizer is None else {"n_tokens": tokenizer.n_tokens, "bos": tokenizer.bos},
            "sha256": model.engine.store.sha256(model.ref),
        }
        print(json.dumps(about, ensure_ascii=False, indent=1))
        return 0
    published = known_heads(model.config, model.ref.source, opened.sha256)
    notes = [note for note in opened.opened.notes if note != "unembedding tied to the embedding"]  # shown among the options
    rows = [("loading", "note", note) for note in (*notes, *complaints())]
    rows += [("assumed", a.name, f"{a.value} ({a.why})" + _others(a)) for a in opened.opened.assumptions]
    rows += [("published", number_of(len(published.hints), "head"), published.caption)] if published is not None else []
    _print_facts([("model", "family", opened.opened.family or "circuitlab"), *facts, *rows])
    return 0


def _print_facts(facts: list[tuple[str, str, str]]) -> None:
    """One line per fact, wrapped at the width of the terminal; a group is named once."""
    room, before = max(60, shutil.get_terminal_size().columns), ""
    for group, name, value in facts:
        first = f"{'' if group == before else group:<12}{name:<21} "
        whole = value.replace("--assume ", "--assume\u00a0")  # keep it on one line, to be copied
        lines = textwrap.wrap(whole, room - 34, break_long_words=False, break_on_hyphens=False)
        print(first + f"\n{' ' * 34}".join(lines).replace("\u00a0", " "))
        before = group


def _published(published: KnownHeads | None) -> dict[str, Any] | None:
    """Published roles of heads as JSON: the model of the papers, how this one was recognised, roles by head."""
    if published is None:
        return None
    roles = {str(Head(*head)): published.words(Head(*head)) for head in sorted(published.hints)}
    return {"model": published.model, "matched_by": published.by, "heads": roles}


def _others(assumption: Assumption) -> str:
    others = [c for c in assumption.choices if c != assumption.value]
    return f"; --assume {assumption.name}={'|'.join(others)}" if others else ""


def import_model(args: argparse.Namespace) -> int:
    """`circuitlab import`."""
    from circuitlab.model.importing.by_map import read_map, refuse_problems, survey
    from circuitlab.model.importing.streamed import stream_directory
    from circuitlab.model.loading.character_vocabulary import character_tokenizer
    from circuitlab.model.loading.checkpoint import tensors_at
    from circuitlab.model.loading.family import find_tokenizer, tokenizer_at

    path = Path(args.file).expanduser()
    import_map = read_map(Path(args.map))
    checkpoint = tensors_at(path, import_map.under)
    report, parts = survey(import_map, checkpoint.needed())
    unused = f": {', '.join(report.unused[:20])}{' …' if report.unused[20:] else ''}" if report.unused else ""
    print(f"used {number_of(report.used, 'tensor')}, unused {len(report.unused)}{unused}")
    lines = [*report.notes, *(f"beside the weights, passed over: {s}" for s in checkpoint.skipped)]
    lines += [f"assumed: {a}" for a in report.assumed]
    lines += [f"not visible from shapes: {line}" for line in report.unseen]
    for line in (*lines, *(f"problem: {p}" for p in report.problems)):
        print(line)
    if args.check:
        whole = "the map gives a complete model; compare its logits with your own, as shapes do not show everything"
        print(whole if not report.problems else number_of(len(report.problems), "problem"))
        return 3 if report.problems else 0
    refuse_problems(report)
    folder = path if path.is_dir() else path.parent
    tokenizer = tokenizer_at(args.tokenizer) if args.tokenizer else find_tokenizer(folder)
    tokenizer = tokenizer or character_tokenizer(checkpoint.metadata, folder)[0]
    target = Path(args.output).expanduser() if args.output else path.absolute().with_name(f"{path.stem}-circuitlab")
    with progress("import") as ctx:
        origin = {"from": path.name, "assumed": [f"{a.name} {a.value}" for a in report.assumed], "unseen": report.unseen}
        size = stream_directory(target, parts, tokenizer, ctx.tick, origin)
    print(f"{target}: {number_of(size, 'byte')} of weights" + ("" if tokenizer else "; no tokenizer: prompts are token ids"))
    return 0


RUN: dict[str, Callable[[argparse.Namespace], int]] = {
    "compute": compute,
    "analyses": list_analyses,
    "panels": list_panels,
    "figure": figure,
    "info": info,
    "import": import_model,
}
