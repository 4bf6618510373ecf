"""The list of deliberate breaks, `mutants.toml`: which line of which module, what stands there instead, who must notice."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LIST = Path(__file__).with_name("mutants.toml")
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mutant:
    """One break. `tests`: files, or files with `::` and a test, of which one must fail; `why`: what a user would see."""

    name: str
    module: str
    line: str
    becomes: str
    tests: tuple[str, ...]
    why: str

    def applied_to(self, source: str) -> str:
        """The source with the line changed. It must stand there exactly once."""
        count = source.count(self.line)
        assert count == 1, f"{self.name}: the line stands {count} times in {self.module}; name it anew: {self.line!r}"
        return source.replace(self.line, self.becomes)

    @property
    def path(self) -> Path:
        """The module's file."""
        stem = ROOT.joinpath(*self.module.split("."))
        return stem.with_suffix(".py") if stem.with_suffix(".py").is_file() else stem / "__init__.py"


OF_A_ROOM = 4  # of them in the sample


@cache
def sample() -> tuple[Mutant, ...]:
    """Those that every whole run tries: a few of each room, from all over its part of the list. `make mutants` tries all."""
    rooms: dict[str, list[Mutant]] = {}
    for mutant in mutants():
        rooms.setdefault(mutant.module.split(".")[1], []).append(mutant)
    return tuple(those[i * len(those) // OF_A_ROOM] for those in rooms.values() for i in range(min(OF_A_ROOM, len(those))))


@cache
def mutants() -> tuple[Mutant, ...]:
    """All of them, in the order of the list."""
    entries = tomllib.loads(LIST.read_text(encoding="utf-8"))
    return tuple(Mutant(name, tests=tuple(entry.pop("tests")), **entry) for name, entry in entries.items())
