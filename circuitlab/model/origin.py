"""Where a model comes from, as values; `origin_of` and `str` alone know how it is written in files, words and command lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Origin:
    """One of the kinds below. `where`: the name or the path; written `kind:where`."""

    where: str
    kind: ClassVar[str] = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.where}"


class Builtin(Origin):
    """A model that ships with CircuitLab, by its name."""

    kind = "builtin"


class File(Origin):
    """A folder or a file of weights, by its path as it was written."""

    kind = "file"


class Hub(Origin):
    """A model of the hub: `OWNER/NAME`, perhaps `@REVISION`, perhaps `:FILE.gguf`."""

    kind = "hub"


class Catalogue(Origin):
    """A model of the catalogue in a file that is passed on, by its name; where it lies on this machine is a `File`."""

    kind = "catalogue"


class Constructed(Origin):
    """A model computed from parameters: its name, and parameters after a question mark."""

    kind = "construct"


class Stored(Origin):
    """A model that is known by the results inside a session alone: `HASH/NAME`."""

    kind = "stored"


class InSession(Origin):
    """A model by its name in the tables of the session that an answer is stored in."""

    kind = "session"


@dataclass(frozen=True)
class Unknown(Origin):
    """A text that names none of these. `where`: what follows its first colon."""

    text: str = ""

    def __str__(self) -> str:
        return self.text


_KINDS = {kind.kind: kind for kind in (Builtin, File, Hub, Catalogue, Constructed, Stored, InSession)}


def origin_of(source: str) -> Origin:
    """The origin that a text says: the reverse of `str`, for every text."""
    kind, colon, where = source.partition(":")
    return _KINDS[kind](where) if colon and kind in _KINDS else Unknown(where, source)
