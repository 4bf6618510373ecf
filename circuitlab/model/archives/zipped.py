"""What comes in one zip of known bytes: the checkpoints of a shipped model (`Archive`), a model of the catalogue (`Package`)."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from circuitlab.model.archives.index import Stored


class Zipped(Protocol):
    """The zip, the files in it by the names that they have once unpacked, and their folder on this machine."""

    @property
    def model(self) -> str:
        """The name under which a person gets it."""
        ...

    @property
    def contents(self) -> str:
        """What it is in a sentence: "the checkpoints of attn-only-1l"."""
        ...

    @property
    def zip(self) -> Stored:
        """The zip as a whole."""
        ...

    @property
    def files(self) -> tuple[Stored, ...]:
        """The files that are taken from it."""
        ...

    @property
    def alone(self) -> bool:
        """Whether the zip holds these files, stored as they are, and nothing else."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of its files."""
        ...

    @property
    def fetched_folder(self) -> Path:
        """Where they lie once fetched, in the folder `inside` of it; complete as soon as it exists."""
        ...

    @property
    def inside(self) -> str:
        """The folder below `fetched_folder`, "" for itself."""
        ...

    def member(self, one: Stored, /) -> str:
        """The name of a file inside the zip."""
        ...

    def place(self, one: Stored, /) -> Path | None:
        """Where a file is on this machine, None where it is not."""
        ...
