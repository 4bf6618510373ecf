"""`circuitlab get` for models of the catalogue: listed, fetched, verified."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap

from circuitlab.cli.progress_line import ProgressLine
from circuitlab.disk.json_types import JsonDict
from circuitlab.errors import UsageError, printable
from circuitlab.model.archives.getting import check
from circuitlab.model.archives.index import size_words
from circuitlab.model.catalogue.entries import Entry, HubSource, Package, Source
from circuitlab.model.catalogue.getting import Got, get, kept
from circuitlab.model.catalogue.places import here, lacking, opens, place_words, size_of
from circuitlab.model.sources.hub import HubName

_WIDEST = 110


def fetch(entry: Entry, revision: str, args: argparse.Namespace) -> int:
    """Get a model, or with `--checkpoints` all of its training, and say where it lies. Raises `CircuitLabError`."""
    kinds = {one.kind for one in entry.sources}
    kind, place = (args.source, "") if args.source in kinds else ("", args.source)
    revisions = (revision,)
    if args.checkpoints:
        if not entry.checkpoints or revision != "main":
            raise UsageError(
                f"There are no checkpoints to get of {entry.name}.",
                expected="a model of `circuitlab get` with a training",
                got=printable(args.name),
                remedy="Leave out --checkpoints.",
            )
        revisions = ("main", *entry.checkpoints)
    if revision != "main" or args.checkpoints:
        kind = kind or HubSource.kind
    source = entry.source(kind)
    for one in revisions:
        _say(entry, one, _get(source, one, place))
    return 0


def _get(source: Source, revision: str, place: str) -> Got:
    if not place and opens(source, revision) is None:
        print(f"{_name(source, revision)}: {size_of(source)} from {source.words}; {source.weights}", file=sys.stderr)
    line = ProgressLine()
    try:
        return get(source, revision, place, line)
    except KeyboardInterrupt:
        line.close()
        bytes_kept = kept(source)
        what = f"{size_words(bytes_kept)} are kept" if bytes_kept else "What has come is kept" if source.kind == "hub" else ""
        if what:
            print(f"\n{what}; the same command goes on from there.", file=sys.stderr)
        raise
    finally:
        line.close()


def _say(entry: Entry, revision: str, got: Got) -> None:
    name = entry.name if revision == "main" else f"{entry.name}@{revision}"
    brought = "now in" if got.fetched else "already here:" if got.source.kind == "hub" else "already here, verified:"
    print(f"{name}: {brought} {place_words(got.source, revision)}")
    if needs := lacking(got.source):
        print(needs)
    result = here(entry, revision)
    if result is not None and result[1] != got.ref:  # another source of it comes first
        name = str(HubName.parse(got.ref.origin.where)) if got.source.kind == "hub" else got.ref.origin.where
    print(f"Open it: circuitlab {name}")


def _name(source: Source, revision: str) -> str:
    return source.model if revision == "main" else f"{source.model}@{revision}"


def verify(entry: Entry) -> tuple[str, list[str]]:
    """What is here of a model, in words, and the files that differ from the catalogue."""
    words: list[str] = []
    bad: list[str] = []
    for source in entry.sources:
        if opens(source) is None:
            continue
        if isinstance(source, Package):
            differing = check(source, ProgressLine())
            bad += map(str, differing)
            words.append(f"here{'' if differing else ', verified'}")
        else:
            words.append("in the hub’s cache, compared with the hub’s hashes when it was downloaded")
    return f"{entry.name}: {'; '.join(words) or 'not here'}", bad


def row(entry: Entry) -> JsonDict:
    """An entry for `--json`."""
    result = here(entry)
    return {
        "kind": "model",
        "name": entry.name,
        "title": entry.title,
        "about": entry.about,
        "shows": entry.shows,
        "licence": entry.licence,
        "here": result is not None,
        "place": None if result is None else place_words(result[0]),
        "sources": [_source_row(one) for one in entry.sources],
        "checkpoints": [{"revision": one, "here": here(entry, one) is not None} for one in entry.checkpoints],
    }


def _source_row(source: Source) -> dict[str, object]:
    about: dict[str, object] = {"kind": source.kind, "weights": source.weights, "here": opens(source) is not None}
    if isinstance(source, Package):
        named = {"project": source.project, "version": source.version, "file": source.zip.name}
        return about | named | {"bytes": source.zip.size, "sha256": source.zip.sha256}
    files = [{"name": name, "sha256": sha256} for name, sha256 in source.files]
    sha256 = files[0]["sha256"] if len(files) == 1 else None
    return about | {"repo": source.repo, "bytes": None, "bytes_about": source.size, "sha256": sha256, "files": files}


def listed(entry: Entry, width: int) -> list[str]:
    """The lines of an entry in the list; `width`: of the longest name."""
    result = here(entry)
    where = "not here" if result is None else place_words(result[0])
    lines = [f"{entry.name:<{width}}  {size_of(entry.sources[0]):>13}  {entry.licence:<10}  {where}"]
    columns = min(_WIDEST, shutil.get_terminal_size((_WIDEST, 24)).columns)
    for words in _paragraphs(entry):
        lines += textwrap.wrap(words, max(40, columns), initial_indent="    ", subsequent_indent="      ", break_long_words=False)
    return lines


def _paragraphs(entry: Entry) -> list[str]:
    paragraphs = [f"{entry.title}. {entry.about}", f"Shows: {entry.shows}"]
    for source in entry.sources:
        option = f"--from {source.kind}: " if len(entry.sources) > 1 else "Weights: "
        paragraphs.append(f"{option}{source.weights}; {size_of(source)}, {source.words}")
    if entry.checkpoints:
        n = sum(here(entry, one) is not None for one in entry.checkpoints)
        several = " ".join(entry.checkpoints)
        paragraphs.append(
            f"Training: {several}; one as {entry.name}@{entry.checkpoints[-1]}, all with --checkpoints ({n} of"
            f" {len(entry.checkpoints)} here)"
        )
    return paragraphs
