"""Everything that the steps of a story show, computed before they are presented, held until it is released, and their models kept
open: while presenting nothing is computed that is not pointed at.

    readiness = prepare(session, engine, FRONTS, ctx)
    readiness.line                          # All 5 views ready
    readiness.release(engine)               # after the talk

Blocking, but for what `Readiness` says: for a worker thread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from circuitlab.analysis.base import Ctx, NullContext
from circuitlab.counting import number_of
from circuitlab.engine.engine import Engine, memory_words
from circuitlab.engine.request import Answer, Request
from circuitlab.errors import Cancelled, CircuitLabError, reason
from circuitlab.model.subject import ModelRef
from circuitlab.report.places import NONE_LOST, Lost
from circuitlab.report.requests import Fronts, Needed, requests_of
from circuitlab.session_files.session import Session
from circuitlab.story.resolver import Ready
from circuitlab.terminal import on_one_line
from circuitlab.unforeseen import part


@dataclass(frozen=True)
class StepReadiness:
    """One step: `held`, how many of its `requests` have an answer that is held; `lacking`: what it will never have, and why.

    `later`: what there was no room to hold, which is computed or opened when it is shown. `failed`: how many of its requests
    cannot be computed. `ready`: its State and film, None where it has none: the first of `lacking` says why.
    """

    title: str
    requests: tuple[Request, ...] = ()
    held: int = 0
    lacking: tuple[str, ...] = ()
    ready: Ready | None = None
    later: tuple[str, ...] = ()
    failed: int = 0

    @property
    def is_ready(self) -> bool:
        """Whether showing it computes nothing, and nothing is missing."""
        return self.held == len(self.requests) and not self.lacking and not self.later

    @property
    def left(self) -> int:
        """How many of its requests are not held, and can be computed."""
        return len(self.requests) - self.held - self.failed

    @property
    def computes(self) -> bool:
        """Whether something is computed or opened when it is shown."""
        return self.left > 0 or bool(self.later)

    @property
    def is_helped(self) -> bool:
        """Whether preparing leaves less to compute: what had no room has none the next time."""
        return self.left > 0 and not self.later

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not ready, () where it is."""
        counted = (f"{self.left} of {number_of(len(self.requests), 'result')} to be computed",) if self.is_helped else ()
        return (*self.lacking, *self.later, *counted)

    def now(self, engine: Engine) -> StepReadiness:
        """The same step as the engine holds it now. Computes and opens nothing."""
        return replace(self, held=sum(engine.held(request, read=False) is not None for request in self.requests))


