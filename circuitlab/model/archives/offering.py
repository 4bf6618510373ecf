"""What to say where checkpoints of a shipped model are not on this machine: that they can be got, and by which command."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from circuitlab.counting import number_of
from circuitlab.errors import BadModel, CircuitLabError
from circuitlab.model.archives.index import Archive, archive_of, archives
from circuitlab.model.sources.references import resolve
from circuitlab.model.subject import ModelRef


def obtainable(ref: ModelRef) -> Archive | None:
    """The archive of a model of which checkpoints are lacking; None where none are, or there is no archive."""
    try:
        archive = archive_of(resolve(replace(ref, checkpoint=None)))
    except CircuitLabError:
        return None
    return archive if archive is not None and archive.lacking else None


def all_obtainable() -> tuple[Archive, ...]:
    """The archives of all shipped models of which checkpoints are lacking."""
    try:
        return tuple(archive for archive in archives().values() if archive.lacking)
    except CircuitLabError:
        return ()


def need_checkpoints(ref: ModelRef, asked: str) -> None:
    """Raise `BadModel` with how to get them where checkpoints of a model are lacking. `asked`: what needs them, "step 64"."""
    archive = obtainable(ref)
    if archive is not None:
        raise BadModel(
            f"Checkpoints of {archive.model} are not on this machine.",
            expected=archive.words,
            got=f"{asked}, and {number_of(len(archive.lacking), 'checkpoint')} missing",
            remedy=how_to_get(archive),
        )


def reloaded(archive: Archive, sources: Iterable[str], reload: Callable[[ModelRef], object]) -> None:
    """Call `reload` for each of the sources that is the model of an archive: an open model lists the steps it was opened with."""
    for ref in map(ModelRef, sources):
        try:
            ours = archive_of(resolve(ref)) == archive
        except CircuitLabError:
            continue
        if ours:
            reload(ref)


def how_to_get(archive: Archive) -> str:
    """The sentence with the two commands, and with how much is fetched."""
    return f"circuitlab get {archive.model} ({archive.words}), or in the window File → Get checkpoints…"
