"""Plug-ins that are single files: what they register, seen in their syntax, and their import under a name of their own.

An analysis is a function under `@analysis(...)`, a panel a call `Panel(name=…)`, a family a call `Family(name=…)`, the words of
the registries. A folder is that of its files, those whose names begin with an underscore left out.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Literal

from circuitlab.disk.regular_file import Stamp, stamp_of

PREFIX = "circuitlab_plugin_"  # of the modules' names
LARGEST = 4 << 20  # bytes of a file that is read as source
_CALLED: dict[str, Literal["panels", "families"]] = {"Panel": "panels", "Family": "families"}


@dataclass(frozen=True)
class FileAddition:
    """One thing that a file registers. `version`: its `__version__`, else the first digits of its hash."""

    file: Path
    kind: Literal["analyses", "panels", "families"]
    name: str
    version: str
    module: str


def additions_at(path: Path) -> tuple[FileAddition, ...]:
    """What the file, or the files of the folder, register. Raises `OSError`, and `ValueError` where that is nothing."""
    result = tuple(one for file in files_at(path) for one in additions_of(file))
    if not result:
        raise ValueError("nothing in it registers an analysis, a panel or a family")
    return result


def files_at(path: Path) -> tuple[Path, ...]:
    """The file, or the Python files of the folder. Raises `OSError`, and `ValueError` for what is no Python."""
    if not path.is_dir():
        if path.suffix != ".py":
            path.stat()
            raise ValueError("not a Python file")
        return (path.resolve(strict=True),)
    files = tuple(sorted(one.resolve() for one in path.glob("*.py") if not one.name.startswith("_")))
    if not files:
        raise ValueError("no Python file in the folder")
    return files


def additions_of(file: Path) -> tuple[FileAddition, ...]:
    """What a file registers. Raises `OSError`, `ValueError` where it cannot be read as Python."""
    stat = file.stat()
    if stat.st_size > LARGEST:
        raise ValueError(f"larger than {LARGEST >> 20} MiB")
    return _additions_of(file, stamp_of(stat))


@lru_cache(maxsize=256)
def _additions_of(file: Path, stamp: Stamp) -> tuple[FileAddition, ...]:
    data = file.read_bytes()
    try:
        tree = ast.parse(data, str(file))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise ValueError(f"{file.name} is not Python{where}") from error
    version = _version(tree) or f"sha256 {hashlib.sha256(data).hexdigest()[:12]}"
    module = f"{PREFIX}{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    return tuple(FileAddition(file, kind, name, version, module) for kind, name in dict.fromkeys(_registered(tree)))


def _registered(tree: ast.Module) -> Iterator[tuple[Literal["analyses", "panels", "families"], str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(_name_of(one) == "analysis" for one in node.decorator_list):
            yield "analyses", node.name
        elif isinstance(node, ast.Call) and (kind := _CALLED.get(_name_of(node))) is not None:
            named = [word.value for word in node.keywords if word.arg == "name"] or node.args[:1]
            if named and isinstance(named[0], ast.Constant) and isinstance(named[0].value, str):
                yield kind, named[0].value


def _name_of(node: ast.expr) -> str:
    """The last name of what is called: "analysis" of `base.analysis(...)`."""
    called = node.func if isinstance(node, ast.Call) else node
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _version(tree: ast.Module) -> str:
    for node in tree.body:
        names = [target.id for target in node.targets if isinstance(target, ast.Name)] if isinstance(node, ast.Assign) else []
        if "__version__" in names and isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            return str(node.value.value)[:40]
    return ""


def import_file(path: str, module: str) -> ModuleType:
    """Import a file under this module name, once; what it raises goes through, and then nothing of it stays."""
    if module in sys.modules:
        return sys.modules[module]
    spec = importlib.util.spec_from_file_location(module, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no module")
    made = sys.modules[module] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(made)
    except BaseException:
        sys.modules.pop(module, None)
        raise
    return made
