"""A training job: its command line, the checks before it starts, and the progress and metrics files of its run."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from circuitlab.counting import number_of
from circuitlab.errors import BadInput
from circuitlab.gui.work.own_process import writable_folder
from circuitlab.model.devices import NAMES
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.training.command import device_of, fitting
from circuitlab.training.corpus import find_sources
from circuitlab.training.identity import FILE as RUN
from circuitlab.training.identity import holds, identity
from circuitlab.training.metrics_file import FILE as METRICS
from circuitlab.training.progress import FILE as PROGRESS
from circuitlab.training.recipe import Recipe
from circuitlab.training.recipe_file import read_recipe
from circuitlab.training.series_points import tokens_after

DEVICES = ("auto", *NAMES)


@dataclass(frozen=True)
class TrainingJob:
    """The fields of the form. `text`: (path or "stdlib", share as typed; "" takes an equal part of what the others leave)."""

    recipe: str = ""
    text: tuple[tuple[str, str], ...] = ()
    out: str = ""
    tokenizer: str = ""
    seed: int | None = None
    device: str = "auto"
    threads: int = 1

    def sources(self) -> list[str]:
        """The values of `--text`. Raises `BadInput` for a share that is no number."""
        sources = []
        for name, share in self.text:
            if share and not re.fullmatch(r"\d*\.?\d+", share):
                raise BadInput(
                    "A share is not a number.",
                    expected="a part of the whole such as 0.5, or nothing",
                    got=share,
                    remedy="Write a number, or leave the share empty.",
                )
            sources.append(f"{name}:{share}" if share else name)
        return sources

    def arguments(self) -> list[str]:
        """The arguments of `python`."""
        words = ["-m", "circuitlab", "train", self.recipe, "--text", *self.sources(), "--out", self.out]
        words += ["--device", self.device, "--threads", str(self.threads)]
        words += [] if self.seed is None else ["--seed", str(self.seed)]
        return words + (["--tokenizer", self.tokenizer] if self.tokenizer else [])


@dataclass(frozen=True, eq=False)
class CheckedJob:
    """A job that can start. `total`: tokens of the whole run; `resumes`: whether its folder already holds a part of this run."""

    job: TrainingJob
    recipe: Recipe
    total: int
    n_files: int
    n_bytes: int
    resumes: bool

    def words(self) -> str:
        """The model, the work and the text, in a sentence or two."""
        c = self.recipe.config()
        heads, numbers = number_of(c.n_heads, "head"), number_of(c.n_parameters(), "parameter")
        shape = f"{number_of(c.n_layers, 'layer')}, {heads} of {c.d_head}, d_model {c.d_model}, {numbers}"
        work = f"{number_of(self.recipe.optimiser.steps, 'step')}, {number_of(self.total, 'token')}"
        size = f"{self.n_bytes / 2**20:,.1f} MiB" if self.n_bytes >= 2**20 else f"{self.n_bytes / 2**10:,.0f} KiB"
        text = f"{self.n_files:,} file{'s' if self.n_files > 1 else ''}, {size} of text"
        resumed = " The folder already holds part of this run; training resumes from there." if self.resumes else ""
        return f"{shape}. {work}. {text}.{resumed}"


def check(job: TrainingJob) -> CheckedJob:
    """Check everything that can be checked before training starts; reads the recipe and the text. Raises `CircuitLabError`."""
    if not job.recipe:
        raise BadInput(
            "Choose a recipe.", expected="a shipped one or a TOML file", got="none", remedy="Choose one from the list."
        )
    recipe = read_recipe(job.recipe)
    recipe = recipe if job.seed is None else dataclasses.replace(recipe, seed=job.seed)
    if not job.text:
        raise BadInput(
            "Add the text to train on.", expected="files or folders", got="none", remedy="Add files or folders of text."
        )
    sources = find_sources(job.sources())
    tokenizer = Path(job.tokenizer) if job.tokenizer else None
    if tokenizer is not None:
        fitting(Tokenizer.from_file(tokenizer), recipe, tokenizer)
    device_of(job.device)
    out = writable_folder(job.out)
    resumes = (out / "state" / RUN).is_file() and holds(out / "state", identity(recipe, sources, tokenizer))
    files = [path for source in sources for path in source.files]
    total, size = tokens_after(recipe, recipe.optimiser.steps), sum(p.stat().st_size for p in files)
    return CheckedJob(job, recipe, total, len(files), size, resumes)


# -- the files of a run -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Progress:
    """The contents of `OUT/progress.json`, with the fields of `training/progress.py`."""

    step: int = 0
    steps: int = 0
    loss: float | None = None
    tokens_per_second: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    state: str = ""
    error: str = ""

    def minutes_left(self, total: int) -> float | None:
        """Minutes for the rest of `total` tokens at the present speed; None while the speed is unknown."""
        return None if self.tokens_per_second <= 0 else max(0, total - self.tokens) / self.tokens_per_second / 60


def read_progress(out: Path) -> Progress | None:
    """The progress of the run in `out` (a few hundred bytes); None where the file is missing, incomplete or not a run's."""
    try:
        data = json.loads((out / PROGRESS).read_text(encoding="utf-8"))
        names = {f.name for f in dataclasses.fields(Progress)}
        p = Progress(**{k: v for k, v in data.items() if k in names})
        whole, real = (p.step, p.steps, p.tokens), (p.tokens_per_second, p.seconds, p.loss or 0.0)
        texts = isinstance(p.state, str) and isinstance(p.error, str)
        return p if texts and all(type(v) is int for v in whole) and all(type(v) in (int, float) for v in real) else None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None


@dataclass(frozen=True, eq=False)
class Curves:
    """The metrics at n checkpoints: `steps` [n]; losses [n] in nats; scores [head, n]; `heads`: their (layer, head)."""

    steps: np.ndarray
    held_out: np.ndarray
    first: np.ndarray
    second: np.ndarray
    heads: tuple[tuple[int, int], ...] = ()
    prefix: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    previous: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))


def read_curves(out: Path) -> Curves | None:
    """The curves in `OUT/metrics.json`; None where the file is missing or unreadable."""
    try:
        checkpoints = json.loads((out / METRICS).read_text(encoding="utf-8"))["checkpoints"]
        column = lambda name: np.array([c[name] for c in checkpoints], dtype=float)
        layers = checkpoints[-1]["heads"]["prefix_matching"]
        heads = tuple((i, h) for i, row in enumerate(layers) for h in range(len(row)))
        shape = len(heads), len(checkpoints)
        score = lambda name: np.array([[c["heads"][name][i][h] for c in checkpoints] for i, h in heads]).reshape(shape)
        losses = (column("loss"), column("rep1"), column("rep2"))
        return Curves(column("step"), *losses, heads, score("prefix_matching"), score("previous_token"))
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return None
