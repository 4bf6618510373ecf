"""A training run as it is asked for: its command line, what is checked before it starts, and what its files say."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from circuitlab.counting import number_of
from circuitlab.errors import BadInput, BadMachine
from circuitlab.model.devices import NAMES
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.training.command import device_of, fitting
from circuitlab.training.corpus import find_sources
from circuitlab.training.identity import FILE as RUN
from circuitlab.training.identity import holds, identity
from circuitlab.training.metrics_file import FILE as METRICS
from circuitlab.training.progress import FILE as PROGRESS
from circuitlab.training.recipe import Recipe, read_recipe
from circuitlab.training.series_points import tokens_after

DEVICES = ("auto", *NAMES)
_STEP = re.compile(r"^step (\d+)/\d+ +loss ([0-9.]+)")


@dataclass(frozen=True)
class TrainingJob:
    """What is trained. `text`: (path or "stdlib", share as it was typed, "" for an equal part of what the others leave)."""

    recipe: str = ""
    text: tuple[tuple[str, str], ...] = ()
    out: str = ""
    tokenizer: str = ""
    seed: int | None = None
    device: str = "auto"
    threads: int = 1

    def sources(self) -> list[str]:
        """The values of `--text`. Raises `BadInput` for a share that is no number."""
        made = []
        for name, share in self.text:
            if share and not re.fullmatch(r"\d*\.?\d+", share):
                raise BadInput("A share is not a number.", expected="a part of the whole such as 0.5, or nothing", got=share)
            made.append(f"{name}:{share}" if share else name)
        return made

    def arguments(self) -> list[str]:
        """The arguments of `python`."""
        words = ["-m", "circuitlab", "train", self.recipe, "--text", *self.sources(), "--out", self.out]
        words += ["--device", self.device, "--threads", str(self.threads)]
        words += [] if self.seed is None else ["--seed", str(self.seed)]
        return words + (["--tokenizer", self.tokenizer] if self.tokenizer else [])


@dataclass(frozen=True, eq=False)
class Checked:
    """A job that can start. `total`: tokens of the whole run; `held`: whether its folder holds a part of it already."""

    job: TrainingJob
    recipe: Recipe
    total: int
    n_files: int
    n_bytes: int
    held: bool

    def words(self) -> str:
        """What is about to happen, in one sentence or two."""
        c = self.recipe.config()
        heads, numbers = number_of(c.n_heads, "head"), number_of(c.n_parameters(), "parameter")
        shape = f"{number_of(c.n_layers, 'layer')}, {heads} of {c.d_head}, d_model {c.d_model}, {numbers}"
        work = f"{number_of(self.recipe.optimiser.steps, 'step')}, {number_of(self.total, 'token')}"
        size = f"{self.n_bytes / 2**20:,.1f} MiB" if self.n_bytes >= 2**20 else f"{self.n_bytes / 2**10:,.0f} KiB"
        text = f"{self.n_files:,} file{'s' if self.n_files > 1 else ''}, {size} of text"
        return f"{shape}. {work}. {text}." + (" The folder holds a part of this run: it goes on from there." if self.held else "")


def check(job: TrainingJob) -> Checked:
    """Everything that can be known before it starts; reads recipe and text. Raises `CircuitLabError`."""
    if not job.recipe:
        raise BadInput("Choose a recipe.", expected="a shipped one or a TOML file", got="none")
    recipe = read_recipe(job.recipe)
    recipe = recipe if job.seed is None else dataclasses.replace(recipe, seed=job.seed)
    if not job.text:
        raise BadInput("Add the text to train on.", expected="files or folders", got="none")
    sources = find_sources(job.sources())
    given = Path(job.tokenizer) if job.tokenizer else None
    if given is not None:
        fitting(Tokenizer.from_file(given), recipe, given)
    device_of(job.device)
    out = _writable(job.out)
    held = (out / "state" / RUN).is_file() and holds(out / "state", identity(recipe, sources, given))
    files = [path for source in sources for path in source.files]
    total, size = tokens_after(recipe, recipe.optimiser.steps), sum(p.stat().st_size for p in files)
    return Checked(job, recipe, total, len(files), size, held)


def _writable(text: str) -> Path:
    """The output folder, which need not be there. Raises `BadInput`, `BadMachine`."""
    if not text:
        raise BadInput("Choose a folder for the run.", expected="a folder", got="none")
    out = Path(text).expanduser()
    if not out.is_absolute():
        raise BadInput("The folder must be a full path.", expected="a path from the root", got=text)
    nearest = next(p for p in (out, *out.parents) if p.exists())
    if not nearest.is_dir():
        raise BadMachine("The folder cannot be made.", expected="a folder", got=f"{nearest} is a file")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise BadMachine("The folder cannot be written to.", expected="a writable folder", got=str(nearest))
    return out


# -- what a run says of itself ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Progress:
    """`OUT/progress.json`; the fields are those of `training/progress.py`."""

    step: int = 0
    steps: int = 0
    loss: float | None = None
    tokens_per_second: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    state: str = ""
    error: str = ""

    def minutes_left(self, total: int) -> float | None:
        """From the tokens that are left of `total` at the present speed; None while that is not known."""
        return None if self.tokens_per_second <= 0 else max(0, total - self.tokens) / self.tokens_per_second / 60


def read_progress(out: Path) -> Progress | None:
    """What the file says, None where there is none or it is not whole or not ours. A few hundred bytes."""
    try:
        found: Any = json.loads((out / PROGRESS).read_text(encoding="utf-8"))
        known = {f.name for f in dataclasses.fields(Progress)}
        made = Progress(**{k: v for k, v in found.items() if k in known})
        whole, real = (made.step, made.steps, made.tokens), (made.tokens_per_second, made.seconds, made.loss or 0.0)
        texts = isinstance(made.state, str) and isinstance(made.error, str)
        return made if texts and all(type(v) is int for v in whole) and all(type(v) in (int, float) for v in real) else None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None


@dataclass(frozen=True, eq=False)
class Curves:
    """What was measured at the checkpoints: `steps` [n]; losses [n] in nats; scores [head, n] with the heads' (layer, head)."""

    steps: np.ndarray
    held_out: np.ndarray
    first: np.ndarray
    second: np.ndarray
    heads: tuple[tuple[int, int], ...] = ()
    prefix: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    previous: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))


