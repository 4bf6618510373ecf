"""A plugin of pytest that breaks one line of one module as it is imported: the file on the disk stays as it is.

`pytest -p tests.mutants.plugin` with `CIRCUITLAB_MUTANT` naming an entry of `mutants.toml`. It must be loaded before the module
is imported, so it goes on the command line and not into a conftest.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import cast

from tests.mutants.listed import Mutant, mutants

CHOSEN = "CIRCUITLAB_MUTANT"


class BrokenLoader(SourceFileLoader):
    """Reads a module's source with one line of it changed; compiled files are neither read nor written."""

    def __init__(self, fullname: str, path: str, mutant: Mutant) -> None:
        super().__init__(fullname, path)
        self.mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        """The code of the changed source."""
        path = self.get_filename(fullname)
        source = self.mutant.applied_to(self.get_data(path).decode())
        return cast(CodeType, self.source_to_code(source.encode(), path))


class Finder(MetaPathFinder):
    """Finds the one module that is to be broken, and leaves all others to the finders after it."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec with a `BrokenLoader`, or None."""
        if fullname != self.mutant.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin:
            spec.loader = BrokenLoader(fullname, spec.origin, self.mutant)
        return spec


def _install() -> None:
    """Put the finder first, as soon as this file is read: a conftest imports what is to be broken."""
    name = os.environ.get(CHOSEN)
    if name:
        mutant = {each.name: each for each in mutants()}[name]
        assert mutant.module not in sys.modules, f"{mutant.module} was imported before it could be broken"
        sys.meta_path.insert(0, Finder(mutant))


_install()
