"""The results of a session: the answers to all that its places need, for its file. Opens models and computes: for a worker."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from circuitlab.analysis.base import Ctx, NullContext
from circuitlab.counting import number_of
from circuitlab.engine.engine import Engine, memory_words
from circuitlab.engine.ghost import ghost_members, placeless
from circuitlab.engine.request import Answer, Request
from circuitlab.engine.stored_answer import stored_bytes
from circuitlab.errors import BadInput, Cancelled, CircuitLabError, reason
from circuitlab.model.origin import Builtin, Constructed
from circuitlab.report.places import Lost
from circuitlab.report.requests import FILM, Fronts, Needed, requests_of
from circuitlab.session_files.container import LARGEST_REST, unpacked_size
from circuitlab.session_files.model_table import names_by_ref
from circuitlab.session_files.results import (
    Assumed,
    Checkpoint,
    Entry,
    Place,
    Results,
    answer_member,
    key_of,
    model_member,
    results_in,
    unknown_members,
)
from circuitlab.session_files.session import Session

ROOM = LARGEST_REST - 2**26  # bytes of answers, unpacked; the rest is for what is kept of models


@dataclass(frozen=True)
class Gathering:
    """How results are gathered. `compute`: what is not there is computed, otherwise it is left out.

    `fronts`: see `requests_of`. `earlier`: the results that the session's file has. `lost`: see `places`;
    `stand_ins`: names of models in whose place another one is used. `assume`: what was assumed of models by their names, where
    the session's own references do not say it.
    """

    session: Session
    engine: Engine
    fronts: Fronts
    compute: bool = False
    earlier: Results | None = None
    lost: Lost = field(default_factory=dict[str, CircuitLabError])
    stand_ins: Collection[str] = ()
    assume: Mapping[str, Assumed] = field(default_factory=dict[str, Assumed])
    ctx: Ctx = field(default_factory=NullContext)

    def results(self) -> Results:
        """The results. Raises `Cancelled`, and `BadInput` where they are too large for a file."""
        return _Gatherer(self).results()


class _Gatherer:
    def __init__(self, how: Gathering) -> None:
        self.how, self.engine, self.assume = how, how.engine, how.assume
        self._names = names_by_ref(how.session.models)
        self._files = {entry.path: name for name, entry in how.session.files.items()}
        self._entries: dict[str, Entry] = {}
        self._hashes: dict[str, dict[Checkpoint, str]] = {}
        self._members: dict[str, bytes] = {}
        self._done = self._total = self._size = 0

    def results(self) -> Results:
        how = self.how
        needed = list(requests_of(how.session, self.engine, how.fronts, how.ctx, how.lost))
        self._total = sum(len(one.requests) for one in needed)
        places = [self._place(one) for one in needed]
        for name in self._hashes:
            self._add_model(name)
        unknown = {} if how.earlier is None else how.earlier.unknown
        return results_in(self._entries, self._hashes, places, self._members | self._others(), unknown)

    def _others(self) -> dict[str, bytes]:
        """What the file has that this version does not know, if it is still there."""
        try:
            return {} if self.how.earlier is None else dict(self.how.earlier.container.each(unknown_members(self.how.earlier)))
        except BadInput:
            return {}

    def _place(self, needed: Needed) -> Place:
        keys: list[str] = []
        lacking = list(needed.lacking)
        for request in needed.requests:
            name = request.analysis.name.replace("_", " ")
            self.how.ctx.tick(self._done, self._total, name)
            self._done += 1
            try:
                keys += self._stored(request)
            except Cancelled:
                raise
            except CircuitLabError as error:
                lacking.append(f"{name}: {reason(error)}")
        return Place(tuple(dict.fromkeys(keys)), tuple(dict.fromkeys(map(placeless, lacking))))

    def _stored(self, request: Request) -> tuple[str, ...]:
        """Store the answer to a request under its key; none where its model comes with CircuitLab, beside the session's own.

        Raises what computing it raises.
        """
        ref = request.subject.model
        name = self._names.get(replace(ref, checkpoint=None))
        if name is None and isinstance(ref.origin, (Builtin, Constructed)):
            return ()
        if name is None:
            raise BadInput(f"The session does not name its model, {ref.name}.", remedy="Save the session with that model open.")
        if name in self.how.lost:
            raise self.how.lost[name]
        if name in self.how.stand_ins:
            raise BadInput(f"It is not of the session’s model, {name}.", remedy="Open the session where its own model is.")
        answer = self._answer(request)
        step = None if ref.checkpoint is None else self.engine.store.open(ref).opened.steps[ref.checkpoint]
        sha256 = self.engine.store.sha256(ref)
        about = request if answer is None else answer.request
        device = self.engine.place(request) if answer is None else answer.provenance.device
        key = key_of(about, sha256, self.assume.get(name, ref.assume), device)
        if key not in self._entries:
            data = self._data(key, answer, sha256)
            if (size := self._size + unpacked_size(data)) > ROOM:
                raise BadInput("There is no room for it in a session file.", remedy="Show fewer panels, or keep fewer steps.")
            self._members[answer_member(key)], self._size = data, size
            self._entries[key] = Entry(request.analysis.name, request.analysis.version, name, step)
        self._hashes.setdefault(name, {})[step] = sha256
        return (key,)

    def _answer(self, request: Request) -> Answer | None:
        if not self.how.compute:
            return self.engine.cached(request)
        return self.engine.answer(request, _Part(self.how.ctx, self._done - 1, self._total))

    def _data(self, key: str, answer: Answer | None, sha256: str) -> bytes:
        earlier = self.how.earlier
        if earlier is not None and key in earlier.entries and (answer is None or answer.provenance.stored):
            try:
                return earlier.data(key)
            except BadInput:  # the file is gone, or another one
                if answer is None:
                    raise
        if answer is None:
            raise BadInput("It is not computed.", remedy="Show the panel, or have it computed as the session is saved.")
        # how long it took is no result: the same session gives the same file
        answer = replace(answer, provenance=replace(answer.provenance, weights=sha256, seconds=0.0))
        return stored_bytes(answer, self._names, self._files)

    def _add_model(self, name: str) -> None:
        """What panels know of a model without its weights."""
        ref = self.how.session.models[name].ref
        members = ghost_members(self.engine.store.open(ref))
        self._members |= {model_member(name, member): data for member, data in members.items()}
        self._hashes[name].setdefault(None, self.engine.store.sha256(ref))


class _Part(NullContext):
    """The `Ctx` of one answer of several: it reports the progress of all of them."""

    def __init__(self, ctx: Ctx, done: int, total: int) -> None:
        self._ctx, self._done, self._total = ctx, done, total

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Report the progress. Raises `Cancelled`."""
        self._ctx.tick(self._done, self._total, text)


def with_hashes(session: Session, results: Results) -> Session:
    """The session whose models have the hashes that their results have, as far as they were not known."""
    own = {name: hashes.get(None, "") for name, hashes in results.hashes.items()}
    models = {n: replace(entry, sha256=entry.sha256 or own.get(n, "")) for n, entry in session.models.items()}
    return replace(session, models=models)


def summary(results: Results) -> str:
    """How much is stored, in words: "12 results (3.1 MiB)", how much is not, and at which steps a film is not."""
    lacking = [(number, line) for number, place in enumerate(results.places) for line in place.lacking]
    films = [str(number) for number, line in lacking if line.startswith(FILM)]
    others = len(lacking) - len(films)
    film = f"the {'film' if len(films) == 1 else 'films'} of step {', '.join(films)} not stored" if films else ""
    stored = f"{number_of(len(results.entries), 'result')} ({memory_words(results.nbytes)})"
    parts = (stored, f"{others} not stored" if others else "", film)
    return ", ".join(filter(None, parts))
