"""`circuitlab get NAME`: the checkpoints of a shipped model that the wheel does not carry; without a name, what there is."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from circuitlab.counting import number_of
from circuitlab.errors import BadInput, UsageError
from circuitlab.model.archives.getting import Progress, check, get, part_of
from circuitlab.model.archives.index import Archive, archives, find_archive, size_words
from circuitlab.terminal import overwrite


def run(args: argparse.Namespace) -> int:
    """Get, check or list. Raises `CircuitLabError`."""
    _refuse_contradictions(args)
    if args.check:
        return _check([find_archive(args.name)] if args.name else list(archives().values()))
    if args.name is None:
        return _list(args.json)
    archive = find_archive(args.name)
    if not args.source and archive.url and archive.lacking:
        print(f"{archive.model}: {archive.words} from {archive.address}", file=sys.stderr)
    try:
        outcome = get(archive, args.source, _Line())
    except KeyboardInterrupt:
        part = part_of(archive)
        if part.is_file():
            print(f"\n{size_words(part.stat().st_size)} are kept; the same command goes on from there.", file=sys.stderr)
        raise
    words = "now in" if outcome.fetched else "already here, verified:"
    print(f"{archive.model}: {number_of(len(archive.checkpoints), 'checkpoint')} {words} {outcome.folder}")
    return 0


def _refuse_contradictions(args: argparse.Namespace) -> None:
    options = [
        f"--{n}" for n, on in (("from", args.source), ("check", args.check), ("list", args.list), ("json", args.json)) if on
    ]
    listing = args.list or args.json
    if (listing and (args.name or args.source or args.check)) or (args.source and (args.check or not args.name)):
        raise UsageError(
            "These do not go together.",
            expected="NAME [--from PLACE], [NAME] --check, or --list [--json]",
            got=" ".join([*([args.name] if args.name else []), *options]),
            remedy="Run one after the other.",
        )


def _check(chosen: list[Archive]) -> int:
    """Read what is here, and say for each model what it is. Raises `BadInput` where a file is damaged."""
    bad: list[Path] = []
    for archive in chosen:
        here = len(archive.checkpoints) - len(archive.lacking)
        differing = check(archive, _Line())
        bad += differing
        words = f"{here} of {number_of(len(archive.checkpoints), 'checkpoint')} here"
        print(f"{archive.model}: {words}{', verified' if here and not differing else ''}")
    if bad:
        raise BadInput(
            f"Not to be trusted: {number_of(len(bad), 'checkpoint')}.",
            expected="the size and sha256 of the list of archives",
            got=" ".join(map(str, bad[:4])) + (" …" if bad[4:] else ""),
            remedy="`circuitlab get NAME` replaces what was fetched; restore what shipped.",
        )
    return 0


def _list(as_json: bool) -> int:
    rows = [_row(archive) for archive in archives().values()]
    if as_json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
    elif not rows:
        print("No archive is listed: all checkpoints of this version are in its models.")
    else:
        width = max(len(row["name"]) for row in rows)
        for row in rows:
            size = size_words(row["bytes"])
            print(f"{row['name']:<{width}}  {row['here']:>3} of {row['checkpoints']:>3} here  {size:>10}  {_from(row)}")
    return 0


def _row(archive: Archive) -> dict[str, Any]:
    n = len(archive.checkpoints)
    about = {"name": archive.model, "file": archive.zip.name, "bytes": archive.zip.size, "sha256": archive.zip.sha256}
    return about | {"checkpoints": n, "here": n - len(archive.lacking), "url": archive.url}


def _from(row: dict[str, Any]) -> str:
    if row["here"] == row["checkpoints"]:
        return ""
    return row["url"] or f"no address is known: --from {row['file']}"


class _Line:
    """A line of progress on a terminal that has one; overwritten, and gone at the end."""

    def __init__(self) -> None:
        self._at, self._open = 0.0, False

    def __call__(self, progress: Progress) -> None:
        if not sys.stderr.isatty():
            return
        end = progress.done >= progress.total
        if end and self._open:
            overwrite()
            self._open = False
        elif not end and time.monotonic() - self._at > 0.2:
            self._at, self._open = time.monotonic(), True
            overwrite(f"{progress.file}: {progress}")
