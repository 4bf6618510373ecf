"""Controls of panels that list models: a person's own are named by a session's table, so that they are found on another machine.

In the words of a file such a control is `{"models": ["attn-only-0l", {"model": "mine"}]}`: names as they are typed, and names of
the table. A list without a model of one's own stays the text that it is.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from circuitlab.engine.store import reference
from circuitlab.errors import UsageError
from circuitlab.model.origin import File
from circuitlab.model.subject import ModelRef
from circuitlab.session_files.file_table import with_controls
from circuitlab.session_files.model_table import Models, names_by_ref, with_models
from circuitlab.session_files.session import Session
from circuitlab.story.setup import Views

MODELS, MODEL = "models", "model"


def with_model_names(session: Session, views: Views, table: Models) -> Session:
    """The session whose controls name a person's own models by its table, which gets the entry of each.

    `table`: the entries of models that are known already; one of them may be missing now.
    """
    controls = {name: model_controls(view) for name, view in views.items()}
    models = dict(session.models)

    def named(panel: str, control: str, value: object) -> object:
        if control not in controls.get(panel, ()) or not isinstance(value, str):
            return value
        known = names_by_ref(table)
        refs = {name: ref for name in listed(value) if (ref := own_model(name)) is not None}
        own = {name: ref for name, ref in refs.items() if ref in known or os.path.exists(_path(ref))}
        entries = with_models({**table, **models}, own.values())
        names = names_by_ref(entries)
        models.update({names[ref]: entries[names[ref]] for ref in own.values()})
        return {MODELS: [{MODEL: names[own[name]]} if name in own else name for name in listed(value)]} if own else value

    session = with_controls(session, named)
    return replace(session, models=models)


def with_model_paths(session: Session) -> Session:
    """The session whose controls name models as they are typed, those of the table by their paths."""

    def typed(panel: str, control: str, value: object) -> object:
        if not isinstance(value, Mapping) or set(value) != {MODELS} or not isinstance(value[MODELS], (list, tuple)):
            return value
        return ", ".join(_typed(one, session) for one in value[MODELS])

    return with_controls(session, typed)


def model_controls(view: type[Any]) -> tuple[str, ...]:
    """The controls of a panel that list models."""
    return tuple(f.name for f in dataclasses.fields(view) if f.metadata.get("kind") == MODELS)


def listed(value: str) -> tuple[str, ...]:
    """The names in a list as it is typed."""
    return tuple(name.strip() for name in value.split(",") if name.strip())


def own_model(name: str) -> ModelRef | None:
    """The reference of a model that is named by its path, None for any other name."""
    try:
        ref = reference(name)
    except (UsageError, OSError, RuntimeError, ValueError):
        return None
    return ref if isinstance(ref.origin, File) else None


def lists(view: Mapping[str, Mapping[str, object]], ref: ModelRef) -> bool:
    """Whether a control lists a model by its path."""
    texts = (value for controls in view.values() for value in controls.values() if isinstance(value, str))
    return any(_path(ref) in listed(text) for text in texts)


def _path(ref: ModelRef) -> str:
    return ref.origin.where if isinstance(ref.origin, File) else ref.source


def _typed(one: object, session: Session) -> str:
    name = one.get(MODEL) if isinstance(one, Mapping) else None
    entry = session.models.get(name) if isinstance(name, str) else None
    return _path(entry.ref) if entry is not None else str(name or one)
