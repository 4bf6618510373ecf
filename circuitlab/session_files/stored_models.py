"""Models of a session that are not on this machine, of which its file has results: known by these alone.

In the window such a model has a reference of its own, `stored:77ab12…/mine`: files with other weights may lie where the
session says. In the session's file it stays what it was (`StoredModels.as_written`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from circuitlab.engine.engine import Engine
from circuitlab.engine.ghost import Ghost, ghost
from circuitlab.engine.request import Answer
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadModel, CircuitLabError
from circuitlab.model.origin import Stored
from circuitlab.model.subject import ModelRef
from circuitlab.session_files.container import refused
from circuitlab.session_files.results import INDEX, Checkpoint, Damaged, Results, quoted
from circuitlab.session_files.session import ModelEntry, Session

SHORT = 12  # digits of a hash
SEPARATORS = {"/", "\\"}  # what stands behind the last one is a model's name in titles
Models = Mapping[str, ModelEntry]


@dataclass(frozen=True)
class StoredModels:
    """Models that are known by their results: `entries` as the session has them, `refs` as the window does, both by name.

    `ghosts`: the models, one for each checkpoint too; `answers`: all that are stored of them, but those that are `damaged`.
    """

    entries: Models = field(default_factory=dict[str, ModelEntry])
    refs: Mapping[str, ModelRef] = field(default_factory=dict[str, ModelRef])
    ghosts: tuple[Ghost, ...] = ()
    answers: tuple[Answer, ...] = ()
    damaged: tuple[Damaged, ...] = ()

    def as_opened(self, models: Models) -> dict[str, ModelEntry]:
        """A session's table with these models as the window has them."""
        return {n: replace(entry, ref=self.refs[n]) if n in self.refs else entry for n, entry in models.items()}

    def as_written(self, models: Models) -> dict[str, ModelEntry]:
        """The window's table with these models as the session's file has them."""
        return {name: self.entries.get(name, entry) for name, entry in models.items()}

    def enter(self, engine: Engine) -> None:
        """Let the engine have the models and their answers."""
        self.place(engine.store)
        engine.hold(self.answers)

    def place(self, store: ModelStore) -> None:
        """Put the models into a store, once more where others of the same references have left it since."""
        for model in self.ghosts:
            store.place(model)

    def leave(self, engine: Engine) -> None:
        """Take models and answers away again."""
        engine.release(self.answers)
        for ref in self.refs.values():
            engine.store.remove(ref)


def stored_models(session: Session, results: Results, names: Iterable[str]) -> StoredModels:
    """The models of a session with these names, as its results have them.

    Raises `BadModel` for one that has none, `BadInput` for results that cannot be read.
    """
    entries = {name: session.models[name] for name in names}
    ghosts: list[Ghost] = []
    refs: dict[str, dict[Checkpoint, ModelRef]] = {}
    for name, entry in entries.items():
        if name not in results.models(session):
            expected, remedy = f"answers about {name} in the session", "Choose the model itself."
            raise BadModel("No results are stored of this model.", expected=expected, got="none", remedy=remedy)
        models = _ghosts(name, entry, results)
        ghosts += models.values()
        refs[name] = {step: model.ref for step, model in models.items()}
    final = {name: by_step[None] for name, by_step in refs.items()}
    answers = tuple(results.answers(session, refs))
    damaged = tuple(one for one in answers if isinstance(one, Damaged))
    for model in ghosts:
        if lost := [one.entry.analysis for one in damaged if model.ref in refs[one.entry.model].values()]:
            model.lacks(lost)
    return StoredModels(entries, final, tuple(ghosts), tuple(one for one in answers if isinstance(one, Answer)), damaged)


def _ghosts(name: str, entry: ModelEntry, results: Results) -> dict[Checkpoint, Ghost]:
    """The ghost of a model's final weights, and one for each of its checkpoints with results, by training step."""
    hashes, members = results.hashes[name], results.model_members(name)
    sha256 = entry.sha256 or hashes.get(None, "")
    ref = ModelRef.of(Stored(f"{sha256[:SHORT] or 'unknown'}/{quoted(name) if set(name) & SEPARATORS else name}"))
    try:
        final = ghost(ref, members, sha256)
    except CircuitLabError as error:
        place = f"models/{quoted(name)}: {error.what.rstrip('.')}"
        raise refused(place, error.expected or "what CircuitLab stores of a model", error.got or error.what) from error
    models: dict[Checkpoint, Ghost] = {None: final}
    for step, own in hashes.items():
        if step is None:
            continue
        if step not in final.opened.steps:
            raise refused(f"{INDEX}, models.{name}", "one of the model's training steps", step)
        models[step] = ghost(replace(ref, checkpoint=final.opened.steps.index(step)), members, own)
    return models
