"""The table of a session's models: which name stands for which model, and who is mentioned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from circuitlab.model.catalogue.places import name_of
from circuitlab.model.subject import ModelRef
from circuitlab.session_files.session import ModelEntry, Note, Session
from circuitlab.state.state import State
from circuitlab.story.setup import Other, Setup
from circuitlab.story.story import Step, Story

Models = Mapping[str, ModelEntry]


def names_by_ref(models: Models) -> dict[ModelRef, str]:
    """The name of each model by its reference, without checkpoint."""
    return {entry.ref: name for name, entry in models.items()}


def with_models(models: Models, refs: Iterable[ModelRef]) -> Models:
    """The table with an entry for each of these models; a name that is taken by another one gets a number."""
    table = dict(models)
    for ref in (replace(one, checkpoint=None) for one in refs):
        if ref not in names_by_ref(table):
            own = name_of(ref) or ref.name
            free = (f"{own} {i}" if i > 1 else own for i in range(1, len(table) + 2))
            table[next(name for name in free if name not in table)] = ModelEntry(ref)
    return table


def refs_of(state: State) -> tuple[ModelRef, ...]:
    """The models of a state and of its pins."""
    return state.model, *(pin.subject.model for pin in state.pins)


def mentioned(now: Setup, story: Story, notes: Iterable[Note]) -> set[str]:
    """The names of models that words, values and notes use."""
    setups = [now, *(step.setup for step in story.steps if step.setup is not None)]
    others = [value.other for step in story.steps for value in step.values if value.other is not None]
    names = {note.model for note in notes} | {other.words.model or "" for other in others}
    while setups:
        setup = setups.pop()
        names.add(setup.model or "")
        pins = setup.pin if isinstance(setup.pin, tuple) else ()
        setups += [pin.words if isinstance(pin, Other) else pin for pin in pins]
    return names - {""}


def needed(session: Session, setup: Setup, step: Step | None = None) -> set[str]:
    """The names of the models without which complete words cannot be shown: those that the words mention, and the session's
    present one where they, or those of a pin, name none. `step`: whose values count too.
    """
    names = mentioned(setup, Story(steps=() if step is None else (step,)), ())
    pins = setup.pin if isinstance(setup.pin, tuple) else ()
    subjects = (setup, *(pin for pin in pins if isinstance(pin, Setup)))
    return names | {session.now.model} if session.now.model and any(one.model is None for one in subjects) else names
