"""A sweep that is declared from a panel: its fields, what they declare, and what is known before it starts."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from circuitlab.analysis.base import Ctx
from circuitlab.disk.file_lock import holder_of
from circuitlab.disk.files import write_whole
from circuitlab.disk.paths import typed_path
from circuitlab.engine.engine import GIB, Engine
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, UsageError
from circuitlab.gui.work.own_process import writable_folder
from circuitlab.sweep.declaring import THIS_TEXT, Asked, declaration
from circuitlab.sweep.forecast import forecast
from circuitlab.sweep.plan import Plan, plan_of
from circuitlab.sweep.record import LOCK, PLAN, SPEC, need_own
from circuitlab.sweep.spec import ALL, FINAL, PromptSource, Step, spec_of
from circuitlab.sweep.status import finished

SETS = (".tsv",)  # files that are prompt sets: prompt, tab, answer; any other is a text of a prompt a line
FILE = "a file"  # in place of the name of a prompt set


@dataclass(frozen=True)
class SweepJob:
    """The fields of the form. `checkpoint`: which training steps: "final", "all", "every" n-th, or "this" one; `steps`: those of
    the series; `prompts`: "" for the open text, the name of a shipped set, or `FILE`."""

    asked: Asked
    steps: tuple[int, ...] = ()
    checkpoint: str = FINAL
    every: int = 2
    prompts: str = ""
    file: str = ""
    most: int = 0
    plain: bool = True
    out: str = ""
    workers: int = 1
    memory: float = 4.0
    device: str = "cpu"

    def over(self) -> tuple[Step, ...]:
        """The training steps as a declaration has them."""
        if self.checkpoint == "every":
            return (*self.steps[:: self.every], FINAL)
        at = self.asked.model.checkpoint
        return (self.steps[at],) if self.checkpoint == "this" and at is not None else (ALL if self.checkpoint == ALL else FINAL,)

    def source(self) -> PromptSource:
        """The prompts as a declaration has them. Raises `BadInput` where no file is named, `UsageError` for no path."""
        if not self.prompts:
            return PromptSource(THIS_TEXT, texts=(self.asked.text,))
        if self.prompts != FILE:
            return PromptSource(self.prompts, set=self.prompts, most=self.most)
        if not self.file.strip():
            remedy = "Choose one: a prompt a line, or with answers a .tsv."
            raise BadInput("Choose a file of prompts.", expected="a file", got="none", remedy=remedy)
        path = typed_path(self.file.strip()).absolute()
        name = str(path)
        is_set = path.suffix in SETS
        return PromptSource(path.stem, set=name if is_set else "", file="" if is_set else name, most=self.most)

    def text(self) -> str:
        """The declaration. Raises `BadInput`."""
        return declaration(self.asked, self.over(), self.source(), self.plain)

    def folder(self) -> Path:
        """The folder that it is written to. Raises `BadInput`, `BadMachine`, `UsageError` where it cannot be or is taken."""
        out = writable_folder(self.out.strip())
        need_own(out, self.text())
        if holder_of(out / LOCK) is not None:
            remedy = "Jobs shows how far it is; choose another folder, or stop it first."
            raise UsageError("A sweep is being answered in this folder.", expected="a folder", got=str(out), remedy=remedy)
        return out

    def prepare(self) -> tuple[Path, list[str]]:
        """Write the declaration into its folder: (that folder, the arguments of `python` that answer it). Raises as `folder`."""
        out = self.folder()
        out.mkdir(parents=True, exist_ok=True)
        write_whole(out / SPEC, self.text().encode())
        machine = ["--workers", str(self.workers), "--budget", str(self.memory), "--device", self.device]
        return out, ["-m", "circuitlab", "sweep", str(out / SPEC), "-o", str(out), *machine]


@dataclass(frozen=True)
class CheckedSweep:
    """A sweep that can start. `lines`: what it will take, in words; `goes_on`: its folder holds a sweep already."""

    job: SweepJob
    lines: tuple[str, ...]
    goes_on: bool


def check(job: SweepJob, ctx: Ctx) -> CheckedSweep:
    """Plan it, and answer a cell of each kind to see what it takes; nothing is written. Raises `CircuitLabError`, `Cancelled`."""
    out = job.folder()
    memory = int(job.memory * GIB)
    engine = Engine(ModelStore(), memory, job.device)  # not the window's, which has models open that are looked at
    plan = plan_of(spec_of(tomllib.loads(job.text()), out, job.text()), engine)
    _need_same_tokens(job, plan)
    result = forecast(plan, engine, finished(out, retry=False), ctx)
    return CheckedSweep(job, tuple(result.lines(job.workers, memory)), (out / PLAN).exists())


def _need_same_tokens(job: SweepJob, plan: Plan) -> None:
    """Raise `BadInput` where the open prompt is not what its text is read as."""
    given = next((cell.given for cell in plan.cells if cell.given is not None), None)
    if job.prompts or given is None or given.prompt is None or given.prompt.tokens == job.asked.tokens:
        return
    raise BadInput(
        "The open prompt has other tokens than its text is read as.",
        expected=" ".join(map(str, job.asked.tokens[:20])),
        got=" ".join(map(str, given.prompt.tokens[:20])),
        remedy="Choose a prompt set or a file, or type the prompt anew.",
    )
