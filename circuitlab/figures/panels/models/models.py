"""The models of the panel Models side by side: those named in its control and the open one, each with its answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from circuitlab.analysis.behaviour.model_comparison import SideBySideResult, side_by_side
from circuitlab.disk.paths import shipped_models
from circuitlab.engine.request import Answer
from circuitlab.engine.store import reference
from circuitlab.errors import CircuitLabError
from circuitlab.figures.contracts.panel import Answers, control
from circuitlab.model.loading.checkpoint import WEIGHT_FILES
from circuitlab.model.origin import Builtin, File
from circuitlab.model.subject import ModelRef, Subject
from circuitlab.state.state import State

MOST = 6  # models taken from the control
Measure = Literal["loss", "less the first", "less the open model", "probability", "top token"]


@dataclass(frozen=True)
class SideBySideView:
    """The controls of the panel."""

    page: Literal["table", "text"] = control("table", label="Page", kind="tabs")
    measure: Measure = control("loss", label="Show", tip="What to show for each token and model; losses in nats")
    models: str = control(
        "attn-only-0l, attn-only-1l, attn-only-2l",
        label="Models",
        tip=f"Shipped models or folders, up to {MOST}, separated by commas; the open model is added",
        kind="models",
    )


@dataclass(frozen=True)
class Entry:
    """One model of the list: its reference, or None and the reason."""

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
        match ref.origin:
            case Builtin(model) if model not in shipped_models():
                return Entry(name, None, "no shipped model has this name")
            case File(path) if not Path(path).exists():
                return Entry(ref.name, None, "no shipped model and no folder has this name")
            case File(path) if not _holds_weights(Path(path)):
                return Entry(ref.name, None, "there is no model in this folder")
    except (CircuitLabError, OSError, RuntimeError, ValueError) as error:
        return Entry(name, None, getattr(error, "what", str(error)))
    return Entry(ref.name, open_one if ref == open_one else ref, "", ref == open_one)


def _holds_weights(where: Path) -> bool:
    """Whether a path looks like a model; opening it checks the rest."""
    if where.is_file() or (where / "config.json").exists():
        return True
    return any(child.suffix in WEIGHT_FILES for child in where.iterdir())


def entries(state: State) -> tuple[Entry, ...]:
    """The models named in the control, without repeats, then the open one if it is not among them."""
    typed = dict.fromkeys(name.strip() for name in view_of(state).models.split(",") if name.strip())
    models = tuple(_entry(name, state.model) for name in tuple(typed)[:MOST])
    models = models if any(e.open for e in models) else (*models, Entry(state.model.name, state.model, "", True))
    names = [e.name for e in models]
    return tuple(replace(e, name=_longer_name(e)) if names.count(e.name) > 1 else e for e in models)


def _longer_name(entry: Entry) -> str:
    """A longer name, for models whose folders have the same name."""
    return entry.name if entry.ref is None else entry.ref.named(2)


def subject_of(entry: Entry, state: State) -> Subject:
    """A model on the state's text. Only the open model keeps the interventions: they name its own heads."""
    assert entry.ref is not None
    return state.subject if entry.open else replace(state.subject, model=entry.ref, edits=())


@dataclass(frozen=True, eq=False)
class ComparedModel:
    """A model of the list, a name short enough for a column, and its answer, None until it arrives."""

    entry: Entry
    short: str
    answer: Answer[SideBySideResult] | None

    @property
    def result(self) -> SideBySideResult | None:
        """Its result; None if the model cannot be compared, or until its answer arrives."""
        return None if self.answer is None or self.answer.result.why else self.answer.result

    @property
    def why(self) -> str:
        """Why it is not compared; "" if it is, or is still being computed."""
        return self.entry.why if self.answer is None else self.answer.result.why


def _short_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names without the words that all of them begin with; dashes separate words."""
    parts = [name.split("-") for name in names]
    n_shared = 0
    while len(names) > 1 and all(len(p) > n_shared + 1 and p[n_shared] == parts[0][n_shared] for p in parts):
        n_shared += 1
    return tuple("-".join(p[n_shared:]) for p in parts)


def compared_models(state: State, answers: Answers) -> tuple[ComparedModel, ...]:
    """Every model of the list with its answer."""
    models = entries(state)
    short_names = _short_names(tuple(e.name for e in models))
    return tuple(
        ComparedModel(entry, name, answers.find(f"model {i}", side_by_side))
        for i, (entry, name) in enumerate(zip(models, short_names, strict=True))
    )


def baseline_of(models: tuple[ComparedModel, ...], measure: Measure) -> ComparedModel | None:
    """The model whose loss is subtracted: the first with a result, or the open one; None if nothing is subtracted."""
    answered = [m for m in models if m.result is not None]
    if measure == "less the open model":
        return next((m for m in answered if m.entry.open), None)
    return answered[0] if measure == "less the first" and answered else None
