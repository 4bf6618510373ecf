"""The exchange of a panel with the engine: the requests of a State, and the answers to them that have come."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.engine.request import Answer, Request
from circuitlab.errors import Cancelled, CircuitLabError, reason
from circuitlab.figures.contracts.panel import Panel, Requests
from circuitlab.figures.contracts.questions import Question, Questions
from circuitlab.figures.contracts.vocabulary import pinned
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.work_slot import WorkSlot, WorkSlots
from circuitlab.state.state import State

REMEMBERED_REQUESTS = 64  # how many requests are remembered with the State they came from
Drawable = tuple[Questions, dict[str, Answer], dict[str, Answer]]  # of a State, its answers by role, those of its reference


class Stopped(CircuitLabError):
    """Work of a panel that was cancelled or interrupted from outside: asked again, it may well come to its end."""

    def __init__(self, what: str) -> None:
        super().__init__(what, remedy="To retry, choose Compute again in this panel’s menu (⋯).")


class Exchange(QObject):
    """`requests` and `answers` by side ("now", "ref") and role, `failures` by both: those requests get no answer.

    A State is asked about once, as it is sent; its questions then go with its answers. `changed()`: a present request has been
    answered, perhaps in part, or has failed. `in_sight()`: whether the figure can be seen.
    """

    changed = Signal()

    def __init__(self, panel: Panel, context: AppContext, in_sight: Callable[[], bool], parent: QObject) -> None:
        super().__init__(parent)
        self.panel, self.context = panel, context
        self.answers: dict[str, dict[str, Answer]] = {"now": {}, "ref": {}}
        self.requests: dict[str, dict[str, Request]] = {"now": {}, "ref": {}}
        self.failures: dict[tuple[str, str], CircuitLabError] = {}
        self.asked: Questions | None = None  # those of the State that was sent last
        self._asked_with: OrderedDict[Request, Questions] = OrderedDict()  # of the State that each recent request came from
        self._slots = WorkSlots(  # by side and role
            self, context.runner.is_busy, in_sight=in_sight, answered=self._answered, failed=self._failed
        )

    @property
    def state(self) -> State | None:
        """The State that was sent last; the document may have moved on since."""
        return None if self.asked is None else self.asked.now.state

    # -- requests -----------------------------------------------------------------------------------------------------

    def send(self, state: State) -> None:
        """Send the requests of a State and of its reference that are new."""
        asked = self.asked = Questions(self._ask(state))
        self._send_side("now", asked.now)
        asked = self.asked = self._with_reference(asked)
        self._remember(asked)
        if isinstance(asked.ref, Question):  # even while only now is shown, so that both sides share one scale
            self._send_side("ref", asked.ref)
        else:
            self.requests["ref"], self.answers["ref"] = {}, {}
        self.failures = {(side, role): e for (side, role), e in self.failures.items() if role in self.requests[side]}
        self._delete_unused_slots()

    def forget_requests(self) -> None:
        """Forget requests and failures, so that `send` sends every request once more."""
        self.requests, self.failures = {"now": {}, "ref": {}}, {}

    def forget(self) -> None:
        """Forget answers too: they may be of weights that have been read again since."""
        self.forget_requests()
        self.answers = {"now": {}, "ref": {}}
        self._asked_with.clear()

    def slot(self, side: str, role: str) -> WorkSlot:
        """The slot in which the runner answers one role of one side."""
        return self._slots[side, role]

    def _send_side(self, side: str, question: Question) -> None:
        """Send the requests that are new on one side. A failure stays until its role gets another request."""
        requests, before = dict(question.by_role), self.requests[side]
        self.requests[side] = requests
        self.answers[side] = {r: a for r, a in self.answers[side].items() if r in requests}
        new = {role: request for role, request in requests.items() if before.get(role) != request}
        for role, request in new.items():
            self.failures.pop((side, role), None)
            answer = self.context.runner.ask(self.slot(side, role), request)
            if answer is not None:
                self.answers[side][role] = answer

    def _ask(self, state: State) -> Question:
        return self.panel.ask(state, self.context.facts(state.model))

    def _with_reference(self, asked: Questions) -> Questions:
        """With the question of the reference, or why it has no counterpart to compare."""
        now = asked.now
        before = None if now.state.reference is None else pinned(now.state, now.facts)
        return replace(asked, ref=self._ask(before) if isinstance(before, State) else before)

    def _remember(self, asked: Questions) -> None:
        for request in self.requests["now"].values():
            self._asked_with[request.asked] = asked
            self._asked_with.move_to_end(request.asked)
        while len(self._asked_with) > REMEMBERED_REQUESTS:
            self._asked_with.popitem(last=False)

    def _delete_unused_slots(self) -> None:
        """Delete the slots of roles that are no longer requested, once nothing runs for them."""
        self._slots.keep_only([(side, role) for side, roles in self.requests.items() for role in roles])

    # -- answers ------------------------------------------------------------------------------------------------------

    @Slot(object, object)
    def _answered(self, answer: Answer, place: tuple[str, str]) -> None:
        side, role = place
        request = self.requests.get(side, {}).get(role)
        if request is None:  # this role is no longer requested
            return self._delete_unused_slots()
        if not self.context.is_current(answer):
            return None  # computed before the model was read again: it is asked for anew
        present = self.answers[side].get(role)
        if request.asked != answer.request.asked and present is not None and present.request.asked == request.asked:
            return  # a late answer never replaces the present one
        self.answers[side][role] = answer
        if request.asked == answer.request.asked:
            self.failures.pop((side, role), None)
        self.changed.emit()

    @Slot(object, object)
    def _failed(self, error: BaseException, place: tuple[str, str]) -> None:
        side, role = place
        if role not in self.requests.get(side, {}):
            return self._delete_unused_slots()  # this role is no longer requested
        if isinstance(error, Cancelled):
            error = Stopped("Cancelled.")
        self.failures[side, role] = error if isinstance(error, CircuitLabError) else _panel_error(error)
        if isinstance(error, Exception) and not isinstance(error, CircuitLabError):
            self.context.failed.emit(error)
        self.changed.emit()

    @property
    def failure(self) -> CircuitLabError | None:
        """The error that leaves nothing to draw; None where the other answers can be drawn without the failed ones."""
        compared = self.asked is not None and self.asked.now.state.compare != "now"
        for side in ("now", "ref") if compared else ("now",):
            roles = self.requests[side]
            errors = {role: error for (failed_side, role), error in self.failures.items() if failed_side == side}
            if errors and not self.panel.draws_with(roles, roles.keys() - errors.keys()):
                required = (e for role, e in errors.items() if not self.panel.draws_with(roles, roles.keys() - {role}))
                return next(required, next(iter(errors.values())))
        return None

    @property
    def waiting(self) -> bool:
        """Whether an answer to a present request is still outstanding."""
        return any(not self._settled(side) for side in ("now", "ref"))

    def _settled(self, side: str) -> bool:
        answers = self.answers[side]
        complete = lambda role, request: (
            role in answers and answers[role].request.asked == request.asked and answers[role].complete
        )
        return all((side, role) in self.failures or complete(role, request) for role, request in self.requests[side].items())

    # -- what is drawn ------------------------------------------------------------------------------------------------

    def drawable(self) -> Drawable:
        """What the figure shows: the newest State with all its answers, else the present one with those it has."""
        if (newest := self.newest_complete()) is not None:
            return newest
        asked = self.asked or self._with_reference(Questions(self._ask(self.context.document.state)))
        return asked, *self._answers_to(asked)

    def newest_complete(self) -> Drawable | None:
        """The newest State whose live requests are all answered, its questions with the answers; None if there is none.

        That is the present State, or the one of the newest answer: during a drag each answer is outdated by a newer
        request, and is drawn all the same, for the State it answers.
        """
        age = {request: i for i, request in enumerate(self._asked_with)}
        newest = max(self.answers["now"].values(), key=lambda a: age.get(a.request.asked, -1), default=None)
        older = None if newest is None else self._asked_with.get(newest.request.asked)
        for asked in (self.asked, older):
            if asked is None or self.asked is None or asked.now.state.model != self.asked.now.state.model:
                continue
            answers = self._answers_to(asked)
            if all(role in side for side, roles in zip(answers, self._live_roles(asked), strict=True) for role in roles):
                return asked, *answers
        return None

    def _answers_to(self, asked: Questions) -> tuple[dict[str, Answer], dict[str, Answer]]:
        """The answers (now, reference) to the requests of a State, in the order of the requests."""
        now, ref = _requests_by_side(asked)
        return _matching(self.answers["now"], now), _matching(self.answers["ref"], ref)

    def _live_roles(self, asked: Questions) -> list[list[str]]:
        """The roles (now, reference) that a figure waits for: those answered on the live lane; the reference's while compared."""
        now, ref = _requests_by_side(asked)
        sides = now, ref if asked.now.state.compare != "now" else {}
        return [
            [role for role, r in requests.items() if r.analysis.lane == "live" and (side, role) not in self.failures]
            for side, requests in zip(("now", "ref"), sides, strict=True)
        ]


def _requests_by_side(asked: Questions) -> tuple[Requests, Requests]:
    """The requests of a State (now, reference), by role."""
    return asked.now.by_role, asked.ref.by_role if isinstance(asked.ref, Question) else {}


def _matching(answers: Mapping[str, Answer], requests: Mapping[str, Request]) -> dict[str, Answer]:
    """Those of the answers that answer the present request of their role."""
    pairs = ((role, answers[role], request) for role, request in requests.items() if role in answers)
    return {role: answer for role, answer, request in pairs if answer.request.asked == request.asked}


def _panel_error(error: BaseException) -> CircuitLabError:
    """What a panel shows of an unexpected error: a bug of the program, or an interruption from outside."""
    what = f"{reason(error).rstrip('.')}."
    return CircuitLabError(what, remedy="The Log has the details.") if isinstance(error, Exception) else Stopped(what)
