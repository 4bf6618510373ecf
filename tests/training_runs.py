"""Short runs of `circuitlab train`: a text that the recipe `tiny` can be trained on, and what the run leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from circuitlab.cli.parser import main

WORDS = "the grey heron stood in the shallow water and the small boat went by; def f(x): return x + 1\n"
LETTERS = "".join(chr(i) for i in range(0xC0, 0x180)) * 9  # pairs enough for a vocabulary of 300
A_STEP = 4 * 24, 2 * 32  # tokens of a step of `tiny`, before its twelfth and after


def written(path: Path, lines: int = 60) -> Path:
    """A text at a path."""
    path.write_text(WORDS * lines + LETTERS, encoding="utf-8")
    return path


def train(text: Path | str, out: Path, *more: str, recipe: str = "tiny") -> int:
    """The command's exit status; nothing is measured at the end."""
    return main(["train", recipe, "--text", str(text), "--out", str(out), "--no-measure", *more])


def progress(out: Path) -> dict[str, Any]:
    """What the run last said of itself."""
    return json.loads((out / "progress.json").read_text(encoding="utf-8"))