@dataclass(frozen=True)
class Readiness:
    """Whether a story can be presented. `answers` are held by the engine for it, `models` kept open in its store."""

    steps: tuple[StepReadiness, ...] = ()
    answers: tuple[Answer, ...] = ()
    models: tuple[ModelRef, ...] = ()

    @property
    def is_ready(self) -> bool:
        """Whether every step is."""
        return all(step.is_ready for step in self.steps)

    @property
    def unready(self) -> tuple[int, ...]:
        """The steps that are not, counted from 0."""
        return tuple(i for i, step in enumerate(self.steps) if not step.is_ready)

    @property
    def reasons(self) -> tuple[str, ...]:
        """For each step that is not ready why, in one line."""
        why = lambda i, step: f"{i + 1} “{step.title or 'Untitled'}”: {'; '.join(step.reasons)}"
        return tuple(on_one_line(why(i, self.steps[i])) for i in self.unready)

    @property
    def line(self) -> str:
        """All of it in one line: "All 5 views ready", or how many are, and why the first of the others is not."""
        n, unready = len(self.steps), self.unready
        if not n:
            return "No steps to present"
        if not unready:
            other = next((f" · view {i}: {words}" for i, words in enumerate(self._mismatches, 1) if words), "")
            return f"{'All ' if n > 1 else ''}{number_of(n, 'view')} ready{other}"
        first, *others = unready
        more = f" and {number_of(len(others), 'other')}" if others else ""
        ready, why = f"{n - len(unready)} of {number_of(n, 'view')} ready", next(iter(self.steps[first].reasons), "")
        return f"{ready} · view {first + 1}{more}: {on_one_line(why)}"

    @property
    def _mismatches(self) -> tuple[str, ...]:
        """For each step what is shown otherwise than it says: other tokens, another training step."""
        return tuple("" if step.ready is None else step.ready.mismatch for step in self.steps)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that are held for it."""
        return sum(answer.result.nbytes for answer in self.answers)

    def now(self, engine: Engine) -> Readiness:
        """The same steps as the engine holds them now. Computes and opens nothing."""
        return replace(self, steps=tuple(step.now(engine) for step in self.steps))

    def release(self, engine: Engine) -> None:
        """Let go of what is held and kept open for it. Call it once."""
        engine.release(self.answers)
        engine.store.let_go(self.models)


def prepare(session: Session, engine: Engine, fronts: Fronts, ctx: Ctx | None = None, lost: Lost = NONE_LOST) -> Readiness:
    """Compute and hold everything that the steps of a session show, and keep their models open; what fails is said in its place.

    `fronts`, `lost`: see `requests_of`. `ctx` is told what is computed, for which step, and how long the rest will take. Raises
    `Cancelled`, and then holds and keeps nothing.
    """
    ctx = ctx or NullContext()
    needed = list(requests_of(session, engine, fronts, _Listing(ctx), lost, now=False))
    preparation = _Preparation(engine, ctx, needed)
    try:
        return preparation.readiness()
    except BaseException:
        preparation.give_up()
        raise


def readiness_of(session: Session, engine: Engine, fronts: Fronts, ctx: Ctx | None = None, lost: Lost = NONE_LOST) -> Readiness:
    """What of the steps of a session is held already, as it is where its results are stored with it. Opens their models."""
    needed = requests_of(session, engine, fronts, ctx, lost, now=False)
    return Readiness(tuple(_step(one) for one in needed)).now(engine)


def _step(needed: Needed, lacking: Iterable[str] = (), later: Iterable[str] = (), failed: int = 0) -> StepReadiness:
    return StepReadiness(needed.title, needed.requests, 0, (*needed.lacking, *lacking), needed.ready, tuple(later), failed)


class _TimeLeft:
    """Seconds that computing takes, by what the same analyses have taken so far; nothing for an answer that is there."""

    def __init__(self, engine: Engine, requests: list[Request]) -> None:
        self._taken: defaultdict[str, list[float]] = defaultdict(list)
        self._names: list[str] = []  # of the analyses to be run, "" for an answer that is there
        for request in requests:
            answer = engine.cached(request)
            self._names.append(request.analysis.name if answer is None else "")
            if answer is not None:
                self.took(answer)

    def took(self, answer: Answer) -> None:
        self._taken[answer.request.analysis.name].append(answer.provenance.seconds)

    def left(self, at: int, done: float) -> float | None:
        """From the request `at` on, of which a part is `done`; None before anything is known."""
        known = {name: sum(each) / len(each) for name, each in self._taken.items()}
        if not known:
            return None
        usual = sum(known.values()) / len(known)
        each = [known.get(name, usual) if name else 0.0 for name in self._names[at:]]
        return sum(each) - done * each[0] if each else 0.0


def time_words(seconds: float) -> str:
    """A time that is left: "12 s left", "3 min left"."""
    return f"{max(1, round(seconds))} s left" if seconds < 90 else f"{round(seconds / 60)} min left"


class _Preparation:
    def __init__(self, engine: Engine, ctx: Ctx, needed: list[Needed]) -> None:
        self.engine, self.ctx, self.needed = engine, ctx, needed
        self._at = 0  # how many requests have been looked at
        self._total = len(dict.fromkeys(request for one in needed for request in one.requests))
        self._answers: list[Answer] = []
        self._size = 0  # bytes of these
        self._failed: dict[Request | ModelRef, str] = {}  # why what cannot be computed or opened cannot
        self._no_room: dict[Request | ModelRef, str] = {}  # why what can is not held or kept open
        self._kept: dict[ModelRef, int] = {}  # bytes of each
        self._times = _TimeLeft(engine, list(dict.fromkeys(request for one in needed for request in one.requests)))

    def readiness(self) -> Readiness:
        """Compute what the steps need, one after another, then hold all of it at once."""
        steps: list[StepReadiness] = []
        looked_at = set[Request]()
        for number, one in enumerate(self.needed, start=1):
            for request in (request for request in one.requests if request not in looked_at):
                self._prepare(request, f"{request.analysis.name.replace('_', ' ')} of step {number}")
                self._keep(request.subject.model)
                self._at += 1
            looked_at.update(one.requests)
            for ref in one.models:
                self._keep(ref)
            asked = (*one.requests, *one.models)
            lacking, later = (dict.fromkeys(why[it] for it in asked if it in why) for why in (self._failed, self._no_room))
            steps.append(_step(one, lacking, later, sum(request in self._failed for request in one.requests)))
        self.engine.hold(self._answers)
        return Readiness(tuple(steps), tuple(self._answers), tuple(self._kept)).now(self.engine)

    def give_up(self) -> None:
        """Let go of the models; nothing is held yet."""
        self.engine.store.let_go(self._kept)

    def _prepare(self, request: Request, words: str) -> None:
        ctx = _Part(self, words)
        ctx.tick(0, 1)
        name = request.analysis.name.replace("_", " ")
        try:
            with part():
                self._hold(request, ctx, name)
        except Cancelled:
            raise
        except CircuitLabError as error:
            self._failed[request] = f"{name}: {reason(error)}"

    def _hold(self, request: Request, ctx: _Part, name: str) -> None:
        if (held := self.engine.held(request)) is not None and held.provenance.stored:
            return
        answer = self.engine.answer(request, ctx)
        self._times.took(answer)
        if (size := answer.result.nbytes) + self._size > self.engine.memory:
            self._no_room[request] = f"{name}: {memory_words(size)} are more than what is left of the memory budget"
            return
        self.engine.store.sha256(request.subject.model, ctx.stopped)  # without it, nothing held is given to anybody
        self._answers.append(self.engine.identified(answer))
        self._size += size

    def tick(self, part: float, words: str) -> None:
        """Report what is computed; `part` of it is done. Raises `Cancelled`."""
        left = self._times.left(self._at, part)
        self.ctx.tick(self._at, self._total, words if left is None else f"{words}, {time_words(left)}")

    def _keep(self, ref: ModelRef) -> None:
        """Keep a model open: as many as the store would, and more where all of them fit in the memory budget."""
        if ref in self._kept or ref in self._failed or ref in self._no_room:
            return
        store = self.engine.store
        try:
            with part():
                model = store.open(ref)
        except CircuitLabError as error:
            self._failed[ref] = f"{ref.name}: {reason(error)}"
            return
        if model.absent:
            return
        if len(self._kept) >= store.most and sum(self._kept.values()) + model.nbytes > self.engine.memory:
            self._no_room[ref] = (
                f"{model.name} has to be opened first: {memory_words(model.nbytes)} more are over the memory budget"
            )
            return
        self._kept[ref] = model.nbytes
        store.keep((ref,))


class _Part(NullContext):
    """The `Ctx` of one answer of several."""

    def __init__(self, whole: _Preparation, words: str) -> None:
        self._whole, self._words = whole, words

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Report the progress of all of them. Raises `Cancelled`."""
        self._whole.tick(done / total if total else 0.0, self._words)

    def stopped(self) -> bool:
        """For reading weights, which goes on. Raises `Cancelled`."""
        self._whole.tick(1.0, self._words)
        return False


class _Listing(NullContext):
    """The `Ctx` while it is found out what is needed."""

    def __init__(self, ctx: Ctx) -> None:
        self._ctx = ctx

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Report that. Raises `Cancelled`."""
        self._ctx.tick(0, 0, "looking up what the steps show")
