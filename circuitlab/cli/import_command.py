"""`circuitlab import FILE --map MAP`: a checkpoint of an unknown family becomes a CircuitLab model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from circuitlab.cli.output import progress
from circuitlab.counting import number_of
from circuitlab.disk.paths import typed_path
from circuitlab.terminal import on_one_line

if TYPE_CHECKING:
    from circuitlab.model.importing.by_map import Survey


def run(args: argparse.Namespace) -> int:
    """Print what fits of the checkpoint, and write the model. Exit status 3 if `--check` finds a problem."""
    from circuitlab.model.importing.by_map import read_map, refuse_problems, survey
    from circuitlab.model.importing.streamed import need_empty, stream_directory
    from circuitlab.model.loading.character_vocabulary import character_tokenizer
    from circuitlab.model.loading.checkpoint import tensors_at
    from circuitlab.model.loading.family import find_tokenizer, tokenizer_at

    path = typed_path(args.file)
    target = typed_path(args.output) if args.output else path.absolute().with_name(f"{path.stem}-circuitlab")
    if not args.check:
        need_empty(target)
    import_map = read_map(Path(args.map))
    checkpoint = tensors_at(path, import_map.under)
    report, parts = survey(import_map, checkpoint.needed())
    _print_survey(report, checkpoint.skipped)
    if args.check:
        whole = "the map gives a complete model; compare its logits with your own, as shapes do not show everything"
        print(whole if not report.problems else number_of(len(report.problems), "problem"))
        return 3 if report.problems else 0
    refuse_problems(report)
    folder = path if path.is_dir() else path.parent
    tokenizer = tokenizer_at(args.tokenizer) if args.tokenizer else find_tokenizer(folder)
    tokenizer = tokenizer or character_tokenizer(checkpoint.metadata, folder)[0]
    with progress("import") as ctx:
        origin = {"from": path.name, "assumed": [f"{a.name} {a.value}" for a in report.assumed], "unseen": report.unseen}
        size = stream_directory(target, parts, tokenizer, ctx.tick, origin)
    print(f"{target}: {number_of(size, 'byte')} of weights" + ("" if tokenizer else "; no tokenizer: prompts are token ids"))
    return 0


def _print_survey(report: Survey, skipped: Sequence[str]) -> None:
    unused = f": {', '.join(report.unused[:20])}{' …' if report.unused[20:] else ''}" if report.unused else ""
    print(on_one_line(f"used {number_of(report.used, 'tensor')}, unused {len(report.unused)}{unused}"))
    lines = [*report.notes, *(f"beside the weights, passed over: {s}" for s in skipped)]
    lines += [f"assumed: {a}" for a in report.assumed]
    lines += [f"not visible from shapes: {line}" for line in report.unseen]
    for line in (*lines, *(f"problem: {p}" for p in report.problems)):
        print(on_one_line(line))
