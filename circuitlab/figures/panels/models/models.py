"""The models that are set side by side: those of the control and the open one, each with what it has answered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from circuitlab.analysis.behaviour.model_comparison import SideBySideResult, side_by_side
from circuitlab.engine.request import Answer
from circuitlab.engine.store import reference
from circuitlab.errors import CircuitLabError
from circuitlab.figures.contracts.panel import Answers, control
from circuitlab.model.subject import ModelRef, Subject
from circuitlab.paths import shipped_models
from circuitlab.session.state import State

MOST = 6  # models beside each other
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")
Measure = Literal["loss", "less the first", "less the open model", "probability", "top token"]


@dataclass(frozen=True)
class SideBySideView:
    """The controls of the panel."""

    page: Literal["table", "text"] = control("table", label="Page", kind="tabs")
    measure: Measure = control("loss", label="Show", tip="What stands for every token in every model; losses in nats")
    models: str = control(
        "attn-only-0l, attn-only-1l, attn-only-2l",
        label="Models",
        tip=f"Shipped models or folders, up to {MOST}, separated by commas; the open one joins them",
    )


@dataclass(frozen=True)
class Entry:
    """One model of the list: its reference, or why there is none."""

    name: str
    ref: ModelRef | None
    why: str = ""
    open: bool = False


def view_of(state: State) -> SideBySideView:
    """The controls of a state."""
    return state.view("side_by_side", SideBySideView)


def _entry(name: str, open_one: ModelRef) -> Entry:
    try:
        ref = reference(name)
        kind, _, where = ref.source.partition(":")
        if kind == "builtin" and where not in shipped_models():
            return Entry(name, None, "no such model ships")
        if kind == "file" and not Path(where).exists():
            return Entry(name, None, "it does not ship, and there is no such folder")
        if kind == "file" and not _holds_weights(Path(where)):
            return Entry(ref.name, None, "no model lies there")
    except (CircuitLabError, OSError, RuntimeError, ValueError) as error:
        return Entry(name, None, getattr(error, "what", str(error)))
    return Entry(ref.name, open_one if ref == open_one else ref, "", ref == open_one)


def _holds_weights(where: Path) -> bool:
    """Whether a path may be opened at all: whoever opens it looks closer."""
    if where.is_file() or (where / "config.json").exists():
        return True
    return any(child.suffix in WEIGHTS for child in where.iterdir())


def entries(state: State) -> tuple[Entry, ...]:
    """The models of the control, each once, and the open one behind them where it is not among them."""
    said = dict.fromkeys(name.strip() for name in view_of(state).models.split(",") if name.strip())
    found = tuple(_entry(name, state.model) for name in tuple(said)[:MOST])
    found = found if any(e.open for e in found) else (*found, Entry(state.model.name, state.model, "", True))
    names = [e.name for e in found]
    return tuple(replace(e, name=_longer(e)) if names.count(e.name) > 1 else e for e in found)


def _longer(entry: Entry) -> str:
    """A name that tells two folders of one name apart."""
    return entry.name if entry.ref is None else entry.ref.named(2)


def subject_of(entry: Entry, state: State) -> Subject:
    """The open model keeps its interventions; they name heads of it and mean nothing in another."""
    assert entry.ref is not None
    return state.subject if entry.open else replace(state.subject, model=entry.ref, edits=())


@dataclass(frozen=True, eq=False)
class Shown:
    """A model of the list with its answer, None while there is none, and the name that fits a column."""

    entry: Entry
    short: str
    answer: Answer[SideBySideResult] | None

    @property
    def result(self) -> SideBySideResult | None:
        """What it answered, None where that cannot be compared or has not come."""
        return None if self.answer is None or self.answer.result.why else self.answer.result

    @property
    def why(self) -> str:
        """Why it is not compared, "" where it is or is still computed."""
        return self.entry.why if self.answer is None else self.answer.result.why


def _short(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names without the words, set apart by dashes, that all of them begin with."""
    parts = [name.split("-") for name in names]
    alike = 0
    while len(names) > 1 and all(len(p) > alike + 1 and p[alike] == parts[0][alike] for p in parts):
        alike += 1
    return tuple("-".join(p[alike:]) for p in parts)


def shown(state: State, answers: Answers) -> tuple[Shown, ...]:
    """Every model of the list with what it has answered."""
    listed = entries(state)
    short = _short(tuple(e.name for e in listed))
    return tuple(
        Shown(e, s, answers.find(f"model {i}", side_by_side)) for i, (e, s) in enumerate(zip(listed, short, strict=True))
    )


def base_of(models: tuple[Shown, ...], measure: Measure) -> Shown | None:
    """The model that others are less: the first that can be compared, or the open one; None where losses stand alone."""
    known = [m for m in models if m.result is not None]
    if measure == "less the open model":
        return next((m for m in known if m.entry.open), None)
    return known[0] if measure == "less the first" and known else None
