"""The view of a picture: what a panel's figure, or the panels of a sheet, show, as the text of a session of one view, for the
picture's own file.

It says no more than the figure is about: the model, the prompt, the interventions, the reference, the selection, and the settings
of its own panels. It names no folder: a person's own model or file is its name and its hash, and is found by these.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from circuitlab.disk.json_types import JsonDict
from circuitlab.disk.paths import base_name
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadModel, UsageError
from circuitlab.model.origin import File
from circuitlab.model.subject import ModelRef
from circuitlab.session_files.assembly import session_of
from circuitlab.session_files.model_controls import listed, model_controls, own_model
from circuitlab.session_files.model_table import refs_of
from circuitlab.session_files.session import Session
from circuitlab.session_files.session_text import table_of_session
from circuitlab.session_files.work import Work
from circuitlab.state.state import State
from circuitlab.story.setup import Setup, Views
from circuitlab.story.zoom import Part, name_of


@dataclass(frozen=True)
class PictureView:
    """What a figure shows: a State and a panel's name. `seen`: the visible parts of its marks, by name; the others are whole.

    `unchosen`: which of `session.UNCHOSEN` in the selection nobody has chosen. `beside`: the other panels of a sheet, in their
    order, each with what is seen of it.
    """

    state: State
    panel: str
    seen: Mapping[str, Part] = field(default_factory=dict[str, Part])
    unchosen: Collection[str] = ()
    beside: Mapping[str, Mapping[str, Part]] = field(default_factory=dict[str, Mapping[str, Part]])

    def text(self, store: ModelStore, views: Views) -> str:
        """One line of JSON in ASCII. Opens models and hashes weights and files: for a worker thread. Raises `BadModel`."""
        panels = {self.panel: self.seen, **self.beside}
        state = replace(
            self.state,
            views={name: view for name, view in self.state.views.items() if name in panels},
            pins=self.state.pins[:1],
            draft="",
        )
        for ref in refs_of(state):
            _hash(ref, store)
        zoom = {name_of(panel, mark): part for panel, seen in panels.items() for mark, part in seen.items()}
        layout = Setup(show=tuple(panels), zoom=zoom)
        session = session_of(Work(state), store, views, layout)
        session = replace(session, unchosen=tuple(self.unchosen))
        return json.dumps(_without_folders(session, views), allow_nan=False)


def panels_of(session: Session) -> tuple[str, ...]:
    """The panels that a picture shows, in their order; none if its view does not say."""
    return session.now.show


def _hash(ref: ModelRef, store: ModelStore) -> None:
    """Have the store know the hash of a person's own model, by which alone it is found again, however large it is."""
    if isinstance(ref.origin, File):
        try:
            store.sha256_unopened(replace(ref, checkpoint=None))
        except (BadModel, UsageError):
            return


def _without_folders(session: Session, views: Views) -> JsonDict:
    """The session as plain values in which only the last part is left of each path."""
    table = table_of_session(session, None)
    for entry in (*table["models"].values(), *table.get("files", {}).values()):
        if "path" in entry:
            entry["path"] = base_name(entry["path"])
        if "assume" in entry:  # a tokenizer may be given by its path
            entry["assume"] = {name: base_name(value) for name, value in entry["assume"].items()}
    for panel, controls in table["now"].get("view", {}).items():
        for name in model_controls(views[panel]) if panel in views else ():
            controls |= {name: _named(controls[name])} if name in controls else {}
    return table


def _named(value: str | Mapping[str, Iterable[object]]) -> object:
    """A list of models in which those at whose path nothing is are named without it."""
    if isinstance(value, str):
        return ", ".join(map(_named_one, listed(value)))
    return {kind: [_named_one(one) if isinstance(one, str) else one for one in names] for kind, names in value.items()}


def _named_one(name: str) -> str:
    return name if own_model(name) is None else base_name(name)
