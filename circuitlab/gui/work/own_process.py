"""Long work in a process of its own, which a window starts and does not need: its folder, its errors."""

from __future__ import annotations

import os
from pathlib import Path

from circuitlab.disk.paths import typed_path
from circuitlab.errors import BadInput, BadMachine


def writable_folder(text: str) -> Path:
    """The output folder, which need not exist yet. Raises `BadInput`, `BadMachine`, `UsageError`."""
    if not text:
        raise BadInput(
            "Choose a folder for the run.", expected="a folder", got="none", remedy="Choose a folder, which may be new."
        )
    out = typed_path(text)
    if not out.is_absolute():
        raise BadInput(
            "The folder must be a full path.",
            expected="a path from the root",
            got=text,
            remedy="Begin the path at the root, or at ~.",
        )
    nearest = next(p for p in (out, *out.parents) if p.exists())
    if not nearest.is_dir():
        raise BadMachine(
            "The folder cannot be created.", expected="a folder", got=f"{nearest} is a file", remedy="Choose another place."
        )
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise BadMachine(
            "The folder cannot be written to.",
            expected="a writable folder",
            got=str(nearest),
            remedy="Choose another place, or change its permissions.",
        )
    return out


def in_words(error: str) -> str:
    """An error as the command prints it, reworded for the window: `expected:`, `got:` and `do:` become plain lines."""
    lines = []
    for line in error.strip().splitlines():
        kind, _, rest = line.strip().partition(":")
        by_kind = {"expected": f"Expected: {rest.strip()}", "got": f"Got: {rest.strip()}", "do": rest.strip()}
        lines.append(by_kind.get(kind, line.strip()))
    return "\n".join(lines)