def read_curves(out: Path) -> Curves | None:
    """`OUT/metrics.json`, None where there is none or it cannot be read."""
    try:
        kept: Any = json.loads((out / METRICS).read_text(encoding="utf-8"))["checkpoints"]
        column = lambda name: np.array([c[name] for c in kept], dtype=float)
        layers = kept[-1]["heads"]["prefix_matching"]
        heads = tuple((i, h) for i, row in enumerate(layers) for h in range(len(row)))
        score = lambda name: np.array([[c["heads"][name][i][h] for c in kept] for i, h in heads]).reshape(len(heads), len(kept))
        losses = (column("loss"), column("rep1"), column("rep2"))
        return Curves(column("step"), *losses, heads, score("prefix_matching"), score("previous_token"))
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return None


def in_words(error: str) -> str:
    """The message of an error as the command prints it, for a person who reads it in a window."""
    lines = []
    for line in error.strip().splitlines():
        kind, _, rest = line.strip().partition(":")
        said = {"expected": f"Expected: {rest.strip()}", "got": f"Got: {rest.strip()}", "do": rest.strip()}
        lines.append(said.get(kind, line.strip()))
    return "\n".join(lines)


def loss_in(line: str) -> tuple[int, float] | None:
    """(step, loss) of a line of the command's output, None for any other line."""
    match = _STEP.match(line)
    return None if match is None else (int(match[1]), float(match[2]))


def stamp(path: Path) -> tuple[int, int]:
    """(mtime in ns, size), zeros where there is no file: whether it must be read again."""
    try:
        found = path.stat()
        return found.st_mtime_ns, found.st_size
    except OSError:
        return 0, 0
