"""`circuitlab get NAME`: a model of the catalogue, or the checkpoints of a shipped model that the wheel does not carry; without a
name, what there is."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from circuitlab.cli import get_model
from circuitlab.cli.progress_line import ProgressLine
from circuitlab.counting import number_of
from circuitlab.disk.json_types import JsonDict
from circuitlab.errors import BadInput, UsageError, printable
from circuitlab.model.archives.getting import check, get, part_of
from circuitlab.model.archives.index import Archive, archives, find_archive, size_words
from circuitlab.model.catalogue.entries import Entry, catalogue, entry_of


def run(args: argparse.Namespace) -> int:
    """Get, check or list. Raises `CircuitLabError`."""
    _refuse_contradictions(args)
    result = entry_of(args.name) if args.name and args.name not in archives() else None
    if args.check:
        if args.name is None:
            return _check(list(archives().values()), list(catalogue().values()))
        return _check([], [result[0]]) if result else _check([_archive(args.name)], [])
    if args.name is None:
        return _list(args.json)
    if result is not None:
        return get_model.fetch(*result, args)
    archive = _archive(args.name)
    if args.checkpoints:
        raise UsageError(
            f"The checkpoints of {archive.model} come together.",
            expected=f"circuitlab get {archive.model}",
            got="--checkpoints",
            remedy="Leave it out.",
        )
    if not args.source and archive.url and archive.lacking:
        print(f"{archive.model}: {archive.words} from {archive.address}", file=sys.stderr)
    try:
        outcome = get(archive, args.source, ProgressLine())
    except KeyboardInterrupt:
        part = part_of(archive)
        if part.is_file():
            print(f"\n{size_words(part.stat().st_size)} are kept; the same command goes on from there.", file=sys.stderr)
        raise
    words = "now in" if outcome.fetched else "already here, verified:"
    print(f"{archive.model}: {number_of(len(archive.checkpoints), 'checkpoint')} {words} {outcome.folder}")
    return 0


def _refuse_contradictions(args: argparse.Namespace) -> None:
    given = {"from": args.source, "checkpoints": args.checkpoints, "check": args.check, "list": args.list, "json": args.json}
    options = [f"--{name}" for name, on in given.items() if on]
    listing, fetching = args.list or args.json, args.source or args.checkpoints
    if (listing and (args.name or fetching or args.check)) or (fetching and (args.check or not args.name)):
        raise UsageError(
            "These do not go together.",
            expected="NAME [--from PLACE] [--checkpoints], [NAME] --check, or --list [--json]",
            got=" ".join([*([args.name] if args.name else []), *options]),
            remedy="Run one after the other.",
        )


def _archive(name: str) -> Archive:
    """The archive of a shipped model. Raises `UsageError` for a name of none and of no model of the catalogue."""
    if name not in archives():
        raise UsageError(
            "There is nothing to get under that name.",
            expected=" ".join((*catalogue(), *archives())) or "nothing is listed",
            got=printable(name),
            remedy="Name one of `circuitlab get --list`; any other model of the hub is fetched by opening it.",
        )
    return find_archive(name)


def _check(chosen: list[Archive], models: list[Entry]) -> int:
    """Read what is here, and say for each model what it is. Raises `BadInput` where a file is damaged."""
    bad: list[Path] = []
    for entry in models:
        words, differing_files = get_model.verify(entry)
        print(words)
        bad += map(Path, differing_files)
    for archive in chosen:
        here = len(archive.checkpoints) - len(archive.lacking)
        differing = check(archive, ProgressLine())
        bad += differing
        words = f"{here} of {number_of(len(archive.checkpoints), 'checkpoint')} here"
        print(f"{archive.model}: {words}{', verified' if here and not differing else ''}")
    if bad:
        raise BadInput(
            f"Not to be trusted: {number_of(len(bad), 'file')}.",
            expected="the size and sha256 that are listed",
            got=" ".join(map(str, bad[:4])) + (" …" if bad[4:] else ""),
            remedy="`circuitlab get NAME` replaces what was fetched; restore what shipped.",
        )
    return 0


def _list(as_json: bool) -> int:
    rows = [_row(archive) for archive in archives().values()]
    models = catalogue()
    if as_json:
        print(json.dumps([*map(get_model.row, models.values()), *rows], indent=1, ensure_ascii=False))
        return 0
    if models:
        print("Models: circuitlab get NAME, then circuitlab NAME\n")
        width = max(map(len, models))
        for entry in models.values():
            print("\n".join(get_model.listed(entry, width)))
        print("\nCheckpoints of shipped models: circuitlab get NAME\n")
    if not rows:
        print("No archive is listed: all checkpoints of this version are in its models.")
    else:
        width = max(len(row["name"]) for row in rows)
        for row in rows:
            size = size_words(row["bytes"])
            print(f"{row['name']:<{width}}  {row['here']:>3} of {row['checkpoints']:>3} here  {size:>10}  {_from(row)}")
    return 0


def _row(archive: Archive) -> JsonDict:
    n = len(archive.checkpoints)
    about = {
        "kind": "checkpoints",
        "name": archive.model,
        "file": archive.zip.name,
        "bytes": archive.zip.size,
        "sha256": archive.zip.sha256,
    }
    return about | {"checkpoints": n, "here": n - len(archive.lacking), "url": archive.url}


def _from(row: JsonDict) -> str:
    if row["here"] == row["checkpoints"]:
        return ""
    return row["url"] or f"no address is known: --from {row['file']}"
