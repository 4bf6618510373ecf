"""Which plug-ins there are, and what they add, without importing any.

Installed ones say it in the metadata of their distribution, one entry point for each thing that they add:

    [project.entry-points."circuitlab.analyses"]
    token_runs = "my_package.token_runs"         # the name that it is asked by = the module that registers it, perhaps :object

Files and folders named by `--plugin`, or in the environment variable of `PATHS`, are read as text: what they register is seen in
their syntax (`file_additions`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Literal

from circuitlab.disk.paths import typed_path
from circuitlab.errors import UsageError, cause, quoted
from circuitlab.plugins.plugin_files import FileAddition, additions_at

PATHS = "CIRCUITLAB_PLUGINS"  # files and folders, separated as in PATH; `--plugin` adds to it, so that processes inherit them
Kind = Literal["analyses", "panels", "families"]
KINDS: tuple[Kind, ...] = ("analyses", "panels", "families")


@dataclass(frozen=True)
class Plugin:
    """A distribution, or a file at `path`. `version`: of a file without `__version__` what its bytes hash to."""

    name: str
    version: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


@dataclass(frozen=True)
class Addition:
    """One thing that a plug-in adds, under the `name` that it is asked by. `module`: what registers it when it is imported."""

    plugin: Plugin
    kind: Kind
    name: str
    module: str
    attribute: str = ""


def declared(kind: Kind | None = None) -> tuple[Addition, ...]:
    """What plug-ins add, of one kind or all of it, sorted. Imports nothing."""
    return tuple(one for one in _every(os.environ.get(PATHS, "")) if kind is None or one.kind == kind)


def adding(kind: Kind, name: str) -> tuple[Addition, ...]:
    """What plug-ins add under a name: several, where two of them claim it."""
    return tuple(one for one in declared(kind) if one.name == name)


def problems() -> tuple[str, ...]:
    """Files and folders of `PATHS` that cannot be read, each with the reason."""
    return _read(os.environ.get(PATHS, ""))[1]


def owner(module: str) -> Plugin | None:
    """The plug-in that a module belongs to; None for one of CircuitLab, and for code that is no plug-in."""
    if module.partition(".")[0] == "circuitlab":
        return None
    top = lambda name: name.partition(".")[0]
    each = (one for one in declared() if one.module == module)
    return next((one.plugin for one in (*each, *declared()) if top(one.module) == top(module)), None)


def requested(*paths: str) -> None:
    """Take files and folders among the plug-ins of this process and of those that it starts.

    Raises `UsageError` for one that is not there or is no Python; imports none.
    """
    for text in paths:
        path = typed_path(text).absolute()
        try:
            additions_at(path)
        except (OSError, ValueError) as error:
            expected = "a Python file that registers an analysis, a panel or a family, or a folder of such files"
            remedy = "Check the path; docs/plugins.md says what is in such a file."
            raise UsageError(
                "The plug-in cannot be read.", expected=expected, got=f"{quoted(text)}: {cause(error)}", remedy=remedy
            ) from error
        named = [one for one in os.environ.get(PATHS, "").split(os.pathsep) if one]
        os.environ[PATHS] = os.pathsep.join(dict.fromkeys([*named, str(path)]))


@lru_cache(maxsize=8)
def _every(paths: str) -> tuple[Addition, ...]:
    """Of installed distributions and of files, by kind and name."""
    every = {*_installed(), *_read(paths)[0]}
    return tuple(sorted(every, key=lambda one: (KINDS.index(one.kind), one.name, str(one.plugin), one.module)))


@lru_cache(maxsize=1)
def _installed() -> tuple[Addition, ...]:
    result = []
    for kind in KINDS:
        for entry in metadata.entry_points(group=f"circuitlab.{kind}"):
            plugin = Plugin(entry.dist.name, entry.dist.version) if entry.dist is not None else Plugin(entry.module, "")
            result.append(Addition(plugin, kind, entry.name, entry.module, entry.attr or ""))
    return tuple(result)


@lru_cache(maxsize=8)
def _read(paths: str) -> tuple[tuple[Addition, ...], tuple[str, ...]]:
    """What the files at these paths add, and which of them cannot be read."""
    result, wrong = list[Addition](), list[str]()
    for text in filter(None, paths.split(os.pathsep)):
        try:
            result += [_of_file(one) for one in additions_at(Path(text))]
        except (OSError, ValueError) as error:
            wrong.append(f"{text}: {cause(error)}")
    return tuple(result), tuple(wrong)


def _of_file(one: FileAddition) -> Addition:
    return Addition(Plugin(one.file.stem, one.version, str(one.file)), one.kind, one.name, one.module)
