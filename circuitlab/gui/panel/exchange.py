"""The exchange of a panel with the engine: the requests of a State, and the answers to them that have come."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.engine.request import Answer, Request
from circuitlab.errors import Cancelled, CircuitLabError, reason
from circuitlab.figures.contracts.panel import Panel, Why
from circuitlab.figures.contracts.vocabulary import pinned
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.work_slot import WorkSlot, WorkSlots
from circuitlab.state.state import State

RETRY = "To retry, choose Compute again in this panel’s menu (⋯)."
REMEMBERED_REQUESTS = 64  # how many requests are remembered with the State they came from
Drawable = tuple[State, dict[str, Answer], dict[str, Answer]]  # a State, its answers by role, those of its reference


class Exchange(QObject):
    """`requests` and `answers` by side ("now", "ref") and role, `failures` by both: those requests get no answer.

    `changed()`: a present request has been answered, perhaps in part, or has failed.
    """

    changed = Signal()

    def __init__(self, panel: Panel, context: AppContext, parent: QObject) -> None:
        super().__init__(parent)
        self.panel, self.context = panel, context
        self.answers: dict[str, dict[str, Answer]] = {"now": {}, "ref": {}}
        self.requests: dict[str, dict[str, Request]] = {"now": {}, "ref": {}}
        self.failures: dict[tuple[str, str], CircuitLabError] = {}
        self._models: dict[str, Hashable] = {}  # by side, what the model was read from when the requests were sent
        self.state: State | None = None  # the State that `requests` come from; the document may have moved on since
        self._state_of_request: OrderedDict[Request, State] = OrderedDict()  # the State that each recent request came from
        self._slots = WorkSlots(self, context.runner.is_busy, answered=self._answered, failed=self._failed)  # by side and role

    # -- requests -----------------------------------------------------------------------------------------------------

    def send(self, state: State) -> None:
        """Send the requests of a State and of its reference that are new."""
        self.state = state
        self._send_side("now", state)
        self._remember(state)
        if (before := self._pinned(state)) is not None:  # even while only now is shown, so that both sides share one scale
            self._send_side("ref", before)
        else:
            self.requests["ref"], self.answers["ref"] = {}, {}
        self.failures = {(side, role): e for (side, role), e in self.failures.items() if role in self.requests[side]}
        self._delete_unused_slots()

    def forget_requests(self) -> None:
        """Forget requests and failures, so that `send` sends every request once more."""
        self.requests, self.failures = {"now": {}, "ref": {}}, {}

    def slot(self, side: str, role: str) -> WorkSlot:
        """The slot in which the runner answers one role of one side."""
        return self._slots[side, role]

    def _send_side(self, side: str, state: State) -> None:
        """Send the requests that are new on one side, all of a model whose files have been read again since.

        A failure stays until its role gets another request.
        """
        model = self.context.engine.store.peek(state.model)
        read, self._models[side] = self._models.get(side), None if model is None else (state.model, model.key)
        if read is not None and read != self._models[side]:
            self.requests[side], self.answers[side] = {}, {}
        requests, before = self._requests_of(state), self.requests[side]
        self.requests[side] = requests
        self.answers[side] = {r: a for r, a in self.answers[side].items() if r in requests}
        new = {role: request for role, request in requests.items() if before.get(role) != request}
        for role, request in new.items():
            self.failures.pop((side, role), None)
            answer = self.context.runner.ask(self.slot(side, role), request)
            if answer is not None:
                self.answers[side][role] = answer

    def _requests_of(self, state: State) -> dict[str, Request]:
        requests = self.panel.requests(state, self.context.facts(state.model))
        return {} if isinstance(requests, Why) else dict(requests)

    def _pinned(self, state: State) -> State | None:
        """The State of the reference; None without a reference, and where the reference has no counterpart to compare."""
        reference = "" if state.reference is None else pinned(state, self.context.facts(state.model))
        return None if isinstance(reference, str) else reference

    def _remember(self, state: State) -> None:
        for request in self.requests["now"].values():
            self._state_of_request[request.asked] = state
            self._state_of_request.move_to_end(request.asked)
        while len(self._state_of_request) > REMEMBERED_REQUESTS:
            self._state_of_request.popitem(last=False)

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
            error = CircuitLabError("Cancelled.", remedy=RETRY)
        self.failures[side, role] = error if isinstance(error, CircuitLabError) else _panel_error(error)
        if isinstance(error, Exception) and not isinstance(error, CircuitLabError):
            self.context.failed.emit(error)
        self.changed.emit()

    @property
    def failure(self) -> CircuitLabError | None:
        """The error that leaves nothing to draw; None where the other answers can be drawn without the failed ones."""
        compared = self.state is not None and self.state.compare != "now"
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
        state = self.state or self.context.document.state
        return self.newest_complete() or (state, *self._answers_to(state))

    def newest_complete(self) -> Drawable | None:
        """The newest State whose live requests are all answered, with its answers; None if there is none.

        That is the present State, or the one of the newest answer: during a drag each answer is outdated by a newer
        request, and is drawn all the same, for the State it answers.
        """
        age = {request: i for i, request in enumerate(self._state_of_request)}
        newest = max(self.answers["now"].values(), key=lambda a: age.get(a.request.asked, -1), default=None)
        older = None if newest is None else self._state_of_request.get(newest.request.asked)
        for state in (self.state, older):
            if state is None or self.state is None or state.model != self.state.model:
                continue
            answers = self._answers_to(state)
            if all(role in side for side, roles in zip(answers, self._live_roles(state), strict=True) for role in roles):
                return state, *answers
        return None

    def _answers_to(self, state: State) -> tuple[dict[str, Answer], dict[str, Answer]]:
        """The answers (now, reference) to the requests of a State, in the order of the requests."""
        now, ref = self._requests_by_side(state)
        return _matching(self.answers["now"], now), _matching(self.answers["ref"], ref)

    def _requests_by_side(self, state: State) -> tuple[dict[str, Request], dict[str, Request]]:
        """The requests of a State (now, reference), by role."""
        if state is self.state:
            return self.requests["now"], self.requests["ref"]
        before = self._pinned(state)
        return self._requests_of(state), {} if before is None else self._requests_of(before)

    def _live_roles(self, state: State) -> list[list[str]]:
        """The roles (now, reference) that a figure waits for: those answered on the live lane; the reference's while compared."""
        sides = self._requests_by_side(state) if state.compare != "now" else (self._requests_by_side(state)[0], {})
        return [
            [role for role, r in requests.items() if r.analysis.lane == "live" and (side, role) not in self.failures]
            for side, requests in zip(("now", "ref"), sides, strict=True)
        ]


def _matching(answers: Mapping[str, Answer], requests: Mapping[str, Request]) -> dict[str, Answer]:
    """Those of the answers that answer the present request of their role."""
    pairs = ((role, answers[role], request) for role, request in requests.items() if role in answers)
    return {role: answer for role, answer, request in pairs if answer.request.asked == request.asked}


def _panel_error(error: BaseException) -> CircuitLabError:
    """What a panel shows of an unexpected error: a bug of the program, or an interruption from outside."""
    remedy = "The Log has the details." if isinstance(error, Exception) else RETRY
    return CircuitLabError(f"{reason(error).rstrip('.')}.", remedy=remedy)
